"""What the controller may remove of pulled releases: builds, objects and reports that nobody asks for any more.

Evidence is never removed: what a node's play reported is stored as a raw output before its report goes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from rackready.campaign import release_index
from rackready.campaign.pull.listing import newest_of, read_all
from rackready.campaign.pull.order import APPLY, PullOrder, standing
from rackready.campaign.pull.report import keep_raw
from rackready.campaign.pull.run import PULLED
from rackready.drivers.release.document import blobs_of
from rackready.drivers.release.error import ReleaseError
from rackready.drivers.release.objects import objects_of
from rackready.evidence.raw_outputs import RawOutputs
from rackready.ledger.store import Ledger, LedgerEntry
from rackready.model.site import Site
from rackready.paths import EnvPaths

_YOUNG_S = 3600.0
"""Objects that are newer stay: a build that runs beside this has not written its index yet. Our choice."""


@dataclass(frozen=True, slots=True)
class Prunable:
    """Files that may go, and how many releases stay."""

    indexes: tuple[Path, ...]
    objects: tuple[Path, ...]
    reports: tuple[Path, ...]
    kept: int
    size: int
    """Bytes of all files that may go."""


@dataclass(frozen=True, slots=True)
class Pruning:
    """One look at an environment. ``nodes``: those of the site that are not retired; ``newest``: builds that stay."""

    site: Site
    paths: EnvPaths
    nodes: Sequence[str]
    newest: int
    keys: Sequence[Ed25519PublicKey]

    def look(self, ledger: Ledger | None) -> Prunable:
        """Return what may go. Raises SignatureError and ReleaseError for a newest build that cannot be read."""
        entries = [] if ledger is None else ledger.entries()
        indexes = release_index.indexes(self.paths)
        releases, extras = self._ordered(entries)
        for path in indexes[: self.newest]:
            releases |= {entry.release.sha256 for entry in release_index.read(path, self.keys).entries}
        needed = releases | extras | {name for release in releases for name in self._parts(release)}
        folder = objects_of(self.paths).folder
        found = sorted(folder.iterdir()) if folder.is_dir() else []
        reports = () if ledger is None else tuple(self._reports(ledger.identity(), entries))
        gone = tuple(path for path in found if path.name not in needed and _is_old(path))
        old = tuple(indexes[self.newest :])
        return Prunable(old, gone, reports, len(releases), sum(path.stat().st_size for path in (*old, *gone, *reports)))

    def remove(self, ledger: Ledger | None, found: Prunable) -> None:
        """Remove what may go: first the builds, so that none names an object that is gone. Raises OSError."""
        for path in (*found.indexes, *found.objects):
            path.unlink(missing_ok=True)
        if ledger is None:
            return
        raw = RawOutputs(ledger, self.paths.raw)
        going = set(found.reports)
        for node in self.nodes:
            for path, report in read_all(self.site, self.paths, node):
                if path in going and not isinstance(report, str):
                    if report.mode == APPLY:
                        keep_raw(raw, report)
                    path.unlink(missing_ok=True)

    def _ordered(self, entries: Iterable[LedgerEntry]) -> tuple[set[str], set[str]]:
        """Return the releases that orders of nodes name, and the variables of their phases.

        Of the ledger: the newest order of each node and phase. Of the written orders: those that stand on the node.
        """
        last = {
            (entry.node, entry.operation): str(entry.observed[PULLED]["release"])
            for entry in entries
            if entry.node in self.nodes and PULLED in entry.observed
        }
        orders: list[PullOrder] = [order for node in self.nodes for order in standing(self.paths, node)]
        return set(last.values()) | {order.release for order in orders}, {order.extra["sha256"] for order in orders}

    def _parts(self, release: str) -> Iterator[str]:
        """Yield what a release is made of; nothing of one whose document is gone or damaged: no node can use it."""
        path = objects_of(self.paths).path(release)
        try:
            yield from (blob.sha256 for blob in blobs_of(path.read_bytes(), path).values())
        except (FileNotFoundError, ReleaseError):
            return

    def _reports(self, identity: str, entries: Iterable[LedgerEntry]) -> Iterator[Path]:
        """Yield reports that newer ones of their phase replace. One that an open intent waits for stays."""
        open_ = {entry.token for entry in entries if entry.status == "intent"}
        for node in self.nodes:
            known = [(path, one) for path, one in read_all(self.site, self.paths, node) if not isinstance(one, str)]
            own = [(path, one) for path, one in known if one.site == identity]
            stay = {one.name for one in newest_of([one for _, one in own])}
            yield from (path for path, one in own if one.name not in stay and one.sequence not in open_)


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > _YOUNG_S
    except FileNotFoundError:  # of a build that runs: it had another name a moment ago
        return False
