"""What an installer leaves for the next boot on a node's disk: kernel, initramfs, boot menu and their settings."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from rackready_sim.files import write
from rackready_sim.packages import deb, kernel_image

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


def install(root: Path, command_line: str, inside: Callable[..., None]) -> None:
    """Install the kernel's packages below ``root``, so that the node boots with ``command_line``.

    ``inside`` runs a program in that file system. A system with another boot loader keeps its own command line.
    """
    found = re.search(r"^ID=\"?(\w+)", (root / "usr/lib/os-release").read_text(encoding="utf-8"), re.MULTILINE)
    system = found[1] if found else ""
    if system not in _SYSTEMS:
        return
    words = command_line.split()
    device = next((word.removeprefix("root=") for word in words if word.startswith("root=")), "")
    options = [word for word in words if not word.startswith(_LOADER) and word not in {"ro", "quiet"}]
    write(root / "var/lib/hw/root-device", f"{device}\n")
    write(root / "etc/default/grub", _DEFAULTS.format(name=_SYSTEMS[system], options=" ".join(options)))
    with tempfile.TemporaryDirectory(prefix="kernel-", dir=root / "root") as folder:
        packages = kernel_image.image_packages(system)
        for package in packages:
            deb.write(package, Path(folder))
        place = Path("/") / Path(folder).relative_to(root)
        inside(root, "dpkg", "--install", *(str(place / package.filename) for package in packages))
