"""The simulated machine, read as `rackready profile learn` reads it: its kernel tree is as nested as a real one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from rackready.design.learning.parts import Parts
from rackready.design.learning.profile import Given, learn
from rackready.design.site import load_site
from rackready.model.profile import PlatformProfile
from rackready.ondevice import platform_parts as script
from rackready.profiles import loader, scope
from rackready_sim.hardware import build_state
from rackready_sim.programs.hwsim import ethtool, paths, pcitree, rdmatree
from rackready_sim.programs.hwsim.host import dmidecode, tree
from tests.unit.sim.programs.conftest import Machine

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def learned(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> PlatformProfile:
    """The profile that a node of sim-hgx gives."""
    machine.state = build_state(load_site("sim-hgx", root=ROOT), "node01")
    scope.use(())
    machine.save()
    for nic in machine.state["nics"]:
        folder = paths.at(f"/sys/class/net/{nic['netdev']}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "address").write_text(f"{nic['mac']}\n")
    pcitree.write(machine.state)
    tree.write(machine.state)
    for nic in machine.state["nics"]:
        rdmatree.write(nic)
    for name in ("PCI", "NET", "RDMA", "DMI"):
        monkeypatch.setattr(script, name, str(paths.at(getattr(script, name))))

    def run(*argv: str) -> str:
        programs = {"ethtool": ethtool.main, "dmidecode": dmidecode.main}
        if argv[0] not in programs:
            message = f"{argv[0]} is not installed"
            raise script.UnreadError(message)
        return machine.run(programs[argv[0]], *argv[1:])[1]

    monkeypatch.setattr(script, "run", run)
    machine.capsys.readouterr()
    assert script.main() == 0
    parts = Parts.model_validate(json.loads(machine.capsys.readouterr().out))
    found = learn(parts, Given("node01", like=loader.platform("sys_821ge_h100")))
    assert found.missing == []
    return PlatformProfile.model_validate(yaml.safe_load(found.text))


def test_a_profile_without_addresses_is_completed_by_its_machine(learned: PlatformProfile) -> None:
    assert loader.platform("sys_821ge_h100").unpublished()
    assert learned.unpublished() == ()
    assert [(nic.pci, nic.netdev, nic.rdma_device, nic.gpu, nic.numa, nic.rate) for nic in learned.nics[:2]] == [
        ("0000:1a:00.0", "enp26s0np0", "rocep26s0", 0, 0, 400),
        ("0000:42:00.0", "enp66s0np0", "rocep66s0", 1, 0, 400),
    ]
    assert (len(learned.nics), learned.nics[7].gpu, learned.nics[7].numa) == (8, 7, 1)


def test_the_profile_of_the_environment_is_what_its_machine_gives(learned: PlatformProfile) -> None:
    site = load_site("sim-hgx", root=ROOT)
    own = loader.platform(site.nodes()[0].platform)
    scope.use(())
    assert (own.gpu_pci, own.nics) == (learned.gpu_pci, learned.nics)
