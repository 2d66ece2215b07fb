"""What nodes reported about themselves: of each phase, the last play and the last check by the timer. Reads only."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rackready.campaign.pull.order import APPLY, CHECK
from rackready.drivers.ansible_events import Events, collect
from rackready.drivers.release import sealing
from rackready.drivers.release_report import PullReport, read_report
from rackready.drivers.ssh.pins import fingerprint, pinned
from rackready.drivers.ssh.target import node_target
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.problems import RackreadyError
from rackready.model.pull import Pull
from rackready.model.site import Site
from rackready.paths import EnvPaths

SAME, DIFFERS, FAILED, LATE, NONE = "same", "differs", "failed", "late", "none"
"""A node's status: as released; changed; its check failed; its last report is too old; there is none."""
_WORSE = (SAME, DIFFERS, FAILED, LATE)
"""From good to bad: that nothing is known weighs most."""
_ROUNDS = 3
"""Rounds of its timer after which a silent node is late. Our choice: one is lost to a reboot, one to a long play."""
_SPARE_S = 600.0


@dataclass(frozen=True, slots=True)
class ShownReport:
    """One report, opened and judged."""

    sequence: int
    mode: str
    phase: str
    playbook: str
    release: str
    at: float
    outcome: str
    message: str = ""
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PhaseReports:
    """The last play and the last check of one phase on a node; ``phase`` is empty where it could read no order."""

    phase: str
    status: str
    age_s: float
    apply: ShownReport | None = None
    check: ShownReport | None = None


@dataclass(frozen=True, slots=True)
class NodeReports:
    """What a node reported, by phase. ``status`` is that of its worst phase. ``unread``: why reports do not count."""

    node: str
    status: str
    phases: tuple[PhaseReports, ...] = ()
    unread: tuple[str, ...] = field(default=())


def listed(site: Site, pull: Pull, paths: EnvPaths, nodes: Iterable[str]) -> list[NodeReports]:
    """Return what each node reported. Raises LedgerError, OSError."""
    playbooks, identity = _playbooks(paths)
    return [_node(site, pull, paths, node, playbooks, identity) for node in nodes]


def _playbooks(paths: EnvPaths) -> tuple[dict[int, str], str]:
    """Return token -> playbook of every order to apply, and the ledger's identity."""
    if not Ledger.exists(paths.database):
        return {}, ""
    ledger = Ledger.read_only(paths.database)
    try:
        found = {
            entry.token: entry.operation.partition(":")[2]
            for entry in ledger.entries()
            if entry.operation.startswith("install:")
        }
        return found, ledger.identity()
    finally:
        ledger.close()


def _node(site: Site, pull: Pull, paths: EnvPaths, node: str, playbooks: dict[int, str], identity: str) -> NodeReports:
    known, unread = [], []
    for _, report in read_all(site, paths, node):
        if isinstance(report, str):
            unread.append(report)
        elif report.site == identity:
            known.append(report)
    by_phase = {phase: [one for one in known if _phase(one, playbooks) == phase] for phase in ("", *pull.in_order)}
    if any(by_phase[phase] for phase in pull.in_order):
        del by_phase[""]  # of orders that the node could not read, before it read others
    phases = tuple(_of_phase(phase, found, pull, playbooks) for phase, found in by_phase.items() if found)
    if not phases:
        return NodeReports(node, FAILED if unread else NONE, unread=tuple(unread))
    worst = max((one.status for one in phases), key=_WORSE.index)
    return NodeReports(node, worst, phases, tuple(unread))


def _phase(report: PullReport, playbooks: dict[int, str]) -> str:
    """Return a report's phase: that of its order to apply where the report of an older agent names none."""
    return report.phase or playbooks.get(report.sequence, "").removesuffix(".yml")


def _of_phase(phase: str, known: list[PullReport], pull: Pull, playbooks: dict[int, str]) -> PhaseReports:
    """Return what the reports of one phase, at least one, say."""
    newest = {
        mode: max((one for one in known if one.mode == mode), key=lambda one: (one.sequence, one.ended), default=None)
        for mode in (APPLY, CHECK)
    }
    apply, check = (_shown(newest[mode], playbooks) for mode in (APPLY, CHECK))
    last = max((one for one in (apply, check) if one), key=lambda one: (one.sequence, one.at))
    age = max(0.0, time.time() - last.at)
    return PhaseReports(phase, _status(last, age, pull), age, apply, check)


def newest_of(known: Sequence[PullReport]) -> list[PullReport]:
    """Return the newest report of each phase and mode: those that are shown."""
    found: dict[tuple[str, str], PullReport] = {}
    for one in sorted(known, key=lambda one: (one.sequence, one.ended)):
        found[one.phase, one.mode] = one
    return list(found.values())


def _status(last: ShownReport, age: float, pull: Pull) -> str:
    if age > _ROUNDS * pull.every_min * 60.0 + _SPARE_S:
        return LATE
    if last.outcome != Outcome.PASS:
        return FAILED
    return DIFFERS if last.mode == CHECK and last.changes else SAME


def read_all(site: Site, paths: EnvPaths, node: str) -> Iterator[tuple[Path, PullReport | str]]:
    """Yield the files of a node's reports, each with its report, or with why it cannot be used."""
    folder = paths.node_reports / node
    files = sorted(folder.glob("*-*.json")) if folder.is_dir() else []
    if not files:
        return
    host_key = pinned(paths.known_hosts, node_target(site, node, paths.known_hosts).host)
    key = _key(paths, node, host_key)
    for file in files:
        yield file, _read(file, node, host_key, key)


def _key(paths: EnvPaths, node: str, host_key: str) -> bytes | None:
    """Return the node's key, None where none was made: reading makes none."""
    if not (paths.state / "pull.key").exists():
        return None
    return sealing.node_key(sealing.master_key(paths), node, fingerprint(host_key).partition(" ")[2])


def _read(file: Path, node: str, host_key: str, key: bytes | None) -> PullReport | str:
    try:
        return read_report(file, node, host_key, key)
    except (RackreadyError, OSError) as error:
        return str(error)


def _shown(report: PullReport | None, playbooks: dict[int, str]) -> ShownReport | None:
    if report is None:
        return None
    playbook = playbooks.get(report.sequence, "")
    head = (report.sequence, report.mode, _phase(report, playbooks), playbook, report.release, report.ended)
    if report.failure is not None:
        return ShownReport(*head, Outcome.ERROR, str(report.failure.message()))
    where = f"report {report.name}"
    events = Events(where, [report.node], "the node's journal", _silent, report.mode == CHECK)
    result = collect(report.lines, events).result(report.node, timed_out=report.timed_out)
    words = [*result.data.get("differs", []), *result.data.get("changes", [])]
    return ShownReport(*head, result.outcome, result.message, tuple(dict.fromkeys(words)))


def _silent(_node: str, _text: str, _level: str) -> None:
    """Tell nobody: a listing is no progress."""
