"""Packages of the kernel itself and its metapackages, as Debian's linux and Ubuntu's linux-meta name them.

A simulated node runs the kernel of this machine: release and version are its own, the names around it the system's.
"""

from __future__ import annotations

import re

from rackready_sim.packages import kernel
from rackready_sim.packages.deb import Deb

_INSTALLED = """
case "$1" in configure)
  update-initramfs -c -k {release}
  update-grub
;; esac
"""


def flavour(system: str) -> str:
    """Return the part of the metapackages' names behind linux-image- and linux-headers-."""
    return "generic" if system.startswith("ubuntu") else "amd64"


def image_packages(system: str, number: str = "") -> list[Deb]:
    """Return what an installer puts on the disk: the kernel and the metapackage that follows it.

    Ubuntu 22.04 has its hardware enablement kernel. Its configuration is in linux-modules of the real system.
    """
    release, version = kernel.release(), _version()
    config = {f"/boot/config-{release}": kernel.CONFIG_HWE} if (system, number) == ("ubuntu", "22.04") else {}
    image = Deb(
        f"linux-image-{release}",
        version,
        f"Linux {release}",
        {},
        {f"/boot/vmlinuz-{release}": f"the kernel of this machine, {release}\n"} | config,
        scripts={"postinst": _INSTALLED.format(release=release)},
    )
    return [image, _follows("image", system, "Linux for 64-bit PCs (meta-package)")]


def image_packages_rhel() -> list[Deb]:
    """Return what an installer of RHEL 9 puts on the disk, as kernel.spec names it."""
    release, version = kernel.release(), _version()
    modules = f"/usr/lib/modules/{release}"
    core = {f"{modules}/vmlinuz": f"the kernel of this machine, {release}\n", f"{modules}/modules.dep": ""}
    same = f"(= {version})"
    return [
        Deb("kernel-core", version, "The Linux kernel", {"Depends": f"kernel-modules-core {same}"}, core),
        Deb("kernel-modules-core", version, "Core kernel modules", {"Depends": f"kernel-core {same}"}),
        Deb("kernel-modules", version, "Kernel modules", {"Depends": f"kernel-modules-core {same}"}),
        Deb("kernel", version, "The Linux kernel", {"Depends": f"kernel-core {same}, kernel-modules {same}"}),
    ]


def header_metapackage_rhel() -> Deb:
    """Return the metapackage that keeps kernel-devel and kernel-core at one version."""
    version = _version()
    fields = {"Depends": f"kernel-devel (= {version}), kernel-core (= {version})"}
    return Deb("kernel-devel-matched", version, "Meta package to install matching core and devel packages", fields)


def header_metapackage(system: str) -> Deb:
    """Return the metapackage of the headers that follows the kernel."""
    return _follows("headers", system, "Header files for Linux (meta-package)")


def _follows(kind: str, system: str, summary: str) -> Deb:
    depends = f"linux-{kind}-{kernel.release()} (= {_version()})"
    return Deb(f"linux-{kind}-{flavour(system)}", _version(), summary, {"Depends": depends})


def _version() -> str:
    """Return the version that the package of the headers has."""
    number = re.match(r"\d+(\.\d+)*", kernel.release())
    return f"{number[0] if number else '0'}-1"
