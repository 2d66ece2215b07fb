"""The kernel module: loaded once, replaced only when nothing holds it, and by one controller's run at a time."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.driver import Driver

WANTED = "580.173.02"


class Kernel:
    """A machine's modules, services and GPU processes."""

    def __init__(self, loaded: str = "", on_disk: str = WANTED) -> None:
        self.loaded, self.on_disk = loaded, on_disk
        self.modules = {"nvidia_uvm": 0, "nvidia": 1} if loaded else {}
        self.processes = ""
        self.silent: Done | None = None
        self.active = {"nvidia-persistenced.service", "nvidia-dcgm.service"} if loaded else set()
        self.stuck = ""
        self.unbuilt: set[str] = set()
        self.refuses = ""
        self.ran: list[str] = []

    def __call__(self, argv: Sequence[str]) -> Done:
        line = " ".join(argv)
        if argv[0] == "lsmod":
            return Done(
                0,
                "Module                  Size  Used by\n"
                + "".join(f"{name} 100 {used}\n" for name, used in self.modules.items()),
            )
        if argv[0] == "nvidia-smi":
            return self._smi(line)
        if argv[0] == "modinfo":
            return Done(0, f"{self.on_disk}\n") if self.on_disk else Done(1, "ERROR")
        if argv[0] == "dmesg":
            return Done(0, "[1.0] NVRM: GPU 0000:1b:00.0: RmInitAdapter failed!\n")
        if line.startswith("systemctl is-active"):
            return Done(0 if argv[-1] in self.active else 3, "")
        self.ran.append(line)
        return self._act(argv)

    def _smi(self, line: str) -> Done:
        if not self.loaded:
            return Done(9, "NVIDIA-SMI has failed because it couldn't communicate")
        if "driver_version" in line:  # stands for the kernel's own word, which these machines have not
            return Done(0, f"{self.loaded}\n")
        return self.silent or Done(0, self.processes)

    def _act(self, argv: Sequence[str]) -> Done:
        if argv[0] == "rmmod":
            if argv[1] == self.stuck:
                return Done(1, f"rmmod: ERROR: Module {argv[1]} is in use\n")
            del self.modules[argv[1]]
            self.loaded = self.loaded if "nvidia" in self.modules else ""
        if argv[0] == "modprobe":
            if self.refuses:
                return Done(1, self.refuses)
            if argv[1] in self.unbuilt:
                return Done(1, f"modprobe: FATAL: Module {argv[1]} not found in directory /lib/modules/6.8.0\n")
            self.modules[argv[1]] = 0
            self.loaded = self.loaded or self.on_disk
        return Done(0, "")


def driver(kernel: Kernel, tmp_path: Path) -> Driver:
    return Driver(run=kernel, root=tmp_path, folder=tmp_path / "fence", lock_wait_s=0.2)


def test_absent_driver_is_loaded_once(tmp_path: Path) -> None:
    kernel = Kernel()
    assert driver(kernel, tmp_path).ensure_loaded(WANTED)
    assert kernel.ran == ["modprobe nvidia", "modprobe nvidia_uvm"]
    assert not driver(kernel, tmp_path).ensure_loaded(WANTED)
    assert len(kernel.ran) == 2


def test_other_idle_version_is_replaced_and_services_come_back(tmp_path: Path) -> None:
    kernel = Kernel(loaded="570.133.20")
    assert driver(kernel, tmp_path).ensure_loaded(WANTED)
    assert kernel.loaded == WANTED
    assert kernel.ran == [
        "systemctl stop nvidia-dcgm.service",
        "systemctl stop nvidia-persistenced.service",
        "rmmod nvidia_uvm",
        "rmmod nvidia",
        "modprobe nvidia",
        "modprobe nvidia_uvm",
        "systemctl start nvidia-persistenced.service",
        "systemctl start nvidia-dcgm.service",
    ]


