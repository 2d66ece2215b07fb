"""What must not be on a node before DOCA-OFED is installed; read only."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from .command import NodeProblem, Run, run

PROFILE = "doca-ofed"
_REMOVE = "Remove it first (MLNX_OFED: `/usr/sbin/ofed_uninstall.sh --force`), then run again."
_EL_CORE = 61
"""rdma-core of RHEL 9.8, whose libraries conflict with DOCA's (Azure/azhpc-images @8e9d055f, install_doca.sh)."""
_DOCA_CORE = 2000
"""DOCA numbers its rdma-core by year and month, such as 2510 (the same file)."""
_DPLL = re.compile(r"struct dpll_ffo_param \*ffo,")
"""In the kernel's header dpll.h, this breaks the build of DOCA 3.2's modules (the same file, for RHEL 9.8)."""
_PMIX = "/etc/pmix-mca-params.conf"
"""DOCA's openmpi brings this file; another package that has it stops dpkg (the same file)."""
Problem = tuple[str, str, str]


@dataclass
class Doca:
    """One node. ``root`` is the start of its file system, ``release`` its kernel's release (tests)."""

    version: str
    run: Run = run
    root: Path = Path("/")
    release: str = field(default_factory=lambda: os.uname().release)

    def refuse_conflicts(self) -> None:
        """Raise NodeProblem with every conflict; a node that has DOCA-OFED already has none."""
        rpm = (self.root / "etc/redhat-release").exists()
        names = self._installed(rpm=rpm)
        if PROFILE in names:
            return
        found = [*self._other_stack(names), *(self._of_rhel() if rpm else self._of_debian())]
        if found:
            expected = "; ".join(dict.fromkeys(item[0] for item in found))
            actual = "; ".join(item[1] for item in found)
            steps = " ".join(dict.fromkeys(item[2] for item in found))
            raise NodeProblem(expected, actual, f"{steps} Nothing was changed.")

    def _other_stack(self, names: set[str]) -> list[Problem]:
        """MLNX_OFED goes first (DOCA-Host installation guide); so do Ubuntu's own builds (ubuntu.com, doca-ofed)."""
        flavours = sorted(name for name in names if name.startswith(f"{PROFILE}-") and name != f"{PROFILE}-userspace")
        other = [*(["ofed-scripts of MLNX_OFED"] if "ofed-scripts" in names else []), *flavours]
        return [("no other OFED stack", ", ".join(other), _REMOVE)] if other else []

    def _of_debian(self) -> list[Problem]:
        done = self.run(["dpkg", "-S", _PMIX])
        owner = done.out.partition(":")[0].strip() if done.returncode == 0 else ""
        if not owner or owner == "openmpi":
            return []
        step = f"Remove {owner}: doca-ofed depends on DOCA's own openmpi, which has that file too."
        return [(f"no package with {_PMIX}", owner, step)]

    def _of_rhel(self) -> list[Problem]:
        found: list[Problem] = []
        core = self.run(["rpm", "-q", "--qf", "%{VERSION}", "rdma-core"])
        match = re.match(r"\d+", core.out) if core.returncode == 0 else None
        if match and _EL_CORE <= int(match[0]) < _DOCA_CORE:
            step = "Remove it, and exclude rdma-core and libibverbs from the system's repository (excludepkgs)."
            found.append((f"rdma-core older than {_EL_CORE}, or DOCA's", f"rdma-core {core.out.strip()}", step))
        header = self.root / f"usr/src/kernels/{self.release}/include/linux/dpll.h"
        if self.version.startswith("3.2.") and header.exists() and _DPLL.search(header.read_text(encoding="utf-8")):
            step = "Run a kernel that DOCA was built for (RHEL 9.4 or 9.6), or take a newer DOCA."
            found.append((f"a kernel for which DOCA {self.version} builds", f"kernel {self.release}", step))
        return found

    def _installed(self, *, rpm: bool) -> set[str]:
        if rpm:
            return set(self.run(["rpm", "-qa", "--qf", "%{NAME}\\n"]).out.split())
        rows = self.run(["dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package}\\n"]).out.splitlines()
        return {row.split()[-1] for row in rows if row[1:2] == "i"}
