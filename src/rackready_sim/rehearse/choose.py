"""Choose the nodes of a rehearsal: at least two of every class, of two racks and of two units where there are such."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import NamedTuple

from rackready.design.endpoints import unit_of
from rackready.design.names import listed
from rackready.design.software_of import software_site
from rackready.model.operations import files_of
from rackready.model.site import Node, Rack, Site
from rackready_sim.rehearse.notes import NOTHING, Note

EACH = 2
"""Nodes of a class: gates compare a node with its like, and measure between two."""
LEAST = 4
"""Nodes of a rehearsal where the site has so many: incast needs three."""


class Kind(NamedTuple):
    """What nodes of one class have in common. ``skips``: gates that the site skips on them."""

    platform: str
    software: str
    partitions: tuple[str, ...]
    skips: tuple[str, ...]

    def __str__(self) -> str:
        """Return it for people."""
        skips = [f"skips {', '.join(self.skips)}"] if self.skips else []
        parts = [f"partition {', '.join(self.partitions)}"] if self.partitions else []
        return ", ".join([self.platform, self.software, *parts, *skips])


class Choice(NamedTuple):
    """The chosen nodes in the order of the site, and what is left out."""

    nodes: tuple[str, ...]
    notes: tuple[Note, ...]


def choose(site: Site, able: Sequence[str], most: int) -> Choice:
    """Return at most ``most`` of the nodes ``able``: two of each class, large classes first, then up to ``LEAST``."""
    classes = sorted(by_kind(site, able).items(), key=lambda item: -len(item[1]))
    taken: dict[Kind, int] = dict.fromkeys((kind for kind, _ in classes), 0)
    for kind, nodes in classes:
        wanted = min(EACH, len(nodes), most)
        taken[kind] = wanted if sum(taken.values()) + wanted <= most else 0
    for kind, nodes in classes:
        free = min(LEAST, most) - sum(taken.values())
        if taken[kind]:
            taken[kind] += max(0, min(free, len(nodes) - taken[kind]))
    names = {name for kind, nodes in classes for name in _spread(site, nodes)[: taken[kind]]}
    notes = [
        Note(f"nodes of {kind}", str(len(nodes)), str(taken[kind]) if taken[kind] else NOTHING, _why(taken[kind], most))
        for kind, nodes in classes
        if taken[kind] < len(nodes)
    ]
    return Choice(tuple(node.name for node in site.nodes() if node.name in names), tuple(notes))


def _why(taken: int, most: int) -> str:
    if taken:
        return "a rehearsal keeps a few nodes of each kind; the others are as these"
    return f"this machine holds {most} nodes; a larger one, or --limit with nodes of this kind, rehearses it"


def by_kind(site: Site, names: Sequence[str]) -> dict[Kind, list[Node]]:
    """Return the nodes of each class, in the order of the site."""
    out: dict[Kind, list[Node]] = {}
    wanted = set(names)
    for node in site.nodes():
        if node.name in wanted:
            out.setdefault(_kind(site, node), []).append(node)
    return out


def _kind(site: Site, node: Node) -> Kind:
    own = software_site(site, node.name).software
    branch = f" driver {own.driver_branch}" if own.driver_branch else ""
    files = files_of(site.handover)
    parts = sorted(part.name for part in files.partitions if part.holds(node.name)) if files is not None else []
    skips = sorted(site.gates.skipped(node.name, datetime.now(UTC).date()))
    return Kind(node.platform, f"{own.set}{branch}", tuple(parts), tuple(skips))


def _spread(site: Site, nodes: Sequence[Node]) -> list[str]:
    """Return names so that the first ones are of two racks, in two scalable units where there are two."""
    of_rack: dict[str, list[str]] = {}
    for node in nodes:
        of_rack.setdefault(site.rack_of(node.name).name, []).append(node.name)
    racks = [rack for rack in site.racks if rack.name in of_rack]
    pair = list(_pair(site, racks))
    mixed = [name for both in zip_longest(*(of_rack[rack.name] for rack in pair)) for name in both if name]
    return mixed + [name for rack in racks if rack not in pair for name in of_rack[rack.name]]


def _pair(site: Site, racks: Sequence[Rack]) -> Iterator[Rack]:
    """Yield the first rack, and the first of another unit; if there is none, the second rack."""
    yield racks[0]
    others = racks[1:]
    here = unit_of(site, racks[0])
    elsewhere = next((rack for rack in others if unit_of(site, rack) != here), None)
    second = elsewhere or next(iter(others), None)
    if second is not None:
        yield second


def counted(site: Site, chosen: Sequence[str]) -> Note:
    """Return the note of the racks, of which the rehearsal has few."""
    racks = {site.rack_of(name).name for name in chosen}
    reason = "power, cooling and cables between racks are planned, not rehearsed"
    return Note("racks", str(len(site.racks)), f"{len(racks)} ({listed(sorted(racks))})", reason)
