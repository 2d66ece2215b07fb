"""What an installer leaves for the next boot on a node's disk: kernel, initramfs, boot menu and their settings."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from rackready_sim.files import write
from rackready_sim.host import run
from rackready_sim.packages import deb, kernel, kernel_image, rpm

_DEFAULTS = """GRUB_DEFAULT=0
GRUB_TIMEOUT=5
GRUB_DISTRIBUTOR="{name}"
GRUB_CMDLINE_LINUX_DEFAULT="quiet"
GRUB_CMDLINE_LINUX="{options}"
"""
_LOADER = ("BOOT_IMAGE=", "root=")
"""Words that the boot loader adds, as it does `ro`; `quiet` is a default of its own."""


_SYSTEMS = {"debian": "Debian", "ubuntu": "Ubuntu"}
"""ID of /etc/os-release to the name in the menu, of the systems with GRUB as Debian packages it."""


_DEFAULTS_RHEL = """GRUB_TIMEOUT=5
GRUB_DISTRIBUTOR="$(sed 's, release .*$,,g' /etc/system-release)"
GRUB_DEFAULT=saved
GRUB_DISABLE_SUBMENU=true
GRUB_TERMINAL_OUTPUT="console"
GRUB_CMDLINE_LINUX="{options}"
GRUB_DISABLE_RECOVERY="true"
GRUB_ENABLE_BLSCFG=true
"""
"""As anaconda of RHEL 9 writes it."""
_ENTRY = """title {name} ({release}) {version}
version {release}
linux /boot/vmlinuz-{release}
initrd /boot/initramfs-{release}.img $tuned_initrd
options {options} $tuned_params
grub_users $grub_users
grub_arg --unrestricted
grub_class {id}
"""
"""As kernel-install of grub2 2.06 in RHEL 9 writes it (20-grub.install); /boot is on the root file system."""


def install(root: Path, command_line: str, inside: Callable[..., None]) -> None:
    """Install the kernel's packages below ``root``, so that the node boots with ``command_line``.

    ``inside`` runs a program in that file system. A system with another boot loader keeps its own command line.
    """
    text = (root / "usr/lib/os-release").read_text(encoding="utf-8")
    about = {key: value.strip('"') for key, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE)}
    system = about.get("ID", "")
    if "rhel" in about.get("ID_LIKE", "").split():
        _install_rhel(root, command_line, about, inside)
    if system not in _SYSTEMS:
        return
    words = command_line.split()
    device = next((word.removeprefix("root=") for word in words if word.startswith("root=")), "")
    options = [word for word in words if not word.startswith(_LOADER) and word not in {"ro", "quiet"}]
    write(root / "var/lib/hw/root-device", f"{device}\n")
    write(root / "etc/default/grub", _DEFAULTS.format(name=_SYSTEMS[system], options=" ".join(options)))
    with tempfile.TemporaryDirectory(prefix="kernel-", dir=root / "root") as folder:
        packages = kernel_image.image_packages(system, about.get("VERSION_ID", ""))
        for package in packages:
            deb.write(package, Path(folder))
        place = Path("/") / Path(folder).relative_to(root)
        inside(root, "dpkg", "--install", *(str(place / package.filename) for package in packages))


def _install_rhel(root: Path, command_line: str, about: dict[str, str], inside: Callable[..., None]) -> None:
    """Install the kernel's rpm packages, and what kernel-install and anaconda write for them."""
    words = [word for word in command_line.split() if not word.startswith("BOOT_IMAGE=")]
    release, own = kernel.release(), [word for word in words if not word.startswith("root=") and word != "ro"]
    with tempfile.TemporaryDirectory(prefix="kernel-") as folder:
        rpm.write(kernel_image.image_packages_rhel(), Path(folder))
        options = ("--root", str(root), "--dbpath", "/var/lib/rpm", "--install", "--nosignature")
        run(["rpm", *options, *map(str, sorted(Path(folder).glob("*.rpm")))], timeout_s=120.0, shown="rpm --install")
    machine = (root / "etc/machine-id").read_text(encoding="utf-8").strip()
    facts = {"release": release, "name": about["NAME"], "version": about["VERSION"], "id": about["ID"]}
    write(root / "etc/default/grub", _DEFAULTS_RHEL.format(options=" ".join(own)))
    write(root / "etc/kernel/cmdline", " ".join(words) + "\n")
    write(root / f"boot/loader/entries/{machine}-{release}.conf", _ENTRY.format(options=" ".join(words), **facts))
    write(root / f"boot/vmlinuz-{release}", f"the kernel of this machine, {release}\n")
    inside(root, "dracut", "--force", f"/boot/initramfs-{release}.img", release)
