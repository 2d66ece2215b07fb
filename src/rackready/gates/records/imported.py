"""Import of outputs that were captured elsewhere: judged by the same code, recorded with the importer's name.

A fingerprint with the chassis serial of the site proves the host, unless the outputs contradict it. The same
fingerprint before and after proves the boot. A record without these proofs is kept but satisfies no gate that requires
them, so the store and the handover policy need no exception.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rackready import __version__
from rackready.design.names import listed
from rackready.evidence.record_precedence import failed_since
from rackready.evidence.store import EvidenceStore, new_id
from rackready.gates.base import FinishedRun, Gate, GateFacts, LastPass, Output, Run
from rackready.gates.engine.recorder import recorded_inputs, store_output
from rackready.gates.engine.registry import all_gates, gate
from rackready.gates.engine.runner import evaluated
from rackready.gates.engine.site_facts import site_facts
from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.gates.judging.last_pass import last_passes
from rackready.gates.judging.merge import merged
from rackready.gates.records import imported_times
from rackready.gates.records.captured import Capture, CaptureRefusedError, by_run
from rackready.gates.records.imported_parts import PartsCheck
from rackready.gates.records.imported_proof import prove
from rackready.gates.records.offline import Captured, outputs
from rackready.gates.records.offline_nics import with_addresses
from rackready.gates.records.sanitize import tools
from rackready.ledger.store import IMPORT, Ledger
from rackready.model.commands import repair
from rackready.model.evidence import CapturedOutput, EvidenceRecord, Fingerprint, RawOutput
from rackready.model.outcome import Outcome, Verdict
from rackready.model.printable import UnreadableError, readable
from rackready.model.problems import Message, RackreadyError
from rackready.model.site import Site
from rackready.profiles import loader

_log = logging.getLogger(__name__)

_CORRECT = "Correct the manifest."
_NEWER = "Measure again: older outputs do not count."


CAPTURED_IN_PART = ErrorKind(
    "imported-in-part",
    "{gate} was captured in part",
    meaning="The imported outputs contain only some of the gate's runs, so it cannot judge the node.",
    next_step="Import the outputs of all runs together, or measure: `rackready validate`.",
)


@dataclass(frozen=True, slots=True)
class Imported:
    """Verdict on one node's outputs of one gate. ``lacks``: what they do not prove, in words."""

    node: str
    gate: str
    verdict: Verdict
    lacks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Item:
    """One captured run of one gate."""

    gate: Gate
    run: Run
    members: Sequence[CapturedOutput]


def _launched(item: _Item, inputs: Mapping[str, object], facts: GateFacts, nodes: Sequence[str]) -> _Item:
    """Return the run with as many launches as the site declares, or more if more were captured.

    A missing launch is an error: the one of five that was imported may have been selected.
    """
    captured = len([member for member in item.members if member.key.startswith("launch")])
    declared = len([command for command in item.run.commands if command.key.startswith("launch")])
    if not declared or captured <= declared:
        return item
    found = gate(item.gate.id, {**inputs, "launches": captured})
    return _Item(found, next(run for run in found.plan(facts, nodes) if run.id == item.run.id), item.members)


