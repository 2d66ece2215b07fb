"""The boot loaders: found where the distribution's packages put them, and put where the firmware fetches them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rackready import files
from rackready.drivers.boot_service.layout import Layout
from rackready.drivers.boot_service.nodes import BootServiceError
from rackready.model.problems import Message


class Loader(NamedTuple):
    """One loader: its name for the firmware, the package's file, and the package (Debian and Ubuntu)."""

    name: str
    source: Path
    package: str


_SHIM = Loader("shimx64.efi", Path("/usr/lib/shim/shimx64.efi.signed"), "shim-signed")
_GRUB = Loader("grubx64.efi", Path("/usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed"), "grub-efi-amd64-signed")
"""shim loads `grubx64.efi` from where itself came from (rhboot/shim, netboot.c)."""
_GRUB_CD = Loader("grubx64.efi", Path("/usr/lib/grub/x86_64-efi-signed/gcdx64.efi.signed"), "grub-efi-amd64-signed")
"""The same name again: shim asks for it on a CD, too."""
CD_LOADERS = (Loader("BOOTX64.EFI", _SHIM.source, _SHIM.package), _GRUB_CD)
"""Loaders of a boot medium, whatever loader is sent over the network."""
_IPXE = Loader("ipxe.efi", Path("/usr/lib/ipxe/ipxe.efi"), "ipxe")
LOADERS = {"signed": (_SHIM, _GRUB), "ipxe": (_IPXE,)}
_DEBIAN_CA = b"Debian Secure Boot CA"
"""In Debian's shim: the name of the one authority, beside the firmware's, that it trusts (salsa.debian.org,
efi-team/shim, debian/debian-uefi-ca.der). Ubuntu's has Canonical's, and refuses Debian's kernel."""
_OVER_HTTP = b"UefiHttpBoot/1.0"
"""In a GRUB that reads files by HTTP through the firmware: the name that it gives to servers (Debian 13's 2.12 has it,
Debian 12's 2.06 does not, and would wait at its prompt for ever)."""


def http_boot_problem(loader: str) -> Message | None:
    """Return why nodes cannot start by UEFI HTTP boot with the loaders on this machine, None when they can."""
    last = LOADERS[loader][-1]
    if loader != "signed" or not last.source.exists() or _OVER_HTTP in last.source.read_bytes():
        return None
    return Message(
        "boot service",
        "UEFI HTTP boot",
        "a GRUB that reads by HTTP",
        f"{last.source} does not",
        f"Use boot: pxe, loader: ipxe (without Secure Boot), or {last.package} 2.12 or later.",
    )


def trust_problem() -> Message | None:
    """Return why the ramdisk does not start with Secure Boot, None when this machine's shim trusts its kernel.

    A shim that is not there is refused elsewhere.
    """
    if not _SHIM.source.exists() or _DEBIAN_CA in _SHIM.source.read_bytes():
        return None
    return Message(
        "provisioning.secure_boot",
        "on",
        "a shim on this controller that trusts the ramdisk's kernel, which is Debian's",
        f"{_SHIM.source} has another authority",
        f"Use a controller with Debian, whose packages {_SHIM.package} and {_GRUB.package} do, or secure_boot: off.",
    )


def place(layout: Layout, loader: str) -> None:
    """Copy the loaders for TFTP and HTTP. Raises BootServiceError that names every missing package."""
    require(LOADERS[loader])
    for item in LOADERS[loader]:
        data = item.source.read_bytes()
        for folder in (layout.tftp, layout.boot):
            files.settle(folder / item.name, data, mode=0o644)


def require(loaders: Sequence[Loader]) -> None:
    """Raise BootServiceError that names the package of every loader that is not on this machine."""
    missing = [item for item in loaders if not item.source.exists()]
    if missing:
        raise BootServiceError.of(
            Message(
                "boot service",
                f"loader {item.name}",
                item.source,
                "not there",
                f"Install the package {item.package} on this machine.",
            )
            for item in missing
        )
