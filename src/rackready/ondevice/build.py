"""What the driver's kernel module is built with on a node: headers of the kernel that runs, dkms, a compiler. Are they there, or can they be?

Without them dkms skips the build and says so in passing, and only loading the module fails, after everything was
installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .command import NodeProblem, Run, run

KERNEL = "KERNEL"
"""Stands in paths and package names for the release of the kernel that runs (``uname -r``)."""


@dataclass
class BuildTools:
    """Build tools of one node. ``root`` is where its file system begins (tests)."""

    run: Run = run
    root: Path = Path("/")

    def kernel(self) -> str:
        """Return the release of the kernel that runs."""
        return self.run(["uname", "-r"]).out.strip()

    def absent(self, needs: dict[str, str]) -> list[str]:
        """Return the packages still to be installed; ``needs``: absolute path of what must be there -> package that brings it.

        A path that is there is enough, wherever it came from. Raises NodeProblem when a package is needed and apt knows
        none.
        """
        kernel = self.kernel()
        wanted = {path.replace(KERNEL, kernel): package.replace(KERNEL, kernel) for path, package in needs.items()}
        missing = [package for path, package in wanted.items() if not (self.root / path.lstrip("/")).exists()]
        unknown = sorted(set(missing) - self._known(missing))
        if unknown:
            what = f"what builds the driver's module for kernel {kernel}, installed or in the node's package sources"
            step = (
                "Let the node's package sources carry them and run `apt-get update` there (headers of a kernel that "
                "was replaced are often withdrawn: "
                "reboot into the newest installed kernel), then run again: docs/runbooks/driver-build.md."
            )
            raise NodeProblem(what, f"no {', no '.join(unknown)}", step)
        return missing

    def _known(self, packages: list[str]) -> set[str]:
        """Return those of the packages that apt could install."""
        name, found = "", set()
        for line in self.run(["apt-cache", "policy", *packages]).out.splitlines() if packages else []:
            if not line.startswith(" "):
                name = line.rstrip(":")
            elif line.strip().startswith("Candidate:") and "(none)" not in line:
                found.add(name)
        return found
