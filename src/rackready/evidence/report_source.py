"""Reads a report's content: campaign, nodes, runs over several nodes, progress, skips, raw outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rackready import __version__
from rackready.design.check_gates import today, warnings
from rackready.evidence.node_report import Document, document, entry
from rackready.evidence.store import EvidenceError, EvidenceStore
from rackready.ledger.store import PAUSED, UNFINISHED, Ledger
from rackready.model.commands import in_document, outside
from rackready.model.site import Site
from rackready.paths import EnvPaths
from rackready.profiles import loader

SCHEMA = "rackready/report/v1"
LONGEST_RAW = 40_000
"""Characters of one raw output on the page."""
MOST_RAW = 16_000_000
"""Characters of all raw outputs on the page: a browser opens some tens of megabytes in a moment."""
_AHEAD = 256
"""Outputs that are brought from an object store at once."""


@dataclass(frozen=True, slots=True)
class ReportSource:
    """A campaign's records and their ledger. Long lists are read a few at a time."""

    site: Site
    env: str
    campaign: str
    ledger: Ledger
    store: EvidenceStore

    @classmethod
    @contextmanager
    def open(cls, site: Site, paths: EnvPaths, campaign: str) -> Iterator[ReportSource]:
        """Open the ledger for reading. Raises LedgerError when there is none."""
        with Ledger.read_only(paths.database) as ledger:
            yield cls(site, paths.env, campaign, ledger, EvidenceStore.read_only(ledger, paths.raw))

    def head(self) -> Document:
        """Return the first part of a report."""
        row = self._row()
        about = {
            "id": self.campaign,
            "kind": row.get("kind"),
            "status": row.get("status"),
            "begun": _time(row.get("begun")),
            "ended": _time(row.get("ended")),
        }
        return {
            "schema": SCHEMA,
            "rackready": __version__,
            "env": self.env,
            "site": self.site.name,
            "campaign": about,
            "generated": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def _row(self) -> Mapping[str, Any]:
        return next((row for row in self.ledger.campaigns() if row["id"] == self.campaign), {})

    def results(self) -> Mapping[str, Mapping[str, Any]]:
        """Return node -> its last result in the campaign; none of one that has not ended."""
        found: Mapping[str, Mapping[str, Any]] = self._row().get("summary", {}).get("results", {})
        return found

    def tail(self) -> Document:
        """Return the site's skips, the faults that its gate set cannot see, and warnings.

        A kill switch is a skip of all nodes, with its end and its author.
        """
        skips: list[dict[str, Any]] = [skip.model_dump(mode="json") for skip in self.site.gates.skip]
        off = [item for item in self.site.gates.disabled if today() <= item.until]
        skips += [{**item.model_dump(mode="json"), "nodes": ["all"], "reason": item.said()} for item in off]
        added = {entry.id for entry in self.site.gates.also}
        unseen = [item.model_dump() for item in loader.gate_set(self.site.gates.set).unseen if item.gate not in added]
        return {
            "declared_skips": skips,
            "gate_set": self.site.gates.set,
            "unseen": unseen,
            "warnings": in_document(warnings(self.site, today()), outside(self.env)),
        }

    def nodes(self) -> Iterator[Document]:
        """Yield the documents of nodes, as recorded."""
        states = {row.name: row for row in self.ledger.states()}
        results = self.results()
        for node in self.site.nodes():
            found = document(node, states.get(node.name), self.store.concluded(node.name), results.get(node.name))
            yield in_document(found, outside(self.env))

    def runs(self) -> Iterator[Document]:
        """Yield the campaign's runs over several nodes."""
        for record in self.store.over_several(self.campaign):
            yield in_document(entry(record), outside(self.env))

    def events(self) -> Iterator[Document]:
        """Yield the campaign's progress."""
        for event in self.ledger.progress(self.campaign):
            found = {
                "at": _time(event.at),
                "node": event.node,
                "phase": event.phase,
                "level": event.level,
                "text": event.text,
            }
            yield in_document(found, outside(self.env))

    def raw(self, wanted: Iterable[str]) -> dict[str, str]:
        """Return raw outputs by hash for the page: the first wanted ones, as many as fit.

        A damaged output is replaced by its error. A long one is cut, with the command that shows the whole.
        """
        out: dict[str, str] = {}
        size = 0
        digests = list(dict.fromkeys(wanted))
        for place, digest in enumerate(digests):
            if size >= MOST_RAW:
                break
            if place % _AHEAD == 0:
                self.store.prefetch_raw(digests[place : place + _AHEAD])
            if text := self._shown(digest):
                out[digest] = text
                size += len(text)
        return dict(sorted(out.items()))

    def _shown(self, digest: str) -> str:
        try:
            text = self.store.raw(digest)
        except EvidenceError as error:
            return f"[{error}]"
        if len(text) <= LONGEST_RAW:
            return text
        return (
            f"{text[:LONGEST_RAW]}\n[cut: {len(text) - LONGEST_RAW} more characters; "
            f"the whole: rackready report --raw {digest}{_option(self.env)}]"
        )


def _option(env: str) -> str:
    return f" --env {env}" if outside(env) else ""


def unfinished(head: Mapping[str, Any]) -> str:
    """Return the status of a campaign that has no end yet; empty for one that has."""
    status = str(head["campaign"].get("status") or "")
    return status if status in UNFINISHED | {PAUSED} else ""


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
