"""Debian's own node_exporter in the image, out of sight of the package manager.

Nodes install it from the site's mirror, whose package has the unit and a link to the program that is kept here.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from rackready_sim.host import run

PACKAGE = "prometheus-node-exporter"
PROGRAM = "/usr/lib/hw/real/prometheus-node-exporter"


def keep(root: Path) -> None:
    """Move Debian's program below /usr/lib/hw, and remove its package."""
    place = root / PROGRAM.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(root / "usr/bin" / PACKAGE, place)
    run(["chroot", str(root), "dpkg", "--purge", PACKAGE], timeout_s=120.0)
