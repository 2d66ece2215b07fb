"""Network managers of simulated nodes: the one that the installer of each system leaves at work.

Debian's installer: ifupdown. Ubuntu's: netplan, which renders for systemd-networkd. RHEL's: NetworkManager. The
management interface gets its address from outside, as from a DHCP server that nobody sees; a manager leaves it alone.
systemd-networkd and NetworkManager configure what udev knows, so their nodes run udev, with the rules for network
interfaces alone: other rules, and a coldplug of all devices, would act on this machine's hardware.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rackready_sim.files import write

_UDEV = ("systemd-udevd.service", "systemd-udevd-kernel.socket", "systemd-udevd-control.socket")
_TRIGGER = "systemd-udev-trigger.service"
MASKED = (*_UDEV, _TRIGGER)
"""Units of udev, which most machines do not run."""
OFF = (
    "networking.service",
    "systemd-networkd.service",
    "systemd-networkd.socket",
    "systemd-networkd-wait-online.service",
    "NetworkManager.service",
    "NetworkManager-wait-online.service",
    "NetworkManager-dispatcher.service",
)
"""Units that packages enable, and a machine without a manager does not start."""
_RULES = ("75-net-description.rules", "99-systemd.rules", "80-ifupdown.rules")
"""Rules for network interfaces; that of .link files is left out, because cables name their ends."""
_COLDPLUG = """[Service]
ExecStart=
ExecStart=/usr/bin/udevadm trigger --type=devices --action=add --subsystem-match=net
"""
_KERNEL_VIEW = """[Unit]
After=hw-firmware.service

[Service]
BindPaths=-/run/hw/sys:/sys
"""
"""systemd's library takes a device only below the kernel's own /sys, which the simulated hardware moves aside."""
_READERS = (_UDEV[0], _TRIGGER, "systemd-networkd.service", "NetworkManager.service")
_WANTS = "etc/systemd/system/{}.wants/{}"


@dataclass(frozen=True, slots=True)
class Network:
    """What an installer leaves: text by path, and the units at work."""

    files: dict[str, str] = field(default_factory=dict)
    units: tuple[str, ...] = ()
    udev: bool = False


IFUPDOWN = Network(
    {
        "etc/network/interfaces": (
            "# This file describes the network interfaces available on your system\n"
            "# and how to activate them. For more information, see interfaces(5).\n\n"
            "source /etc/network/interfaces.d/*\n\nauto lo\niface lo inet loopback\n\n"
            "auto eth0\niface eth0 inet manual\n"
        )
    },
    ("networking.service",),
)
"""netcfg 1.187 (Debian 12) writes these lines, with inet dhcp or static."""
NETPLAN = Network(
    {"etc/netplan/50-cloud-init.yaml": "network:\n  version: 2\n  ethernets:\n    eno1:\n      dhcp4: true\n"},
    ("systemd-networkd.service",),
    udev=True,
)
"""As subiquity and cloud-init write it; eno1 is a port that the simulated machine does not have."""
NETWORKMANAGER = Network({}, ("NetworkManager.service",), udev=True)


def tidy(root: Path) -> None:
    """Take out of an image the rules of udev that do not concern network interfaces."""
    for path in (root / "usr/lib/udev/rules.d").glob("*"):
        if path.name not in _RULES:
            path.unlink()
    write(root / f"etc/systemd/system/{_TRIGGER}.d/rackready.conf", _COLDPLUG)


def install(network: Network, root: Path) -> None:
    """Write what the installer leaves, and let its units start at boot."""
    for place, text in network.files.items():
        write(root / place, text, 0o600 if "netplan" in place else 0o644)
    for unit in network.units:
        _link(root / _WANTS.format("multi-user.target", unit), f"/lib/systemd/system/{unit}")
    if network.udev:
        for unit in MASKED:
            (root / "etc/systemd/system" / unit).unlink(missing_ok=True)
        # It waits for an interface of networkd: the management interface is none here, and rails may have no link.
        _link(root / "etc/systemd/system/systemd-networkd-wait-online.service", "/dev/null")
        for unit in _READERS:
            write(root / f"etc/systemd/system/{unit}.d/kernel-view.conf", _KERNEL_VIEW)


def _link(place: Path, target: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(target)