def test_other_version_in_use_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    kernel = Kernel(loaded="570.133.20")
    kernel.processes = "4711, python3\n"
    for act in (Driver.refuse_if_used, Driver.ensure_loaded):
        with pytest.raises(NodeProblem) as caught:
            act(driver(kernel, tmp_path), WANTED)
        assert "Actual: driver 570.133.20 is loaded and used by 4711 python3. Drain the node" in str(caught.value)
    assert kernel.ran == []


MISMATCH = Done(18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.173\n")
"""After the packages of another version."""


def process(root: Path, pid: int, name: str, device: str, cgroup: str) -> None:
    """Make a process as /proc shows it, with a file and a device open."""
    folder = root / "proc" / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "fd/0").symlink_to("/dev/null")
    (folder / "fd/7").symlink_to(device)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "cgroup").write_text(f"0::{cgroup}\n")


JOB = "/system.slice/slurmstepd.scope/job_12/step_0/user/task_0"


@pytest.mark.parametrize("device", ["/dev/nvidia0", "/dev/nvidia12", "/dev/nvidia-uvm", "/dev/nvidia0 (deleted)"])
def test_without_nvidia_smi_what_holds_a_gpu_is_not_ended(tmp_path: Path, device: str) -> None:
    kernel = Kernel(loaded="570.133.20")
    kernel.silent = MISMATCH
    process(tmp_path, 4711, "python3", device, JOB)
    process(tmp_path, 812, "nv-hostengine", "/dev/nvidia0", "/system.slice/nvidia-dcgm.service")
    process(tmp_path, 90, "python3", "/dev/nvidia0", "/user.slice/user@1000.service/app.slice/nvidia-dcgm.service")
    for act in (Driver.refuse_if_used, Driver.ensure_loaded):
        with pytest.raises(NodeProblem) as caught:
            act(driver(kernel, tmp_path), WANTED)
        assert str(caught.value) == (
            f"Expected: driver {WANTED}, or another one that nothing holds Actual: driver 570.133.20 is loaded and "
            "used by 90 python3, 4711 python3. Drain the node and end what uses its GPUs, or reboot it; then run "
            "again. Nothing was changed."
        )
    assert kernel.ran == []


@pytest.mark.parametrize("device", ["/dev/nvidiactl", "/dev/nvme0n1", "/var/lib/dev/nvidia0.txt"])
def test_without_nvidia_smi_an_idle_driver_is_replaced(tmp_path: Path, device: str) -> None:
    kernel = Kernel(loaded="570.133.20")
    kernel.silent = MISMATCH
    process(tmp_path, 4711, "python3", device, JOB)
    process(tmp_path, 812, "nv-hostengine", "/dev/nvidia0", "/system.slice/nvidia-dcgm.service")
    (tmp_path / "proc/813").mkdir()  # it ended meanwhile
    assert driver(kernel, tmp_path).ensure_loaded(WANTED)
    assert kernel.loaded == WANTED


POD = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1f.slice/cri-containerd-9a.scope"


@pytest.mark.parametrize("device", ["/dev/nvidia0", "/dev/nvidiactl"])
def test_pods_that_hold_the_driver_open_are_named_before_anything_is_changed(tmp_path: Path, device: str) -> None:
    """The device plugin waits for Xids by NVML: nvidia-smi lists no process, and rmmod would fail."""
    kernel = Kernel(loaded="570.133.20")
    process(tmp_path, 4711, "nvidia-device-p", device, POD)
    process(tmp_path, 812, "nv-hostengine", "/dev/nvidia0", "/system.slice/nvidia-dcgm.service")
    process(tmp_path, 90, "sh", "/dev/null", POD)
    Driver.refuse_if_used(driver(kernel, tmp_path), WANTED)  # a dry run, on a node in production
    for act in (Driver.refuse_if_held, Driver.ensure_loaded):
        with pytest.raises(NodeProblem) as caught:
            act(driver(kernel, tmp_path), WANTED)
        assert str(caught.value) == (
            f"Expected: driver {WANTED}, or another one that no pod holds open Actual: driver 570.133.20 is loaded and "
            "held by 4711 nvidia-device-p. Nothing was changed. Pods of DaemonSets, such as the device plugin, stay on "
            "a drained node. Let the GPU Operator take its own away: `kubectl label node NODE "
            "nvidia.com/gpu.deploy.operands=false --overwrite`. When they are gone, run this phase again for the node "
            "(`rackready install --limit NODE`; MIG: `optimize`). Then `kubectl label node NODE "
            "nvidia.com/gpu.deploy.operands-` and `rackready deploy`. See docs/howto/kubernetes.md."
        )
    assert kernel.ran == []


