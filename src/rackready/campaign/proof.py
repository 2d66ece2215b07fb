"""A phase on nodes that may be as their release says: they prove it in one connection, and only others are played.

The proof is an induction. A play is decided by its release (roles, variables, libraries) and by what its steps answer.
A play that changed nothing recorded every step with its arguments and its answer. If the release is the same, and the
same modules, asked again with the same arguments in check mode, all answer the same, then a play would take the same
way and change nothing. Anything else, also what cannot be read or is not known, is played, and the reason is said.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rackready.campaign.drained_phase import Results, Runner
from rackready.design.pinned import site_of
from rackready.drivers.ansible import run_playbook
from rackready.drivers.process import check_stop
from rackready.drivers.proof import payload
from rackready.drivers.proof.judge import ProofResult, judged
from rackready.drivers.proof.recorded import Recorded, UnprovableError, by_node, recorded
from rackready.drivers.proof.release import UnclearReleaseError, releases
from rackready.drivers.proof.seal import Seal, SealBrokenError
from rackready.drivers.remote import Remote
from rackready.drivers.ssh.target import node_target
from rackready.evidence.error import EvidenceError
from rackready.evidence.raw_outputs import RawOutputs
from rackready.ledger.proofs import ProofRecord, ProofRow, append_proof, keep_record, record_of
from rackready.ledger.store import Ledger, LedgerError
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.site import Site
from rackready.paths import EnvPaths, private_dir

LONGEST_S = 7 * 86400.0
"""A record older than this proves nothing more: the node is played. Our choice: a full play at least once a week."""
_LIMIT_S = 300.0
"""The longest that the modules of a proof may run on a node; a play of them takes a tenth of it on a simulated rack."""
_GRACE_S = 30.0
_KEYED = ":"
"""Between the name of a key and a release that is keyed with it."""
_OTHER_KEY = (
    "its last play was recorded with another proof.key, of another machine or an earlier one: machines that share the "
    "file prove each other's plays (docs/howto/unchanged-nodes.md)"
)
_WORKERS = 16
_END = ".steps"

Ask = Callable[[str, Recorded], tuple[str, str]]
"""Asks a node to answer the steps again; returns its document and why there is none."""


@dataclass(frozen=True, slots=True)
class Played:
    """A playbook with the variables that a phase gives it, for each node its own where they differ."""

    playbook: str
    variables: Callable[[list[str]], Mapping[str, Any]] = lambda _nodes: {}

    def run(self, ctx: PhaseContext, nodes: list[str], steps: Path | None = None) -> Results:
        """Play it."""
        return run_playbook(ctx, self.playbook, nodes, dict(self.variables(nodes)), steps=steps)


def proven(ctx: PhaseContext, phase: str, play: Played, ask: Ask | None = None) -> Runner:
    """Return what runs a phase on nodes: a proof first, then the play where it does not hold.

    Dry runs that somebody asked for, and runs with ``--full``, are played.
    """
    if ctx.check or ctx.full:
        return play.run

    def run(own: PhaseContext, nodes: list[str]) -> Results:
        if not nodes:
            return {}
        site, paths = site_of(ctx), EnvPaths(ctx.root, ctx.env)
        with Ledger.open(paths.database) as ledger:
            return _Proving(own, site, paths, ledger, phase, play, ask or asking(site, paths)).results(nodes)

    return run


def asking(site: Site, paths: EnvPaths) -> Ask:
    """Return what asks the nodes of a site: one connection, one command."""

    def ask(node: str, record: Recorded) -> tuple[str, str]:
        remote = Remote({node: node_target(site, node, paths.known_hosts)})
        try:
            answer = remote.run(
                node, payload.command(), stdin=payload.request(record, _LIMIT_S), timeout_s=_LIMIT_S + _GRACE_S
            )
        finally:
            remote.close()
        if answer.failure or answer.timed_out or answer.exit_code != 0:
            last = answer.stderr.strip().splitlines()[-1:]
            return "", answer.failure or (last[0] if last else f"no answer within {_LIMIT_S + _GRACE_S:.0f} s")
        return answer.stdout, ""

    return ask


@dataclass(frozen=True, slots=True)
class _Proving:
    """One phase on one batch."""

    ctx: PhaseContext
    site: Site
    paths: EnvPaths
    ledger: Ledger
    phase: str
    play: Played
    ask: Ask

    @property
    def mode(self) -> str:
        """Return what is proven: that a play changes nothing, or that a dry run finds nothing to change."""
        return "dry" if self.ctx.check else "play"

    def results(self, nodes: list[str]) -> Results:
        """Return a result for each node: proven, or played."""
        seal = Seal(self.paths.state / "proof.key")
        try:
            release = self._releases(seal, nodes)
        except (UnclearReleaseError, OSError) as error:
            self._tell_all(nodes, f"is played: {error}")
            return self.play.run(self.ctx, nodes)
        with ThreadPoolExecutor(max_workers=min(len(nodes), _WORKERS)) as pool:
            verdicts = dict(zip(nodes, pool.map(lambda node: self._verdict(seal, node, release), nodes), strict=True))
        check_stop()
        out = {node: self._as_released(node, record) for node, (verdict, record) in verdicts.items() if verdict.same}
        rest = [node for node in nodes if node not in out]
        for node in rest:
            self._tell(node, f"is played: {verdicts[node][0].reason}", "info")
        return out | (self._played(seal, rest, release) if rest else {})

    def _releases(self, seal: Seal, nodes: list[str]) -> dict[str, str]:
        """Return node -> its release, after the name of its key: those of other keys cannot be compared.

        Variables of a phase may name nodes: each has those that it gets alone.
        """
        own = {node: self.play.variables([node]) for node in nodes}
        found = releases(seal.key("release"), self.paths, self.site, self.play.playbook, own)
        return {node: f"{seal.name}{_KEYED}{release}" for node, release in found.items()}

    def _as_released(self, node: str, record: Recorded) -> NodeResult:
        """Return the result of a node that proved it, and say again what its play had to say."""
        for note in record.notes:
            self._tell(node, note, "warn")
        count = len(record.steps)
        return NodeResult(
            Outcome.PASS, f"as released: {count} steps answer as in its last play", data={"changed": 0, "ok": count}
        )

    # the proof ---------------------------------------------------------------------------------------------------

    def _verdict(self, seal: Seal, node: str, release: Mapping[str, str]) -> tuple[ProofResult, Recorded]:
        record, why = self._record(seal, node, release[node])
        if record is None:
            return ProofResult(failure=why), Recorded(())
        text, why = self.ask(node, record)
        verdict = (
            ProofResult(failure=f"the node could not be read: {why}") if why else judged(record, text, time.time())
        )
        return self._noted(node, release[node], verdict, text), record

    def _record(self, seal: Seal, node: str, release: str) -> tuple[Recorded | None, str]:
        """Return what may be proven by, or why nothing may."""
        last = self.ledger.latest(node, f"install:{self.play.playbook}")
        if last is None or last.status != "done":
            return None, "its last play did not end well" if last else "it was not played yet"
        try:
            kept = record_of(self.ledger, node, self.phase, self.mode)
            if why := self._void(kept, node, release):
                return None, why
            return Recorded.load(seal.opened(kept.sealed, self._bound(kept))) if kept else None, ""
        except LedgerError as error:
            return None, f"its record is damaged: {error}"
        except (SealBrokenError, KeyError, TypeError):
            return None, "its record cannot be opened: it was changed, or another machine made it"

    def _void(self, kept: ProofRecord | None, node: str, release: str) -> str:
        """Return why a record says nothing about a play of today, "" when it does."""
        if kept is None:
            return "no play that changed nothing is on record"
        name, keyed, _ = kept.release.partition(_KEYED)
        if keyed and name != release.partition(_KEYED)[0]:
            return _OTHER_KEY
        if kept.release != release or kept.epoch != self.ledger.epoch(node):
            return "its release is another: roles, versions or variables changed since"
        fresh = 0 <= time.time() - kept.at <= LONGEST_S
        return "" if fresh else f"its last full play is older than {LONGEST_S / 86400:.0f} days"

    def _bound(self, kept: ProofRecord) -> str:
        return "|".join((kept.node, kept.phase, kept.mode, kept.release, str(kept.epoch), repr(kept.at)))

    def _noted(self, node: str, release: str, verdict: ProofResult, text: str) -> ProofResult:
        """Store what the node answered, and the verdict. What cannot be stored proves nothing."""
        try:
            raw = RawOutputs(self.ledger, self.paths.raw).put(text) if text else ""
        except EvidenceError as error:
            raw, verdict = "", ProofResult(failure=str(error))
        row = (self.ctx.campaign, node, self.phase, self.mode, time.time(), release)
        try:
            append_proof(self.ledger, ProofRow(*row, same=verdict.same, reason=verdict.reason, raw=raw))
        except LedgerError as error:
            return ProofResult(failure=str(error))
        return verdict

    # the play ----------------------------------------------------------------------------------------------------

    def _played(self, seal: Seal, nodes: list[str], release: Mapping[str, str]) -> Results:
        with _steps_file(self.paths, self.ctx.campaign, self.phase) as steps:
            results = self.play.run(self.ctx, nodes, steps)
            lines = by_node(steps.read_text(encoding="utf-8").splitlines()) if steps.exists() else {}
        same = {node: result for node, result in results.items() if _unchanged(result)}
        after = self._after(seal, list(same))
        for node in same:
            if after.get(node) == release[node]:
                self._keep(seal, node, release[node], lines.get(node, []))
        return results

    def _after(self, seal: Seal, nodes: list[str]) -> dict[str, str]:
        """Return the releases as they are after the play: files that were edited meanwhile leave no record."""
        try:
            return self._releases(seal, nodes)
        except (UnclearReleaseError, OSError):
            return {}

    def _keep(self, seal: Seal, node: str, release: str, lines: list[dict[str, Any]]) -> None:
        """Keep what the next run proves by. The play went well: without a record that run plays the node, too.

        A controller that lost its lock stops all the same: recording the play's result is refused as well.
        """
        try:
            found = recorded(lines)
            kept = ProofRecord(node, self.phase, self.mode, release, self.ledger.epoch(node), time.time(), b"")
            keep_record(self.ledger, replace(kept, sealed=seal.sealed(found.plain(), self._bound(kept))))
        except UnprovableError as error:
            self._tell(node, f"the next run plays it, too: {error}", "info")
        except LedgerError as error:
            with suppress(LedgerError):
                self._tell(node, f"the next run plays it, too: {error}", "warn")

    def _tell_all(self, nodes: list[str], text: str) -> None:
        for node in nodes:
            self._tell(node, text, "info")

    def _tell(self, node: str, text: str, level: str) -> None:
        self.ledger.event(self.ctx.campaign, node, self.phase, text, level)


def _unchanged(result: NodeResult) -> bool:
    odd = result.data.get("broken") or result.data.get("unmeasured")
    return result.outcome is Outcome.PASS and not result.changed and not odd


@contextmanager
def _steps_file(paths: EnvPaths, campaign: str, phase: str) -> Iterator[Path]:
    """Yield a file of the play's steps, for the play alone: they may hold secrets. Remove what killed runs left."""
    for left in paths.logs.glob(f"*/*{_END}"):
        if f"-{os.getpid()}-" not in left.name:
            left.unlink(missing_ok=True)
    path = private_dir(paths.logs / campaign) / f"{phase}-{os.getpid()}-{secrets.token_hex(4)}{_END}"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
