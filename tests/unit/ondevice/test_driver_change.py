"""Replacing the driver: what ran before comes back when the new one does not, also after a kill."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace

import pytest

from rackready.ondevice import disk
from rackready.ondevice.apt import Apt
from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.driver import Driver
from rackready.ondevice.driver_change import DriverChange
from rackready.ondevice.packages import Wish

OLD, NEW = "580.173.02", "580.178.01"
PIN = "/etc/apt/preferences.d/00-rackready-nvidia"
DAEMONS = {"nvidia-persistenced.service", "nvidia-dcgm.service"}


class Machine:
    """A node with apt: packages, the module that they build, services. ``broken``: a step that fails, to its words."""

    def __init__(self, version: str = OLD) -> None:
        self.packages = dict.fromkeys(("nvidia-open", "nvidia-kernel-open-dkms"), f"{version}-1") if version else {}
        self.packages["nvidia-container-toolkit"] = "1.20.0-1"
        self.held = {"nvidia-open"} if version else set()
        self.loaded, self.on_disk, self.active = version, version, set(DAEMONS) if version else set()
        self.offered = {OLD, NEW}
        self.broken: dict[str, str] = {}
        self.beside: list[str] = []
        self.answer = ""
        self.ran: list[str] = []

    def __call__(self, argv: Sequence[str]) -> Done:
        drop = ("-o", "DPkg::", "Dpkg::", "Dir::", "APT::", "-q", "-y")
        words = [word for word in argv if not word.startswith(drop)]
        line = " ".join(words)
        for start, text in self.broken.items():
            if line.startswith(start):
                return Done(1, text)
        return getattr(self, words[0].replace("-", "_"))(words[1:])

    def lsmod(self, _words: list[str]) -> Done:
        rows = ["nvidia_uvm 1 0", "nvidia 1 1"] if self.loaded else []
        return Done(0, "\n".join(["Module Size Used by", *rows, *(f"{name} 1 0" for name in self.beside)]))

    def nvidia_smi(self, words: list[str]) -> Done:
        if "--query-compute-apps" in words[0]:
            return Done(0, "")
        if not self.loaded or self.loaded == self.answer:
            return Done(6, "No devices were found\n")
        return Done(0, f"{self.loaded}\n{self.loaded}\n")

    def modinfo(self, _words: list[str]) -> Done:
        return Done(0, f"{self.on_disk}\n") if self.on_disk else Done(1, "")

    def dmesg(self, _words: list[str]) -> Done:
        return Done(0, "NVRM: None of the NVIDIA devices were initialized.\n")

    def systemctl(self, words: list[str]) -> Done:
        if words[0] == "is-active":
            return Done(0 if words[-1] in self.active else 3, "")
        self.ran.append(f"{words[0]} {words[1]}")
        (self.active.add if words[0] == "start" else self.active.discard)(words[1])
        return Done(0, "")

    def rmmod(self, words: list[str]) -> Done:
        self.loaded = "" if words == ["nvidia"] else self.loaded
        self.beside = [name for name in self.beside if name != words[0]]
        return Done(0, "")

    def modprobe(self, words: list[str]) -> Done:
        self.ran.append(f"modprobe {words[0]} {self.on_disk}")
        self.loaded = self.loaded or self.on_disk
        self.beside += [] if words[0] in {"nvidia", "nvidia_uvm"} else [words[0]]
        return Done(0, "")

    def dpkg_query(self, words: list[str]) -> Done:
        rows = [
            f"{name}\t{version}\t{'h' if name in self.held else 'i'}i \n"
            for name, version in self.packages.items()
            if any(fnmatch(name, pattern) for pattern in words[3:])
        ]
        return Done(0, "".join(rows))

    def dpkg(self, words: list[str]) -> Done:
        return Done(0 if words[0] == "--compare-versions" and words[1] < words[3] else 1, "")

    def apt_cache(self, words: list[str]) -> Done:
        return Done(0, "".join(f"{name} | {item}-1 | http://m\n" for name in words[1:] for item in self.offered))

    def apt_get(self, words: list[str]) -> Done:
        self.ran.append(" ".join(word for word in words if not word.startswith("--")))
        for word in words[1:]:
            if word.endswith("-") and not word.startswith("-"):
                self.packages.pop(word[:-1])
                self.held.discard(word[:-1])
            elif "=" in word:
                name, _, version = word.partition("=")
                self.packages[name] = version
        version = self.packages.get("nvidia-kernel-open-dkms", "-").partition("-")[0]
        self.on_disk = "" if version in self.broken else version
        return Done(0, "")

    def apt_mark(self, words: list[str]) -> Done:
        if words[0] == "showhold":
            return Done(0, "\n".join(self.held))
        (self.held.update if words[0] == "hold" else self.held.difference_update)(words[1:])
        return Done(0, "")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "etc/apt/preferences.d").mkdir(parents=True)
    (tmp_path / PIN[1:]).write_text(f"Pin: version {OLD}*\n")
    return Machine()


def change(machine: Machine, root: Path) -> DriverChange:
    folder = root / "var/lib/rackready"
    if not (folder / "holds").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "holds").write_text("nvidia-open\n")
    apt = Apt(run=machine, root=root, folder=folder, lock_wait_s=0.2)
    return DriverChange(apt, Driver(run=machine, root=root, folder=folder, lock_wait_s=0.2), folder)


def wish(version: str = NEW, *, allow_downgrade: bool = False) -> Wish:
    return Wish({"nvidia-open": f"{version}-1"}, hold=True, allow_downgrade=allow_downgrade)


def install(machine: Machine, root: Path, version: str = NEW) -> None:
    """Do what the role does between beginning and loading: pins, packages with a new dependency, holds."""
    (root / PIN[1:]).write_text(f"Pin: version {version}*\n")
    names = ("nvidia-open", "nvidia-kernel-open-dkms", "nvidia-new-part")
    machine.apt_get(["install", *(f"{name}={version}-1" for name in names)])
    machine.held.add("nvidia-new-part")
    machine.ran.clear()


def begin(machine: Machine, root: Path, version: str = NEW) -> bool:
    return change(machine, root).begin(version, wish(version), [PIN], 0, "")


def state(machine: Machine, root: Path) -> dict[str, object]:
    return {
        "packages": dict(sorted(machine.packages.items())),
        "held": sorted(machine.held),
        "loaded": machine.loaded,
        "on_disk": machine.on_disk,
        "active": sorted(machine.active),
        "pin": (root / PIN[1:]).read_text(),
        "own": (root / "var/lib/rackready/holds").read_text(),
        "open": (root / "var/lib/rackready/driver-change.json").exists(),
    }


LOAD_FAILED = (
    f"Expected: kernel module nvidia {NEW} loads Actual: modprobe: ERROR: could not insert 'nvidia': No such device. "
    "Check `dmesg` on the node; a reboot may be needed."
)


def test_a_driver_that_does_not_load_goes_back_with_packages_holds_pins_and_services(
    machine: Machine, tmp_path: Path
) -> None:
    change(machine, tmp_path)
    before = state(machine, tmp_path)
    assert begin(machine, tmp_path)
    install(machine, tmp_path)
    machine.loaded, machine.active = "", set()
    problem = change(machine, tmp_path).undo(NEW, LOAD_FAILED, 0, "")
    assert str(problem) == (
        f"Expected: driver {NEW} Actual: rolled back to driver {OLD}, which is loaded; its packages, holds and "
        f"services are as before. {NEW} failed: wanted kernel module nvidia {NEW} loads, found modprobe: ERROR: could "
        "not insert 'nvidia': No such device. Check `dmesg` on the node; a reboot may be needed. Correct that, then "
        "run again."
    )
    assert state(machine, tmp_path) == before
    assert machine.ran == [
        f"install nvidia-open={OLD}-1 nvidia-kernel-open-dkms={OLD}-1 nvidia-new-part-",
        f"modprobe nvidia {OLD}",
        f"modprobe nvidia_uvm {OLD}",
        "start nvidia-persistenced.service",
        "start nvidia-dcgm.service",
    ]


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({}, "its packages, holds and services are as before. "),
        (
            {"modprobe nvidia_fs": "modprobe: FATAL: Module nvidia_fs not found"},
            (
                "its packages, holds and services are as before. "
                "Kernel modules that were loaded with it and do not load now: nvidia_fs. "
            ),
        ),
    ],
)
def test_modules_of_other_packages_come_back_with_the_old_driver_or_are_named(
    machine: Machine, tmp_path: Path, broken: dict[str, str], words: str
) -> None:
    machine.beside = ["nvidia_fs", "gdrdrv"]
    begin(machine, tmp_path)
    install(machine, tmp_path)
    machine.broken = {"modprobe nvidia": "No such device"}
    changed = change(machine, tmp_path)
    with pytest.raises(NodeProblem, match="No such device"):
        changed.driver.ensure_loaded(NEW)
    assert machine.beside == []
    machine.broken = broken
    assert f"rolled back to driver {OLD}, which is loaded; {words}" in str(changed.undo(NEW, LOAD_FAILED, 0, ""))
    assert machine.beside == (["gdrdrv"] if broken else ["nvidia_fs", "gdrdrv"])


def test_a_driver_that_loads_and_does_not_answer_goes_back_too(machine: Machine, tmp_path: Path) -> None:
    change(machine, tmp_path)
    before = state(machine, tmp_path)
    begin(machine, tmp_path)
    install(machine, tmp_path)
    machine.loaded = machine.answer = NEW
    failure = (
        f"Expected: nvidia-smi answers with driver {NEW}\nActual: No devices were found. Check `dmesg` on the node."
    )
    text = str(change(machine, tmp_path).undo(NEW, failure, 0, ""))
    assert f"rolled back to driver {OLD}, which is loaded" in text
    assert f"{NEW} failed: wanted nvidia-smi answers with driver {NEW}, found No devices were found. Check" in text
    assert state(machine, tmp_path) == before


def test_a_rollback_that_fails_as_well_says_so_and_the_next_run_completes_it_first(
    machine: Machine, tmp_path: Path
) -> None:
    change(machine, tmp_path)
    before = state(machine, tmp_path)
    begin(machine, tmp_path)
    install(machine, tmp_path)
    machine.loaded = ""
    machine.broken = {"apt-get install": "Err:1 http://m ./ x\n  Could not connect to m:8080\nE: Failed\n"}
    text = str(change(machine, tmp_path).undo(NEW, LOAD_FAILED, 0, ""))
    assert text == (
        f"Expected: driver {NEW} Actual: the rollback to driver {OLD} failed as well: loaded: no driver, on "
        f"disk: {NEW}. {NEW} failed: wanted kernel module nvidia {NEW} loads, found modprobe: ERROR: could not insert "
        "'nvidia': No such device. Check `dmesg` on the node; a reboot may be needed. The rollback failed: wanted the "
        "package mirror answers, found Could not connect to m:8080. Check that the mirror is up and that "
        "its url in the site file is right, then run again. The next run tries the rollback again first."
    )
    machine.broken = {}
    again = change(machine, tmp_path)
    with pytest.raises(NodeProblem, match=f"Actual: rolled back to driver {OLD}, which is loaded"):
        again.begin(NEW, wish(), [PIN], 0, "")
    assert again.notes == [f"an interrupted rollback to driver {OLD} is completed"]
    assert state(machine, tmp_path) == before
    assert begin(machine, tmp_path)


def test_a_change_that_was_killed_goes_on_and_still_knows_the_way_back(machine: Machine, tmp_path: Path) -> None:
    change(machine, tmp_path)
    before = state(machine, tmp_path)
    begin(machine, tmp_path)
    install(machine, tmp_path)
    machine.loaded, machine.active = "", set()
    resumed = change(machine, tmp_path)
    assert resumed.begin(NEW, wish(), [PIN], 0, "")
    assert resumed.notes == [f"an interrupted change from driver {OLD} to {NEW} continues"]
    change(machine, tmp_path).undo(NEW, LOAD_FAILED, 0, "")
    assert state(machine, tmp_path) == before


def test_a_killed_change_is_undone_without_consent_when_the_site_wants_the_old_driver_again(
    machine: Machine, tmp_path: Path
) -> None:
    change(machine, tmp_path)
    before = state(machine, tmp_path)
    begin(machine, tmp_path)
    install(machine, tmp_path)
    back = change(machine, tmp_path)
    assert not back.begin(OLD, wish(OLD), [PIN], 0, "")
    assert back.notes == [f"an interrupted change from driver {OLD} to {NEW} was undone"]
    assert state(machine, tmp_path) == before


def test_a_change_that_ended_well_leaves_no_journal_and_the_next_run_does_nothing(
    machine: Machine, tmp_path: Path
) -> None:
    begin(machine, tmp_path)
    install(machine, tmp_path)
    machine.loaded = NEW
    machine.held.discard("nvidia-new-part")
    machine.active = set()
    machine.broken = {"systemctl start nvidia-dcgm": "needs another version"}
    ended = change(machine, tmp_path)
    ended.end(0, "")
    assert ended.notes == ["nvidia-dcgm.service not running with the new driver yet: their roles follow"]
    assert machine.active == {"nvidia-persistenced.service"}
    assert not state(machine, tmp_path)["open"]
    machine.ran.clear()
    assert not begin(machine, tmp_path)
    assert machine.ran == []


def test_a_dry_run_writes_nothing(machine: Machine, tmp_path: Path) -> None:
    assert not change(machine, tmp_path).preview(NEW)
    assert sorted(path.name for path in (tmp_path / "var/lib/rackready").iterdir()) == ["holds"]


def test_a_first_installation_has_nothing_to_roll_back_to_and_says_so(tmp_path: Path) -> None:
    machine = Machine("")
    (tmp_path / "etc/apt/preferences.d").mkdir(parents=True)
    assert not begin(machine, tmp_path)
    assert str(change(machine, tmp_path).undo(NEW, LOAD_FAILED, 0, "")) == (
        f"Expected: driver {NEW} Actual: no driver is loaded and none ran before: there is nothing to roll back to, "
        f"packages stay as they are. What failed: wanted kernel module nvidia {NEW} loads, found modprobe: ERROR: "
        "could not insert 'nvidia': No such device. Check `dmesg` on the node; a reboot may be needed. Correct that, "
        "then run again."
    )


def test_a_failure_that_is_no_change_of_the_driver_rolls_nothing_back(machine: Machine, tmp_path: Path) -> None:
    text = str(change(machine, tmp_path).undo(OLD, "E: Failed", 0, ""))
    assert text == (
        f"Expected: driver {OLD} Actual: driver {OLD} is loaded; this run was not replacing it, so nothing was rolled "
        "back. What failed: E: Failed. Correct that, then run again."
    )


def test_a_lower_version_needs_consent_before_anything_changes(machine: Machine, tmp_path: Path) -> None:
    machine = Machine(NEW)
    with pytest.raises(NodeProblem) as caught:
        begin(machine, tmp_path, OLD)
    assert str(caught.value) == (
        f"Expected: nvidia-open {NEW}-1 or newer Actual: nvidia-open {OLD}-1 wanted. Choose a newer version set "
        "(software.set), or set software.allow_downgrade: true; then run again. No package was changed."
    )
    assert not state(machine, tmp_path)["open"]
    assert json.loads((tmp_path / "var/lib/rackready/install.json").read_text())["state"] == "done"
    assert change(machine, tmp_path).begin(OLD, wish(OLD, allow_downgrade=True), [PIN], 0, "")


def test_a_dependency_that_others_hold_is_refused_before_anything_changes(machine: Machine, tmp_path: Path) -> None:
    machine.held.add("nvidia-kernel-open-dkms")
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").touch()
    real = machine.apt_get
    machine.apt_get = lambda words: (  # type: ignore[method-assign]
        Done(0, f"Inst nvidia-kernel-open-dkms [{OLD}-1] ({NEW}-1 m)\n") if "--simulate" in words else real(words)
    )
    with pytest.raises(NodeProblem) as caught:
        begin(machine, tmp_path)
    assert str(caught.value) == (
        "Expected: no hold that others set Actual: nvidia-kernel-open-dkms held, not by rackready. Ask who set the "
        "hold; then `apt-mark unhold nvidia-kernel-open-dkms` on the node and run again."
    )
    assert machine.ran == []


def test_a_driver_that_a_pod_holds_open_is_refused_before_anything_changes(machine: Machine, tmp_path: Path) -> None:
    process = tmp_path / "proc/4711"
    (process / "fd").mkdir(parents=True)
    (process / "fd/7").symlink_to("/dev/nvidiactl")
    (process / "comm").write_text("nvidia-device-p\n")
    (process / "cgroup").write_text("0::/kubepods/besteffort/pod1f/9a\n")
    with pytest.raises(NodeProblem) as caught:
        begin(machine, tmp_path)
    assert f"Actual: driver {OLD} is loaded and held by 4711 nvidia-device-p. Nothing was changed." in str(caught.value)
    assert machine.ran == []


def test_a_full_boot_is_refused_before_anything_changes(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "boot").mkdir()
    room = SimpleNamespace(f_bavail=30, f_frsize=1_000_000, f_blocks=500, f_files=1, f_favail=1)
    monkeypatch.setattr(
        disk.Disks, "room", lambda *_: disk.Room("/boot", room.f_bavail * 1_000_000, 1, no_inodes=False)
    )
    with pytest.raises(NodeProblem) as caught:
        begin(machine, tmp_path)
    assert str(caught.value) == (
        "Expected: at least 100 MB free in /boot Actual: 30 MB free. Remove kernels that do not run from the node, "
        "then run again. No package was changed."
    )
    assert machine.ran == []
    assert not state(machine, tmp_path)["open"]


def test_a_module_that_another_run_replaced_has_no_way_back(machine: Machine, tmp_path: Path) -> None:
    machine.on_disk = "595.91.07"
    found = change(machine, tmp_path)
    assert not found.begin(NEW, wish(), [PIN], 0, "")
    assert found.notes == [
        f"driver {OLD} is loaded, but the module on disk is another one already: a failure cannot be rolled back"
    ]
    assert (
        f"Actual: driver {OLD} is loaded, but the module on disk is another one already: nothing was rolled back."
        in (str(change(machine, tmp_path).undo(NEW, LOAD_FAILED, 0, "")))
    )


def test_an_unreadable_journal_is_a_problem(machine: Machine, tmp_path: Path) -> None:
    change(machine, tmp_path)
    path = tmp_path / "var/lib/rackready/driver-change.json"
    path.write_text("{")
    with pytest.raises(NodeProblem, match=f"Remove {path} on the node, then run again: nothing can be rolled back"):
        change(machine, tmp_path).preview(NEW)


def test_services_that_do_not_come_back_are_named(machine: Machine, tmp_path: Path) -> None:
    begin(machine, tmp_path)
    install(machine, tmp_path)
    machine.active.clear()
    machine.broken = {"systemctl start nvidia-dcgm": "failed"}
    text = str(change(machine, tmp_path).undo(NEW, LOAD_FAILED, os.getpid(), ""))
    assert f"the rollback to driver {OLD} failed as well: loaded: {OLD}, on disk: {OLD}" in text
    assert "found nvidia-dcgm.service stopped. Check `journalctl -u nvidia-dcgm.service` on the node." in text
