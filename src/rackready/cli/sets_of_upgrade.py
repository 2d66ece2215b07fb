"""What other commands heed of upgrades: an open one, and sets that the site file gives by itself by now."""

from __future__ import annotations

from collections.abc import Sequence

from rackready.campaign.upgrade.edits import against
from rackready.design import node_sets
from rackready.design.node_sets import choice_of
from rackready.design.site import load_site
from rackready.ledger import upgrades
from rackready.ledger.lock import ControllerLock
from rackready.ledger.node_sets import settle
from rackready.ledger.store import Ledger
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.model.upgrade import OPEN
from rackready.paths import EnvPaths


def require_no_other_set(paths: EnvPaths, site: Site, nodes: Sequence[str]) -> None:
    """Refuse work that would take nodes of an open upgrade past its waves, or judge them by a set that they lack."""
    if not Ledger.exists(paths.database):
        return
    with Ledger.read_only(paths.database) as ledger:
        record = upgrades.last(ledger)
    if record is None or record.state not in OPEN:
        return
    if found := against(record, {node: choice_of(site, node) for node in nodes}):
        raise RackreadyError.of(found)


def settle_sets(paths: EnvPaths, command: str) -> None:
    """Forget sets that the site file gives by itself by now, so that a later edit of the file counts."""
    written = load_site(paths.env, root=paths.root, written=True)
    known = {node.name for node in written.nodes()}
    moved = node_sets.read(paths.node_sets)
    if not any(node in known and choice_of(written, node) == found.now for node, found in moved.items()):
        return
    with ControllerLock(paths.lock, command, paths.database), Ledger.open(paths.database) as ledger:
        settle(ledger, paths, written)
