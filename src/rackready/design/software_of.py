"""Version sets of a site with more than one: which nodes have which.

A site seen by the nodes of one group is the same site with that group's version set. What takes a site and reads
``software`` works on it unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.profiles import loader


@dataclass(frozen=True, slots=True)
class SoftwareView:
    """The nodes that share a version set, and the site as they see it. ``group`` is empty for ``software.set``."""

    group: str
    site: Site
    nodes: tuple[str, ...]


def software_site(site: Site, node: str) -> Site:
    """Return the site with the version set of one node."""
    return _by_node(site).get(node, site)


def software_views(site: Site) -> list[SoftwareView]:
    """Return every version set with its nodes: ``software.set`` first, then the groups in their order."""
    by_node = _by_node(site)
    rest = tuple(node.name for node in site.nodes() if node.name not in by_node)
    groups = [
        SoftwareView(group.name, _seen_by(site, place), tuple(sorted(group.names)))
        for place, group in enumerate(site.software.groups)
    ]
    return [SoftwareView("", site, rest), *groups] if rest or not groups else groups


def only(site: Site, wanted: str | None) -> Site:
    """Return the site with the nodes of one version set, and no other. Raises RackreadyError for an unknown set.

    ``wanted``: None where the site has one set. A known set that no node has yet, before an upgrade, gives the nodes
    that run its system.
    """
    views = [view for view in software_views(site) if view.nodes]
    if wanted is None and len(views) <= 1:
        return views[0].site if views else site
    sets = sorted({view.site.software.set for view in views})
    if wanted not in sets and wanted in loader.known("software"):
        system = loader.software(wanted).os
        views = [view for view in views if loader.software(view.site.software.set).os == system]
        views = [replace(view, site=_with_set(site, wanted)) for view in views]
        sets = [wanted] if views else sets
    if wanted not in sets:
        raise RackreadyError(
            "--set",
            expected=f"one of {', '.join(sets)}, because a mirror serves one version set",
            actual=wanted or "none",
            next_step="Name one; run the command once for each.",
        )
    chosen = [view for view in views if view.site.software.set == wanted]
    names = {name for view in chosen for name in view.nodes}
    racks = [
        rack.model_copy(update={"nodes": [node for node in rack.nodes if node.name in names]}) for rack in site.racks
    ]
    return chosen[0].site.model_copy(update={"racks": racks})


def _with_set(site: Site, wanted: str) -> Site:
    own: dict[str, object] = {"set": wanted, "driver_branch": None, "groups": []}
    return site.model_copy(update={"software": site.software.model_copy(update=own)})


def _by_node(site: Site) -> dict[str, Site]:
    return site.remember("software_by_node", lambda: _nodes_of_groups(site))


def _nodes_of_groups(site: Site) -> dict[str, Site]:
    return {
        name: _seen_by(site, place) for place, group in enumerate(site.software.groups) for name in sorted(group.names)
    }


def _seen_by(site: Site, place: int) -> Site:
    return site.remember(f"software_group_{place}", lambda: _with_group(site, place))


def _with_group(site: Site, place: int) -> Site:
    group = site.software.groups[place]
    own: dict[str, object] = {"set": group.set, "driver_branch": group.driver_branch, "groups": []}
    return site.model_copy(update={"software": site.software.model_copy(update=own)})
