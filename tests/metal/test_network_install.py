"""The whole chain on one simulated bare-metal node: blank disk, network boot, image, reboot from disk, SSH.

Run it with `make test-metal`. Firmware (OVMF), shim, GRUB, kernel, dnsmasq, nginx, the ramdisk's agent and the Pulumi
engine are the real ones; the machine is QEMU's, without hardware virtualization.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.metal.bare import bare_metal

pytestmark = [pytest.mark.integration, pytest.mark.slow]

KILLED_AT = ("power on", "ramdisk: started", "ramdisk: writing 30 %", "ramdisk: verified", "waiting for SSH")
"""Words of the progress lines at which the controller is killed, one after the other."""


def test_a_blank_machine_is_imaged_and_a_second_run_changes_nothing(tmp_path: Path) -> None:
    with bare_metal(tmp_path / "clone") as machine:
        document = machine.provision()
        assert document["nodes"][0]["state"] == "provisioned", document
        machine.check_installed()
        boot = machine.on_node("cat /proc/sys/kernel/random/boot_id")
        assert machine.provision()["changed"] == []
        assert machine.on_node("cat /proc/sys/kernel/random/boot_id") == boot
        assert machine.power_ons() == 1


def test_a_controller_killed_at_five_points_goes_on(tmp_path: Path) -> None:
    with bare_metal(tmp_path / "clone") as machine:
        for words in KILLED_AT:
            machine.kill(machine.until_said(words))
        document = machine.provision()
        assert document["nodes"][0]["state"] == "provisioned", document
        machine.check_installed()
        assert machine.power_ons() == 1
        assert len(machine.boots_with("writing")) == 1, "the image was written more than once"
