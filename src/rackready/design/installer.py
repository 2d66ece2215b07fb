"""Facts of the answer file by which a distribution's own installer installs a node: autoinstall, preseed, kickstart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from rackready.design.imaging import HostKey, Login
from rackready.design.software_of import software_site
from rackready.design.subnets import managed_by
from rackready.model.problems import Message, RackreadyError
from rackready.model.provisioning import DiskRef, Installer, Provisioning, SystemMirror
from rackready.model.site import Node, Site
from rackready.profiles import loader

Kind = Literal["autoinstall", "preseed", "kickstart"]
KINDS: dict[str, Kind] = {
    "ubuntu2204": "autoinstall",
    "ubuntu2404": "autoinstall",
    "debian12": "preseed",
    "debian13": "preseed",
    "el9": "kickstart",
}
"""Systems of version sets whose installers rackready writes an answer file for."""
_CODENAMES = {"ubuntu2204": "jammy", "ubuntu2404": "noble", "debian12": "bookworm", "debian13": "trixie"}
_ADDRESS = re.compile(r"^[0-9.]+$")


class InstallerError(RackreadyError):
    """The site does not say what a node's installer must be told."""


@dataclass(frozen=True, slots=True)
class ReportTo:
    """Where the installer reports that it is done. ``ca``: certificate (PEM) of the server; ``token`` is secret.

    ``digest`` and ``boot`` (64 and 8 hexadecimal digits) are copied into the report.
    """

    url: str
    token: str
    ca: str
    digest: str
    boot: str


@dataclass(frozen=True, slots=True)
class Disk:
    """One disk. ``by``: serial or path; ``value``: the number or link that it is found by."""

    by: Literal["serial", "path"]
    value: str


@dataclass(frozen=True, slots=True)
class InstallerDisks:
    """InstallerDisks of a node: one of the system or two in a RAID1 pair, and of local scratch."""

    system: tuple[Disk, ...]
    scratch: tuple[Disk, ...]
    filesystem: str
    mount: str


@dataclass(frozen=True, slots=True)
class Port:
    """The in-band port of a node, found by its MAC address. Empty gateway: none."""

    mac: str
    address: str
    prefix: int
    netmask: str
    gateway: str
    dns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InstallerFacts:
    """All that the answer file of one node says.

    ``host_keys`` and ``report`` are empty until the node is provisioned: then the installed system makes keys of its
    own, and reports nothing. ``erase``: disks that hold something may be overwritten.
    """

    node: str
    system: str
    kind: Kind
    codename: str
    disks: InstallerDisks
    port: Port
    mirror: SystemMirror
    proxy: str
    time_servers: tuple[str, ...]
    time_zone: str
    kernel_options: tuple[str, ...]
    logins: tuple[Login, ...]
    host_keys: tuple[HostKey, ...] = ()
    report: ReportTo | None = None
    erase: bool = False


def installer_facts(
    site: Site,
    node: Node,
    logins: Sequence[Login],
    *,
    host_keys: Sequence[HostKey] = (),
    report: ReportTo | None = None,
    erase: bool = False,
) -> InstallerFacts:
    """Return the facts of a node's answer file. Raises InstallerError with all that the site does not say."""
    settings, system = site.provisioning, loader.software(software_site(site, node.name).software.set).os
    problems = [*_unknown(node, settings, system), *_network_problems(site, node, settings)]
    mirror = _mirror(settings, system)
    disks = node.disks or (settings.disks if settings is not None else None)
    if problems or settings is None or settings.installer is None or mirror is None or disks is None:
        raise InstallerError.of(problems)
    return InstallerFacts(
        node=node.name,
        system=system,
        kind=KINDS[system],
        codename=_CODENAMES.get(system, ""),
        disks=InstallerDisks(
            tuple(map(_disk, disks.system)),
            tuple(map(_disk, disks.scratch)),
            disks.scratch_filesystem,
            disks.scratch_mount,
        ),
        port=_port(site, node, settings),
        mirror=mirror,
        proxy=settings.installer.proxy or "",
        time_servers=tuple(settings.installer.time_servers),
        time_zone=settings.installer.time_zone,
        kernel_options=tuple(settings.kernel_options),
        logins=tuple(logins),
        host_keys=tuple(host_keys),
        report=report,
        erase=erase,
    )


