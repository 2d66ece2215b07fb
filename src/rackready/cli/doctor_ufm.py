"""Check of `rackready doctor` of UFM, on sites whose InfiniBand subnet it manages."""

from __future__ import annotations

from rackready.cli.doctor_scene import Answer, Scene
from rackready.drivers.ufm.reading import read_ufm
from rackready.model.outcome import Outcome


def ufm(scene: Scene) -> Answer:
    """Read version, ports, links and partitions, as the fabric phase does. Nothing is changed."""
    own = scene.site.fabric.infiniband if scene.site is not None else None
    if own is None or own.ufm is None:
        return Outcome.SKIP, "no UFM manages a subnet of the site"
    found = read_ufm(own.ufm)
    if found.fabric is None:
        return Outcome.FAIL, found.trouble
    return Outcome.PASS, f"UFM {found.version}: {len(found.fabric.nodes)} switches and adapters"
