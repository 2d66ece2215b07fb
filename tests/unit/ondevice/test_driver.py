"""The kernel module: loaded once, replaced only when nothing holds it."""

from __future__ import annotations

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
        self.active = {"nvidia-persistenced.service", "nvidia-dcgm.service"} if loaded else set()
        self.stuck = ""
        self.refuses = ""
        self.ran: list[str] = []

    def __call__(self, argv: Sequence[str]) -> Done:
        line = " ".join(argv)
        if argv[0] == "lsmod":
            return Done(0, "Module                  Size  Used by\n" + "".join(f"{name} 100 {used}\n" for name, used in self.modules.items()))
        if argv[0] == "nvidia-smi":
            asked_version = "driver_version" in line
            return (
                Done(0, f"{self.loaded}\n" if asked_version else self.processes)
                if self.loaded
                else Done(9, "NVIDIA-SMI has failed because it couldn't communicate")
            )
        if argv[0] == "modinfo":
            return Done(0, f"{self.on_disk}\n") if self.on_disk else Done(1, "ERROR")
        if argv[0] == "dmesg":
            return Done(0, "[1.0] NVRM: GPU 0000:1b:00.0: RmInitAdapter failed!\n")
        if line.startswith("systemctl is-active"):
            return Done(0 if argv[-1] in self.active else 3, "")
        self.ran.append(line)
        return self._act(argv)

    def _act(self, argv: Sequence[str]) -> Done:
        if argv[0] == "rmmod":
            if argv[1] == self.stuck:
                return Done(1, f"rmmod: ERROR: Module {argv[1]} is in use\n")
            del self.modules[argv[1]]
            self.loaded = self.loaded if "nvidia" in self.modules else ""
        if argv[0] == "modprobe":
            if self.refuses:
                return Done(1, self.refuses)
            self.modules[argv[1]] = 0
            self.loaded = self.loaded or self.on_disk
        return Done(0, "")


def driver(kernel: Kernel, tmp_path: Path) -> Driver:
    return Driver(run=kernel, root=tmp_path)


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


def test_wrong_version_on_disk_is_seen(tmp_path: Path) -> None:
    with pytest.raises(NodeProblem, match=r"Expected: driver 580.173.02 loaded Actual: 580.178.01 loaded, 580.178.01 on disk"):
        driver(Kernel(on_disk="580.178.01"), tmp_path).ensure_loaded(WANTED)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("sys/module/nvidia/version", "580.173.02\n"),
        (
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.173.02  Release Build  (dvs-builder@U22)\nGCC version: gcc 12.2.0\n",
        ),
    ],
)
def test_kernel_s_own_word_on_the_version_comes_first(path: str, text: str, tmp_path: Path) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(text)
    assert driver(Kernel(), tmp_path).loaded() == WANTED