def _unknown(node: Node, settings: Provisioning | None, system: str) -> Iterable[Message]:
    """Yield what the site does not say, other than addresses."""
    where = node.name
    if system not in KINDS:
        step = "Choose another version set, or method: image."
        yield Message(f"{where}: software.set", f"no installer of {system}", ", ".join(KINDS), system, step)
    if node.kind != "metal":
        yield Message(f"{where}: kind", "a virtual node boots from its image", "metal", node.kind, "Use method: image.")
    if node.boot_mac is None:
        step = "Add boot_mac to the node, e.g. from the vendor's manifest or its BMC."
        yield Message(f"{where}: boot_mac", "MAC address of the in-band port", "known", "not given", step)
    if node.disks is None and (settings is None or settings.disks is None):
        step = "Add disks to the node, or provisioning.disks: by serial number, or by path below /dev/disk."
        yield Message(f"{where}: disks", "disks that may be written", "named", "none", step)
    if settings is None or settings.installer is None:
        step = "Add the mirror of each operating system."
        yield Message("provisioning.installer", "mirrors of installers", "a section", "none", step)
    elif _mirror(settings, system) is None:
        known = ", ".join(mirror.system for mirror in settings.installer.mirrors)
        yield Message(
            "provisioning.installer.mirrors", f"mirror of {system}", system, known, f"Add it; {where} needs it."
        )


def _network_problems(site: Site, node: Node, settings: Provisioning | None) -> Iterable[Message]:
    if _subnet(site, node, settings) is None:
        yield Message(
            f"{node.name}: address {node.address}",
            "its subnet is not known",
            expected="in provisioning.service.network or the pool of networks.in_band",
            actual="in neither",
            next_step="Declare the network, or correct the address.",
        )
    named = _named_hosts(settings.installer) if settings is not None and settings.installer is not None else []
    if named and not (settings and settings.service and settings.service.dns):
        yield Message(
            "provisioning.service.dns",
            "name servers",
            expected=f"at least one, to look up {', '.join(named)}",
            actual="none",
            next_step="Add them, or give addresses instead of names.",
        )


def _named_hosts(installer: Installer) -> list[str]:
    """Return the hosts that are given by name, each once."""
    urls = [*(mirror.url for mirror in installer.mirrors), *(m.security for m in installer.mirrors), installer.proxy]
    hosts = [urlsplit(url).hostname or "" for url in urls if url] + list(installer.time_servers)
    return sorted({host for host in hosts if not _ADDRESS.match(host)})


def _mirror(settings: Provisioning | None, system: str) -> SystemMirror | None:
    mirrors = settings.installer.mirrors if settings is not None and settings.installer is not None else []
    return next((mirror for mirror in mirrors if mirror.system == system), None)


def _disk(ref: DiskRef) -> Disk:
    return Disk("serial", ref.serial) if ref.serial is not None else Disk("path", str(ref.path))


def _subnet(site: Site, node: Node, settings: Provisioning | None) -> tuple[int, str] | None:
    """Return prefix length and gateway of a node's in-band address, None where the site does not say."""
    service = settings.service if settings is not None else None
    if service is not None and node.address in service.network:
        return service.network.prefixlen, str(service.gateway or "")
    prefix, _, gateway = managed_by(site, "in_band", str(node.address))
    return (int(prefix), gateway) if prefix != "" else None


def _port(site: Site, node: Node, settings: Provisioning) -> Port:
    prefix, gateway = _subnet(site, node, settings) or (0, "")
    dns = settings.service.dns if settings.service is not None else []
    mask = (0xFFFFFFFF << (32 - prefix)) & 0xFFFFFFFF
    dotted = ".".join(str(mask >> shift & 0xFF) for shift in (24, 16, 8, 0))
    return Port(node.boot_mac or "", str(node.address), prefix, dotted, gateway, tuple(map(str, dns)))