def test_processes_that_cannot_be_looked_at_are_no_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(loaded="570.133.20")
    kernel.silent = MISMATCH
    process(tmp_path, 4711, "python3", "/dev/nvidia0", JOB)

    def refuse(path: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path.relative_to(tmp_path)))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(NodeProblem) as caught:
        driver(kernel, tmp_path).refuse_if_used(WANTED)
    assert str(caught.value) == (
        "Expected: access to the open files of all processes Actual: [Errno 13] Permission denied: 'proc/4711/fd'. "
        "Give the user of Ansible root's rights on the node (sudo), then run again. Nothing was changed."
    )


def test_same_version_in_use_is_left_alone(tmp_path: Path) -> None:
    kernel = Kernel(loaded=WANTED)
    kernel.processes = "4711, python3\n"
    driver(kernel, tmp_path).refuse_if_used(WANTED)
    assert not driver(kernel, tmp_path).ensure_loaded(WANTED)


def test_module_that_something_holds_is_refused_and_services_come_back(tmp_path: Path) -> None:
    kernel = Kernel(loaded="570.133.20")
    kernel.stuck = "nvidia_uvm"
    with pytest.raises(NodeProblem, match="rmmod: ERROR: Module nvidia_uvm is in use"):
        driver(kernel, tmp_path).ensure_loaded(WANTED)
    assert kernel.ran[-1] == "systemctl start nvidia-dcgm.service"
    assert kernel.loaded == "570.133.20"


def test_check_mode_loads_nothing(tmp_path: Path) -> None:
    kernel = Kernel()
    assert driver(kernel, tmp_path).ensure_loaded(WANTED, check=True)
    assert kernel.ran == []


def test_failed_load_carries_the_kernel_s_words(tmp_path: Path) -> None:
    kernel = Kernel()
    kernel.refuses = "modprobe: ERROR: could not insert 'nvidia': No such device"
    with pytest.raises(NodeProblem, match=r"could not insert 'nvidia': No such device; .*RmInitAdapter failed"):
        driver(kernel, tmp_path).ensure_loaded(WANTED)


def test_a_module_that_was_not_built_is_seen_before_anything_is_unloaded(tmp_path: Path) -> None:
    log = tmp_path / f"var/lib/dkms/nvidia/{WANTED}/build/make.log"
    (tmp_path / "var/lib/dkms/nvidia").mkdir(parents=True)
    for on_disk, there in (("580.178.01", "580.178.01"), ("", "none")):
        kernel = Kernel(loaded="570.133.20", on_disk=on_disk)
        with pytest.raises(NodeProblem) as caught:
            driver(kernel, tmp_path).ensure_loaded(WANTED)
        step = f"See /{log.relative_to(tmp_path)} on the node." if log.exists() else "See `dkms status` on the node."
        assert str(caught.value) == (
            f"Expected: module nvidia {WANTED} built for the running kernel Actual: {there} on disk. {step}"
        )
        assert kernel.ran == []
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()


def test_without_a_tree_of_dkms_the_package_of_the_module_is_named(tmp_path: Path) -> None:
    with pytest.raises(NodeProblem) as caught:
        driver(Kernel(on_disk=""), tmp_path).ensure_loaded(WANTED)
    assert str(caught.value) == (
        f"Expected: module nvidia {WANTED} built for the running kernel Actual: none on disk. Install the module's "
        "package for the running kernel, or see `dkms status` on the node."
    )


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("sys/module/nvidia/version", "580.173.02\n"),
        (
            "proc/driver/nvidia/version",
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.173.02  Release Build  "
                "(dvs-builder@U22)\nGCC version: gcc 12.2.0\n"
            ),
        ),
    ],
)
def test_kernel_s_own_word_on_the_version_comes_first(path: str, text: str, tmp_path: Path) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(text)
    assert driver(Kernel(), tmp_path).loaded() == WANTED


