"""The root file system of a node of the RHEL family: Debian's, with Debian's own dnf and rpm, and without dpkg and apt.

The programs of the operating system are Debian's. The rpm database lists packages of Rocky Linux 9 that stand for
them, with the release's number instead of Rocky's version of each; they own the programs and libraries, with the
checksums that these have. The versionlock plugin is the one of Debian's dnf-plugins-core 4.3.1; Rocky has it as
python3-dnf-plugin-versionlock. dnf.conf is that of Rocky Linux 9 (dnf 4.14).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from rackready_sim.files import write
from rackready_sim.host import run
from rackready_sim.packages import rpm
from rackready_sim.packages.deb import Deb
from rackready_sim.programs import build

PACKAGES = ("dnf", "dnf-plugins-core", "rpm", "network-manager")
"""Debian's packages that the image has beside those of every simulated machine."""
RELEASE = "9.5"

_BASE = {
    "bash": ("bash",),
    "ca-certificates": (),
    "coreutils": ("coreutils",),
    "dbus": ("dbus", "dbus-daemon"),
    "dnf": ("dnf",),
    "dracut": (),
    "ethtool": ("ethtool",),
    "glibc": ("libc-bin", "libc6"),
    "grubby": (),
    "gnupg2": ("gpg", "gpg-agent", "gpgv"),
    "iproute": ("iproute2",),
    "iputils": ("iputils-ping",),
    "NetworkManager": ("network-manager",),
    "kmod": ("kmod",),
    "lldpd": ("lldpd",),
    "libibverbs": ("libibverbs1", "ibverbs-providers"),
    "munge": ("munge",),
    "ocl-icd": (),
    "opencl-filesystem": (),
    "openmpi": ("openmpi-bin", "libopenmpi3"),
    "openssh-clients": ("openssh-client",),
    "openssh-server": ("openssh-server",),
    "pciutils": ("pciutils",),
    "pmix": ("libpmix2",),
    "pmix-devel": (),
    "procps-ng": ("procps",),
    "python3": ("python3-minimal", "python3.11-minimal"),
    "python3-dnf-plugin-versionlock": (),
    "rpm": ("rpm",),
    "shadow-utils": ("passwd", "login"),
    "slurm": ("slurm-client",),
    "slurm-slurmd": ("slurmd",),
    "sudo": ("sudo",),
    "systemd": ("systemd", "systemd-sysv", "udev"),
    "util-linux": ("util-linux", "mount"),
}
"""Package of Rocky Linux 9 to Debian's packages that stand for it."""
_KEPT = ("/usr/bin/", "/usr/sbin/", "/usr/lib/x86_64-linux-gnu/lib")
"""Starts of the paths that packages of the operating system own."""
_RELEASE_PACKAGE = {
    "Provides": f"redhat-release = {RELEASE}-1, system-release = {RELEASE}-1, system-release(releasever) = 9"
}
_PROVIDES = {"bash": "/bin/sh, /usr/bin/sh, /bin/bash", "python3": "/usr/bin/python3"}
_REMOVED = (
    "usr/bin/apt*",
    "usr/bin/dpkg*",
    "usr/sbin/dpkg*",
    "usr/sbin/update-grub",
    "usr/sbin/update-initramfs",
    "usr/sbin/update-rc.d",
    "usr/sbin/if[a-z]*",
    "usr/sbin/netplan",
    "usr/lib/systemd/system-generators/netplan",
    "etc/init.d/*",
)
"""Debian's programs, and its scripts of System V, that a node of the RHEL family does not have."""
_PROGRAMS = {"usr/sbin/grubby": ("bootentries", "grubby"), "usr/bin/dracut": ("bootentries", "dracut")}
"""Program to the module and function of the machine's library that answers in its place."""
_FILES = {
    "etc/rpm/macros.database": "%_dbpath /var/lib/rpm\n",
    "etc/dnf/dnf.conf": (
        "[main]\ngpgcheck=1\ninstallonly_limit=3\nclean_requirements_on_remove=True\nbest=True\n"
        "skip_if_unavailable=False\n"
    ),
    "etc/dnf/plugins/local.conf": "[main]\nenabled = false\n",
    "etc/ld.so.conf.d/lib64.conf": "/usr/lib64\n",
}
"""Debian's rpm keeps its database in the user's home; the RHEL family's is in /var/lib/rpm. The plugin local is a
package of its own there, which no default installation has."""

_FOLDERS = ("etc/yum.repos.d", "etc/dracut.conf.d")
"""Folders that packages of Rocky Linux 9 own: rocky-repos, and dracut (dracut.spec, %dir)."""


def finish(root: Path) -> None:
    """Turn a Debian root file system into one of the RHEL family. Raises SimError with the message of rpm."""
    for pattern in _REMOVED:
        for path in root.glob(pattern):
            path.unlink()
    (root / "etc/debian_version").unlink(missing_ok=True)
    for name, text in _FILES.items():
        write(root / name, text)
    for place, (module, function) in _PROGRAMS.items():
        build.write_program(root / place, build.launcher(module, function))
    for folder in _FOLDERS:
        (root / folder).mkdir(mode=0o755)
    with tempfile.TemporaryDirectory(prefix="rr-base-") as name:
        made = Path(name)
        rpm.write(_base_packages(root), made)
        options = ("--root", str(root), "--dbpath", "/var/lib/rpm", "--install", "--nosignature", "--justdb")
        run(["rpm", *options, *map(str, sorted(made.glob("*.rpm")))], timeout_s=120.0, shown="rpm --install")


def _base_packages(root: Path) -> list[Deb]:
    version = f"{RELEASE}-1"
    release = Deb("rocky-release", version, "Rocky Linux release files", _RELEASE_PACKAGE, architecture="all")
    return [
        release,
        *(
            Deb(
                name,
                version,
                f"{name} of the operating system",
                {"Provides": _PROVIDES.get(name, "")},
                {path: content for package in packages for path, content in _programs(root, package)},
            )
            for name, packages in _BASE.items()
        ),
    ]


def _programs(root: Path, package: str) -> Iterator[tuple[str, bytes]]:
    """Yield programs and libraries of one of Debian's packages, with the content that they have in the image."""
    for listed in sorted((root / "var/lib/dpkg/info").glob(f"{package}[.:]*list")):
        for line in listed.read_text(encoding="utf-8").splitlines():
            path = f"/usr{line.removeprefix('/usr')}"
            place = root / path.lstrip("/")
            if path.startswith(_KEPT) and place.is_file() and not place.is_symlink():
                yield path, place.read_bytes()
