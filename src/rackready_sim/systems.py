"""Operating systems that a simulated node can be: what an installer of that system leaves on its disk.

The root file system is Debian's in every case. A node of another system carries that system's identity, its first
user and, through the mirror, its package names. Identities: /etc/os-release and /etc/lsb-release of Ubuntu's
base-files 13ubuntu10 (24.04) and 12ubuntu4 (22.04), of Debian's base-files 13.8+deb13u1 (13.1), and of
Rocky-9-GenericCloud-Base-9.5-20241118.0.x86_64.qcow2.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rackready.design.software_of import software_site
from rackready.model.site import Site
from rackready.profiles import loader
from rackready_sim import networks
from rackready_sim.errors import describe
from rackready_sim.files import write
from rackready_sim.image import DEBIAN, RHEL, Variant

_UBUNTU_OS_RELEASE = """PRETTY_NAME="Ubuntu {point} LTS"
NAME="Ubuntu"
VERSION_ID="{release}"
VERSION="{point} LTS ({title})"
VERSION_CODENAME={codename}
ID=ubuntu
ID_LIKE=debian
HOME_URL="https://www.ubuntu.com/"
SUPPORT_URL="https://help.ubuntu.com/"
BUG_REPORT_URL="https://bugs.launchpad.net/ubuntu/"
PRIVACY_POLICY_URL="https://www.ubuntu.com/legal/terms-and-policies/privacy-policy"
UBUNTU_CODENAME={codename}
"""
_UBUNTU_LSB_RELEASE = """DISTRIB_ID=Ubuntu
DISTRIB_RELEASE={release}
DISTRIB_CODENAME={codename}
DISTRIB_DESCRIPTION="Ubuntu {point} LTS"
"""

_DEBIAN_13_OS_RELEASE = """PRETTY_NAME="Debian GNU/Linux 13 (trixie)"
NAME="Debian GNU/Linux"
VERSION_ID="13"
VERSION="13 (trixie)"
VERSION_CODENAME=trixie
DEBIAN_VERSION_FULL=13.1
ID=debian
HOME_URL="https://www.debian.org/"
SUPPORT_URL="https://www.debian.org/support"
BUG_REPORT_URL="https://bugs.debian.org/"
"""

_ROCKY_OS_RELEASE = """NAME="Rocky Linux"
VERSION="9.5 (Blue Onyx)"
ID="rocky"
ID_LIKE="rhel centos fedora"
VERSION_ID="9.5"
PLATFORM_ID="platform:el9"
PRETTY_NAME="Rocky Linux 9.5 (Blue Onyx)"
ANSI_COLOR="0;32"
LOGO="fedora-logo-icon"
CPE_NAME="cpe:/o:rocky:rocky:9::baseos"
HOME_URL="https://rockylinux.org/"
VENDOR_NAME="RESF"
VENDOR_URL="https://resf.org/"
BUG_REPORT_URL="https://bugs.rockylinux.org/"
SUPPORT_END="2032-05-31"
ROCKY_SUPPORT_PRODUCT="Rocky-Linux-9"
ROCKY_SUPPORT_PRODUCT_VERSION="9.5"
REDHAT_SUPPORT_PRODUCT="Rocky Linux"
REDHAT_SUPPORT_PRODUCT_VERSION="9.5"
"""
_ROCKY_RELEASE = "Rocky Linux release 9.5 (Blue Onyx)\n"


@dataclass(frozen=True, slots=True)
class System:
    """One operating system: text per path that its installer writes (none: the image's own), its network, its image."""

    files: dict[str, str]
    network: networks.Network
    image: Variant = DEBIAN
    admins: str = "sudo"
    """The group whose members become root by sudo."""


def _ubuntu(release: str, point: str, codename: str, title: str) -> System:
    facts = {"release": release, "point": point, "codename": codename, "title": title}
    return System(
        {
            "usr/lib/os-release": _UBUNTU_OS_RELEASE.format(**facts),
            "etc/lsb-release": _UBUNTU_LSB_RELEASE.format(**facts),
        },
        networks.NETPLAN,
    )


SYSTEMS = {
    "debian12": System({}, networks.IFUPDOWN),
    "debian13": System(
        {"usr/lib/os-release": _DEBIAN_13_OS_RELEASE, "etc/debian_version": "13.1\n"}, networks.IFUPDOWN
    ),
    "el9": System(
        {
            "usr/lib/os-release": _ROCKY_OS_RELEASE,
            "etc/redhat-release": _ROCKY_RELEASE,
            "etc/rocky-release": _ROCKY_RELEASE,
        },
        networks.NETWORKMANAGER,
        RHEL,
        "wheel",
    ),
    "ubuntu2204": _ubuntu("22.04", "22.04.5", "jammy", "Jammy Jellyfish"),
    "ubuntu2404": _ubuntu("24.04", "24.04.3", "noble", "Noble Numbat"),
}


def of_node(site: Site, node: str) -> System:
    """Return the system of a node's version set. Raises SimError when the simulated rack has no such system."""
    return of_site(software_site(site, node))


def of_site(site: Site) -> System:
    """Return the system of the site's version set. Raises SimError when the simulated rack has no such system."""
    wanted = loader.software(site.software.set).os
    if wanted not in SYSTEMS:
        hint = "Choose a version set of one of these systems (software.set)."
        raise describe(f"operating system of {site.software.set}", f"one of {', '.join(SYSTEMS)}", wanted, hint)
    return SYSTEMS[wanted]


def install(system: System, root: Path) -> None:
    """Write the system's own files below ``root``, and let its network manager start."""
    for name, text in system.files.items():
        write(root / name, text)
    networks.install(system.network, root)
