"""What software sets on the simulated host stays until the next fault or boot: governor, huge pages, access control."""

from __future__ import annotations

import struct

from rackready_sim.programs.hwsim import paths
from rackready_sim.programs.hwsim.host import pcie, tree
from tests.unit.sim.programs.conftest import Machine

GOVERNOR = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
PAGES = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"


def test_governor_and_huge_pages_stay_until_the_state_has_others(machine: Machine) -> None:
    tree.write(machine.state)
    paths.at(GOVERNOR).write_text("powersave\n")
    paths.at(PAGES).write_text("16\n")
    tree.write(machine.state)
    assert (paths.at(GOVERNOR).read_text(), paths.at(PAGES).read_text()) == ("powersave\n", "16\n")
    machine.inject("hugepages-missing")
    tree.write(machine.state)
    assert (paths.at(GOVERNOR).read_text(), paths.at(PAGES).read_text()) == ("powersave\n", "611\n")


def test_access_control_stays_until_the_state_has_another(machine: Machine) -> None:
    part = next(bridge for bridge in machine.state["host"]["bridges"] if bridge["kind"] == "downstream")
    config = paths.at(f"/sys/bus/pci/devices/{part['pci']}/config")
    for acs, value in ((True, 0x1D), (True, 0), (False, 0), (True, 0x1D)):
        pcie.bridge(part | {"acs": acs})
        assert struct.unpack_from("<H", config.read_bytes(), 0x226)[0] == value
        written = bytearray(config.read_bytes())
        struct.pack_into("<H", written, 0x226, 0)
        config.write_bytes(bytes(written))
    config.write_bytes(bytes(256))  # at power-on, the tree has a short one
    pcie.bridge(part | {"acs": True})
    assert len(config.read_bytes()) == 4096
