"""Finds what is due from the ledger, the evidence and the site. It asks no device, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property

from cryptography import x509

from rackready.campaign.calendar import rules
from rackready.campaign.calendar.rules import DueItem, DueRule
from rackready.campaign.nightly.choose import measured_at, newest_of
from rackready.campaign.upgrade.windows import ask
from rackready.drivers.bmc_certificate import BMC_CERTIFY
from rackready.drivers.bmc_password import BMC_PASSWORD
from rackready.drivers.switch.password import SWITCH_PASSWORD
from rackready.evidence.store import EvidenceStore
from rackready.ledger.drift import runs_of
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.profile import GateSetEntry
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.profiles import loader

_ABOUT_FIRMWARE = ("bmc/firmware/sanity/versions", "group/host/validation/firmware")
_WORK_S = 3600.0
"""Least length of a window that an item is given, s. Judgement: the maintenance set takes up to 20 minutes a node."""


@dataclass(frozen=True)
class Calendar:
    """What is due at a site. ``now``: seconds since 1970."""

    site: Site
    ledger: Ledger
    store: EvidenceStore
    now: float

    @property
    def today(self) -> date:
        """Return the day in UTC."""
        return _day(self.now)

    def items(self, until: date) -> list[DueItem]:
        """Return what is due until a day, the earliest first."""
        found = [item for item in self._all() if item.due <= until]
        return sorted(found, key=lambda item: (item.due, rules.RULES.index(item.rule), item.name))

    def _all(self) -> Iterator[DueItem]:
        yield from self._sets()
        yield from self._evidence()
        yield from self._weekly()
        yield from self._firmware()
        nodes = [node.name for node in self.site.nodes() if node.bmc.known() is not None]
        yield from self._done(rules.BMC_PASSWORDS, BMC_PASSWORD, nodes, rules.BMC_PASSWORDS.days or 0)
        switches = [switch.name for switch in self.site.switches]
        yield from self._done(rules.SWITCH_PASSWORDS, SWITCH_PASSWORD, switches, rules.SWITCH_PASSWORDS.days or 0)
        yield from self._certificates(nodes)
        yield from self._kill_switches()

    @cached_property
    def _ready(self) -> list[str]:
        """Return the nodes in production: what is out of it is measured before it returns."""
        ready = {row.name for row in self.ledger.states() if row.state is NodeState.READY}
        return [node.name for node in self.site.nodes() if node.name in ready]

    def _sets(self) -> Iterator[DueItem]:
        """Yield when the nightly set, and the maintenance set, are due on each node: their oldest gate counts.

        Of the maintenance set those gates count that the site's own set has, too: its validation is what runs them.
        """
        own = {entry.id for entry in loader.gates_of(self.site.gates)}
        maintenance = [one for one in loader.set_of(self.site.gates, "maintenance").gates if one.id in own]
        nightly = loader.set_of(self.site.gates, "nightly").gates
        for rule, entries in ((rules.NIGHTLY, nightly), (rules.QUARTERLY, maintenance)):
            for node, at in measured_at(self.store, entries, self._ready).items():
                yield self._periodic(rule, node, at, rule.days or 0)

    def _evidence(self) -> Iterator[DueItem]:
        """Yield the first day on which evidence of each node becomes too old."""
        ends: dict[str, tuple[float, float, str]] = {}
        aging = [entry for entry in loader.gates_of(self.site.gates) if entry.max_age_hours is not None]
        for entry in aging:
            for node, at in self._passes(entry):
                end = at + (entry.max_age_hours or 0) * 3600
                ends[node] = min(ends.get(node, (end, at, entry.id)), (end, at, entry.id))
        for node, (end, at, gate) in ends.items():
            yield DueItem(rules.EVIDENCE, node, _day(at), _day(end), why=gate)

    def _passes(self, entry: GateSetEntry) -> Iterator[tuple[str, float]]:
        newest = newest_of(self.store, entry.id, self._ready)
        for node in self._ready:
            if node in newest and newest[node].verdict.outcome is Outcome.PASS:
                yield node, newest[node].started.timestamp()

    def _weekly(self) -> Iterator[DueItem]:
        """Yield when each node in production and each switch is compared with the plan again."""
        for name in (*self._ready, *(switch.name for switch in self.site.switches)):
            asked = (row.at for row in runs_of(self.ledger, name) if row.report["asked"])
            yield self._periodic(rules.WEEKLY, name, next(asked, 0.0), rules.WEEKLY.days or 0)

    def _firmware(self) -> Iterator[DueItem]:
        """Yield nodes whose firmware did not pass when it was last looked at."""
        for gate in _ABOUT_FIRMWARE:
            for node, record in newest_of(self.store, gate, self._ready).items():
                if node in self._ready and record.verdict.outcome is Outcome.FAIL:
                    why = str(record.verdict.findings[0]) if record.verdict.findings else gate
                    day = _day(record.finished.timestamp())
                    yield DueItem(rules.FIRMWARE, node, day, day, why=why, window=self._window(node))

    def _done(self, rule: DueRule, operation: str, names: Iterable[str], days: int) -> Iterator[DueItem]:
        """Yield when work is due again that the ledger has a day of. What rackready never did has no day."""
        for name in names:
            ended = [
                entry.ended
                for entry in self.ledger.entries(name)
                if entry.operation == operation and entry.status == "done" and entry.ended is not None
            ]
            if ended:
                yield self._periodic(rule, name, ended[-1], days)

    def _certificates(self, nodes: Sequence[str]) -> Iterator[DueItem]:
        authority = self.site.bmc_authority
        if authority is None:
            return
        yield from self._done(rules.BMC_CERTIFICATES, BMC_CERTIFY, nodes, authority.days - rules.EARLY)
        try:
            found = x509.load_pem_x509_certificates(authority.certificate.read_bytes())
        except (OSError, ValueError) as error:
            yield DueItem(rules.BMC_CA, str(authority.certificate), None, self.today, why=f"it cannot be read: {error}")
            return
        end = min(item.not_valid_after_utc for item in found).date()
        yield DueItem(
            rules.BMC_CA, str(authority.certificate), None, end - timedelta(days=rules.EARLY), why=f"expires on {end}"
        )

    def _kill_switches(self) -> Iterator[DueItem]:
        for item in self.site.gates.disabled:
            if item.until >= self.today:
                yield DueItem(rules.KILL_SWITCH, item.gate, None, item.until, why=item.said())

    def _periodic(self, rule: DueRule, name: str, at: float, days: int) -> DueItem:
        """Return work that is due so many days after it was last done; today if it never was."""
        window = self._window(name) if rule.interrupts else ""
        if not at:
            return DueItem(rule, name, None, self.today, window=window)
        return DueItem(rule, name, _day(at), _day(at) + timedelta(days=days), window=window)

    def _window(self, node: str) -> str:
        """Return the next maintenance window of a node's rack in words, "" for a site without windows."""
        now = datetime.fromtimestamp(self.now, UTC)
        answer = ask(self.site.maintenance, [self.site.rack_of(node).name], now, _WORK_S)
        slot = answer.fits or answer.later
        return f"{slot.name} {slot.begins:%Y-%m-%dT%H:%MZ}" if slot is not None else ""


def _day(at: float) -> date:
    return datetime.fromtimestamp(at, UTC).date()
