"""Images that rackready builds itself, from packages of the distribution."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from rackready.model.problems import RackreadyError


@dataclass(frozen=True, slots=True)
class Recipe:
    """One image: suite and packages, and shell commands on its root file system (``$1``) when these are installed."""

    name: str
    suite: str
    packages: tuple[str, ...]
    hooks: tuple[str, ...]
    options: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Digest of everything above: another one means another image."""
        parts = [self.name, self.suite, *self.packages, *self.hooks, *self.options]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


_CLEAN = (
    # Every node would have the same keys; cloud-init makes them, or sets those of the seed.
    'rm -f "$1"/etc/ssh/ssh_host_*',
    # Of the machine that builds: its name, resolver, mirror and proxy, which may contain credentials.
    'rm -f "$1"/etc/hostname "$1"/etc/apt/apt.conf.d/99mmdebstrap',
    'test -L "$1"/etc/resolv.conf || rm -f "$1"/etc/resolv.conf',
    'rm -f "$1"/etc/apt/sources.list.d/* && : > "$1"/etc/apt/sources.list',
    ': > "$1"/etc/machine-id && rm -f "$1"/var/lib/dbus/machine-id',
    # cloud-init's default, en_US.UTF-8, is not generated in it.
    'echo "locale: C.UTF-8" > "$1"/etc/cloud/cloud.cfg.d/10_rackready.cfg',
    'rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*.bin "$1"/var/log/*.log "$1"/var/log/apt',
)
_NO_DOCS = tuple(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("man", "doc", "info", "locale"))

DEBIAN12 = Recipe(
    "debian12",
    "bookworm",
    (
        "linux-image-amd64", "initramfs-tools", "systemd", "systemd-sysv", "systemd-resolved", "dbus", "udev", "kmod",
        "grub-efi-amd64", "grub-efi-amd64-signed", "shim-signed", "efibootmgr", "mdadm", "e2fsprogs", "xfsprogs",
        "dosfstools", "zstd", "cloud-init", "netplan.io", "openssh-server", "sudo", "python3", "python3-apt", "gnupg",
        "ca-certificates", "iproute2", "iputils-ping", "ethtool", "pciutils", "dmidecode", "procps", "less",
    ),
    _CLEAN,
    _NO_DOCS,
)  # fmt: skip
_RECIPES = (DEBIAN12,)


def recipe(name: str) -> Recipe:
    """Return a recipe. Raises RackreadyError with those known."""
    for known in _RECIPES:
        if known.name == name:
            return known
    raise RackreadyError(
        f"image {name}",
        expected=f"one of: {', '.join(known.name for known in _RECIPES)}",
        actual="no recipe",
        next_step="For another system, make an archive of its root file system and run `rackready image import`.",
    )
