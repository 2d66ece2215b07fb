"""Install the machine's programs (firmware, kernel tools, switch command line) into a root file system."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from rackready_sim.files import write

_HERE = Path(__file__).parent
_LIBRARY = "usr/lib/hw"
_LAUNCHER = """#!/usr/bin/python3 -IS
import sys
sys.dont_write_bytecode = False
sys.path.insert(0, "/usr/lib/hw")
from hwsim.{module} import {function}
sys.exit({function}({arguments}))
"""
_ZIPCACHE = (
    'import sys; sys.path.append("/usr/lib/hw"); from hwsim import zipcache; sys.path.remove("/usr/lib/hw"); '
    "zipcache.install()\n"
)
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
Before=sysinit.target systemd-modules-load.service systemd-sysctl.service network-pre.target
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
_REPLACED = {
    "modprobe": ("kmod", "modprobe"),
    "rmmod": ("kmod", "rmmod"),
    "lsmod": ("kmod", "lsmod"),
    "modinfo": ("kmod", "modinfo"),
    "dmesg": ("kmsg", "main"),
    "journalctl": ("kmsg", "journalctl"),
    "ethtool": ("ethtool", "main"),
    "rdma": ("nic.udev", "main"),
    "lscpu": ("host.tools", "lscpu"),
    "lsblk": ("host.tools", "lsblk"),
    "prlimit": ("host.tools", "prlimit"),
    "swapon": ("host.tools", "swapon"),
}
"""Distribution programs that query the kernel about devices, and the module and function that answer in their place."""
_OWN = {
    "usr/lib/hw/firmware": ("firmware", "main"),
    "usr/lib/hw/devices": ("hwd", "main"),
    "usr/lib/hw/nvml": ("nvml", "main"),
    "usr/lib/hw/collective": ("collective", "main"),
    "usr/lib/hw/site-services": ("sitehost", "main"),
    "usr/lib/hw/ib-fabric": ("ib.fabric", "main"),
    "usr/bin/kubeadm": ("kube.kubeadm", "main"),
    "usr/lib/hw/switch-reapply": ("switch.apply", "main"),
    "usr/sbin/update-grub": ("bootdisk", "update_grub"),
    "usr/sbin/update-initramfs": ("bootdisk", "update_initramfs"),
}
_SONIC = {
    "usr/local/bin/bgp.sh": ("switch.sonic.bgp", "main"),
    "usr/local/bin/config": ("switch.sonic.cli", "config"),
    "usr/local/bin/pfcwd": ("switch.sonic.cli", "pfcwd"),
    "usr/local/bin/show": ("switch.sonic.cli", "show"),
    "usr/local/bin/sonic-cfggen": ("switch.sonic.cli", "cfggen"),
    "usr/local/bin/sonic-db-cli": ("switch.sonic.cli", "db_cli"),
    "usr/bin/docker": ("switch.sonic.lldp", "docker"),
    "usr/bin/lldpmgrd": ("switch.sonic.lldp", "manager"),
}
"""Programs of SONiC, and the module and function that answer."""
_BGP = """[Unit]
Description=BGP container

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/bin/bgp.sh start
"""
_LLDP_MANAGER = """[Unit]
Description=LLDP manager daemon for SONiC
After=lldpd.service hw-devices.service
PartOf=lldpd.service

[Service]
ExecStart=/usr/bin/lldpmgrd
Restart=always
RestartSec=1

[Install]
WantedBy=lldpd.service
"""
_SONIC_LLDP = {
    "etc/default/lldpd": 'DAEMON_ARGS="-I Ethernet[0-9]*,eth0 -C eth0"\n',
    "etc/lldpd.conf": "configure system hostname {hostname}\nconfigure lldp portidsubtype ifname\npause\n",
}
"""Arguments and configuration of lldpd on a switch without MGMT_INTERFACE.

Source: sonic-buildimage @086b03bd70 dockers/docker-lldp/supervisord.conf.common.j2, lldpd.conf.j2.
"""
_CUMULUS_LLDP = "configure lldp portidsubtype ifname\nconfigure system interface pattern swp*,eth0\n"
"""Cumulus Linux sends the interface's name as port id (user guide, LLDP). The bridges of our VLANs are no ports."""


