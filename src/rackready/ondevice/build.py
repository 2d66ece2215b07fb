"""Requirements for building the driver's kernel module: headers of the running kernel, dkms, a compiler.

Without them dkms skips the build and mentions it only in passing. Loading the module then fails, after everything was
installed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from . import dnf_words
from .command import NodeProblem, Run, run
from .dnf import SKIP
from .kernel import Kernel
from .packages import family

KERNEL = "KERNEL"
"""Placeholder in paths and package names for the release of a kernel (``uname -r``)."""
_COMPILER = re.compile(r"gcc-\d+")
"""Name of a compiler that only kernels which were built with it need."""
_BUILT_WITH = re.compile(r'^CONFIG_CC_VERSION_TEXT="?(?:\S+-)?(gcc-\d+) ', re.MULTILINE)
"""``"x86_64-linux-gnu-gcc-12 (Ubuntu 12.3.0-1ubuntu1~22.04) 12.3.0"`` of Ubuntu 22.04's kernel 6.8, ``"gcc (Ubuntu
11.4.0-1ubuntu1~22.04) 11.4.0"`` of its 5.15. auto.conf has no quotes (linux, scripts/kconfig/confdata.c)."""
_CONFIGS = (f"boot/config-{KERNEL}", f"lib/modules/{KERNEL}/build/include/config/auto.conf")
"""A kernel's configuration: it comes with the kernel (Ubuntu's linux, debian/rules.d/2-binary-arch.mk), and with its
headers, where dkms reads it (dell/dkms, dkms.in)."""
_WITHDRAWN = "headers of a kernel that was replaced are often withdrawn: reboot into the newest installed kernel"


@dataclass
class BuildTools:
    """Build tools of one node. ``root`` is the start of its file system (tests); ``built``: what they build."""

    run: Run = run
    root: Path = Path("/")
    built: str = "the driver's module"

    def kernel(self) -> str:
        """Return the release of the running kernel."""
        return self.run(["uname", "-r"]).out.strip()

    def absent(self, needs: dict[str, str]) -> list[str]:
        """Return the packages still to install; ``needs``: absolute path that must exist -> package that brings it.

        An existing path is enough, whatever it came from. A compiler with a version in its name is needed only where a
        kernel that runs or boots next was built with it. Raises NodeProblem when the node's package sources have no
        package that is needed.
        """
        kernel, manager = self.kernel(), family(self.root)
        wanted = {path.replace(KERNEL, kernel): package.replace(KERNEL, kernel) for path, package in needs.items()}
        absent = {path: package for path, package in wanted.items() if not (self.root / path.lstrip("/")).exists()}
        missing = [package for path, package in absent.items() if self._needed(Path(path).name)]
        known, left_out = (self._known_to_apt(missing), {}) if manager == "apt" else self._known_to_dnf(missing)
        if unknown := sorted(set(missing) - known):
            refresh = "apt-get update" if manager == "apt" else "dnf makecache --refresh"
            problem = self._refusal(kernel, unknown, refresh, withdrawn=not left_out)
            raise dnf_words.without(problem, left_out) if left_out else problem
        return missing

    def _needed(self, program: str) -> bool:
        """Return whether the node needs a program: each but a compiler that built none of its kernels."""
        if not _COMPILER.fullmatch(program):
            return True
        boots = Kernel(self.run, self.root).boots()
        places = [self.root / place.replace(KERNEL, name) for name in boots for place in _CONFIGS]
        texts = [path.read_text(encoding="utf-8", errors="replace") for path in places if path.is_file()]
        return any(program in _BUILT_WITH.findall(text) for text in texts)

    def _refusal(self, kernel: str, unknown: list[str], refresh: str, *, withdrawn: bool) -> NodeProblem:
        """Return the problem of packages that cannot be had. ``withdrawn``: headers may have been withdrawn."""
        hints = [_WITHDRAWN] if withdrawn and any(kernel in name for name in unknown) else []
        hints += [
            f"a kernel of the node was built with {name}, and mirrors of earlier releases lack it: run `rackready "
            "mirror` again"
            for name in unknown
            if _COMPILER.fullmatch(name)
        ]
        why = f" ({'; '.join(hints)})" if hints else ""
        return NodeProblem(
            f"the build requirements of {self.built} for kernel {kernel}, installed or in the node's package sources",
            f"no {', no '.join(unknown)}",
            f"Make the node's package sources carry them and run `{refresh}` there{why}, then run again: "
            "docs/runbooks/driver-build.md.",
        )

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

    def _known_to_dnf(self, packages: list[str]) -> tuple[set[str], dict[str, str]]:
        """Return those of the packages that dnf could install, and the repositories that it left out, with the reason.

        It names the packages that it cannot, and is told to stop there. Raises NodeProblem for packages that the node's
        own configuration of dnf hides.
        """
        if not packages:
            return set(), {}
        out = self.run(["dnf", "--assumeno", "install", *SKIP, *packages]).out  # -q would hide what is read here
        if problem := dnf_words.hidden(out):
            raise problem
        return set(packages) - dnf_words.absent(out).keys(), dnf_words.left_out(out)
