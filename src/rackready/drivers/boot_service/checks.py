"""What is looked at before the daemons start: interface, address, ports, other DHCP servers."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
from ipaddress import IPv4Address
from typing import Any

from rackready.drivers.boot_service.probe import dhcp_servers
from rackready.model.problems import Message
from rackready.model.provisioning import ProvisioningService

_DHCP, _TFTP, _PXE = 67, 69, 4011


def interface_problems(settings: ProvisioningService) -> list[Message]:
    """Return why the service's address cannot be used on its interface, as far as this machine shows."""
    ended = subprocess.run(["ip", "-json", "address", "show"], capture_output=True, text=True, timeout=10, check=True)
    links = {str(link["ifname"]): link for link in json.loads(ended.stdout)}
    name = settings.interface
    if name not in links:
        step = f"Correct provisioning.service.interface; this machine has {', '.join(sorted(links))}."
        return [Message("boot service", f"interface {name}", "on this machine", "not there", step)]
    found = _addresses(links[name])
    if settings.address in found:
        return _media_problems(settings, [address for link in links.values() for address in _addresses(link)])
    actual = ", ".join(map(str, found)) or "no IPv4 address"
    step = f"Run `ip address add {settings.address}/{settings.network.prefixlen} dev {name}`, or correct the site file."
    return [Message("boot service", f"address of {name}", settings.address, actual, step)]


def _addresses(link: dict[str, Any]) -> list[IPv4Address]:
    return [IPv4Address(each["local"]) for each in link.get("addr_info", []) if each.get("family") == "inet"]


def _media_problems(settings: ProvisioningService, found: list[IPv4Address]) -> list[Message]:
    if settings.media_address is None or settings.media_address in found:
        return []
    step = "Correct provisioning.service.media_address, or give this machine that address."
    return [Message("boot service", "address for virtual media", settings.media_address, "not on this machine", step)]


def opened_by_systemd(settings: ProvisioningService) -> bool:
    """Whether the daemons get ports that this user may not open: their units have the capabilities for them."""
    return settings.supervise == "systemd" and os.geteuid() != 0


def port_problems(settings: ProvisioningService, *, dhcp: bool, http: bool) -> list[Message]:
    """Return the ports that another program uses. ``dhcp``, ``http``: which of our daemons is about to start."""
    wanted = [(socket.SOCK_STREAM, port) for port in (settings.http_port, settings.https_port) if http]
    if dhcp:
        wanted += [(socket.SOCK_DGRAM, port) for port in (_DHCP, _TFTP)]
        wanted += [(socket.SOCK_DGRAM, _PXE)] if settings.dhcp == "proxy" else []
    return [found for kind, port in wanted if (found := _port_problem(settings, kind, port))]


def _port_problem(settings: ProvisioningService, kind: socket.SocketKind, port: int) -> Message | None:
    udp = kind is socket.SOCK_DGRAM
    with socket.socket(socket.AF_INET, kind) as sock:
        try:
            if udp:  # servers on other interfaces, such as libvirt's, are not in the way
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, settings.interface.encode())
            else:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("" if udp else str(settings.address), port))
        except OSError as error:
            where = f"{'UDP' if udp else 'TCP'} port {port}"
            if error.errno == errno.EADDRINUSE:
                step = "`ss -lntup` names it: stop it" + (
                    ", or choose another port in the site file." if not udp else "."
                )
                return Message("boot service", where, "free", "used by another program", step)
            if error.errno in {errno.EACCES, errno.EPERM}:
                if opened_by_systemd(settings):
                    return None
                step = "Start the service as root, or let systemd do it (provisioning.service.supervise)."
                return Message("boot service", where, "we may open it", os.strerror(error.errno), step)
            return Message("boot service", where, "it can be opened", error.strerror or error)
    return None


def other_servers(settings: ProvisioningService) -> tuple[list[Message], list[str]]:
    """Return (problems, notes) of DHCP servers that answer on the interface while ours does not run."""
    try:
        found = dhcp_servers(settings.interface)
    except OSError as error:
        return [], [f"other DHCP servers on {settings.interface} were not looked for: {error.strerror or error}"]
    named = ", ".join(map(str, found))
    if settings.dhcp == "server" and found:
        step = "Set provisioning.service.dhcp to proxy, or take that server off this network."
        return [
            Message("boot service", f"DHCP on {settings.interface}", "no other server", f"{named} answers", step)
        ], []
    if settings.dhcp == "proxy" and not found:
        return [], [
            f"no DHCP server made an offer on {settings.interface}: in mode proxy, nodes need one that gives addresses"
        ]
    return [], []
