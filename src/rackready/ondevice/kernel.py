"""The kernel's packages with apt: which belong together, which headers follow them, which holds others set.

A kernel that is replaced without its headers boots without the GPU driver: DKMS builds a module only where the headers
are. So image, headers and their metapackages are held together with the driver.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from .command import NodeProblem, Run, run
from .fence import FOLDER

_RELEASE = r"\d+\.\d+\.\d+"
_METAPACKAGE = re.compile(rf"linux-(?!.*-{_RELEASE})")
"""A package of Linux without a kernel's release in its name, such as linux-image-amd64 or linux-headers-generic."""
_IMAGE = re.compile(rf"\blinux-image-(?:unsigned-)?({_RELEASE}[^\s,(|]*)")
_FLAVOUR = re.compile(rf"{_RELEASE}(?:-\d+|\+deb\d+\S*?)-([a-z][a-z0-9-]*)")
"""Releases of Debian (6.1.0-40-amd64, 6.12.48+deb13-cloud-amd64) and Ubuntu (6.8.0-85-generic).

Their last part, the flavour, names the metapackages: linux-headers-amd64, linux-headers-generic. Ubuntu's kernel of a
later release (HWE) has the flavour of the first one: there the installed metapackage decides.
"""
_MB = 1_000_000
_ROOM_MB = 100


@dataclass(frozen=True)
class Room:
    """Free and required space in /boot, MB."""

    free: int
    needed: int


@dataclass
class Policy:
    """What the kernel policy asks of a node: packages to install (to exact version or "") and to hold, and notes."""

    release: str
    packages: dict[str, str] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)
    """Packages, of any kind, that somebody else holds."""
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Installed:
    version: str
    depends: str


@dataclass
class Kernel:
    """The kernel of one node that has apt. ``root`` is the start of its file system (tests)."""

    run: Run = run
    root: Path = Path("/")
    folder: Path = FOLDER

    images: ClassVar[str] = "initrd.img-*"
    """Names of the initial RAM file systems in /boot."""

    def release(self) -> str:
        """Return the release of the running kernel."""
        return self.run(["uname", "-r"]).out.strip()

    def boots(self) -> list[str]:
        """Return the release of the running kernel, and newer ones of its flavour: the next boot starts one of them."""
        running = self.release()
        led_to = {name for name in self._newest(self._installed()) if _flavour(name) == _flavour(running)}
        compare = ["dpkg", "--compare-versions"]
        return [
            running,
            *sorted(name for name in led_to if self.run([*compare, name, "gt", running]).returncode == 0),
        ]

    def room(self) -> Room:
        """Return the room in /boot: free, and what updating an initramfs needs.

        update-initramfs writes the new file beside the old one and may keep a copy (initramfs-tools 0.142,
        update-initramfs: ``.new``, ``.dpkg-bak``): twice the largest, and 100 MB for a kernel.
        """
        boot = self.root / "boot"
        done = self.run(["df", "--output=avail", "--block-size=1", str(boot)])
        words = done.out.split()
        if done.returncode != 0 or not words[-1:] or not words[-1].isdigit():
            raise NodeProblem(
                f"the free space of {boot}", done.out.strip() or "no answer", f"Check `df {boot}` on the node."
            )
        largest = max((path.stat().st_size for path in boot.glob(self.images)), default=0)
        return Room(int(words[-1]) // _MB, 2 * largest // _MB + _ROOM_MB)

    def policy(self) -> Policy:
        """Return what is to be installed and held, with the holds of others. Changes nothing."""
        policy = Policy(self.release(), foreign=self._foreign_holds())
        installed = self._installed()
        if policy.foreign:
            policy.notes.append(f"held by others, left as they are: {', '.join(policy.foreign)}")
        kernels = {policy.release, *self._newest(installed)}
        held = [
            name
            for name, package in installed.items()
            if _of(name, kernels) or _leads_to_a_kernel(name, package.depends)
        ]
        policy.packages = dict.fromkeys(sorted(held), "")
        if self._add_headers(policy, installed):
            # What the metapackage brings is held in the same run, not only when the next one finds it installed.
            brought = sorted({f"linux-headers-{kernel}" for kernel in kernels} - set(policy.packages))
            policy.packages |= {name: "" for name in brought if self._offered(name)}
        return policy

    def _add_headers(self, policy: Policy, installed: dict[str, _Installed]) -> bool:
        """Add the metapackage of the headers that follows the kernel, in the version of the image's metapackage.

        Return whether it is to be installed.
        """
        image, headers = self._metapackages(policy.release, installed)
        if not headers:
            policy.notes.append(
                f"kernel {policy.release} is of no metapackage of this system: "
                "its headers are installed with the driver"
            )
            return False
        if headers in installed:
            return False
        wanted = installed[image].version if image in installed else ""
        offered = self._offered(headers)
        if not offered or (wanted and wanted not in offered):
            what = f"{headers} {wanted}".strip()
            policy.notes.append(f"{what} is not in the node's package sources: a new kernel would come without headers")
            return False
        policy.packages[headers] = wanted
        return True

    def _metapackages(self, release: str, installed: dict[str, _Installed]) -> tuple[str, str]:
        """Return the metapackages of image and headers that the running kernel follows; empty when there is none."""
        leading = sorted(
            name
            for name, package in installed.items()
            if name.startswith("linux-image-")
            and _METAPACKAGE.match(name)
            and release in _IMAGE.findall(package.depends)
        )
        flavour = leading[0].removeprefix("linux-image-") if leading else _flavour(release)
        return (f"linux-image-{flavour}", f"linux-headers-{flavour}") if flavour else ("", "")

    def _newest(self, installed: dict[str, _Installed]) -> list[str]:
        """Return the kernels that the image metapackages lead to: they boot next."""
        return [
            release
            for name, package in installed.items()
            if name.startswith("linux-image-") and _METAPACKAGE.match(name)
            for release in _IMAGE.findall(package.depends)
        ]

    def _installed(self) -> dict[str, _Installed]:
        form = "${Package}\\t${Version}\\t${db:Status-Abbrev}\\t${Depends}\\n"
        rows = [line.split("\t") for line in self.run(["dpkg-query", "-W", "-f", form, "linux-*"]).out.splitlines()]
        return {
            row[0]: _Installed(row[1], row[3])
            for row in rows
            if len(row) == 4 and row[2][1:2] == "i"  # noqa: PLR2004 - the four columns asked for
        }

    def _foreign_holds(self) -> list[str]:
        """Return the packages on hold that rackready did not hold."""
        try:
            own = set((self.folder / "holds").read_text(encoding="utf-8").split())
        except FileNotFoundError:
            own = set()
        return sorted({line.partition(":")[0] for line in self.run(["apt-mark", "showhold"]).out.split()} - own)

    def _offered(self, name: str) -> list[str]:
        rows = [line.split("|") for line in self.run(["apt-cache", "madison", name]).out.splitlines()]
        return [row[1].strip() for row in rows if len(row) > 1 and row[0].strip() == name]


def _of(name: str, kernels: set[str]) -> bool:
    """Return whether a package carries the release of one of the kernels, as linux-modules-extra-6.8.0-85-generic."""
    return any(name.endswith(f"-{kernel}") for kernel in kernels)


def _leads_to_a_kernel(name: str, depends: str) -> bool:
    """Return whether a package is a metapackage that brings kernels or their headers."""
    return bool(_METAPACKAGE.match(name)) and bool(re.search(r"\blinux-(?:image|headers)-", depends))


def _flavour(release: str) -> str:
    match = _FLAVOUR.fullmatch(release)
    return match[1] if match else ""
