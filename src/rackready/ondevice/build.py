"""Requirements for building the driver's kernel module: headers of the running kernel, dkms, a compiler.

Without them dkms skips the build and mentions it only in passing. Loading the module then fails, after everything was
installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from . import dnf_words
from .command import NodeProblem, Run, run
from .dnf import SKIP
from .kernel import Kernel
from .packages import family

KERNEL = "KERNEL"
"""Placeholder in paths and package names for the release of a kernel (``uname -r``)."""


@dataclass
class BuildTools:
    """Build tools of one node. ``root`` is the start of its file system (tests)."""

    run: Run = run
    root: Path = Path("/")

    def kernel(self) -> str:
        """Return the release of the running kernel."""
        return self.run(["uname", "-r"]).out.strip()

    def absent(self, needs: dict[str, str]) -> list[str]:
        """Return the packages still to install; ``needs``: absolute path that must exist -> package that brings it.

        An existing path is enough, whatever it came from. Raises NodeProblem when the node's package
        sources have no package that is needed.
        """
        kernel, manager = self.kernel(), family(self.root)
        wanted = {path.replace(KERNEL, kernel): package.replace(KERNEL, kernel) for path, package in needs.items()}
        missing = [package for path, package in wanted.items() if not (self.root / path.lstrip("/")).exists()]
        known = self._known_to_apt(missing) if manager == "apt" else self._known_to_dnf(missing)
        unknown = sorted(set(missing) - known)
        if unknown:
            what = (
                f"the build requirements of the driver's module for kernel {kernel}, installed or in "
                "the node's package sources"
            )
            refresh = "apt-get update" if manager == "apt" else "dnf makecache --refresh"
            step = (
                f"Make the node's package sources carry them and run `{refresh}` there (headers of a "
                "kernel that was replaced are often withdrawn: reboot into the newest installed kernel), "
                "then run again: docs/runbooks/driver-build.md."
            )
            raise NodeProblem(what, f"no {', no '.join(unknown)}", step)
        return missing

    def modules(self, packages: dict[str, str]) -> dict[str, str]:
        """Return the packages of precompiled modules, to version, for the running kernel and newer installed ones.

        A version is that of the running kernel's package; other kernels get any. Raises NodeProblem when the node's
        package sources have none for one of the kernels: a reboot would end without the driver.
        """
        running, *newer = Kernel(self.run, self.root).boots()
        wanted = {name.replace(KERNEL, running): version for name, version in packages.items()}
        wanted |= {name.replace(KERNEL, kernel): "" for kernel in newer for name in packages}
        if unknown := sorted(set(wanted) - self._known_to_apt(list(wanted))):
            lacking = [kernel for kernel in newer if any(name.endswith(f"-{kernel}") for name in unknown)]
            kernel = f"newer kernel {lacking[0]}, which boots next" if lacking else f"kernel {running}"
            away = f"Remove kernel {lacking[0]} from the node" if lacking else "Boot a kernel that has them"
            raise NodeProblem(
                f"precompiled modules of the driver for {kernel}, in the node's package sources",
                f"no {', no '.join(unknown)}",
                f"{away}, or make the node's package sources carry them and run `apt-get update` "
                "there, then run again: docs/runbooks/driver-build.md.",
            )
        return wanted

    def _known_to_apt(self, packages: list[str]) -> set[str]:
        """Return those of the packages that apt could install."""
        name, found = "", set()
        for line in self.run(["apt-cache", "policy", *packages]).out.splitlines() if packages else []:
            if not line.startswith(" "):
                name = line.rstrip(":")
            elif line.strip().startswith("Candidate:") and "(none)" not in line:
                found.add(name)
        return found

    def _known_to_dnf(self, packages: list[str]) -> set[str]:
        """Return those of the packages that dnf could install: it names the others, and is told to stop there.

        Raises NodeProblem for packages that the node's own configuration of dnf hides.
        """
        if not packages:
            return set()
        out = self.run(["dnf", "--assumeno", "install", *SKIP, *packages]).out  # -q would hide what is read here
        if problem := dnf_words.hidden(out):
            raise problem
        return set(packages) - dnf_words.absent(out).keys()
