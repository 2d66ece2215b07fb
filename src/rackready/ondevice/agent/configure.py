"""What makes a written image this node's system: mounts, identity, first-boot settings, kernel options."""

from __future__ import annotations

import json
import os
from pathlib import Path

from .errors import ImagingError
from .host import Host
from .layout import Volumes, file_system, uuid
from .mounts import inside, is_el, os_release, within
from .plan import Plan

MARKER = "var/lib/rackready/imaged.json"
_MARKER_SCHEMA = "rackready/imaged/v1"
_SEED = "var/lib/cloud/seed/nocloud"
_SOURCES = "# Written by rackready: the seed on this disk is the only source, so no network is asked.\n"


def configure(host: Host, plan: Plan, target: Path, made: Volumes, scratch: str) -> None:
    """Write everything but the boot loader. ``scratch``: device of the scratch file system, if it has one."""
    _write(target / "etc/fstab", fstab(host, plan, made, scratch))
    if scratch:
        (target / plan.scratch_mount.lstrip("/")).mkdir(parents=True, exist_ok=True)
    _write(target / "etc/hostname", f"{plan.hostname}\n")
    _identity(target)
    seed(plan, target)
    el = is_el(os_release(target))
    if made.pair:
        _arrays(host, target / ("etc/mdadm.conf" if el else "etc/mdadm/mdadm.conf"))
    if el:
        (target / ".autorelabel").touch()  # files written here have no SELinux label
    if el or made.pair:
        _initramfs(host, target, pair=made.pair)


def fstab(host: Host, plan: Plan, made: Volumes, scratch: str) -> str:
    """Return the table of mounts, by UUID. Scratch may be absent: a broken scratch disk must not stop the boot."""
    lines = [
        "# Written by rackready.",
        f"UUID={uuid(host, made.root)} / ext4 errors=remount-ro 0 1",
        f"UUID={uuid(host, made.esp)} /boot/efi vfat umask=0077 0 1",
    ]
    if scratch:
        # Scratch that is kept may have another type than the site wants by now.
        options = "defaults,nofail,x-systemd.device-timeout=30s"
        lines.append(f"UUID={uuid(host, scratch)} {plan.scratch_mount} {file_system(host, scratch)} {options} 0 2")
    return "\n".join(lines) + "\n"


def _identity(target: Path) -> None:
    """Leave no identity of the image: systemd makes a machine id at the first boot, when the file is empty."""
    _write(target / "etc/machine-id", "")
    (target / "var/lib/dbus/machine-id").unlink(missing_ok=True)
    for path in sorted((target / "etc/ssh").glob("ssh_host_*")):
        path.unlink()


def seed(plan: Plan, target: Path) -> None:
    """Write cloud-init's seed, readable by root only, and name it as the only source."""
    folder = target / _SEED
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    for name, text in sorted(plan.seed.items()):
        _write(folder / name, text, 0o600)
    config = target / "etc/cloud/cloud.cfg.d"
    config.mkdir(parents=True, exist_ok=True)
    _write(config / "99-rackready.cfg", f"{_SOURCES}datasource_list: [NoCloud, None]\n")


def _arrays(host: Host, path: Path) -> None:
    """Name the arrays in mdadm.conf."""
    lines = host.must("mdadm", "--detail", "--scan")
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, f"# Written by rackready.\nHOMEHOST <ignore>\nMAILADDR root\n{lines}")


def _initramfs(host: Host, target: Path, *, pair: bool) -> None:
    """Make the initramfs of each kernel anew: it has a copy of mdadm.conf.

    That of the RHEL family is often for the hardware of the machine that made the image alone (hostonly in
    /usr/lib/dracut/dracut.conf.d/01-dist.conf): it has no driver of this machine's disks. dracut passes all other
    options on to each kernel's run (dracut-rhel9, dracut.sh, regenerate_all).
    """
    options = ("--mdadmconf", "--add", "mdraid") if pair else ()
    with inside(host, target):
        if is_el(os_release(target)):
            within(host, target, "dracut", "--regenerate-all", "--force", "--no-hostonly", *options)
        else:
            within(host, target, "update-initramfs", "-u", "-k", "all")


def write_marker(plan: Plan, target: Path) -> None:
    """Record that the disk is complete. It is the last thing written, and on the disk when this returns."""
    path = target / MARKER
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"schema": _MARKER_SCHEMA, "node": plan.node, "digest": plan.digest, "image": plan.image.sha256}
    _write(path, json.dumps(document, indent=1) + "\n")
    os.sync()


def has_marker(plan: Plan, target: Path) -> bool:
    """Whether the file system below ``target`` is complete for this plan. Raises ImagingError for a damaged marker."""
    path = target / MARKER
    if not path.is_file():
        return False
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return bool(document["digest"] == plan.digest)
    except (ValueError, KeyError, TypeError) as error:
        raise ImagingError("disk-has-data", f"{path}", expected="a marker of rackready", actual=f"{error}") from error


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file. A link in the image must not lead out of it, so an existing file is removed first."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as sink:
        sink.write(text)
    path.chmod(mode)
