"""The whole chain without network boot: the BMC mounts the boot medium as a CD, with Secure Boot on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.metal.bare import NODE, BareMetal, bare_metal

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SITE = {"provisioning": {"boot": "media", "secure_boot": "on"}}


def inserted(machine: BareMetal) -> list[str]:
    """Return what the BMC's slots for media hold."""
    with machine.bmc as bmc:
        (system,) = bmc.get("/redfish/v1/Systems")["Members"]
        slots = bmc.get(f"{system['@odata.id']}/VirtualMedia")["Members"]
        return [found["Image"] for slot in slots if (found := bmc.get(slot["@odata.id"]))["Inserted"]]


def current_secure_boot(machine: BareMetal) -> str:
    with machine.bmc as bmc:
        (system,) = bmc.get("/redfish/v1/Systems")["Members"]
        return str(bmc.get(f"{system['@odata.id']}/SecureBoot")["SecureBootCurrentBoot"])


def test_a_machine_is_imaged_from_a_cd_of_its_bmc_with_secure_boot_on(tmp_path: Path) -> None:
    with bare_metal(tmp_path / "clone", SITE) as machine:
        assert current_secure_boot(machine) == "Disabled"
        child = machine.until_said("ramdisk: writing")
        assert len(inserted(machine)) == 1
        assert list((machine.paths.state / "boot/http/media" / NODE).glob("*.iso"))
        machine.kill(child)  # a medium that nobody ejects would be booted again and again

        document = machine.provision()
        assert document["nodes"][0]["state"] == "provisioned", document
        assert inserted(machine) == []
        assert not list((machine.paths.state / "boot/http/media").rglob("*.iso"))
        console = machine.store.logs / f"{NODE}-console.log"
        said = console.read_text(encoding="utf-8", errors="replace")
        assert "Start PXE" not in said
        assert len(machine.boots_with("writing")) == 1
        assert current_secure_boot(machine) == "Enabled"
        machine.check_installed()
        assert "Secure boot enabled" in machine.on_node("dmesg")
        assert machine.provision()["changed"] == []
