"""Schedulers of a site with more than one: which nodes have which.

A site seen by the nodes of one part is the same site with that part's scheduler and launcher. Code that takes a site
and reads ``handover`` works on it unchanged, and asks ``served`` for the nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from rackready.model.base import Model
from rackready.model.problems import RackreadyError
from rackready.model.several import SeveralHandover
from rackready.model.site import Node, Site, SlurmHandover

_Handover = TypeVar("_Handover", bound=Model)


@dataclass(frozen=True, slots=True)
class HandoverView:
    """Nodes that share a scheduler, and the site as they see it."""

    site: Site
    nodes: tuple[str, ...]

    @property
    def called(self) -> str:
        """Return the name of the part, "" on a site with one scheduler."""
        return self.site.part.called if self.site.part is not None else ""


def handover_views(site: Site) -> list[HandoverView]:
    """Return every scheduler of a site with its nodes, in the order of the parts."""
    return site.remember("handover_views", lambda: _views(site))


def handover_places(site: Site) -> list[tuple[tuple[str | int, ...], Site]]:
    """Return the place of each scheduler in the site file, with the site as its nodes see it."""
    if not isinstance(site.handover, SeveralHandover):
        return [(("handover",), site)]
    return [(("handover", "parts", at, "handover"), view.site) for at, view in enumerate(handover_views(site))]


def handover_site(site: Site, node: str) -> Site:
    """Return the site with the scheduler of one node. Raises RackreadyError for a node of no part."""
    if not isinstance(site.handover, SeveralHandover):
        return site
    found = site.remember("handover_by_node", lambda: _by_node(site)).get(node)
    if found is None:
        raise RackreadyError(
            node,
            "its scheduler",
            expected="in one of handover.parts",
            actual="in none",
            next_step="Name it in the part of its scheduler.",
        )
    return found


def by_scheduler(site: Site, nodes: Iterable[str]) -> list[HandoverView]:
    """Return these nodes by scheduler; a scheduler with none of them is left out. Raises RackreadyError."""
    if not isinstance(site.handover, SeveralHandover):
        return [HandoverView(site, tuple(nodes))]
    held: dict[str, list[str]] = {}
    views: dict[str, Site] = {}
    for node in nodes:
        seen = handover_site(site, node)
        called = part_of(seen)
        held.setdefault(called, []).append(node)
        views[called] = seen
    order = [view.called for view in handover_views(site)]
    return [HandoverView(views[called], tuple(held[called])) for called in order if called in held]


def part_of(site: Site, node: str | None = None) -> str:
    """Return the name of the part by which a site is seen, or of a node's part; "" on a site with one scheduler."""
    seen = site if node is None else handover_site(site, node)
    return seen.part.called if seen.part is not None else ""


def served(site: Site) -> list[Node]:
    """Return the nodes of the scheduler by which a site is seen: all of a site with one. Do not change the result."""
    part = site.part
    if part is None:
        return site.nodes()
    return site.remember("served", lambda: [node for node in site.nodes() if node.name in part.names])


def with_drain_wait(handover: _Handover, seconds: int) -> _Handover:
    """Return a handover whose schedulers wait this long for jobs to end, s. The plain file waits for none."""
    if isinstance(handover, SeveralHandover):
        parts = [
            part.model_copy(update={"handover": with_drain_wait(part.handover, seconds)}) for part in handover.parts
        ]
        return handover.model_copy(update={"parts": parts})
    return handover.model_copy(update={"drain_wait_s": seconds}) if hasattr(handover, "drain_wait_s") else handover


def place_of(site: Site) -> str:
    """Return the kind of the scheduler by which a site is seen, and its address, in words."""
    handover = site.handover
    if isinstance(handover, SlurmHandover):
        return f"slurm {handover.controller}:{handover.port}"
    if handover.kind == "kubernetes":
        return f"kubernetes {handover.context} of {handover.kubeconfig}"
    if handover.kind == "file":
        return f"file {handover.path}"
    return f"plugin {handover.scheduler}" if handover.kind == "plugin" else "several schedulers"


def called_in(site: Site) -> str:
    """Return the scheduler by which a site is seen without paths of the controller, for plans and reports."""
    handover = site.handover
    name = {
        "slurm": str(getattr(handover, "controller", "")),
        "kubernetes": str(getattr(handover, "context", "")),
        "plugin": str(getattr(handover, "scheduler", "")),
    }.get(handover.kind, "")
    return f"{handover.kind} {name}".strip()


def scheduler_of(site: Site, node: str) -> str:
    """Return a node's scheduler in words: with its part where the site has several."""
    seen = handover_site(site, node)
    return f"part {seen.part.called} ({called_in(seen)})" if seen.part is not None else called_in(seen)


def view_of_kind(site: Site, kind: str, wanted: str, where: str) -> Site:
    """Return the site as the nodes of one scheduler of a kind see it.

    ``wanted``: name of the part, "" where only one has this kind. A site with one scheduler is returned as it is:
    callers check its kind. Raises RackreadyError.
    """
    if not isinstance(site.handover, SeveralHandover):
        if wanted:
            raise RackreadyError(
                "--part",
                expected="no part: the site has one scheduler",
                actual=wanted,
                next_step="Leave it out.",
            )
        return site
    views = {view.called: view.site for view in handover_views(site) if view.site.handover.kind == kind}
    if not views:
        raise RackreadyError(
            where,
            expected=f"a part of kind {kind} in handover.parts",
            actual=", ".join(f"{view.called} ({view.site.handover.kind})" for view in handover_views(site)),
            next_step="See docs/howto/two-schedulers.md.",
        )
    if wanted not in views and (wanted or len(views) > 1):
        raise RackreadyError(
            "--part",
            expected=f"one of {', '.join(views)}",
            actual=wanted or "none",
            next_step="Name one; run the command once for each.",
        )
    return views[wanted] if wanted else next(iter(views.values()))


def _views(site: Site) -> list[HandoverView]:
    if not isinstance(site.handover, SeveralHandover):
        return [HandoverView(site, tuple(node.name for node in served(site)))]
    seen = [site.seen_by(part) for part in site.handover.parts]
    return [HandoverView(view, tuple(node.name for node in served(view))) for view in seen]


def _by_node(site: Site) -> dict[str, Site]:
    return {node: view.site for view in handover_views(site) for node in view.nodes}
