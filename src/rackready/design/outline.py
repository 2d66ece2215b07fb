"""What lists of nodes show of a site: its name, its nodes and their schedulers. Kept beside the ledger.

Loading 12,500 nodes takes seconds, and `rackready status` shows their names. An outline is kept only of a site that
was loaded without a problem, and is used only while nothing that decides its content has changed (``site_key``).
Losing it costs nothing but time.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rackready import files
from rackready.design.site_inputs import site_key
from rackready.design.state_owner import require_own
from rackready.paths import EnvPaths

if TYPE_CHECKING:
    from rackready.model.site import Site

SCHEMA = "rackready/site-outline/v1"


@dataclass(frozen=True, slots=True)
class Outline:
    """A site in outline. ``nodes``: node -> its scheduler in words, and its part ("" where the site has no parts)."""

    name: str
    nodes: dict[str, tuple[str, str]]


def load_outline(paths: EnvPaths) -> Outline:
    """Return the outline of an environment's site; the site is loaded where none is kept or anything has changed.

    Raises what ``load_site`` raises.
    """
    key = site_key(paths)
    found = _kept(paths, key) if key else None
    if found is None:
        from rackready.design.site import load_site  # noqa: PLC0415 - what this module exists to avoid

        site = load_site(paths.env, root=paths.root)
        found = outline_of(site)
        keep(paths, found, key)
    require_own(paths, found.name)
    return found


def outline_of(site: Site) -> Outline:
    """Return the outline of a loaded site."""
    from rackready.design.handover_of import called_in, handover_site, part_of  # noqa: PLC0415 - as above

    shared: dict[int, tuple[str, str]] = {}
    nodes = {}
    for node in site.nodes():
        seen = handover_site(site, node.name)
        if id(seen) not in shared:  # thousands of nodes share one
            shared[id(seen)] = (called_in(seen), part_of(seen))
        nodes[node.name] = shared[id(seen)]
    return Outline(site.name, nodes)


def keep(paths: EnvPaths, outline: Outline, key: str) -> None:
    """Keep an outline, where the environment has a folder of state. ``key``: taken before the site was loaded.

    A file that was edited while the site was loaded makes another key: then nothing is kept. Nor is it where this user
    cannot write.
    """
    if not key or not paths.state.is_dir() or site_key(paths) != key:
        return
    places = {shared: place for place, shared in enumerate(dict.fromkeys(outline.nodes.values()))}
    document = {
        "schema": SCHEMA,
        "key": key,
        "name": outline.name,
        "schedulers": list(places),
        "nodes": [[node, places[shared]] for node, shared in outline.nodes.items()],
    }
    with suppress(OSError):
        files.replace(paths.outline, json.dumps(document).encode())


def _kept(paths: EnvPaths, key: str) -> Outline | None:
    """Return the kept outline of that key, None where there is none or it is damaged."""
    try:
        document = json.loads(paths.outline.read_bytes())
        if document["schema"] != SCHEMA or document["key"] != key:
            return None
        schedulers = [(str(called), str(part)) for called, part in document["schedulers"]]
        return Outline(str(document["name"]), {str(node): schedulers[place] for node, place in document["nodes"]})
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
