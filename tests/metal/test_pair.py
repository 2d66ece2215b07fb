"""A RAID1 pair of system disks, one of them with somebody's data, and an NVMe scratch disk."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rackready.drivers.redfish import PowerAction
from rackready_sim.metal import disks
from tests.metal.bare import NODE, BareMetal, bare_metal, refused

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_DISKS = {"system": [{"serial": "SIMSYS1"}, {"serial": "SIMSYS2"}], "scratch": [{"serial": "SIMSCR1"}]}
PAIR = {"racks": [{"name": "rack01", "nodes": [{"name": NODE, "disks": _DISKS}]}]}
HELD = "/dev/vda (serial SIMSYS1, 9 GB): gpt, 2 partitions; ext4 'data' on /dev/vda2"


def members(machine: BareMetal, array: str) -> str:
    """Return how many members an array has and how many work, e.g. "[2/2]", as the kernel says it."""
    found = re.search(rf"^{array} : active raid1 .*\n.* (\[\d/\d\])", machine.on_node("cat /proc/mdstat"), re.MULTILINE)
    assert found is not None, machine.on_node("cat /proc/mdstat")
    return found[1]


def root_array(machine: BareMetal) -> str:
    return machine.on_node("basename $(readlink -f $(findmnt -no SOURCE /))")


def check_refused(machine: BareMetal) -> None:
    """Without `--erase`, the disk with data is named, and not one byte of it changes."""
    machine.sim("inject", NODE, "disk-has-data", "--disk", "0")
    folder = machine.disk(0).parent
    folder.mkdir(parents=True, exist_ok=True)
    disks.ensure(folder, machine.store.state(NODE)["metal"]["disks"][0])
    before = machine.hash(0)
    erase = f"rackready provision --env sim-metal --limit {NODE} --erase {NODE}"
    assert refused(machine.provision(code=1)) == (
        f"{NODE}: imaging refused, nothing was written - Expected: empty disks Actual: {HELD}. "
        f"If nobody needs it, `{erase}` erases these disks."
    )
    assert machine.hash(0) == before
    assert not machine.boots_with("writing")


def check_erased(machine: BareMetal) -> None:
    """With `--erase`, what is erased is listed before it goes."""
    before = len(machine.progress())
    machine.provision("--erase", NODE)
    said = machine.progress()[before:]
    assert 0 < said.index(f"system {HELD}") < said.index("ramdisk: erasing, /dev/vda (serial SIMSYS1, 8.6 GB)")


def check_boots_without(machine: BareMetal, disk: int) -> None:
    """The second disk alone boots the system: its loader and its half of the array."""
    machine.sim("inject", NODE, "disk-missing", "--disk", str(disk))
    machine.power(PowerAction.OFF)
    machine.power(PowerAction.ON)
    machine.wait_for_ssh()
    assert members(machine, root_array(machine)) == "[2/1]"
    assert machine.on_node("cat /sys/block/vd*/serial") == "SIMSYS2"
    machine.power(PowerAction.OFF)
    machine.sim("clear", NODE, "disk-missing")


def test_a_pair_with_data_is_refused_then_imaged_and_scratch_is_kept(tmp_path: Path) -> None:
    with bare_metal(tmp_path / "clone", PAIR) as machine:
        check_refused(machine)
        check_erased(machine)
        assert members(machine, root_array(machine)) == "[2/2]"
        assert machine.on_node("findmnt -no SOURCE,FSTYPE /scratch").split() == ["/dev/nvme0n1", "ext4"]
        machine.on_node("echo of somebody > /scratch/kept && sync")
        check_boots_without(machine, 0)

        machine.provision("--erase", NODE)
        assert members(machine, root_array(machine)) == "[2/2]"
        assert machine.on_node("cat /scratch/kept") == "of somebody"
        assert len(machine.boots_with("writing")) == 1
