"""MIG layouts in mig-parted's format: which commands run, what is refused, and the real table of an H200."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.mig import CDI, GpuMig, Mig
from tests.gates.support import text

LGIP = (Path(__file__).parents[2] / "fixtures/captured/h200_vm/mig_lgip.txt").read_text(encoding="utf-8")
LAYOUTS: dict[str, Any] = {
    "all-disabled": [{"devices": "all", "mig-enabled": False}],
    "all-1g.18gb": [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.18gb": 7}}],
    "mixed": [
        {"devices": [0], "mig-enabled": True, "mig-devices": {"1g.18gb": 2, "3g.71gb": 1, "2g.35gb": 1}},
        {"devices": [1], "mig-enabled": False},
    ],
    "empty": [{"devices": [0], "mig-enabled": True, "mig-devices": {}}],
}


class Node:
    """The GPUs of a node: mode and instances.

    ``pending``: GPUs whose mode only changes after a reset; ``bare``: those whose instances have no compute instance.
    """

    def __init__(self, gpus: int = 2) -> None:
        self.mode = dict.fromkeys(range(gpus), "Disabled")
        self.instances: dict[int, list[str]] = {gpu: [] for gpu in range(gpus)}
        self.bare: set[int] = set()
        self.pending: set[int] = set()
        self.users = self.silent = ""
        self.fails: dict[str, str] = {}
        self.parted: dict[str, Any] = {}
        self.ran: list[str] = []

    def __call__(self, argv: Sequence[str]) -> Done:
        line = " ".join(argv)
        answers = {
            "--query-gpu=": "".join(f"{gpu}, 0x233510DE, {mode}\n" for gpu, mode in self.mode.items()),
            "--query-compute-apps": self.users,
            "-lgip": "".join(LGIP.replace("|   0  MIG", f"|   {gpu}  MIG") for gpu in self.mode),
            "is-active": "",
        }
        if self.silent and "--query-compute-apps" in line:
            return Done(9, self.silent)
        answer = next((said for word, said in answers.items() if word in line), None)
        if answer is not None:
            return Done(0, answer)
        if line == "nvidia-smi mig -lgi":
            return self._list()
        if line == "nvidia-smi mig -lci":
            return self._list_compute()
        self.ran.append(line)
        for start, said in self.fails.items():
            if line.startswith(start):
                return Done(6, said)
        return self._act(list(argv))

    def _list(self) -> Done:
        if "Enabled" not in self.mode.values():
            return Done(0, text("h100_vm/mig_lgi_none.txt"))
        if not any(self.instances.values()):
            return Done(6, "No GPU instances found: Not Found\n")
        rows = [
            f"|   {gpu}  MIG {name:<15} 19        {9 + place}          {place}:1     |\n"
            for gpu, names in self.instances.items()
            for place, name in enumerate(names)
        ]
        return Done(
            0, "| GPU instances: |\n| GPU   Name             Profile  Instance   Placement  |\n" + "".join(rows)
        )

    def _list_compute(self) -> Done:
        if "Enabled" not in self.mode.values():
            return Done(0, text("h100_vm/mig_lgi_none.txt"))
        rows = [
            f"|   {gpu}     {9 + place:>2}       MIG {name:<15} 0         0          0:1     |\n"
            for gpu, names in self.instances.items()
            for place, name in enumerate(names)
            if gpu not in self.bare
        ]
        return Done(0, "".join(rows)) if rows else Done(6, "No compute instances found: Not Found\n")

    def _act(self, argv: list[str]) -> Done:
        if argv[0] == "nvidia-mig-parted":
            document = json.loads(Path(argv[3]).read_text(encoding="utf-8"))
            assert document["version"] == "v1"
            for entry in document["mig-configs"][argv[5]]:
                for gpu in self.mode if entry["devices"] == "all" else entry["devices"]:
                    self.mode[gpu] = "Enabled" if entry["mig-enabled"] else "Disabled"
                    devices = entry.get("mig-devices", {})
                    self.instances[gpu] = [name for name, count in devices.items() for _ in range(count)]
        elif argv[:2] == ["nvidia-smi", "-i"] and int(argv[2]) not in self.pending:
            self.mode[int(argv[2])] = "Enabled" if argv[4] == "1" else "Disabled"
        elif "-dci" in argv:
            if int(argv[3]) in self.bare:
                return Done(6, "No compute instances found: Not Found\n")
            self.bare.add(int(argv[3]))
        elif "-dgi" in argv:
            self.instances[int(argv[3])] = []
            self.bare.discard(int(argv[3]))
        elif "-cgi" in argv:
            self.instances[int(argv[3])] += argv[5].split(",")
        return Done(0, "")


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def mig(node: Node, tmp_path: Path) -> Mig:
    (tmp_path / "usr/bin").mkdir(parents=True)
    return Mig(run=node, root=tmp_path, folder=tmp_path / "rackready", lock_wait_s=0.2)


def test_mode_and_instances_are_made_largest_first_and_a_second_run_runs_nothing(mig: Mig, node: Node) -> None:
    found = mig.ensure(LAYOUTS, "mixed", 1, "a")
    assert {gpu: (str(pair[0]), str(pair[1])) for gpu, pair in found.items()} == {
        0: ("MIG off", "MIG on, 2 x 1g.18gb, 1 x 2g.35gb, 1 x 3g.71gb")
    }
    assert node.ran == [
        "systemctl stop nvidia-dcgm.service",
        "nvidia-smi -i 0 -mig 1",
        "nvidia-smi mig -i 0 -cgi 3g.71gb,2g.35gb,1g.18gb,1g.18gb -C",
        "systemctl start nvidia-dcgm.service",
    ]
    node.ran.clear()
    assert mig.ensure(LAYOUTS, "mixed", 2, "a") == {}
    assert node.ran == []


def test_instances_of_another_layout_are_removed_first(mig: Mig, node: Node) -> None:
    mig.ensure(LAYOUTS, "mixed", 1, "a")
    node.ran.clear()
    mig.ensure(LAYOUTS, "all-disabled", 1, "a")
    assert node.ran[1:-1] == ["nvidia-smi mig -i 0 -dci", "nvidia-smi mig -i 0 -dgi", "nvidia-smi -i 0 -mig 0"]
    assert node.mode == {0: "Disabled", 1: "Disabled"}


def test_instances_without_compute_instances_are_made_again(mig: Mig, node: Node) -> None:
    """A run that was killed after -dci leaves them, and so does -cgi without -C."""
    mig.ensure(LAYOUTS, "mixed", 1, "a")
    node.bare.add(0)
    node.ran.clear()
    found = mig.ensure(LAYOUTS, "mixed", 1, "a")
    assert str(found[0][0]) == (
        "MIG on, 2 x 1g.18gb without a compute instance, 1 x 2g.35gb without a compute instance, "
        "1 x 3g.71gb without a compute instance"
    )
    assert node.ran[1:-1] == [
        "nvidia-smi mig -i 0 -dci",
        "nvidia-smi mig -i 0 -dgi",
        "nvidia-smi mig -i 0 -cgi 3g.71gb,2g.35gb,1g.18gb,1g.18gb -C",
    ]
    assert mig.ensure(LAYOUTS, "mixed", 1, "a") == {}
    node.bare.add(0)
    mig.ensure(LAYOUTS, "all-disabled", 1, "a")
    assert node.mode == {0: "Disabled", 1: "Disabled"}


def test_a_part_of_an_instance_is_not_the_whole(mig: Mig, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    mig.ensure(LAYOUTS, "mixed", 1, "a")
    row = "|   0     12       MIG 1c.3g.71gb       0         0          0:1     |\n"
    monkeypatch.setattr(node, "_list_compute", lambda: Done(0, row))
    assert mig.observe()[0][0].devices == {}


def test_check_mode_reports_and_does_nothing(mig: Mig, node: Node) -> None:
    assert mig.ensure(LAYOUTS, "all-1g.18gb", 1, "a", check=True).keys() == {0, 1}
    assert node.ran == []
    assert not mig.folder.exists()


def test_mig_parted_is_used_where_it_is_installed(mig: Mig, node: Node) -> None:
    (mig.root / "usr/bin/nvidia-mig-parted").touch()
    mig.ensure(LAYOUTS, "all-1g.18gb", 1, "a")
    file = mig.folder / "mig-parted.yaml"
    assert node.ran[1] == f"nvidia-mig-parted apply -f {file} -c all-1g.18gb"
    assert mig.boot(LAYOUTS, "all-1g.18gb") == [f"/usr/bin/nvidia-mig-parted apply -f {file} -c all-1g.18gb"]


def test_the_file_that_the_unit_reads_is_there_though_no_gpu_differs(mig: Mig, node: Node) -> None:
    """Nodes that were adopted have their instances already, and a layout may get another name."""
    mig.ensure(LAYOUTS, "all-1g.18gb", 1, "a")
    node.ran.clear()
    (mig.root / "usr/bin/nvidia-mig-parted").touch()
    file = mig.folder / "mig-parted.yaml"
    renamed = {"sevenths": LAYOUTS["all-1g.18gb"]}
    for configs, layout, before in ((LAYOUTS, "all-1g.18gb", "absent"), (renamed, "sevenths", "sha256 ")):
        (looked,) = mig.bring(configs, layout, 2, "a", check=True)
        assert (looked.kind, looked.name) == ("file", "/rackready/mig-parted.yaml")
        assert looked.actual.startswith(before)
        assert mig.bring(configs, layout, 2, "a") == [looked]
        assert json.loads(file.read_text()) == {"version": "v1", "mig-configs": configs}
        assert mig.bring(configs, layout, 3, "a") == []
    assert node.ran == []


def test_a_layout_that_is_refused_leaves_the_file_as_the_unit_needs_it(mig: Mig, node: Node) -> None:
    (mig.root / "usr/bin/nvidia-mig-parted").touch()
    mig.bring(LAYOUTS, "all-1g.18gb", 1, "a")
    before = (mig.folder / "mig-parted.yaml").read_text()
    node.users = "4711, python3\n"
    with pytest.raises(NodeProblem, match="used by 4711 python3"):
        mig.bring({"off": LAYOUTS["all-disabled"]}, "off", 2, "a")
    assert (mig.folder / "mig-parted.yaml").read_text() == before


def test_without_mig_parted_no_file_is_written(mig: Mig) -> None:
    assert [item.kind for item in mig.bring(LAYOUTS, "all-1g.18gb", 1, "a")] == ["gpu", "gpu"]
    assert not (mig.folder / "mig-parted.yaml").exists()


def with_unit(mig: Mig) -> Path:
    unit = mig.root / "etc/systemd/system/rackready-mig.service"
    unit.parent.mkdir(parents=True)
    unit.touch()
    return unit


def test_without_a_layout_no_boot_makes_instances_and_the_gpus_stay(mig: Mig, node: Node) -> None:
    (mig.root / "usr/bin/nvidia-mig-parted").touch()
    mig.bring(LAYOUTS, "all-1g.18gb", 1, "a")
    unit, instances = with_unit(mig), dict(node.instances)
    node.ran.clear()
    seen = mig.remove(2, "a", check=True)
    assert (unit.exists(), node.ran) == (True, [])
    assert mig.remove(2, "a") == seen
    assert [(item.name, item.expected) for item in seen] == [
        ("/rackready/mig-parted.yaml", "absent"),
        ("/etc/systemd/system/rackready-mig.service", "absent"),
    ]
    assert node.ran == ["systemctl disable --now rackready-mig.service", "systemctl daemon-reload"]
    assert (unit.exists(), (mig.folder / "mig-parted.yaml").exists()) == (False, False)
    assert node.instances == instances
    assert mig.notes == ["the GPUs keep their MIG mode and instances for now; no boot makes them again"]
    assert mig.remove(3, "a") == []


def test_a_unit_that_cannot_be_disabled_stays_for_the_next_run(mig: Mig, node: Node) -> None:
    unit = with_unit(mig)
    node.fails = {"systemctl disable": "Access denied\n"}
    with pytest.raises(NodeProblem) as caught:
        mig.remove(1, "a")
    assert str(caught.value) == (
        "Expected: `systemctl disable --now rackready-mig.service` succeeds Actual: Access denied. "
        "Check `dmesg` on the node, then run again."
    )
    assert unit.exists()


def test_instances_are_described_to_container_engines(mig: Mig, node: Node) -> None:
    (mig.root / "usr/bin/nvidia-ctk").touch()
    mig.ensure(LAYOUTS, "mixed", 1, "a")
    assert node.ran[-1] == f"nvidia-ctk cdi generate --output={CDI}"


def test_boot_makes_what_the_driver_forgets(mig: Mig) -> None:
    assert mig.boot(LAYOUTS, "mixed") == [
        "/usr/bin/nvidia-smi -i 0 -mig 1",
        "/usr/bin/nvidia-smi mig -i 0 -cgi 3g.71gb,2g.35gb,1g.18gb,1g.18gb -C",
    ]


def test_a_device_filter_chooses_gpus_by_their_pci_id(mig: Mig) -> None:
    entry = {"device-filter": "0x233510DE", "devices": "all", "mig-enabled": True, "mig-devices": {"7g.141gb": 1}}
    other = entry | {"device-filter": ["0x233010DE"]}
    ids = {0: "0x233510de", 1: "0x233510de"}
    assert mig.wanted({"x": [entry]}, "x", ids) == dict.fromkeys((0, 1), GpuMig(True, {"7g.141gb": 1}))  # noqa: FBT003
    assert mig.wanted({"x": [other]}, "x", ids) == {}


@pytest.mark.parametrize(
    ("layouts", "layout", "text"),
    [
        (
            LAYOUTS,
            "half",
            (
                "Expected: one of the layouts all-1g.18gb, all-disabled, empty, mixed Actual: layout half. Correct "
                "mig_layout, or add the layout to mig_configs."
            ),
        ),
        (
            {"x": [{"devices": [0, 9], "mig-enabled": True}]},
            "x",
            "Expected: GPUs 9 of layout x Actual: GPUs 0, 1. Correct mig_configs.",
        ),
        (
            {"x": [{"devices": [1], "mig-enabled": True, "mig-devices": {"1g.18gb": 8, "9g.1gb": 1}}]},
            "x",
            (
                "Expected: profiles that GPU 1 offers: 1g.18gb up to 7, 1g.18gb+me up to 1, 1g.35gb up to 4, 2g.35gb "
                "up to 3, 3g.71gb up to 2, 4g.71gb up to 1, 7g.141gb up to 1 Actual: 8 x 1g.18gb, 1 x 9g.1gb. Correct "
                "the layout in mig_configs. Nothing was changed."
            ),
        ),
    ],
)
def test_a_layout_that_the_gpus_cannot_have_is_refused(
    mig: Mig, node: Node, layouts: dict[str, Any], layout: str, text: str
) -> None:
    with pytest.raises(NodeProblem) as caught:
        mig.ensure(layouts, layout, 1, "a")
    assert str(caught.value) == text
    assert node.ran == []


def test_users_that_nvidia_smi_does_not_list_are_no_idle_gpus(mig: Mig, node: Node) -> None:
    node.silent = "Unknown Error\n"
    with pytest.raises(NodeProblem) as caught:
        mig.ensure(LAYOUTS, "all-1g.18gb", 1, "a")
    assert str(caught.value) == (
        "Expected: nvidia-smi lists what uses the GPUs Actual: exit 9: Unknown Error. Run `nvidia-smi` on the node and "
        "correct what it reports; then run again. Nothing was changed."
    )
    assert node.ran == []


def test_gpus_without_mig_are_refused(mig: Mig, node: Node) -> None:
    node.mode = dict.fromkeys((0, 1), "[N/A]")
    with pytest.raises(NodeProblem) as caught:
        mig.ensure(LAYOUTS, "all-1g.18gb", 1, "a")
    assert str(caught.value) == (
        "Expected: GPUs with MIG for layout all-1g.18gb Actual: GPUs without it: 0, 1. Choose another layout for "
        "this node."
    )
    assert mig.ensure(LAYOUTS, "all-disabled", 1, "a") == {}


def test_gpus_in_use_are_refused_and_nothing_is_changed(mig: Mig, node: Node) -> None:
    node.users = "4711, python3\n"
    with pytest.raises(NodeProblem) as caught:
        mig.ensure(LAYOUTS, "mixed", 1, "a")
    assert str(caught.value) == (
        "Expected: GPUs that nothing uses, for another MIG layout Actual: used by 4711 python3. Drain the node and end "
        "what uses its GPUs; then run again. Nothing was changed."
    )
    assert node.ran == []


def test_pods_keep_the_mode_of_gpus_and_not_their_instances(mig: Mig, node: Node) -> None:
    process = mig.root / "proc/4711"
    (process / "fd").mkdir(parents=True)
    (process / "fd/7").symlink_to("/dev/nvidia0")
    (process / "comm").write_text("nvidia-device-p\n")
    (process / "cgroup").write_text("0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-9a.scope\n")
    with pytest.raises(NodeProblem) as caught:
        mig.ensure(LAYOUTS, "mixed", 1, "a")
    assert str(caught.value).startswith(
        "Expected: GPUs that no pod holds open, for another MIG mode Actual: held by 4711 nvidia-device-p. Nothing was "
        "changed. Pods of DaemonSets"
    )
    assert node.ran == []
    node.mode = dict.fromkeys((0, 1), "Enabled")
    assert mig.ensure(LAYOUTS, "all-1g.18gb", 1, "a")


def test_a_mode_that_is_only_pending_is_named_and_services_come_back(mig: Mig, node: Node) -> None:
    node.pending = {0}
    with pytest.raises(NodeProblem) as caught:
        mig.ensure(LAYOUTS, "mixed", 1, "a")
    assert str(caught.value) == (
        "Expected: GPU 0 MIG on, no instance Actual: MIG off, the change is pending. Run `nvidia-smi --gpu-reset -i 0` "
        "on the node, or reboot it; then run again."
    )
    assert node.ran[-1] == "systemctl start nvidia-dcgm.service"


def test_a_command_that_fails_is_named(mig: Mig, node: Node) -> None:
    node.fails = {"nvidia-smi mig -i 0 -cgi": "Failed to create GPU instances: Insufficient Resources\n"}
    with pytest.raises(NodeProblem) as caught:
        mig.ensure(LAYOUTS, "mixed", 1, "a")
    assert str(caught.value) == (
        "Expected: `nvidia-smi mig -i 0 -cgi 3g.71gb,2g.35gb,1g.18gb,1g.18gb -C` succeeds Actual: Failed to create GPU "
        "instances: Insufficient Resources. Check `dmesg` on the node, then run again."
    )


def test_instances_that_are_missing_afterwards_are_seen(mig: Mig, node: Node) -> None:
    node.fails = {}
    real = node._act
    node._act = lambda argv: Done(0, "") if "-cgi" in argv else real(argv)  # type: ignore[method-assign]
    with pytest.raises(NodeProblem, match=r"Expected: GPU 0 MIG on, 2 x 1g.18gb, .* Actual: GPU 0 MIG on, no instance"):
        mig.ensure(LAYOUTS, "mixed", 1, "a")
    assert mig.ensure(LAYOUTS, "empty", 1, "a") == {}
