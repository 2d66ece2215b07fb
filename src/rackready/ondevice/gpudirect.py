"""How network cards reach GPU memory on this node: by dma-buf, or by the module nvidia_peermem.

Rules: NVIDIA/cloud-native-docs @52dcb7b8, gpu-operator/gpu-operator-rdma.rst. dma-buf needs the open kernel modules and
kernel 5.12 or newer, with any RDMA stack; nvidia_peermem works with any driver, but needs MLNX_OFED or DOCA-OFED.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from .command import NodeProblem, Run, run
from .whole_file import replace_file

DMABUF, PEERMEM = "dmabuf", "peermem"
KERNEL = (5, 12)
"""First kernel with dma-buf for RDMA (the same page)."""
MODULE = "nvidia_peermem"
KEPT = "etc/modules-load.d/rackready-peermem.conf"
_OPEN = "Dual MIT/GPL"
"""License of the open kernel modules; that of the others is NVIDIA (NVIDIA/open-gpu-kernel-modules, nv.c)."""
_SYMBOL = re.compile(r"\bib_register_peer_memory_client\b")
"""OFED's ib_core has it, the kernel's own does not; NVIDIA's build of nvidia_peermem looks for it (conftest.sh)."""


@dataclass
class GpuDirect:
    """One node. ``root`` is the start of its file system, ``release`` its kernel's release (tests)."""

    run: Run = run
    root: Path = Path("/")
    release: str = field(default_factory=lambda: os.uname().release)

    def way(self, *, opened: bool, coming: bool = False) -> str:
        """Return dmabuf or peermem. Raises NodeProblem when neither is possible.

        ``opened``: the driver's modules are the open ones. ``coming``: this run installs an OFED driver.
        """
        if opened and kernel(self.release) >= KERNEL:
            return DMABUF
        if coming or self.has_ofed():
            return PEERMEM
        flavour = "open" if opened else "proprietary"
        step = (
            "Use a version set with open modules and a kernel of 5.12 or newer, or DOCA-OFED "
            "(software.nic_stack: doca). Nothing was changed."
        )
        raise NodeProblem(
            "open NVIDIA modules on kernel 5.12 or newer (dma-buf), or an OFED driver (nvidia_peermem)",
            f"{flavour} modules, kernel {self.release}, the kernel's own RDMA driver",
            step,
        )

    def has_ofed(self) -> bool:
        """Return whether the RDMA driver that runs is OFED's."""
        try:
            text = (self.root / "proc/kallsyms").read_text(encoding="ascii", errors="replace")
        except OSError:
            return False
        return _SYMBOL.search(text) is not None

    def differences(self, way: str) -> list[str]:
        """Return what is missing for a way; dma-buf needs nothing but its preconditions."""
        if way == DMABUF:
            return []
        missing = [] if self._is_loaded() else [f"kernel module {MODULE} not loaded"]
        path = self.root / KEPT
        kept = path.exists() and path.read_text(encoding="utf-8") == f"{MODULE}\n"
        return missing + ([] if kept else [f"/{KEPT} without {MODULE}"])

    def verify(self, *, opened: bool) -> None:
        """Raise NodeProblem if the loaded driver is of the other flavour than the rules were applied to."""
        found = self.run(["modinfo", "-F", "license", "nvidia"]).out.strip()
        if (found == _OPEN) != opened:
            step = "Run role nvidia_driver first; it installs the flavour of the version set."
            wanted = "open" if opened else "proprietary"
            raise NodeProblem(f"{wanted} NVIDIA modules", f"license {found or 'none'}", step)

    def ensure(self, *, opened: bool, coming: bool = False, check: bool = False) -> tuple[str, list[str]]:
        """Prepare the node's way; return it and what differed. Raises NodeProblem with the obstacle.

        ``coming``: an OFED driver is installed, and the next boot starts it, with the module.
        """
        way = self.way(opened=opened, coming=coming)
        found = self.differences(way)
        if check:
            return way, found
        self.verify(opened=opened)
        if found:
            replace_file(self.root / KEPT, f"{MODULE}\n")
            if not self.has_ofed():
                return way, found
            done = self.run(["modprobe", MODULE])
            if not self._is_loaded():
                said = (done.out.strip().splitlines() or ["no output"])[-1]
                step = "Build NVIDIA's modules with this OFED (`dkms install --force nvidia/VERSION`), then run again."
                raise NodeProblem(f"kernel module {MODULE} loaded", f"exit {done.returncode}: {said}", step)
        return way, found

    def _is_loaded(self) -> bool:
        return (self.root / "sys/module" / MODULE).exists()


def kernel(release: str) -> tuple[int, int]:
    """Return the first two numbers of a kernel's release."""
    match = re.match(r"(\d+)\.(\d+)", release)
    return (int(match[1]), int(match[2])) if match else (0, 0)
