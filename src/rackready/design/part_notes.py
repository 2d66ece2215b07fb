"""What gates do not measure on a site with several schedulers: no program runs on nodes of two of them."""

from __future__ import annotations

from rackready.design.handover_of import handover_views
from rackready.design.wiring import cables
from rackready.model.host_list import host_list, spans
from rackready.model.several import SeveralHandover
from rackready.model.site import Site


def part_notes(site: Site) -> list[str]:
    """Return how the nodes of gates of several nodes are grouped, and the rails on which no gate joins the parts."""
    if not isinstance(site.handover, SeveralHandover):
        return []
    views = handover_views(site)
    groups = ", ".join(f"{view.called}: {host_list(view.nodes)}" for view in views)
    note = f"gates of several nodes run within each part ({groups}), and on nodes of one scheduler only"
    held: dict[int, set[str]] = {}
    owner = {node: view.called for view in views for node in view.nodes}
    for node, rail in cables(site):
        held.setdefault(rail, set()).add(owner[node])
    shared = [rail for rail, parts in held.items() if len(parts) > 1]
    if not shared:
        return [f"{note}."]
    rails = f"rail{'s' if len(shared) > 1 else ''} {spans(shared)}"
    return [f"{note}: no gate measures the way from nodes of one part to those of another on {rails}."]
