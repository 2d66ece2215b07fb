"""A simulated bare-metal node alone, with no operating system: power, firmware, boot overrides, disks, faults."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rackready.design.site import load_site
from rackready.drivers import redfish_media
from rackready.drivers.boot_service import ArmedNode, BootService
from rackready.drivers.redfish import Bmc, BootTarget, PowerAction
from rackready.drivers.redfish_boot import set_secure_boot
from rackready.drivers.redfish_errors import BmcError
from rackready.model.problems import RackreadyError
from rackready_sim.definition import Definition
from rackready_sim.errors import SimError
from rackready_sim.metal import nvram
from rackready_sim.metal.machine import Metal, require_programs
from rackready_sim.rack import Rack
from tests.integration.project import within

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
ENV, NODE = "sim-metal", "node01"
GRUB = Path("/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed")
FIRMWARE_S = 90.0
"""Time that the firmware may take under emulation on a busy machine; alone it needs 6 s."""


def host(bmc: Bmc) -> str:
    """Return the address of the machine's system; the other one is the board of its GPUs."""
    (found,) = (
        item["@odata.id"] for item in bmc.get("/redfish/v1/Systems")["Members"] if "HGX_" not in item["@odata.id"]
    )
    return str(found)


class Machine:
    """One bare-metal node, its rack and its BMC."""

    def __init__(self, root: Path) -> None:
        self.root = root
        place = root / "inventories" / ENV
        place.mkdir(parents=True)
        shutil.copy(ROOT / "inventories" / ENV / "site.yml", place)
        self.rack = Rack(root, ENV, metal=1, bare=True)
        self.changes = self.rack.up().changes
        self.metal = Metal(Definition.load(root, ENV).plan, self.rack.store, NODE)

    @property
    def bmc(self) -> Bmc:
        return Bmc(NODE, load_site(ENV, root=self.root).node(NODE).bmc)

    def power(self, action: PowerAction, wait_s: float = 30.0) -> str:
        with self.bmc as bmc:
            return bmc.power(action, wait_s=wait_s)

    def boot_from(self, target: BootTarget) -> None:
        with self.bmc as bmc:
            bmc.set_boot_once(target)

    def reset(self, kind: str) -> None:
        with self.bmc as bmc:
            bmc.send(f"{host(bmc)}/Actions/ComputerSystem.Reset", {"ResetType": kind})

    @property
    def system(self) -> dict[str, object]:
        with self.bmc as bmc:
            return bmc.get(host(bmc))

    def get(self, name: str) -> dict[str, object]:
        path = f"{self.system['@odata.id']}/{name}"
        with self.bmc as bmc:  # one at a time: a second would wait for the first
            return bmc.get(path)

    @property
    def override(self) -> object:
        boot = self.system["Boot"]
        assert isinstance(boot, dict)
        return boot["BootSourceOverrideTarget"]

    def clear_console(self) -> None:
        self.metal.console.parent.mkdir(exist_ok=True)
        self.metal.console.write_text("")

    @property
    def said(self) -> str:
        return self.metal.console.read_text(errors="replace") if self.metal.console.exists() else ""

    def says(self, *texts: str) -> bool:
        return within(FIRMWARE_S, lambda: all(text in self.said for text in texts))

    def actions(self) -> list[str]:
        text = self.rack.store.power_log.read_text() if self.rack.store.power_log.exists() else ""
        return [line.split('"action": "')[1].split('"')[0] for line in text.splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    if os.geteuid() != 0:
        pytest.skip("needs root, for a bridge and a virtual network card")
    try:
        require_programs()
    except SimError as error:
        pytest.skip(str(error))
    machine = Machine(tmp_path_factory.mktemp("metal"))
    yield machine
    machine.rack.down()


@pytest.fixture
def machine(whole: Machine) -> Machine:
    """Return the machine without power and faults, and with an empty console."""
    whole.rack.clear(NODE)
    whole.metal.cut()
    assert within(20, lambda: whole.system["PowerState"] == "Off")
    with whole.bmc as bmc:
        bmc.forget()
    whole.clear_console()
    return whole


def bootable(machine: Machine, menu: str) -> None:
    """Put a boot loader on the first disk that does what ``menu`` says."""
    if not GRUB.exists() or shutil.which("mformat") is None:
        pytest.skip("needs packages grub-efi-amd64-signed and mtools")
    disk = machine.metal.folder / "disk0.raw"
    config = machine.root / "grub.cfg"
    config.write_text(menu)
    for argv in (
        ["mformat", "-i", str(disk), "-F", "-T", str(256 << 11), "::"],
        ["mmd", "-i", str(disk), "::EFI", "::EFI/BOOT", "::EFI/debian"],
        ["mcopy", "-i", str(disk), str(GRUB), "::EFI/BOOT/BOOTX64.EFI"],
        ["mcopy", "-i", str(disk), str(config), "::EFI/debian/grub.cfg"],
    ):
        subprocess.run(argv, check=True, capture_output=True, timeout=60)


def test_the_bmc_names_the_machine_and_its_boot_port(machine: Machine) -> None:
    with machine.bmc as bmc:
        bmc.require("SIM-METAL-0001")
    assert machine.get("EthernetInterfaces/NIC1")["MACAddress"] == "52:54:00:00:77:01"


def test_an_override_holds_for_one_start_of_the_firmware(machine: Machine) -> None:
    machine.boot_from(BootTarget.PXE)
    assert machine.power(PowerAction.ON) == "On"
    assert machine.says("Start PXE over IPv4")
    assert machine.override == "None"
    machine.clear_console()
    machine.boot_from(BootTarget.UEFI_HTTP)
    machine.power(PowerAction.RESET)
    assert machine.says("Start HTTP Boot over IPv4")
    assert "Start PXE" not in machine.said
    machine.clear_console()
    machine.boot_from(BootTarget.PXE)
    machine.power(PowerAction.RESET)
    assert machine.says("Start PXE over IPv4")
    assert "HTTP Boot" not in machine.said, "PXE comes before HTTP again"
    assert machine.actions()[-2:] == ["reset", "reset"]


def test_a_bmc_may_accept_an_override_and_ignore_it(machine: Machine) -> None:
    machine.power(PowerAction.ON)  # makes the disks
    machine.metal.cut()
    bootable(machine, "echo from-the-disk\nsleep 600\n")
    machine.rack.inject(NODE, "override-ignored")
    machine.boot_from(BootTarget.PXE)
    assert machine.override == "Pxe"
    machine.power(PowerAction.ON)
    assert machine.says("from-the-disk")
    assert "Start PXE" not in machine.said
    assert machine.override == "None"


def test_a_reboot_starts_the_firmware_anew_and_a_shutdown_leaves_it_off(machine: Machine) -> None:
    machine.power(PowerAction.ON)
    machine.metal.cut()
    bootable(machine, "echo asks-for-a-reboot\nsleep 20\nreboot\n")  # the override is read back meanwhile
    first = len(machine.actions())
    machine.power(PowerAction.ON)
    assert machine.says("asks-for-a-reboot")
    machine.boot_from(BootTarget.PXE)
    assert machine.says("Start PXE over IPv4"), "the restart follows the override of that moment"
    assert machine.actions()[first:][:2] == ["on", "reboot"]
    machine.metal.cut()
    assert within(20, lambda: machine.system["PowerState"] == "Off")
    bootable(machine, "echo asks-for-an-end\nhalt\n")
    machine.power(PowerAction.ON)
    assert machine.says("asks-for-an-end")
    assert within(30, lambda: machine.system["PowerState"] == "Off")
    assert within(10, lambda: machine.actions()[-1] == "graceful-off")


def test_power_off_asks_first_and_then_cuts(machine: Machine) -> None:
    machine.power(PowerAction.ON)  # makes the disks
    machine.metal.cut()
    bootable(machine, "echo waits\nsleep 600\n")  # the test before left a menu that shuts down by itself
    machine.power(PowerAction.ON)
    assert machine.says("waits")
    pid = machine.metal.pid
    machine.reset("GracefulShutdown")
    time.sleep(2)
    assert machine.metal.pid == pid, "a boot loader does not listen to the power button"
    assert machine.power(PowerAction.OFF, wait_s=3) == "Off"
    assert machine.metal.pid == 0
    assert within(10, lambda: machine.actions()[-1] == "off")


def test_the_link_and_the_disks_follow_the_hardware_state(machine: Machine) -> None:
    machine.rack.inject(NODE, "boot-link-down")
    machine.rack.inject(NODE, "disk-missing", disk=1)
    machine.rack.inject(NODE, "disk-has-data", disk=0)
    machine.boot_from(BootTarget.PXE)
    machine.power(PowerAction.ON)
    disk = machine.metal.folder / "disk0.raw"
    table = subprocess.run(["sfdisk", "--dump", str(disk)], capture_output=True, text=True, check=True, timeout=60)
    assert "label: gpt" in table.stdout
    assert table.stdout.count("size=") == 2
    with disk.open("rb") as raw:
        raw.seek((65 << 20) + 1080)
        assert raw.read(2) == b"\x53\xef", "ext4's magic number"
    argv = Path(f"/proc/{machine.metal.pid}/cmdline").read_text().split("\0")
    assert any("serial=SIMSYS1" in word for word in argv)
    assert not any("serial=SIMSCR1" in word for word in argv)
    assert machine.says("BdsDxe")
    assert "Station IP" not in machine.said


def test_secure_boot_is_what_the_firmware_has(machine: Machine) -> None:
    machine.power(PowerAction.ON)
    machine.metal.cut()
    assert not nvram.secure_boot(machine.metal.flash)
    with machine.bmc as bmc:
        bmc.system().secure_boot.set_enabled(True)  # sushy's own call
    found = machine.get("SecureBoot")
    assert (found["SecureBootEnable"], found["SecureBootCurrentBoot"]) == (True, "Disabled")
    machine.power(PowerAction.ON)
    assert machine.get("SecureBoot")["SecureBootCurrentBoot"] == "Enabled"
    assert nvram.secure_boot(machine.metal.flash)


def boot_service(machine: Machine, folder: Path) -> BootService:
    """Return a boot service whose kernel nobody signed."""
    settings = load_site(ENV, root=machine.root).provisioning
    assert settings is not None
    assert settings.service is not None
    service = BootService(folder, settings.service)
    fake = machine.root / "vmlinuz"
    fake.write_bytes(b"no kernel" * 100)
    service.prepare(fake, fake)
    return service


@contextmanager
def medium(machine: Machine) -> Iterator[str]:
    """Build the boot medium of the node, and serve it; return its URL."""
    service = boot_service(machine, machine.root / "boot")
    address = load_site(ENV, root=machine.root).node(NODE).address
    plan = {"schema": "rackready/imaging/v1", "node": NODE, "digest": "d" * 64}
    service.arm(ArmedNode(name=NODE, mac="52:54:00:00:77:01", address=address, plan=plan))
    handler = partial(SimpleHTTPRequestHandler, directory=str(service.layout.http))
    place = (str(service.settings.address), service.settings.http_port)
    with ThreadingHTTPServer(place, handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield service.medium(NODE)
        server.shutdown()


def test_a_cd_of_the_bmc_boots_and_secure_boot_refuses_its_unsigned_kernel(machine: Machine) -> None:
    if not all(map(shutil.which, ("mformat", "xorriso"))) or not GRUB.exists():
        pytest.skip("needs packages mtools, xorriso and grub-efi-amd64-signed")
    with machine.bmc as bmc:
        set_secure_boot(bmc, on=True)
        with pytest.raises(BmcError, match=r"virtual media http://127.0.0.1:9/none.iso - Expected: a CD slot"):
            redfish_media.insert(bmc, "http://127.0.0.1:9/none.iso")
    with medium(machine) as url:
        with machine.bmc as bmc:
            redfish_media.insert(bmc, url)
        machine.boot_from(BootTarget.CD)
        machine.power(PowerAction.ON)
        assert machine.says(f"{NODE} boots the imaging ramdisk", "bad shim signature")
    with machine.bmc as bmc:
        redfish_media.eject(bmc, url)
        set_secure_boot(bmc, on=False)
    machine.power(PowerAction.OFF)
    machine.clear_console()
    machine.power(PowerAction.ON)
    assert machine.says("Start PXE over IPv4")
    assert "boots the imaging ramdisk" not in machine.said, "an ejected CD is gone"


def test_a_bmc_is_late_busy_or_restarts(machine: Machine) -> None:
    machine.rack.inject(NODE, "power-lag", seconds=4)
    assert machine.system["PowerState"] == "Off"
    machine.reset("On")
    assert within(20, lambda: machine.metal.running)
    assert machine.system["PowerState"] != "On"
    assert within(20, lambda: machine.system["PowerState"] == "On")
    machine.rack.clear(NODE)
    for fault in ("bmc-busy", "bmc-restarts"):
        machine.rack.inject(NODE, fault, seconds=300)
        with pytest.raises(RackreadyError), machine.bmc as bmc:
            bmc.observe()
        machine.rack.clear(NODE)
        assert machine.system["PowerState"] == "On"


def test_down_leaves_nothing(machine: Machine) -> None:
    machine.power(PowerAction.ON)
    service = boot_service(machine, machine.root / ".rackready" / ENV / "boot")
    service.start()
    pids, bridge = [machine.metal.pid, *service.pids().values()], machine.metal.plan.bridge
    assert all(pids)
    removed = machine.rack.down()
    assert {f"{NODE}: QEMU", "boot service: dnsmasq", "boot service: nginx"} <= set(removed)
    for place in (Path(f"/proc/{pid}/cmdline") for pid in pids):
        assert not place.exists() or not place.read_bytes()
    links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert bridge not in links
    assert not (machine.root / ".rackready" / "sim").exists()
    with pytest.raises(SimError, match="Expected: at most 1 Actual: 2"):
        Rack(machine.root, ENV, metal=2).up()
