"""The shell scripts in answer files, run by a real shell: which disks they take, and which they leave alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackready.design.installer import Disk, InstallerDisks, InstallerFacts
from rackready.render.environment import render
from rackready.render.installer import continued, installer_file
from tests.unit.design.installer_sites import PAIR, SINGLE, facts

SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]
FACTS = facts("debian12", PAIR)


class Machine:
    """InstallerDisks of a machine as files, and the programs that tell of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("sys/block", "sys/class/block", "dev/disk/by-path", "bin", "says"):
            (folder / name).mkdir(parents=True)
        self.calls = folder / "calls"
        self.calls.touch()
        self.program("udevadm", 'cat "$SAYS/udev-${5##*/}" 2>/dev/null || true')
        self.program("blkid", 'for last; do :; done; cat "$SAYS/blkid-${last##*/}" 2>/dev/null || exit 2')
        for name in ("sleep", "mdadm", "wipefs", "mkfs.xfs", "mkfs.ext4"):
            self.program(name, f'echo {name} "$@" >> "$CALLS"')

    def program(self, name: str, script: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def disk(self, name: str, serial: str, *, by: str = "serial", holds: str = "", parts: int = 0) -> None:
        """Add a disk. ``by``: where its serial number is seen; ``holds``: what blkid says of it."""
        block = self.folder / "sys/block" / name
        (block / "device").mkdir(parents=True)
        (self.folder / "dev" / name).touch()
        if by == "nvme":
            (block / "device/serial").write_text(f"{serial}   \n", encoding="utf-8")
        else:
            (self.folder / f"says/udev-{name}").write_text(f"DEVNAME=/dev/{name}\n{by}={serial}\n", encoding="utf-8")
        if holds:
            (self.folder / f"says/blkid-{name}").write_text(f"/dev/{name}: {holds}\n", encoding="utf-8")
        for number in range(parts):
            (block / f"{name}p{number + 1}").mkdir()

    def link(self, name: str, path: str) -> None:
        (self.folder / f"dev/disk/by-path/{path}").symlink_to(self.folder / "dev" / name)

    def called(self) -> list[str]:
        """Return the commands that would change a disk."""
        return self.calls.read_text(encoding="utf-8").replace(str(self.folder), "").splitlines()

    def run(self, script: str, *arguments: str, shell: str = "dash") -> subprocess.CompletedProcess[str]:
        here = re.sub(r"/(sys|dev)/(?!null)", rf"{self.folder}/\1/", script).replace("-lt 30", "-lt 2")
        env = {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "SAYS": f"{self.folder}/says",
            "CALLS": str(self.calls),
        }
        return subprocess.run(
            [shell, "-c", here, "x", *arguments], env=env, capture_output=True, text=True, check=False
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "machine")
    made.disk("nvme0n1", "A1", by="nvme")
    made.disk("sda", "B 2", by="ID_SERIAL_SHORT")
    made.disk("sdb", "C3", by="SCSI_IDENT_SERIAL")
    made.disk("nvme1n1", "N4", by="nvme")
    made.link("nvme1n1", "pci-0000:41:00.0-nvme-1")
    return made


def script(system: list[str], scratch: tuple[str, ...] = (), *, erase: bool = False) -> str:
    """Return the script that finds disks; a name that begins with a slash is a path."""

    def disk(value: str) -> Disk:
        return Disk("path", f"/dev/disk/by-path/{value[1:]}") if value.startswith("/") else Disk("serial", value)

    disks = InstallerDisks(tuple(map(disk, system)), tuple(map(disk, scratch)), "ext4", "/scratch")
    text = render("provisioning/disks.sh.j2", facts=replace(FACTS, disks=disks, erase=erase))
    return f'{text}echo "system$system scratch$scratch"\n'


def found(machine: Machine, text: str, shell: str = "dash") -> str:
    done = machine.run(text, shell=shell)
    said = (done.stdout + done.stderr).replace(str(machine.folder), "").strip()
    assert (done.returncode == 0) == said.startswith("system"), said
    return said.removeprefix("rackready: ")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("one_line", [False, True])
def test_each_disk_is_found_by_its_serial_number_or_its_path(machine: Machine, shell: str, *, one_line: bool) -> None:
    text = script(["A1", "B 2"], ("C3", "/pci-0000:41:00.0-nvme-1"))
    text = continued(text).replace("\\\n", "") if one_line else text
    assert found(machine, text, shell) == "system /dev/nvme0n1 /dev/sda scratch /dev/sdb /dev/nvme1n1"


REFUSED = {
    "a serial number that no disk has": (["A1", "X9"], "node01: serial X9 - Expected: one whole disk Actual: none"),
    "a part of a serial number": (["A"], "node01: serial A - Expected: one whole disk Actual: none"),
    "a pattern": (["."], "node01: serial . - Expected: one whole disk Actual: none"),
    "a path without a disk": (
        ["/pci-0000:42:00.0-nvme-1"],
        "node01: path /dev/disk/by-path/pci-0000:42:00.0-nvme-1 - Expected: one whole disk Actual: none",
    ),
    "one disk by two names": (
        ["N4", "/pci-0000:41:00.0-nvme-1"],
        (
            "node01: path /dev/disk/by-path/pci-0000:41:00.0-nvme-1 - Expected: a disk of its own Actual: nvme1n1, "
            "named before"
        ),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_no_other_disk_is_taken(machine: Machine, case: str) -> None:
    system, says = REFUSED[case]
    assert found(machine, script(system)) == says


def test_two_disks_of_one_serial_number_are_refused(machine: Machine) -> None:
    machine.disk("sdc", "A1", by="ID_SCSI_SERIAL")
    assert found(machine, script(["A1"])) == "node01: serial A1 - Expected: one whole disk Actual: nvme0n1 sdc"


def test_a_partition_is_no_disk(machine: Machine) -> None:
    (machine.folder / "dev/nvme0n1p1").touch()
    machine.link("nvme0n1p1", "pci-0000:01:00.0-nvme-1-part1")
    assert found(machine, script(["/pci-0000:01:00.0-nvme-1-part1"])).endswith("Expected: one whole disk Actual: none")


def test_a_disk_that_appears_late_is_waited_for(machine: Machine) -> None:
    machine.program(
        "sleep", f'echo sleep >> "$CALLS"; mkdir -p {machine.folder}/sys/block/sdz; touch {machine.folder}/dev/sdz'
    )
    (machine.folder / "says/udev-sdz").write_text("ID_SERIAL_SHORT=Z9\n", encoding="utf-8")
    assert found(machine, script(["Z9"])) == "system /dev/sdz scratch"
    assert machine.called() == ["sleep"]


@pytest.mark.parametrize(
    ("holds", "parts", "says"),
    [('UUID="1" TYPE="ext4"', 0, '/dev/sdh: UUID="1" TYPE="ext4"'), ("", 2, "sdhp1 sdhp2")],
)
def test_data_is_kept_unless_the_node_is_named_for_it(machine: Machine, holds: str, parts: int, says: str) -> None:
    machine.disk("sdh", "H8", by="ID_SERIAL_SHORT", holds=holds, parts=parts)
    refused = found(machine, script(["H8"]))
    assert refused.startswith("node01: sdh - Expected: an empty disk Actual: ")
    assert says in refused
    assert found(machine, script(["H8"], erase=True)) == "system /dev/sdh scratch"


def test_what_a_disk_holds_is_told_by_the_few_programs_of_an_installer(machine: Machine) -> None:
    """The busybox of Debian's installer has a tr without classes."""
    machine.disk("sdh", "H8", by="ID_SERIAL_SHORT", holds='LABEL="control" TYPE="ext4"', parts=2)
    machine.program("tr", "echo no tr; exit 1")
    assert found(machine, script(["H8"])) == (
        'node01: sdh - Expected: an empty disk Actual: sdhp1 sdhp2 /dev/sdh: LABEL="control" TYPE="ext4"'
    )


SCRATCH = 'LABEL="rr-scratch" UUID="1" TYPE="ext4"'


@pytest.mark.parametrize("holds", [SCRATCH, 'LABEL="any:rr-scratch" TYPE="linux_raid_member"'])
def test_scratch_that_is_there_is_no_data_to_ask_for(machine: Machine, holds: str) -> None:
    machine.disk("sdh", "H8", by="ID_SERIAL_SHORT", holds=holds)
    assert found(machine, script(["A1"], ("H8",))) == "system /dev/nvme0n1 scratch /dev/sdh"


def test_scratch_is_whole_or_new(machine: Machine) -> None:
    machine.disk("sdh", "H8", by="ID_SERIAL_SHORT", holds=SCRATCH)
    assert found(machine, script(["A1"], ("H8", "C3"), erase=True)) == (
        "node01: scratch - Expected: all disks of it, or none Actual: sdh of it, sdb not"
    )


def test_other_data_on_a_scratch_disk_is_kept(machine: Machine) -> None:
    machine.disk("sdh", "H8", by="ID_SERIAL_SHORT", holds='LABEL="rr-scratch-old" TYPE="ext4"')
    assert "Expected: an empty disk" in found(machine, script(["A1"], ("H8",)))


def test_an_installer_that_cannot_see_what_disks_hold_changes_nothing(machine: Machine) -> None:
    text = script(["A1"]).replace("udevadm blkid", "udevadm no-such-blkid")
    assert found(machine, text) == "node01: the installer has no no-such-blkid: what disks hold cannot be seen"


# --- the script that finishes an installation -------------------------------------------------------------------


def finish(base: InstallerFacts) -> str:
    """Return the part about scratch disks, with files of this test."""
    text = render("provisioning/finish.sh.j2", facts=base, report=lambda _: ":")
    return text[: text.index("type=")].replace(">> /etc/mdadm/mdadm.conf", "> /dev/null")


@pytest.mark.parametrize(
    ("holds", "expected"),
    [
        (SCRATCH, []),
        ("", ["wipefs --all --quiet /dev/sdh", "mkfs.ext4 -L rr-scratch /dev/sdh"]),
    ],
)
def test_one_scratch_disk_is_left_or_made(machine: Machine, holds: str, expected: list[str]) -> None:
    machine.program("blkid", f"echo {'rr-scratch' if holds else ''}")
    assert machine.run(finish(facts("ubuntu2404", SINGLE)), "/dev/sdh").returncode == 0
    assert machine.called() == expected


def test_several_new_scratch_disks_are_striped(machine: Machine) -> None:
    machine.program("blkid", "exit 2")
    assert machine.run(finish(facts("ubuntu2404", PAIR)), "/dev/sdh", "/dev/sdi").returncode == 0
    assert machine.called() == [
        "wipefs --all --quiet /dev/sdh /dev/sdi",
        (
            "mdadm --create /dev/md/rr-scratch --run --level=0 --name=rr-scratch --homehost=any --raid-devices=2 "
            "/dev/sdh /dev/sdi"
        ),
        "mdadm --detail --brief /dev/md/rr-scratch",
        "wipefs --all --quiet /dev/md/rr-scratch",
        "mkfs.xfs -L rr-scratch /dev/md/rr-scratch",
    ]


def test_a_striped_scratch_that_is_there_is_assembled_and_left(machine: Machine) -> None:
    says = 'for last; do :; done; case "$last" in */dev/md/*) echo rr-scratch ;; *) echo any:rr-scratch ;; esac'
    machine.program("blkid", says)
    assert machine.run(finish(facts("ubuntu2404", PAIR)), "/dev/sdh", "/dev/sdi").returncode == 0
    assert machine.called() == [
        "mdadm --assemble /dev/md/rr-scratch /dev/sdh /dev/sdi",
        "mdadm --detail --brief /dev/md/rr-scratch",
    ]


@pytest.mark.parametrize("kept", ["ext4", "xfs"])
def test_kept_scratch_is_mounted_as_what_it_is(machine: Machine, kept: str) -> None:
    machine.program("blkid", f'case "$*" in *"-s TYPE"*) echo {kept} ;; *) echo rr-scratch ;; esac')
    text = render("provisioning/finish.sh.j2", facts=facts("ubuntu2404", SINGLE), report=lambda _: ":")
    part = text[: text.index("/etc/fstab") + len("/etc/fstab")].replace("mkdir -p /scratch", ":")
    assert machine.run(part.replace("/etc/fstab", '"$CALLS"'), "/dev/sdh").returncode == 0
    assert machine.called() == [f"LABEL=rr-scratch /scratch {kept} defaults,nofail 0 2"]


@pytest.mark.parametrize("names", [[], ["rocky.repo", "rocky-addons.repo"]])
def test_other_repositories_go_also_where_there_is_none(tmp_path: Path, names: list[str]) -> None:
    """RHEL itself has none until it is subscribed."""
    folder = tmp_path / "yum.repos.d"
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    text = render("provisioning/finish.sh.j2", facts=facts("el9", SINGLE, proxy=None), report=lambda _: ":")
    part = f"set -eu\n{text[text.index('for repository in') :]}".replace("/etc/yum.repos.d", str(folder))
    done = subprocess.run(["dash", "-c", part], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in folder.iterdir()} == {
        *(f"{name}.installer" for name in names),
        "rackready-system.repo",
    }


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("disks", [PAIR, SINGLE])
@pytest.mark.parametrize("kind", ["early", "late"])
def test_a_shell_takes_the_commands_of_a_preseed_file(kind: str, disks: dict[str, Any], shell: str) -> None:
    text = installer_file(facts("debian13", disks)).replace("\\\n", "")
    key = "partman/early_command" if kind == "early" else "preseed/late_command"
    command = next(line for line in text.splitlines() if line.startswith(f"d-i {key}")).split(" string ", 1)[1]
    quoted = re.search(r"in-target sh -c ('.*') finish", command)
    said = ["sh", "-c", f"printf %s {quoted[1] if quoted else 0}"]
    inner = subprocess.run(said, capture_output=True, text=True, check=True).stdout
    assert (quoted is not None) == (kind == "late")
    for checked in (command, inner):
        done = subprocess.run([shell, "-n", "-c", checked], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("disks", [PAIR, SINGLE])
@pytest.mark.parametrize("system", ["ubuntu2404", "el9"])
def test_a_shell_takes_the_scripts_of_the_other_files(system: str, disks: dict[str, Any]) -> None:
    base = facts(system, disks)
    for name in ("disks", "finish"):
        text = render(f"provisioning/{name}.sh.j2", facts=base, report=lambda _: ":")
        done = subprocess.run(["dash", "-n", "-c", text], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
