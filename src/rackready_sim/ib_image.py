"""The root file system of machines with InfiniBand: Debian's programs of it, out of sight of the package manager.

Nodes install infiniband-diags and opensm from the site's mirror. The mirror's packages have launchers at the usual
paths, which run Debian's own programs from here on the simulated rack's ibsim (programs/hwsim/ib/tools.py).
"""

from __future__ import annotations

import shutil
from pathlib import Path

from rackready_sim.host import run

PACKAGES = ("opensm", "infiniband-diags", "ibsim-utils")
"""Debian's packages that the image has beside those of every simulated machine."""
PROGRAMS = (
    "ibnetdiscover", "iblinkinfo", "ibqueryerrors", "ibroute", "ibstat", "ibtracert", "perfquery", "saquery", "sminfo",
    "smpquery",
)  # fmt: skip
"""Programs of infiniband-diags that nodes get."""
_LIBRARIES = ("libibmad", "libibnetdisc", "libibumad", "libosmcomp", "libopensm", "libosmvendor", "libwrap")
_PURGED = (
    "opensm", "infiniband-diags", "ibsim-utils", "libumad2sim0", "libopensm9", "libosmvendor5", "libosmcomp5",
    "libibnetdisc5", "libibmad5",
)  # fmt: skip
_HOME = "usr/lib/hw/ib"


def finish(root: Path) -> None:
    """Move Debian's programs and libraries of InfiniBand below /usr/lib/hw, and remove their packages."""
    programs, libraries = root / _HOME / "bin", root / _HOME / "lib"
    for folder in (programs, libraries):
        folder.mkdir(parents=True, exist_ok=True)
    for name in ("sbin/opensm", "bin/ibsim", *(f"sbin/{name}" for name in PROGRAMS)):
        shutil.copy2(root / "usr" / name, programs / Path(name).name)
    found = root / "usr/lib/x86_64-linux-gnu"
    shutil.copy2(found / "umad2sim/libumad2sim.so", libraries / "libumad2sim.so")
    for name in _LIBRARIES:
        for path in found.glob(f"{name}.so.*"):
            shutil.copy2(path, libraries / path.name, follow_symlinks=False)
    run(["chroot", str(root), "dpkg", "--purge", *_PURGED], timeout_s=120.0)