@dataclass(slots=True)
class Import:
    """One import. ``env``: environment; ``by``: the importer; ``at``: now."""

    site: Site
    store: EvidenceStore
    ledger: Ledger
    capture: Capture
    campaign: str
    by: str
    at: datetime
    env: str = ""
    addresses: Sequence[str] = ()
    """NODE:HCA=ADDRESS of NICs whose address differed from the site's when the outputs were captured."""
    problems: list[Message] = field(default_factory=list)
    prints: dict[str, Fingerprint] = field(default_factory=dict)
    lacks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    passed: Mapping[tuple[str, str], LastPass] = field(default_factory=dict)
    left: dict[str, list[Run]] = field(default_factory=dict)
    """Gate -> runs on these nodes that were not imported."""

    def run(self) -> list[Imported]:
        """Judge and record everything, or nothing. Raise CaptureRefusedError that lists every reason."""
        self._new()
        self._addresses()
        known = {node.name for node in self.site.nodes()}
        items = self.capture.manifest.outputs
        strangers = sorted({item.node for item in items} - known)
        self.problems += [
            Message(f"node {name}", expected="a node of the site", actual="none of that name", next_step=_CORRECT)
            for name in strangers
        ]
        for node in sorted({item.node for item in items} & known):
            proof = prove(self.site, self.capture, node, [item for item in items if item.node == node], self.at)
            self.problems += proof.problems
            self.lacks[node] = proof.lacks
            if proof.fingerprint is not None:
                self.prints[node] = proof.fingerprint
        self.passed = last_passes(self.store, self.ledger, sorted(self.prints), self.prints)
        found = self._items() if not strangers else []
        for item in found:
            self._stale(item)
        self.problems += imported_times.problems(self.capture)
        self.problems += (
            PartsCheck(self.site, self.store, self.ledger, self.prints).problems(self.capture) if not strangers else []
        )
        if self.problems:
            raise CaptureRefusedError(self.capture.source, list(dict.fromkeys(self.problems)))
        imported, records = self._judge(found)
        self.store.append(*records, campaign=self._about())
        return imported

    def _new(self) -> None:
        """Refuse a manifest that was imported before. It is recorded completely or not at all: check one output."""
        first = self.capture.manifest.outputs[0]
        for record in self.store.records(gate=first.gate, node=first.node):
            about = record.inputs.get("imported")
            if isinstance(about, Mapping) and about.get("manifest_sha256") == self.capture.digest:
                problem = Message(
                    "manifest",
                    expected="one that was not imported yet",
                    actual=f"imported at {about.get('at')} by {about.get('by')}, as {record.campaign}",
                    next_step="Its records still count; after a repair, import new outputs.",
                )
                raise CaptureRefusedError(self.capture.source, [problem])

    def _addresses(self) -> None:
        """Refuse addresses of NICs that the site does not have."""
        named = sorted({item.partition(":")[0] for item in self.addresses})
        if strange := [name for name in named if name not in {node.name for node in self.site.nodes()}]:
            raise RackreadyError(
                f"--address {strange[0]}:...",
                expected="a node of the site",
                actual="none of that name",
                next_step="Correct it.",
            )
        with_addresses(site_facts(self.site, named), self.addresses)

    def _about(self) -> dict[str, Any]:
        """Return the ledger's entry of the import, which is finished once its records are written."""
        named = {item.node for item in self.capture.manifest.outputs}
        nodes = [node.name for node in self.site.nodes() if node.name in named]
        now = time.time()
        return {
            "campaign": self.campaign,
            "env": self.env,
            "kind": IMPORT,
            "nodes": nodes,
            "site_digest": "",
            "abi": "",
            "status": "finished",
            "begun": now,
            "ended": now,
            "summary": {"manifest_sha256": self.capture.digest, "by": self.by},
        }

    # runs ------------------------------------------------------------------------------------------------------------

    def _items(self) -> list[_Item]:
        inputs = {entry.id: entry.inputs for entry in loader.gates_of(self.site.gates)}
        captured: dict[str, dict[str, list[CapturedOutput]]] = {}
        for (gate_id, run_id), members in by_run(self.capture.manifest.outputs).items():
            captured.setdefault(gate_id, {})[run_id] = members
        out: list[_Item] = []
        for gate_id, runs in captured.items():
            if gate_id in all_gates():
                out += self._of_gate(gate_id, inputs.get(gate_id, {}), runs)
            else:
                self.problems.append(
                    Message(
                        f"gate {gate_id}",
                        expected="an id that `rackready gate list` shows",
                        actual="none of them",
                        next_step=_CORRECT,
                    )
                )
        return out

    def _of_gate(
        self, gate_id: str, inputs: Mapping[str, object], captured: Mapping[str, Sequence[CapturedOutput]]
    ) -> Iterator[_Item]:
        """Yield the captured runs of a gate, and note the runs on these nodes that are missing."""
        named = {member.node for members in captured.values() for member in members}
        nodes = [node.name for node in self.site.nodes() if node.name in named]
        facts = self.facts(nodes)
        found = gate(gate_id, dict(inputs))
        planned = {run.id: run for run in found.plan(facts, nodes)} if len(nodes) >= found.min_nodes else {}
        self.left[gate_id] = [run for run in planned.values() if run.commands and run.id not in captured]
        for run_id, members in captured.items():
            if run_id not in planned:
                runs = ", ".join(planned) or f"those of {found.min_nodes} nodes"
                self.problems.append(
                    Message(
                        gate_id, f"run {run_id}", expected=f"one of {runs}", actual="none of them", next_step=_CORRECT
                    )
                )
                continue
            item = _launched(_Item(found, planned[run_id], members), inputs, facts, nodes)
            self._keys(item)
            yield item

    def _keys(self, item: _Item) -> None:
        """Note outputs of no command of the run, of another node than the command's, or given twice."""
        nodes = {command.key: command.node for command in item.run.commands}
        where = f"{item.gate.id}, run {item.run.id}"
        seen: set[str] = set()
        for member in item.members:
            if nodes.get(member.key) != member.node:
                names = ", ".join(f"{key} on {node}" for key, node in nodes.items())
                self.problems.append(
                    Message(
                        where,
                        f"{member.key} on {member.node}",
                        expected=f"one of {names}",
                        actual="none of them",
                        next_step=_CORRECT,
                    )
                )
            if member.key in seen:
                self.problems.append(
                    Message(
                        where,
                        member.key,
                        expected="one output of each command",
                        actual="another before it",
                        next_step=_CORRECT,
                    )
                )
            seen.add(member.key)

    def facts(self, nodes: Sequence[str]) -> GateFacts:
        """Return the facts of these nodes, from the site and their last passes."""
        here = [item for item in self.addresses if item.partition(":")[0] in nodes]
        return with_addresses(site_facts(self.site, nodes, self.passed), here)

    # records that they would hide ------------------------------------------------------------------------------------

    def _stale(self, item: _Item) -> None:
        """Refuse outputs that would hide a newer record or a fail: re-measuring until it passes would hide a fault."""
        begun = min(member.time for member in item.members)
        for node in item.run.nodes:
            since, before = self.ledger.last_change(node)
            records = [  # not those that a clock that was ahead wrote before the node's last change
                record
                for record in self.store.records(target=node, gate=item.gate.id)
                if record.id > before or record.started.timestamp() < since
            ]
            fails = [record for record in records if failed_since(record, since)]
            if fails:
                self.problems.append(
                    Message(
                        node,
                        item.gate.id,
                        expected="no fail on record",
                        actual=f"fail, measured {fails[-1].started:%Y-%m-%d %H:%M} UTC",
                        next_step=f"Repair it, then {repair(node)}.",
                    )
                )
            elif records and records[-1].started > begun:
                made = f"{records[-1].started:%Y-%m-%d %H:%M} UTC"
                self.problems.append(
                    Message(
                        node,
                        item.gate.id,
                        expected=f"newer than the last record ({made})",
                        actual=f"{begun:%Y-%m-%d %H:%M} UTC",
                        next_step=_NEWER,
                    )
                )

    # judging and recording -------------------------------------------------------------------------------------------

    def _judge(self, items: Sequence[_Item]) -> tuple[list[Imported], list[EvidenceRecord]]:
        """Judge everything before anything is recorded: a partial import could be neither repeated nor corrected."""
        done: dict[str, list[tuple[_Item, FinishedRun]]] = {}
        records: list[EvidenceRecord] = []
        for item in items:
            facts = self.facts(item.run.nodes)
            texts = outputs(item.run, {member.key: self._captured(member) for member in item.members})
            verdict = evaluated(item.gate, facts, item.run, texts)
            _log.info("%s on %s: %s", item.gate.id, item.run.target, verdict.outcome.value)
            records.append(self._measured(item, texts, verdict))
            done.setdefault(item.gate.id, []).append((item, FinishedRun(item.run, verdict)))
        imported = [one for pairs in done.values() for one in self._conclude(pairs, records)]
        return imported, records

    def _captured(self, member: CapturedOutput) -> Captured:
        stderr = self.capture.files[member.stderr_file] if member.stderr_file else ""
        return Captured(self.capture.files[member.file], member.exit_code, stderr, member.seconds)

    def _conclude(self, pairs: Sequence[tuple[_Item, FinishedRun]], records: list[EvidenceRecord]) -> list[Imported]:
        """Return the conclusions for each node from the runs of one gate, and record those that no single run gives."""
        found = pairs[0][0].gate
        nodes = list(dict.fromkeys(node for item, _ in pairs for node in item.run.nodes))
        by_node = found.attribute(self.facts(nodes), [one for _, one in pairs])
        out = []
        for node in nodes:
            verdict = merged([*by_node.get(node, []), *self._absent(found, node)])
            if not found.single_node:
                first = next(item for item, _ in pairs if node in item.run.nodes)
                of = {"conclusion_of": sorted(item.run.id for item, _ in pairs if node in item.run.nodes)}
                records.append(self._record(first, node, [node], verdict, [], of))
            out.append(Imported(node, found.id, verdict, self.lacks[node]))
        return out

    def _absent(self, found: Gate, node: str) -> list[Verdict]:
        """Return an error if runs with this node are missing: the imported rail of eight may have been selected."""
        absent = [run.id for run in self.left[found.id] if node in run.nodes]
        if not absent:
            return []
        expected = "outputs of every run that the gate makes on these nodes"
        return [
            Verdict(
                outcome=Outcome.ERROR,
                findings=[CAPTURED_IN_PART.found(node, expected, f"none of {listed(absent)}", gate=found.id)],
            )
        ]

    def _measured(self, item: _Item, texts: Mapping[str, Output], verdict: Verdict) -> EvidenceRecord:
        raw = [store_output(self.store, output) for output in texts.values()]
        return self._record(
            item, item.run.target, item.run.nodes, verdict, raw, {"run": item.run.id}, tools(item.gate, texts)
        )

    def _record(  # noqa: PLR0913, PLR0917 - the fields of a record
        self,
        item: _Item,
        target: str,
        nodes: Sequence[str],
        verdict: Verdict,
        raw: list[RawOutput],
        more: Mapping[str, object],
        tools: dict[str, str] | None = None,
    ) -> EvidenceRecord:
        about: dict[str, object] = {
            "by": self.by,
            "at": self.at.isoformat(timespec="seconds"),
            "captured_by": self.capture.manifest.by,
        }
        about |= {"manifest_sha256": self.capture.digest} | (
            {"addresses": list(self.addresses)} if self.addresses else {}
        )
        begun = min(member.time for member in item.members).astimezone(UTC)
        return EvidenceRecord(
            id=new_id(),
            campaign=self.campaign,
            gate=item.gate.id,
            target=target,
            nodes=list(nodes),
            fingerprints=[self.prints[node] for node in nodes if node in self.prints],
            inputs=recorded_inputs(item.gate, **more, imported=about),
            verdict=verdict,
            raw=raw,
            tool_versions=tools or {},
            rackready_version=__version__,
            started=begun,
            finished=max(begun, *(member.time.astimezone(UTC) for member in item.members)),
        )


def check_by(by: str) -> str:
    """Return the importer's name. Raise RackreadyError if it is too short or not readable."""
    if len(by.strip()) < 2:  # noqa: PLR2004 - as the manifest asks of who captured it
        raise RackreadyError(f"--by {by!r}", expected="a person or a team", next_step="Every imported record shows it.")
    try:
        return readable(by.strip())
    except UnreadableError as error:
        raise RackreadyError(
            "--by", expected=error.expected, actual=f"{by!r}", next_step="Every imported record shows it."
        ) from error