def marker(tmp_path: Path, **words: object) -> None:
    (tmp_path / "fence").mkdir(exist_ok=True)
    (tmp_path / "fence/install.json").write_text(json.dumps(words))


def test_a_killed_controller_s_run_that_is_still_at_work_is_never_joined(tmp_path: Path) -> None:
    marker(tmp_path, token=4, ledger="l", pid=4711, state="begun")
    kernel = Kernel(loaded="570.133.20")
    with (tmp_path / "fence/install.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(NodeProblem) as caught:
            driver(kernel, tmp_path).ensure_loaded(WANTED, 5, "l")
    assert str(caught.value) == (
        f"Expected: the lock {tmp_path}/fence/install.lock within 0 s Actual: held by process 4711 of another run. "
        "End that run, then run again."
    )
    assert kernel.ran == []


def test_also_what_looks_right_waits_for_the_run_that_is_still_at_work(tmp_path: Path) -> None:
    """The module is loaded before the services are started again: only the end of that run shows that all is done."""
    marker(tmp_path, token=4, ledger="l", pid=4711, state="begun")
    with (tmp_path / "fence/install.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(NodeProblem, match="held by process 4711 of another run"):
            driver(Kernel(loaded=WANTED), tmp_path).ensure_loaded(WANTED, 5, "l")


def test_an_older_token_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    marker(tmp_path, token=7, ledger="l", pid=1, state="done")
    kernel = Kernel(loaded="570.133.20")
    with pytest.raises(NodeProblem) as caught:
        driver(kernel, tmp_path).ensure_loaded(WANTED, 6, "l")
    assert str(caught.value) == (
        "Expected: fencing token 7 or newer Actual: token 6. A newer controller acts on this node: stop this one "
        "(`rackready status`). If none does and the ledger was restored from a backup, follow "
        "docs/howto/ledger-backup.md."
    )
    assert kernel.ran == []


def test_services_that_a_killed_run_left_stopped_are_started_again(tmp_path: Path) -> None:
    marker(tmp_path, token=4, ledger="l", pid=4711, state="begun")
    (tmp_path / "fence/driver-stopped.json").write_text(
        json.dumps(["nvidia-dcgm.service", "nvidia-persistenced.service"])
    )
    kernel = Kernel(loaded=WANTED)
    found = driver(kernel, tmp_path)
    assert found.ensure_loaded(WANTED, 5, "l")
    assert kernel.ran == ["systemctl start nvidia-persistenced.service", "systemctl start nvidia-dcgm.service"]
    assert found.notes == [
        "an earlier run (token 4) was interrupted here: its effect is observed first",
        "an interrupted run left stopped: nvidia-dcgm.service, nvidia-persistenced.service",
    ]
    assert json.loads((tmp_path / "fence/install.json").read_text())["state"] == "done"
    assert not driver(kernel, tmp_path).ensure_loaded(WANTED, 6, "l")


def test_killed_between_stopping_and_loading_goes_on(tmp_path: Path) -> None:
    kernel = Kernel(loaded="570.133.20")

    def dies(argv: Sequence[str]) -> Done:
        if argv[0] == "rmmod":
            raise SystemExit
        return kernel(argv)

    with pytest.raises(SystemExit):
        Driver(run=dies, root=tmp_path, folder=tmp_path / "fence").ensure_loaded(WANTED, 4, "l")
    kernel.active.clear()
    assert driver(kernel, tmp_path).ensure_loaded(WANTED, 5, "l")
    assert kernel.loaded == WANTED
    assert kernel.ran[-2:] == ["systemctl start nvidia-persistenced.service", "systemctl start nvidia-dcgm.service"]


GDS = {"nvidia_fs": 0, "gdrdrv": 0, "nvidia_drm": 0, "nvidia_modeset": 1, "nvidia_uvm": 0, "nvidia": 5}
MODULES_BESIDE = ("nvidia_drm", "nvidia_modeset", "gdrdrv", "nvidia_fs")
LOST = (
    "kernel module nvidia_fs was loaded before the change of the driver and does not load now: "
    "modprobe: FATAL: Module nvidia_fs not found in directory /lib/modules/6.8.0. "
    "See `dkms status` and `dmesg` on the node, then run again"
)


def with_gds() -> Kernel:
    kernel = Kernel(loaded="570.133.20")
    kernel.modules = dict(GDS)
    return kernel


def test_modules_of_other_packages_come_back_with_the_new_driver(tmp_path: Path) -> None:
    kernel = with_gds()
    assert driver(kernel, tmp_path).ensure_loaded(WANTED)
    assert set(kernel.modules) == set(GDS)
    loaded = [line for line in kernel.ran if line.startswith("modprobe")]
    assert loaded == [f"modprobe {name}" for name in ("nvidia", "nvidia_uvm", *reversed(MODULES_BESIDE))]
    assert not (tmp_path / "fence/driver-unloaded.json").exists()
    assert not driver(kernel, tmp_path).ensure_loaded(WANTED)


def test_a_module_that_does_not_come_back_is_named_by_each_run_until_it_does_or_the_node_boots(tmp_path: Path) -> None:
    boot = tmp_path / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("one\n")
    kernel = with_gds()
    kernel.unbuilt = {"nvidia_fs"}
    for changed in (True, False, False):
        found = driver(kernel, tmp_path)
        assert found.ensure_loaded(WANTED) is changed
        assert found.notes == [LOST]
    boot.write_text("two\n")
    found = driver(kernel, tmp_path)
    assert (found.ensure_loaded(WANTED), found.notes) == (False, [])
    boot.write_text("one\n")
    kernel.unbuilt.clear()
    found = driver(kernel, tmp_path)
    assert (found.ensure_loaded(WANTED), found.notes) == (True, [])
    assert "nvidia_fs" in kernel.modules


def test_a_module_that_is_held_brings_those_back_that_were_unloaded_before_it(tmp_path: Path) -> None:
    kernel = with_gds()
    kernel.stuck = "nvidia_fs"
    with pytest.raises(NodeProblem, match=r"Nothing was changed\.$"):
        driver(kernel, tmp_path).ensure_loaded(WANTED)
    assert set(kernel.modules) == set(GDS)


def test_one_of_them_that_does_not_come_back_is_a_change_and_is_told(tmp_path: Path) -> None:
    kernel = with_gds()
    kernel.stuck, kernel.unbuilt = "nvidia", {"nvidia_fs"}
    with pytest.raises(NodeProblem) as caught:
        driver(kernel, tmp_path).ensure_loaded(WANTED)
    assert str(caught.value) == (
        f"Expected: driver {WANTED}, or another one that nothing holds Actual: driver 570.133.20 is loaded and "
        f"rmmod: ERROR: Module nvidia is in use; {LOST}. Drain the node and end what uses its GPUs, or reboot it; "
        "then run again."
    )


@pytest.mark.parametrize("last", ["nvidia_fs", "nvidia"])
def test_killed_while_unloading_brings_back_all_of_them(tmp_path: Path, last: str) -> None:
    kernel = with_gds()

    def dies(argv: Sequence[str]) -> Done:
        done = kernel(argv)
        if list(argv) == ["rmmod", last]:
            raise SystemExit
        return done

    with pytest.raises(SystemExit):
        Driver(run=dies, root=tmp_path, folder=tmp_path / "fence").ensure_loaded(WANTED, 4, "l")
    assert "nvidia_fs" not in kernel.modules
    assert driver(kernel, tmp_path).ensure_loaded(WANTED, 5, "l")
    assert set(kernel.modules) == set(GDS)
