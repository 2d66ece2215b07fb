"""Puts the machine's own programs (firmware, kernel tools, switch command line) into a root file system."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

_HERE = Path(__file__).parent
_LIBRARY = "usr/lib/hw"
_LAUNCHER = """#!/usr/bin/python3 -IS
import sys
sys.dont_write_bytecode = False
sys.path.insert(0, "/usr/lib/hw")
from hwsim.{module} import {function}
sys.exit({function}({arguments}))
"""
_ZIPCACHE = """import sys; sys.path.append("/usr/lib/hw"); from hwsim import zipcache; sys.path.remove("/usr/lib/hw"); zipcache.install()
"""
_AS_ROOT = """#!/usr/bin/python3 -IS
import os, sys
if os.geteuid():  # goes through the daemon, which runs as root
    os.execv("/usr/bin/sudo", ["sudo", "-n", sys.argv[0], *sys.argv[1:]])
"""
_FIRMWARE = """[Unit]
Description=Device firmware and kernel probing
DefaultDependencies=no
ConditionPathExists=/opt/hw/state.json
After=systemd-remount-fs.service
Before=sysinit.target systemd-modules-load.service network-pre.target
Wants=network-pre.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/lib/hw/firmware

[Install]
WantedBy=sysinit.target
"""
_DEVICES = """[Unit]
Description=Device events
ConditionPathExists=/opt/hw/state.json
Requires=hw-firmware.service
After=hw-firmware.service

[Service]
ExecStart=/usr/lib/hw/devices
Restart=always

[Install]
WantedBy=multi-user.target
"""
_UNITS = {"hw-firmware.service": (_FIRMWARE, "sysinit.target"), "hw-devices.service": (_DEVICES, "multi-user.target")}
_DIVERTED = {
    "modprobe": ("kmod", "modprobe"),
    "rmmod": ("kmod", "rmmod"),
    "lsmod": ("kmod", "lsmod"),
    "modinfo": ("kmod", "modinfo"),
    "dmesg": ("kmsg", "main"),
    "journalctl": ("kmsg", "journalctl"),
    "ethtool": ("ethtool", "main"),
    "lscpu": ("host.tools", "lscpu"),
    "lsblk": ("host.tools", "lsblk"),
    "prlimit": ("host.tools", "prlimit"),
    "swapon": ("host.tools", "swapon"),
}
"""Programs of the distribution that ask the kernel about devices, and the module and function that answer instead."""
_SHIPPED_IN_USR = ("lscpu", "prlimit")
"""Diverted programs whose package ships them below /usr; Debian 12 ships the others below /bin and /sbin."""
_OWN = {
    "usr/lib/hw/firmware": ("firmware", "main"),
    "usr/lib/hw/devices": ("hwd", "main"),
    "usr/lib/hw/nvml": ("nvml", "main"),
    "usr/lib/hw/collective": ("collective", "main"),
    "usr/lib/hw/switch-reapply": ("switch.apply", "main"),
}


def install(rootfs: Path) -> None:
    """Copy the library, its launchers and its units into ``rootfs``, and divert the kernel tools; may be repeated."""
    library = rootfs / _LIBRARY / "hwsim"
    shutil.rmtree(library, ignore_errors=True)
    shutil.copytree(_HERE / "hwsim", library, ignore=shutil.ignore_patterns("__pycache__"))
    for path, (module, function) in _OWN.items():
        write_program(rootfs / path, launcher(module, function))
    write_program(rootfs / "usr/bin/nv", _AS_ROOT + launcher("switch.nv").split("\n", 1)[1])
    write_text(rootfs / "usr/lib/python3/dist-packages/hw-zipcache.pth", _ZIPCACHE)
    (rootfs / "var/cache/hw-python").mkdir(parents=True, exist_ok=True)
    _compile(rootfs)
    for name, (module, function) in _DIVERTED.items():
        _divert(rootfs, name, module, function)
    for name, (text, target) in _UNITS.items():
        _unit(rootfs, name, text, target)


def _compile(rootfs: Path) -> None:
    """Compile the library with the machine's own Python: each machine would do it again at first use, in the middle of what is timed there."""
    if (rootfs / "usr/bin/python3").exists():
        subprocess.run(["chroot", str(rootfs), "/usr/bin/python3", "-IS", "-m", "compileall", "-q", f"/{_LIBRARY}/hwsim"], check=True)


def digest() -> str:
    """Return a digest of everything that ``install`` writes."""
    total = hashlib.sha256()
    for path in sorted(_HERE.rglob("*.py")):
        total.update(path.relative_to(_HERE).as_posix().encode())
        total.update(path.read_bytes())
    return total.hexdigest()


def launcher(module: str, function: str = "main", arguments: str = "sys.argv[1:]") -> str:
    """Return a program that calls one function of the machine's library."""
    return _LAUNCHER.format(module=module, function=function, arguments=arguments)


def write_program(path: Path, text: str) -> None:
    """Write an executable file."""
    write_text(path, text)
    path.chmod(0o755)


def write_text(path: Path, text: str) -> None:
    """Write a file and the folders that it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _divert(rootfs: Path, name: str, module: str, function: str) -> None:
    place = next((rootfs / folder / name for folder in ("usr/sbin", "sbin", "usr/bin", "bin") if _lexists(rootfs / folder / name)), None)
    real = rootfs / _LIBRARY / "real" / name
    if place is None and not _lexists(real):
        return
    if not _lexists(real):
        assert place is not None  # noqa: S101  (narrowing only)
        real.parent.mkdir(parents=True, exist_ok=True)
        place.rename(real)
        _record_diversion(rootfs, place, name)
    target = place or rootfs / "usr/sbin" / name
    write_program(target, launcher(module, function))


def _record_diversion(rootfs: Path, place: Path, name: str) -> None:
    """Tell dpkg, so that an upgrade of the distribution's package does not overwrite our program."""
    table = rootfs / "var/lib/dpkg/diversions"
    if not table.parent.is_dir():
        return
    shipped = f"/{place.relative_to(rootfs)}".replace("/usr/sbin/", "/sbin/").replace("/usr/bin/", "/bin/")
    shipped = f"/usr{shipped}" if name in _SHIPPED_IN_USR else shipped
    lines = table.read_text() if table.exists() else ""
    table.write_text(f"{lines}{shipped}\n/usr/lib/hw/real/{name}\n:\n")


def _lexists(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _unit(rootfs: Path, name: str, text: str, target: str) -> None:
    folder = rootfs / "usr/lib/systemd/system"
    wants = folder / f"{target}.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    link = wants / name
    if not link.is_symlink():
        link.symlink_to(f"../{name}")
