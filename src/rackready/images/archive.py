"""What an archive of a root file system contains: its operating system, kernel and size, and what it must have."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from rackready.model.problems import Message, RackreadyError
from rackready.ondevice.agent.links import followed

_BLOCK = 4096
"""Unit in which a file system stores a file, in bytes."""
_KERNEL = re.compile(r"^(?:boot/vmlinuz-|(?:usr/)?lib/modules/)(\d[^/]*)(?:/vmlinuz)?$")
_OS_RELEASE = ("usr/lib/os-release", "etc/os-release")
_LOADERS = {
    "debian": ("usr/lib/shim/shimx64.efi.signed", "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed"),
    "ubuntu": ("usr/lib/shim/shimx64.efi.signed", "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed"),
}
_LOADER_PACKAGES = "shim-signed and grub-efi-amd64-signed (RHEL family: shim-x64 and grub2-efi-x64)"
_EL_LOADERS = re.compile(r"^boot/efi/EFI/[^/]+/(shimx64\.efi|grubx64\.efi)$")
_LOADER_FILE = re.compile(r"\.efi(\.[^/]*)?$")
_MDADM = {"usr/sbin/mdadm", "sbin/mdadm", "usr/bin/mdadm"}
"""The last one where usr/sbin is a link to usr/bin (Fedora 42)."""

_CLOUD_CONFIG = re.compile(r"^etc/cloud/cloud\.cfg(\.d/[^/]+\.cfg)?$")
_CONFIG_BYTES = 1 << 20
_AGAINST_SEED = {"etc/cloud/cloud-init.disabled", "etc/netplan/00-installer-config.yaml"}
"""Written by Ubuntu Server's installer or at its first boot (canonical/subiquity, subiquity/models/subiquity.py and
network.py). The first keeps cloud-init from starting (canonical/cloud-init, tools/ds-identify). The second has the
addresses of the machine that was installed, and netplan adds it to those of the seed."""


@dataclass(slots=True)
class Contents:
    """What was found. ``unpacked``: bytes that its files need on a disk."""

    unpacked: int = 0
    kernels: set[str] = field(default_factory=set)
    loaders: set[str] = field(default_factory=set)
    os_release: dict[str, str] = field(default_factory=dict)
    host_keys: list[str] = field(default_factory=list)
    has_cloud_init: bool = False
    against_seed: list[str] = field(default_factory=list)
    has_mdadm: bool = False

    @property
    def kernel(self) -> str:
        """Release of the newest kernel, as version numbers go."""
        return max(self.kernels, key=lambda name: [int(part) for part in re.findall(r"\d+", name)], default="")


def inspect(path: Path, called: Path) -> Contents:
    """Return what a ``.tar.zst`` contains; ``called``: its path for messages.

    Raises RackreadyError when it cannot be read.
    """
    found = Contents()
    argv = ["zstd", "--quiet", "--decompress", "--stdout", str(path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        try:
            with tarfile.open(fileobj=child.stdout, mode="r|") as tar:
                links, files = _read(tar, found)
            while child.stdout is not None and child.stdout.read(1 << 20):
                pass
        except (tarfile.TarError, EOFError) as error:
            raise _unreadable(called, str(error)) from error
        said = child.stderr.read().decode(errors="replace").strip() if child.stderr else ""
    if child.returncode != 0:
        raise _unreadable(called, said)
    # Ubuntu has an absolute link of update-alternatives in place of shimx64.efi.signed (shim-signed's postinst).
    wanted = {name for group in _LOADERS.values() for name in group}
    found.loaders |= {name for name in wanted if followed(name, lambda path: links.get(path, "")) in files}
    return found


def _read(tar: tarfile.TarFile, found: Contents) -> tuple[dict[str, str], set[str]]:
    """Look at every member, and return all links with what they lead to, and the regular files of boot loaders."""
    links, files = dict[str, str](), set[str]()
    for member in tar:
        name = _look(tar, member, found)
        if member.issym():
            links[name] = member.linkname
        elif _is_file(member) and _LOADER_FILE.search(name):
            files.add(name)
    return links, files


def _is_file(member: tarfile.TarInfo) -> bool:
    """Whether it is a regular file; a further name of one (a hard link) is one, too."""
    return member.isreg() or member.islnk()


def _unreadable(path: Path, actual: str) -> RackreadyError:
    return RackreadyError(
        path,
        expected="a root file system as tar, compressed with zstd",
        actual=actual,
        next_step="Make it with `tar --xattrs --acls --numeric-owner -C ROOT -c . | zstd -o FILE`.",
    )


def _look(tar: tarfile.TarFile, member: tarfile.TarInfo, found: Contents) -> str:
    """Note what a member is about, and return its name below the root."""
    name = member.name.removeprefix("./").strip("/")
    found.unpacked += -(-member.size // _BLOCK) * _BLOCK if member.isreg() else _BLOCK
    if kernel := _KERNEL.match(name):
        found.kernels.add(kernel[1])
    if (loader := _EL_LOADERS.match(name)) and _is_file(member):
        found.loaders.add(loader[1])
    if name in _OS_RELEASE and member.isreg() and (source := tar.extractfile(member)) is not None:
        found.os_release = _fields(source.read().decode(errors="replace"))
    if re.match(r"^etc/ssh/ssh_host_.*_key$", name):
        found.host_keys.append(name)
    if name in _AGAINST_SEED or (_CLOUD_CONFIG.match(name) and _sets_network(tar, member)):
        found.against_seed.append(name)
    found.has_cloud_init = found.has_cloud_init or name in {"usr/bin/cloud-init", "bin/cloud-init"}
    found.has_mdadm = found.has_mdadm or name in _MDADM
    return name


def _sets_network(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bool:
    """Whether a file of cloud-init's configuration sets the network: this counts more than the seed.

    canonical/cloud-init, cloudinit/sources/__init__.py (network_config_sources) and cloudinit/stages.py. Subiquity
    writes such a file, its name differs between releases. cloud-init ignores a file that is no YAML.
    """
    source = tar.extractfile(member) if member.isreg() else None
    if source is None:
        return False
    try:
        document = yaml.safe_load(source.read(_CONFIG_BYTES).decode(errors="replace"))
    except (yaml.YAMLError, ValueError):  # ValueError: a date that is none
        return False
    return isinstance(document, dict) and bool(document.get("network"))


def _fields(text: str) -> dict[str, str]:
    return {key: value.strip("\"'") for key, _, value in (line.partition("=") for line in text.splitlines()) if value}


def check(path: Path, found: Contents) -> None:
    """Raise RackreadyError with everything that keeps an image from booting, or makes its nodes equal."""
    wanted = _LOADERS.get(found.os_release.get("ID", ""), ("shimx64.efi", "grubx64.efi"))
    lacking = [name for name in wanted if name not in found.loaders]
    problems = []
    if not found.os_release.get("ID"):
        problems.append(_problem(path, "usr/lib/os-release with an ID", "none", "Use a root file system of Linux."))
    if not found.kernels:
        problems.append(_problem(path, "a kernel in boot/", "none", "Install a kernel package in it."))
    if lacking:
        problems.append(
            _problem(path, "a signed boot loader", f"no {' and no '.join(lacking)}", f"Install {_LOADER_PACKAGES}.")
        )
    if not found.has_cloud_init:
        problems.append(
            _problem(path, "cloud-init, which sets users, keys and addresses", "none", "Install cloud-init in it.")
        )
    if found.against_seed:
        step = (
            "Run `sudo cloud-init clean --machine-id` on the machine of the image, remove those of these files that "
            "are still there, and make the archive again."
        )
        actual = ", ".join(sorted(found.against_seed))
        problems.append(_problem(path, "no file that keeps cloud-init from the node's own settings", actual, step))
    if found.host_keys:
        actual = f"{len(found.host_keys)}, e.g. {found.host_keys[0]}"
        problems.append(_problem(path, "no SSH host keys: all nodes would have them", actual, "Remove them from it."))
    if problems:
        raise RackreadyError.of(problems)


def _problem(path: Path, expected: str, actual: str, next_step: str) -> Message:
    return Message(path.name, "", expected, actual, next_step)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal. Raises OSError."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
