"""CUDA MPS: which commands run, what is refused, and what the daemon must answer. Answers: driver 535.261.03."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.driver import Driver
from rackready.ondevice.mps import UNIT, UNIT_FILE, Mps, MpsWish

FILES = {UNIT_FILE: "[Service]\n", "/etc/tmpfiles.d/rackready-mps.conf": "x /tmp/nvidia-mps\n"}
WISH = MpsWish(FILES, 50.0, "10G")
DISABLE, RELOAD = f"systemctl disable --now {UNIT}", "systemctl daemon-reload"
START = [RELOAD, f"systemctl enable {UNIT}", f"systemctl restart {UNIT}"]


class Node:
    """The GPUs of a node and its daemon. ``gives``: what the daemon takes of a wish at its start."""

    def __init__(self) -> None:
        self.modes, self.mig = ["Default", "Default"], ["Disabled", "Disabled"]
        self.enabled = self.active = False
        self.gives = {"get_default_active_thread_percentage": "50.0", "get_default_device_pinned_mem_limit": "10G"}
        self.users, self.clients, self.server = "", "", ""
        self.silent = ""
        self.frees = True
        self.fails: dict[str, str] = {}
        self.ran: list[str] = []

    def __call__(self, argv: Sequence[str]) -> Done:
        line = " ".join(argv)
        if argv[0] == "sh":
            return self._daemon(line)
        if "--query-gpu" in line:
            rows = enumerate(zip(self.modes, self.mig, strict=True))
            return Done(0, "".join(f"{gpu}, {mode}, {mig}\n" for gpu, (mode, mig) in rows))
        if "--query-compute-apps" in line:
            return Done(9, self.silent) if self.silent else Done(0, self.users)
        if "is-active" in line or "is-enabled" in line:
            return Done(0 if (self.active if "is-active" in line else self.enabled) else 3, "")
        if " show " in line:
            return Done(0, "CUDA_MPS_PIPE_DIRECTORY=/run/pipes CUDA_MPS_LOG_DIRECTORY=/var/log/nvidia-mps\n")
        self.ran.append(line)
        return Done(1, self.fails[line]) if line in self.fails else self._act(line)

    def _daemon(self, line: str) -> Done:
        if not self.active:
            return Done(1, "Cannot find MPS control daemon process\n")
        query = line.partition("echo '")[2].partition("'")[0].split()[0]
        answer = {"get_server_list": self.server, "get_client_list": self.clients}.get(query, self.gives.get(query, ""))
        return Done(0, f"{answer}\n" if answer else "")

    def _act(self, line: str) -> Done:
        if " restart " in line:
            self.active, self.modes = True, ["Exclusive_Process"] * 2
        self.enabled |= " enable " in line
        if line == DISABLE:
            self.active = self.enabled = False
        if "-c DEFAULT" in line and self.frees:
            self.modes[int(line.split()[2])] = "Default"
        return Done(0, "")


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def mps(node: Node, tmp_path: Path) -> Mps:
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/nvidia-cuda-mps-control").touch()
    return Mps(run=node, root=tmp_path, folder=tmp_path / "rackready", lock_wait_s=0.2)


def told(problem: pytest.ExceptionInfo[NodeProblem]) -> str:
    return str(problem.value)


def test_the_unit_is_written_enabled_and_started_and_a_second_run_runs_nothing(mps: Mps, node: Node) -> None:
    found = mps.ensure(WISH, 1, "a")
    assert [str(item) for item in found if item.kind != "file"] == [
        f"{UNIT} disabled, inactive, wanted enabled, active",
        "GPU 0 compute mode Default, wanted Exclusive_Process",
        "GPU 1 compute mode Default, wanted Exclusive_Process",
    ]
    assert [item.name for item in found if item.kind == "file"] == list(FILES)
    assert node.ran == START
    assert (mps.root / UNIT_FILE.lstrip("/")).read_text(encoding="utf-8") == "[Service]\n"
    node.ran.clear()
    assert mps.ensure(WISH, 2, "a") == []
    assert node.ran == []


def test_a_dry_run_reports_and_does_nothing(mps: Mps, node: Node) -> None:
    assert len(mps.ensure(WISH, 1, "a", check=True)) == 5
    assert node.ran == []
    assert not (mps.root / "etc").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("modes", "GPU 1 compute mode Default, wanted Exclusive_Process"),
        ("percent", "MPS active thread percentage 100.0, wanted 50.0"),
        ("memory", "GPU 0 MPS memory limit none, wanted 10G; GPU 1 MPS memory limit none, wanted 10G"),
        ("stopped", f"{UNIT} enabled, inactive, wanted enabled, active"),
    ],
)
def test_a_changed_state_is_seen(mps: Mps, node: Node, change: str, said: str) -> None:
    mps.ensure(WISH, 1, "a")
    if change == "modes":
        node.modes[1] = "Default"
    elif change == "stopped":
        node.active = False
    else:
        key, value = {"percent": ("active_thread_percentage", "100.0"), "memory": ("device_pinned_mem_limit", "")}[
            change
        ]
        node.gives[f"get_default_{key}"] = value
    assert "; ".join(map(str, mps.ensure(WISH, 1, "a", check=True))) == said


def test_an_absent_program_is_refused(mps: Mps, node: Node) -> None:
    (mps.root / "usr/bin/nvidia-cuda-mps-control").unlink()
    with pytest.raises(NodeProblem) as problem:
        mps.ensure(WISH, 1, "a")
    assert told(problem) == (
        "Expected: /usr/bin/nvidia-cuda-mps-control of the driver Actual: absent. Run `rackready install`. If it is "
        "still absent, install the driver's package that has it."
    )
    assert node.ran == []


def test_mig_is_refused(mps: Mps, node: Node) -> None:
    node.mig[1] = "Enabled"
    with pytest.raises(NodeProblem) as problem:
        mps.ensure(WISH, 1, "a")
    assert told(problem) == (
        "Expected: GPUs without MIG, for MPS Actual: MIG on GPU 1. Turn MIG off on this node, or leave mps_enabled "
        "out. Nothing was changed."
    )
    assert node.ran == []


def test_gpus_in_use_are_refused(mps: Mps, node: Node) -> None:
    node.users = "77, /usr/bin/python3\n78, nvidia-cuda-mps-server\n"
    with pytest.raises(NodeProblem) as problem:
        mps.ensure(WISH, 1, "a")
    assert told(problem) == (
        "Expected: GPUs that nothing uses, for a change of MPS Actual: used by 77 /usr/bin/python3. Drain the node "
        "and end what uses its GPUs; then run again. Nothing was changed."
    )
    assert node.ran == []


def test_users_that_nvidia_smi_does_not_list_are_no_idle_gpus(mps: Mps, node: Node) -> None:
    node.silent = "Unable to determine the device handle for GPU0000:1B:00.0: Unknown Error\n"
    with pytest.raises(NodeProblem) as problem:
        mps.ensure(WISH, 1, "a")
    assert told(problem) == (
        "Expected: nvidia-smi lists what uses the GPUs Actual: exit 9: Unable to determine the device handle for "
        "GPU0000:1B:00.0: Unknown Error. Run `nvidia-smi` on the node and correct what it reports; then run again. "
        "Nothing was changed."
    )
    assert node.ran == []


def test_clients_of_a_server_are_refused_when_mps_goes(mps: Mps, node: Node) -> None:
    mps.ensure(WISH, 1, "a")
    node.server, node.clients, node.users = "78", "90", "78, nvidia-cuda-mps-server\n"
    node.ran.clear()
    with pytest.raises(NodeProblem, match="used by MPS client 90"):
        mps.remove(list(FILES), 1, "a")
    assert node.ran == []


def test_limits_that_the_daemon_does_not_take_are_refused(mps: Mps, node: Node) -> None:
    node.gives["get_default_active_thread_percentage"] = "100.0"
    with pytest.raises(NodeProblem) as problem:
        mps.ensure(WISH, 1, "a")
    assert told(problem) == (
        "Expected: MPS active thread percentage 50.0 Actual: MPS active thread percentage 100.0. Check `journalctl -u "
        "rackready-mps.service` on the node."
    )


def test_a_unit_that_does_not_start_is_refused(mps: Mps, node: Node) -> None:
    node.fails[START[-1]] = f"Job for {UNIT} failed.\n"
    with pytest.raises(NodeProblem) as problem:
        mps.ensure(WISH, 1, "a")
    assert told(problem) == (
        f"Expected: `{START[-1]}` succeeds Actual: Job for {UNIT} failed. Check `journalctl -u {UNIT}` and `dmesg` on "
        "the node, then run again."
    )


def test_without_mps_the_unit_goes_and_the_compute_mode_is_restored(mps: Mps, node: Node) -> None:
    mps.ensure(WISH, 1, "a")
    node.ran.clear()
    found = mps.remove(list(FILES), 1, "a", check=True)
    assert (node.ran, [item.name for item in found]) == ([], [*FILES, UNIT])
    mps.remove(list(FILES), 1, "a")
    assert node.ran == [DISABLE, "nvidia-smi -i 0 -c DEFAULT", "nvidia-smi -i 1 -c DEFAULT", RELOAD]
    assert (node.modes, list((mps.root / "etc").rglob("*.*"))) == (
        ["Default", "Default"],
        [mps.root / "etc/tmpfiles.d"],
    )
    assert mps.remove(list(FILES), 1, "a") == []


def test_a_compute_mode_that_stays_is_refused_and_the_next_run_goes_on(mps: Mps, node: Node) -> None:
    mps.ensure(WISH, 1, "a")
    node.frees = False
    with pytest.raises(NodeProblem) as problem:
        mps.remove(list(FILES), 1, "a")
    assert told(problem) == (
        "Expected: compute mode Default Actual: GPU 0 Exclusive_Process, GPU 1 Exclusive_Process. Run `nvidia-smi -c "
        "DEFAULT` on the node."
    )
    node.frees = True
    assert mps.remove(list(FILES), 1, "a")
    assert node.modes == ["Default", "Default"]


def test_a_compute_mode_of_another_hand_is_left_alone(mps: Mps, node: Node) -> None:
    node.modes = ["Exclusive_Process", "Default"]
    assert mps.remove(list(FILES), 1, "a") == []
    assert node.ran == []


def test_an_idle_server_does_not_hinder_a_change_of_the_driver(mps: Mps, node: Node) -> None:
    node.active, node.users, node.server = True, "78, nvidia-cuda-mps-server\n", "78"
    driver = Driver(run=node, root=mps.root)
    assert driver.users() == []
    node.clients = "90"
    assert driver.users() == ["78 nvidia-cuda-mps-server"]
