"""What software sets on the simulated host stays until the next fault or boot: governor and huge pages."""

from __future__ import annotations

from rackready_sim.programs.hwsim import paths
from rackready_sim.programs.hwsim.host import tree
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
