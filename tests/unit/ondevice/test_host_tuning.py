"""Governor and huge pages: in force and kept by the unit, left alone where not wanted, and what the kernel refuses."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.cpu_governor import NO_POLICY
from rackready.ondevice.host_tuning import UNIT, UNIT_FILE, HostTuning, Wish
from rackready.ondevice.huge_pages import kilobytes

TEXT = "[Unit]\nDescription=tuning\n"
POOL = "sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages"
CPUS = "sys/devices/system/cpu/cpufreq/policy{}/affected_cpus"
GOVERNOR = "sys/devices/system/cpu/cpufreq/policy{}/scaling_governor"


class Node:
    """A node with two policies and pools of 2 MiB and 1 GiB pages (intel_pstate, x86)."""

    def __init__(self, root: Path, governors: Sequence[str] = ("powersave", "performance")) -> None:
        self.root, self.enabled = root, False
        self.ran: list[str] = []
        for number, governor in enumerate(governors):
            self.put(GOVERNOR.format(number), governor)
            self.put(CPUS.format(number), str(number))
            self.put(
                f"sys/devices/system/cpu/cpufreq/policy{number}/scaling_available_governors", "performance powersave"
            )
        for size in (2048, 1048576):
            self.put(POOL.format(size), "0")
        self.put(
            "proc/meminfo", "MemTotal:       16384000 kB\nMemFree:         1000000 kB\nMemAvailable:    8192000 kB"
        )

    def put(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(f"{text}\n")

    def __call__(self, argv: Sequence[str]) -> Done:
        line = " ".join(argv)
        if "is-enabled" in line:
            return Done(0 if self.enabled else 1, "")
        self.ran.append(line)
        self.enabled = " enable " in line or (self.enabled and " disable " not in line)
        return Done(0, "")

    def tuning(self) -> HostTuning:
        return HostTuning(self, self.root, self.root / "rackready", lock_wait_s=0.2)

    def read(self, name: str) -> str:
        return (self.root / name).read_text().strip()


def test_settings_come_into_force_and_the_unit_keeps_them_once(tmp_path: Path) -> None:
    node, wish = Node(tmp_path), Wish(TEXT, "performance", {"2M": 1024, "1G": 2})
    dry = node.tuning().ensure(wish, 1, "a", check=True)
    assert (node.ran, node.read(GOVERNOR.format(0))) == ([], "powersave")
    found = node.tuning().ensure(wish, 1, "a")
    assert found == dry
    assert [str(item) for item in found[1:]] == [
        "frequency governor powersave on 1 of 2 policies, wanted performance",
        "huge pages of 2M 0 pages, wanted 1024 pages",
        "huge pages of 1G 0 pages, wanted 2 pages",
    ]
    assert [node.read(GOVERNOR.format(number)) for number in (0, 1)] == ["performance"] * 2
    assert [node.read(POOL.format(size)) for size in (2048, 1048576)] == ["1024", "2"]
    assert (tmp_path / UNIT_FILE[1:]).read_text() == TEXT
    assert node.tuning().ensure(wish, 1, "a") == []
    assert node.ran == ["systemctl daemon-reload", f"systemctl enable {UNIT}"]


def test_a_setting_that_drifted_is_set_again_without_touching_the_unit(tmp_path: Path) -> None:
    node, wish = Node(tmp_path), Wish(TEXT, "performance")
    node.tuning().ensure(wish, 1, "a")
    node.put(GOVERNOR.format(1), "powersave")
    node.ran.clear()
    assert [item.name for item in node.tuning().ensure(wish, 1, "a")] == ["frequency governor"]
    assert node.ran == []


def test_nothing_declared_removes_the_unit_and_leaves_the_settings(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert node.tuning().ensure(Wish(), 1, "a") == []
    node.tuning().ensure(Wish(TEXT, "performance", {"2M": 8}), 1, "a")
    assert [item.expected for item in node.tuning().ensure(Wish(), 1, "a")] == ["absent"]
    assert node.ran[-2:] == [f"systemctl disable {UNIT}", "systemctl daemon-reload"]
    assert (node.read(GOVERNOR.format(0)), node.read(POOL.format(2048))) == ("performance", "8")
    assert node.tuning().ensure(Wish(), 1, "a") == []


def test_a_node_without_cpufreq_is_left_alone_and_says_so(tmp_path: Path) -> None:
    node = Node(tmp_path, governors=())
    tuning = node.tuning()
    assert tuning.ensure(Wish(TEXT, "performance"), 1, "a") == []
    assert (tuning.notes, node.ran) == ([NO_POLICY], [])
    assert [item.kind for item in tuning.ensure(Wish(TEXT, "performance", {"2M": 8}), 1, "a")] == ["file", "kernel"]


def test_a_policy_without_a_cpu_online_is_left_alone(tmp_path: Path) -> None:
    node = Node(tmp_path, ("powersave",) * 3)
    node.put(CPUS.format(1), "")
    (tmp_path / CPUS.format(2)).unlink()  # stands for EBUSY: it cannot be read
    assert len(node.tuning().ensure(Wish(TEXT, "performance"), 1, "a")) == 2
    assert [node.read(GOVERNOR.format(number)) for number in range(3)] == ["performance", "powersave", "powersave"]
    assert node.tuning().ensure(Wish(TEXT, "performance"), 1, "a") == []


@pytest.mark.parametrize(
    ("wish", "place", "value"),
    [
        (Wish(TEXT, "performance"), GOVERNOR.format(0), "performance"),
        (Wish(TEXT, "", {"1G": 1}), POOL.format(1048576), "1"),
    ],
)
def test_a_write_that_the_kernel_refuses_is_the_nodes_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wish: Wish, place: str, value: str
) -> None:
    node = Node(tmp_path)

    def busy(*_args: object, **_more: object) -> int:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    tuning = node.tuning()
    monkeypatch.setattr(Path, "write_text", busy)
    with pytest.raises(NodeProblem) as caught:
        tuning.ensure(wish, 1, "a")
    assert str(caught.value) == (
        f"Expected: {tmp_path / place} takes {value} Actual: Device or resource busy. "
        "Run `dmesg | tail` on the node: it may say why. Then run again."
    )


def test_a_governor_that_the_kernel_does_not_have_is_refused(tmp_path: Path) -> None:
    node = Node(tmp_path)
    with pytest.raises(NodeProblem) as caught:
        node.tuning().ensure(Wish(TEXT, "schedutil"), 1, "a")
    assert str(caught.value) == (
        "Expected: schedutil among the governors of the kernel Actual: performance powersave. "
        "Choose one of these for base_cpu_governor, or load another cpufreq driver; then run again."
    )
    assert node.ran == []


def test_a_page_size_that_the_kernel_does_not_offer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NodeProblem) as caught:
        Node(tmp_path).tuning().ensure(Wish(TEXT, "", {"512M": 1}), 1, "a")
    assert str(caught.value) == (
        "Expected: huge pages of 512M, which processor and kernel offer Actual: 1048576kB, 2048kB. "
        "Correct base_huge_pages in the group_vars of the environment, then run again."
    )


@pytest.mark.parametrize("check", [False, True])
def test_more_pages_than_memory_are_refused_before_any_is_reserved(tmp_path: Path, *, check: bool) -> None:
    node = Node(tmp_path)
    with pytest.raises(NodeProblem) as caught:
        node.tuning().ensure(Wish(TEXT, "", {"2M": 512, "1G": 6}), 1, "a", check=check)
    assert str(caught.value) == (
        "Expected: memory for the added huge pages, 7168 MiB, and 1600 MiB to spare Actual: 8000 MiB available. "
        "Lower base_huge_pages, or end what uses the memory; then run again. No page was reserved."
    )
    assert (node.read(POOL.format(2048)), node.ran) == ("0", [])


def test_pages_that_are_there_need_no_memory(tmp_path: Path) -> None:
    node, wish = Node(tmp_path), Wish(TEXT, "", {"1G": 6})
    node.tuning().ensure(wish, 1, "a")
    node.put("proc/meminfo", "MemTotal:       16384000 kB\nMemAvailable:    1000000 kB")
    assert node.tuning().ensure(wish, 1, "a") == []
    assert len(node.tuning().ensure(Wish(TEXT, "", {"1G": 2}), 1, "a")) == 1
    (tmp_path / "proc/meminfo").unlink()
    assert len(node.tuning().ensure(Wish(TEXT, "performance", {"1G": 1}), 1, "a")) == 2


def test_pages_that_the_kernel_did_not_find_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path)
    monkeypatch.setattr(
        "rackready.ondevice.huge_pages.write", lambda _root, _wanted: node.put(POOL.format(1048576), "1")
    )
    with pytest.raises(NodeProblem) as caught:
        node.tuning().ensure(Wish(TEXT, "", {"1G": 2}), 1, "a")
    assert str(caught.value) == (
        "Expected: huge pages of 1G 2 pages Actual: huge pages of 1G 1 pages. "
        "If huge pages are missing, memory is fragmented: reserve them with hugepagesz= and hugepages= in "
        "base_kernel_options and let the node reboot. If the governor was set back, find out by what (tuned)."
    )


def test_a_unit_that_cannot_be_enabled_is_reported(tmp_path: Path) -> None:
    node = Node(tmp_path)
    plain = node.__call__
    tuning = node.tuning()
    tuning.run = lambda argv: (
        Done(1, "Failed to enable unit: Unit file is masked.\n") if "enable" in argv else plain(argv)
    )
    with pytest.raises(NodeProblem) as caught:
        tuning.ensure(Wish(TEXT, "performance"), 1, "a")
    assert str(caught.value) == (
        f"Expected: `systemctl enable {UNIT}` succeeds Actual: exit 1: Failed to enable unit: Unit file is masked. "
        f"Run `systemctl enable {UNIT}` on the node and read its output."
    )


@pytest.mark.parametrize(("size", "kib"), [("64K", 64), ("2M", 2048), ("1G", 1048576), ("16G", 16777216)])
def test_sizes_are_in_kib(size: str, kib: int) -> None:
    assert kilobytes(size) == kib
