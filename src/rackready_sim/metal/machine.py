"""One simulated bare-metal node: its QEMU process, from power-on to power cut. Emulated processors only, never KVM."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackready.paths import private_dir
from rackready_sim import hostnet
from rackready_sim.emulator import process_start
from rackready_sim.errors import SimError, describe
from rackready_sim.host import missing, run
from rackready_sim.metal import disks, nvram
from rackready_sim.metal.cd import CdDrive
from rackready_sim.metal.flash import Flash
from rackready_sim.metal.qmp import COMMANDS, MONITOR, Qmp
from rackready_sim.plan import Machine, RackPlan
from rackready_sim.store import Store, write_json

log = logging.getLogger("rackready_sim.metal")

QEMU = "qemu-system-x86_64"
_OVMF = Path("/usr/share/OVMF")
_CODE, _VARS = _OVMF / "OVMF_CODE_4M.secboot.fd", _OVMF / "OVMF_VARS_4M.ms.fd"
"""Debian's ovmf: firmware that can enforce Secure Boot, and its flash with Microsoft's keys enrolled."""
_START_S, _END_S = 20.0, 10.0
_NETWORK = ("Pxe", "UefiHttp")


@dataclass(frozen=True, slots=True)
class Metal:
    """A node's machine. What it is comes from the hardware state, at every power-on anew."""

    plan: RackPlan
    store: Store
    name: str

    @property
    def folder(self) -> Path:
        """Disks, flash, sockets and process id of this machine."""
        return self.store.base / "metal" / self.name

    @property
    def console(self) -> Path:
        """Everything that the serial port said."""
        return self.store.logs / f"{self.name}-console.log"

    @property
    def flash(self) -> Path:
        """The firmware's variables."""
        return Flash(self.store, self.name).file

    @property
    def tap(self) -> str:
        """Name of the network card's other end on this machine."""
        return f"{self.plan.bridge}-{self._machine.octet}"

    @property
    def _machine(self) -> Machine:
        return self.plan.machines[self.name]

    @property
    def pid(self) -> int:
        """The QEMU process; 0 without one."""
        try:
            found = json.loads((self.folder / "qemu.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return 0
        return int(found["pid"]) if found["start"] and process_start(found["pid"]) == found["start"] else 0

    @property
    def running(self) -> bool:
        """Return whether the machine has power."""
        return self.pid != 0

    def start(self, target: str) -> Qmp:
        """Power the machine on, booting from a Redfish target first (None: its disks); return its events.

        Raises SimError with what QEMU said.
        """
        require_programs()
        state = self.store.state(self.name)
        private_dir(self.folder)
        self.settle_flash(target)
        files = {disk["id"]: disks.ensure(self.folder, disk) for disk in state["metal"]["disks"]}
        self._tap()
        for name in (MONITOR, COMMANDS):
            (self.folder / name).unlink(missing_ok=True)
        argv = command(state, files, self.tap, self.console, target)
        argv += CdDrive(self.folder).options(first=target == "Cd")
        with (self.store.logs / f"{self.name}-qemu.log").open("ab") as out:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.folder, start_new_session=True
            )
        write_json(self.folder / "qemu.json", {"pid": child.pid, "start": process_start(child.pid)})
        events = self._first_contact(child)
        try:
            events.command("set_link", name="n0", up=state["metal"]["nic"]["link"] == "up")
            events.command("cont")
        except SimError:
            events.close()
            self.cut()
            raise
        return events

    def _first_contact(self, child: subprocess.Popen[bytes]) -> Qmp:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline and child.poll() is None:
            if (self.folder / MONITOR).exists():
                with suppress(SimError):
                    return Qmp(self.folder / MONITOR)
            time.sleep(0.05)
        child.kill()
        child.wait()
        said = self.store.logs / f"{self.name}-qemu.log"
        tail = " | ".join(said.read_text(encoding="utf-8", errors="replace").splitlines()[-4:])
        raise describe(f"{self.name}: QEMU", "it starts", tail, f"See {said}, then power the node on again.")

    def settle_flash(self, target: str) -> None:
        """Make the flash if it is absent, and order its entries and settings as the BMC was told."""
        if not self.flash.exists():
            part = self.flash.with_suffix(".part")
            shutil.copyfile(_VARS, part)
            nvram.set_secure_boot(part, enabled=False)
            part.replace(self.flash)
        Flash(self.store, self.name).apply()
        if target == "Pxe":
            nvram.forget_http_entries(self.flash)

    def _tap(self) -> None:
        if self.tap not in hostnet.links():
            run(["ip", "tuntap", "add", "dev", self.tap, "mode", "tap"])
        run(["ip", "link", "set", self.tap, "master", self.plan.bridge, "up"])

    def press_power(self) -> None:
        """Press the power button shortly: the system shuts down, if it listens."""
        with Qmp(self.folder / COMMANDS) as qmp:
            qmp.command("system_powerdown")

    def press_reset(self) -> None:
        """Press the reset button: the firmware starts anew."""
        with Qmp(self.folder / COMMANDS) as qmp:
            qmp.command("system_reset")

    def settle_link(self) -> None:
        """Bring a running machine's network link to its hardware state."""
        if self.running:
            with Qmp(self.folder / COMMANDS) as qmp:
                qmp.command("set_link", name="n0", up=self.store.state(self.name)["metal"]["nic"]["link"] == "up")

    def cut(self) -> bool:
        """Cut the power; return whether the machine had any. Raise SimError if its process does not end."""
        pid = self.pid
        if not pid:
            return False
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            try:
                if self.pid == pid:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            finally:
                os.close(handle)
        deadline = time.monotonic() + _END_S
        while self.running:
            reap(pid)
            if time.monotonic() > deadline:
                raise describe(f"{self.name}: QEMU {pid}", "ended", "still there", "See `ps`, then run again.")
            time.sleep(0.02)
        return True


def started(store: Store) -> list[Metal]:
    """Return the machines of a rack that were ever started, also when its site file is gone."""
    record = store.load()
    if record is None:
        return []
    plan = RackPlan(record.clone, record.network, {}, {}, {})
    return [Metal(plan, store, path.name) for path in sorted((store.base / "metal").glob("*"))]


def command(state: dict[str, Any], files: dict[int, Path], tap: str, console: Path, target: str) -> list[str]:
    """Return QEMU's command line. The machine waits for `cont`, and ends instead of restarting."""
    metal = state["metal"]
    network_first = target in _NETWORK
    argv = [
        *(QEMU, "-machine", "q35,smm=on", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", str(metal["memory_mib"])),
        *("-nodefaults", "-display", "none", "-no-reboot", "-S", "-pidfile", "qemu.pid"),
        *("-global", "driver=cfi.pflash01,property=secure,value=on"),
        *("-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={_CODE}"),
        *("-drive", "if=pflash,unit=1,format=raw,file=vars.fd"),
        *("-chardev", f"file,id=console,append=on,path={_quoted(str(console))}", "-serial", "chardev:console"),
        *("-qmp", f"unix:{MONITOR},server=on,wait=off", "-qmp", f"unix:{COMMANDS},server=on,wait=off"),
        *("-device", "virtio-rng-pci"),
        # Without an answer by DHCPv6, its boot entry costs 65 s.
        *("-fw_cfg", "name=opt/org.tianocore/IPv6PXESupport,string=n"),
        *_smbios(state["chassis"]),
        *("-netdev", f"tap,id=n0,ifname={tap},script=no,downscript=no"),
        *("-device", _card(metal["nic"]["mac"], 0 if network_first else 90)),
    ]
    if target == "UefiHttp":
        argv += ["-fw_cfg", "name=opt/org.tianocore/IPv4PXESupport,string=n"]
    for place, disk in enumerate((item for item in metal["disks"] if item["present"]), 1):
        ident, kind = f"d{disk['id']}", "nvme" if disk["bus"] == "nvme" else "virtio-blk-pci"
        path = _quoted(str(files[disk["id"]]))
        argv += ["-drive", f"if=none,id={ident},format=raw,discard=unmap,detect-zeroes=unmap,file={path}"]
        argv += ["-device", f"{kind},drive={ident},serial={_quoted(disk['serial'])},bootindex={place}"]
    return argv


def _card(mac: str, place: int) -> str:
    """Return the network card; its own boot ROM is left out, because the firmware has a driver for it."""
    return f"virtio-net-pci,netdev=n0,mac={mac},romfile=,bootindex={place}"


def _smbios(chassis: dict[str, Any]) -> list[str]:
    maker, product, serial = (_quoted(str(chassis[key])) for key in ("manufacturer", "product", "serial"))
    board = _quoted(str(chassis.get("board_serial") or chassis["serial"]))
    uuid = f",uuid={chassis['system_uuid']}" if chassis.get("system_uuid") else ""
    return [
        *("-smbios", f"type=1,manufacturer={maker},product={product},serial={serial}{uuid}"),
        *("-smbios", f"type=2,manufacturer={maker},product={product},serial={board}"),
        *("-smbios", f"type=3,manufacturer={maker},serial={serial}"),
    ]


def _quoted(text: str) -> str:
    """Return a value of one of QEMU's options; a comma in it is doubled."""
    return text.replace(",", ",,")


def reap(pid: int) -> None:
    """Reap a process if it is our own child, so that its id stops being taken."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def require_programs() -> None:
    """Raise SimError unless QEMU, its firmware and the tools for disks are installed."""
    for name in (QEMU, "sfdisk", "mke2fs"):
        if shutil.which(name) is None:
            raise missing(name)
    if not (_CODE.exists() and _VARS.exists()):
        raise describe(str(_CODE), "OVMF's firmware", "not there", "apt-get install ovmf, or `make setup-sim`.")
    if not Path("/dev/net/tun").exists():
        hint = "modprobe tun; in a container, run it with --device /dev/net/tun."
        raise describe("/dev/net/tun", "the device for virtual network cards", "not there", hint)