def install(rootfs: Path) -> None:
    """Copy the library, its launchers and its units into ``rootfs``, and install the kernel tools; may be repeated."""
    library = rootfs / _LIBRARY / "hwsim"
    shutil.rmtree(library, ignore_errors=True)
    shutil.copytree(_HERE / "hwsim", library, ignore=shutil.ignore_patterns("__pycache__"))
    for path, (module, function) in _OWN.items():
        write_program(rootfs / path, launcher(module, function))
    install_switch(rootfs, "cumulus_nvue")
    write_text(rootfs / "usr/lib/python3/dist-packages/hw-zipcache.pth", _ZIPCACHE)
    (rootfs / "var/cache/hw-python").mkdir(parents=True, exist_ok=True)
    _compile(rootfs)
    for name, (module, function) in _REPLACED.items():
        _replace(rootfs, name, module, function)
    for name, (text, target) in _UNITS.items():
        _unit(rootfs, name, text, target)


def install_switch(rootfs: Path, os: str) -> None:
    """Install the command line of a switch's system, and remove that of the other."""
    (rootfs / "usr/bin/nv").unlink(missing_ok=True)
    if os == "sonic":
        for path, (module, function) in _SONIC.items():
            write_program(rootfs / path, launcher(module, function))
        write_text(rootfs / "usr/lib/systemd/system/bgp.service", _BGP)
    else:
        write_program(rootfs / "usr/bin/nv", _AS_ROOT + launcher("switch.nv").split("\n", 1)[1])


def install_lldp(rootfs: Path, os: str, hostname: str) -> None:
    """Configure lldpd as a switch's system does; it is started by the caller. lldpcli reads the files as no root."""
    if os == "sonic":
        for path, text in _SONIC_LLDP.items():
            write(rootfs / path, text.format(hostname=hostname))
        _unit(rootfs, "lldpmgrd.service", _LLDP_MANAGER, "lldpd.service")
    else:
        write(rootfs / "etc/lldpd.d/port_info.conf", _CUMULUS_LLDP)


def _compile(rootfs: Path) -> None:
    """Compile the library with the machine's Python.

    Otherwise each machine would compile it at first use, within time that is measured there.
    """
    if (rootfs / "usr/bin/python3").exists():
        subprocess.run(
            ["chroot", str(rootfs), "/usr/bin/python3", "-IS", "-m", "compileall", "-q", f"/{_LIBRARY}/hwsim"],
            check=True,
        )


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
    """Write a file and create its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _replace(rootfs: Path, name: str, module: str, function: str) -> None:
    place = next(
        (
            rootfs / folder / name
            for folder in ("usr/sbin", "sbin", "usr/bin", "bin")
            if _lexists(rootfs / folder / name)
        ),
        None,
    )
    real = rootfs / _LIBRARY / "real" / name
    if place is None and not _lexists(real):
        return
    if not _lexists(real):
        assert place is not None  # noqa: S101  (narrowing only)
        real.parent.mkdir(parents=True, exist_ok=True)
        place.rename(real)
    target = place or rootfs / "usr/sbin" / name
    write_program(target, launcher(module, function))
    _ship(rootfs, target)


def _ship(rootfs: Path, place: Path) -> None:
    """Enter our program's checksum in the list of the distribution's package, as if the package had shipped it."""
    path = str(place.relative_to(rootfs))
    listed = {path, path.removeprefix("usr/")}
    for sums in sorted((rootfs / "var/lib/dpkg/info").glob("*.md5sums")):
        lines = sums.read_text(errors="surrogateescape").splitlines()
        ours = hashlib.md5(place.read_bytes(), usedforsecurity=False).hexdigest()
        changed = [f"{ours}  {line[34:]}" if line[34:] in listed else line for line in lines]
        if changed != lines:
            sums.write_text("".join(f"{line}\n" for line in changed), errors="surrogateescape")


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
