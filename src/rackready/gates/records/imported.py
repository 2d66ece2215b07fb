"""Evidence from outputs that were captured elsewhere: judged by the same code, recorded with who brought them, and counting only for what they prove.

What proves which host it was: a fingerprint with the chassis serial that the site names, which nothing that the outputs
name contradicts. What proves the boot: the same fingerprint before and after. Without them a record stands, and
satisfies no gate that demands them: the store and the policy of handover need no exception for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rackready import __version__
from rackready.design.names import listed
from rackready.evidence.store import EvidenceStore, new_id
from rackready.gates.base import Done, Gate, GateFacts, Output, Passed, Run
from rackready.gates.engine.recorder import recorded_inputs, store_output
from rackready.gates.engine.registry import all_gates, gate
from rackready.gates.engine.runner import evaluated
from rackready.gates.engine.shipped_script import document
from rackready.gates.engine.site_facts import site_facts
from rackready.gates.formats import printed
from rackready.gates.formats.error import FormatError
from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.gates.judging.last_pass import last_passes
from rackready.gates.judging.merge import merged
from rackready.gates.records import imported_times
from rackready.gates.records.captured import Capture, CaptureRefusedError, by_run
from rackready.gates.records.fingerprint import build
from rackready.gates.records.imported_parts import PartsCheck
from rackready.gates.records.offline import Captured, outputs
from rackready.gates.records.offline_nics import with_addresses
from rackready.gates.records.sanitize import tools
from rackready.ledger.store import IMPORT, Ledger
from rackready.model.evidence import CapturedOutput, EvidenceRecord, Fingerprint, RawOutput
from rackready.model.outcome import Outcome, Verdict
from rackready.model.printable import readable
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.ondevice import fingerprint as script
from rackready.profiles import loader

_CORRECT = "Correct the manifest."
_ELSE = "bring what was captured on this node, or correct its serial in the site file."
_NEWER = "Measure again: what is older covers nothing."


CAPTURED_IN_PART = ErrorKind(
    "imported-in-part",
    "{gate} was captured in part",
    meaning="Only some of the gate's runs are among the outputs that were brought, so it cannot judge the node.",
    next_step="Bring the outputs of all runs in one import, or have them measured: `rackready validate`.",
)


@dataclass(frozen=True, slots=True)
class Imported:
    """What one node's outputs of one gate came to. ``lacks``: what they cannot prove, in words."""

    node: str
    gate: str
    verdict: Verdict
    lacks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Item:
    """One run of one gate that was captured."""

    gate: Gate
    run: Run
    members: Sequence[CapturedOutput]


def _launched(item: _Item, inputs: Mapping[str, object], facts: GateFacts, nodes: Sequence[str]) -> _Item:
    """Return the run with as many launches as the site declares, or more where more were captured.

    One that was not captured is an error: who brings one of five may have chosen it.
    """
    captured = len([member for member in item.members if member.key.startswith("launch")])
    declared = len([command for command in item.run.commands if command.key.startswith("launch")])
    if not declared or captured <= declared:
        return item
    found = gate(item.gate.id, {**inputs, "launches": captured})
    return _Item(found, next(run for run in found.plan(facts, nodes) if run.id == item.run.id), item.members)


@dataclass(slots=True)
class Import:
    """One import. ``env``: of the environment; ``by``: who imports; ``at``: now."""

    site: Site
    store: EvidenceStore
    ledger: Ledger
    capture: Capture
    campaign: str
    by: str
    at: datetime
    env: str = ""
    addresses: Sequence[str] = ()
    """NODE:HCA=ADDRESS of NICs that had others than the site's when the outputs were captured."""
    problems: list[str] = field(default_factory=list)
    prints: dict[str, Fingerprint] = field(default_factory=dict)
    lacks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    passed: Mapping[tuple[str, str], Passed] = field(default_factory=dict)
    left: dict[str, list[Run]] = field(default_factory=dict)
    """Gate -> runs that it would make on the nodes of its outputs, and of which nothing was brought."""

    def run(self) -> list[Imported]:
        """Judge and record everything, or nothing: raises CaptureRefusedError that lists every reason."""
        self._new()
        self._addresses()
        known = {node.name for node in self.site.nodes()}
        items = self.capture.manifest.outputs
        strangers = sorted({item.node for item in items} - known)
        self.problems += [
            f"node {name} - Expected: a node of the site Actual: none of that name. {_CORRECT}" for name in strangers
        ]
        for node in sorted({item.node for item in items} & known):
            self._prove(node, [item for item in items if item.node == node])
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
        """Refuse what was imported already: all of a manifest is on record, or nothing of it, so one of its outputs tells."""
        first = self.capture.manifest.outputs[0]
        for record in self.store.records(gate=first.gate, node=first.node):
            about = record.inputs.get("imported")
            if isinstance(about, Mapping) and about.get("manifest_sha256") == self.capture.digest:
                text = (
                    f"manifest - Expected: one that was not imported yet Actual: imported at {about.get('at')} by "
                    f"{about.get('by')}, as {record.campaign}."
                )
                raise CaptureRefusedError(
                    self.capture.source, [f"{text} Its records stand; after a repair, bring what was captured since."]
                )

    def _addresses(self) -> None:
        """Refuse addresses that are of no NIC of the site."""
        named = sorted({item.partition(":")[0] for item in self.addresses})
        if strange := [name for name in named if name not in {node.name for node in self.site.nodes()}]:
            raise RackreadyError(
                f"--address {strange[0]}:... - Expected: a node of the site Actual: none of that name. Correct it."
            )
        with_addresses(site_facts(self.site, named), self.addresses)

    def _about(self) -> dict[str, Any]:
        """Return what the ledger says of an import: it is over once its records are written."""
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

    # what it is ------------------------------------------------------------------------------------------------------

    def _items(self) -> list[_Item]:
        inputs = {entry.id: entry.inputs for entry in loader.gates_of(self.site.gates)}
        brought: dict[str, dict[str, list[CapturedOutput]]] = {}
        for (gate_id, run_id), members in by_run(self.capture.manifest.outputs).items():
            brought.setdefault(gate_id, {})[run_id] = members
        out: list[_Item] = []
        for gate_id, runs in brought.items():
            if gate_id in all_gates():
                out += self._of_gate(gate_id, inputs.get(gate_id, {}), runs)
            else:
                self.problems.append(
                    f"gate {gate_id} - Expected: an id that `rackready gate list` shows Actual: none of them. "
                    f"{_CORRECT}"
                )
        return out

    def _of_gate(
        self, gate_id: str, inputs: Mapping[str, object], brought: Mapping[str, Sequence[CapturedOutput]]
    ) -> Iterator[_Item]:
        """Yield the runs of a gate that were brought, and keep those that were not, though it would make them on these nodes."""
        named = {member.node for members in brought.values() for member in members}
        nodes = [node.name for node in self.site.nodes() if node.name in named]
        facts = self.facts(nodes)
        found = gate(gate_id, dict(inputs))
        planned = {run.id: run for run in found.plan(facts, nodes)} if len(nodes) >= found.min_nodes else {}
        self.left[gate_id] = [run for run in planned.values() if run.commands and run.id not in brought]
        for run_id, members in brought.items():
            if run_id not in planned:
                runs = ", ".join(planned) or f"those of {found.min_nodes} nodes"
                self.problems.append(
                    f"{gate_id}: run {run_id} - Expected: one of {runs} Actual: none of them. {_CORRECT}"
                )
                continue
            item = _launched(_Item(found, planned[run_id], members), inputs, facts, nodes)
            self._keys(item)
            yield item

    def _keys(self, item: _Item) -> None:
        """Say which outputs are of no command of the run, of another node than the command's, or given twice."""
        nodes = {command.key: command.node for command in item.run.commands}
        where = f"{item.gate.id}, run {item.run.id}"
        seen: set[str] = set()
        for member in item.members:
            if nodes.get(member.key) != member.node:
                names = ", ".join(f"{key} on {node}" for key, node in nodes.items())
                self.problems.append(
                    f"{where}: {member.key} on {member.node} - Expected: one of {names} Actual: none of them. "
                    f"{_CORRECT}"
                )
            if member.key in seen:
                self.problems.append(
                    f"{where}: {member.key} - Expected: one output of each command Actual: another before it. "
                    f"{_CORRECT}"
                )
            seen.add(member.key)

    def facts(self, nodes: Sequence[str]) -> GateFacts:
        """Return what gates know of these nodes, from the site and from their last passes."""
        here = [item for item in self.addresses if item.partition(":")[0] in nodes]
        return with_addresses(site_facts(self.site, nodes, self.passed), here)

    # what it proves --------------------------------------------------------------------------------------------------

    def _prove(self, node: str, members: Sequence[CapturedOutput]) -> None:
        """Keep what proves the host, and its boot; say what is lacking."""
        late = [item for item in members if (self.at - item.time).total_seconds() < item.seconds]
        step = "Correct the clock that is wrong, or the manifest."
        self.problems += [
            f"{node}: {item.gate} {item.key} - Expected: captured before now Actual: {_when(item)}. {step}"
            for item in late
        ]
        before = {item.fingerprint for item in members}
        after = {item.fingerprint_after for item in members}
        first = self._print(node, next(iter(before))) if len(before) == 1 else None
        last = self._print(node, next(iter(after))) if len(after) == 1 else None
        if first is None:
            self.lacks[node] = (
                "no fingerprint with its chassis serial and GPUs proves that it is this node: it satisfies no gate",
            )
            return
        same = last is not None and last.identity() == first.identity() and last.boot_id == first.boot_id
        self.prints[node] = first if same else first.model_copy(update={"boot_id": ""})
        self.lacks[node] = (
            ()
            if same
            else ("no equal fingerprint after it proves the boot: it satisfies no gate that says after_boot",)
        )

    def _print(self, node: str, name: str | None) -> Fingerprint | None:
        """Return a fingerprint whose chassis serial is the site's; None where it has none, or no GPU could be asked. Another machine's is a problem."""
        if name is None:
            return None
        try:
            found = document(
                Output("fingerprint", node, "captured", 0, self.capture.files[name]), script.FORMAT, printed.Fingerprint
            )
            made = None if found.get("gpu_error") else build(found, self.site, node)
        except FormatError as error:
            step = f"Bring what it prints on {node}."
            self.problems.append(
                f"{node}: {name} - Expected: what ondevice/fingerprint.py prints Actual: {error}. {step}"
            )
            return None
        serial, wanted = found.get("chassis_serial"), self.site.node(node).serial
        if serial and wanted and serial != wanted:
            self.problems.append(
                f"{node}: {name} - Expected: chassis serial {wanted} Actual: {serial}. It is another machine's: {_ELSE}"
            )
        return made if serial and serial == wanted else None

    def _stale(self, item: _Item) -> None:
        """Refuse what would hide something newer, or a fail: measuring elsewhere until it passes launders a fault like measuring here."""
        begun = min(member.time for member in item.members)
        for node in item.run.nodes:
            records, since = self.store.records(target=node, gate=item.gate.id), self.ledger.last_change(node)
            fails = [
                record
                for record in records
                if record.verdict.outcome is Outcome.FAIL and record.started.timestamp() >= since
            ]
            if fails:
                step = f"Repair it, then `rackready repair {node} --reason '...'`."
                self.problems.append(
                    f"{node}: {item.gate.id} - Expected: no fail on record "
                    f"Actual: fail, measured {fails[-1].started:%Y-%m-%d %H:%M} UTC. {step}"
                )
            elif records and records[-1].started > begun:
                made = f"{records[-1].started:%Y-%m-%d %H:%M} UTC"
                self.problems.append(
                    f"{node}: {item.gate.id} - Expected: newer than what is on record ({made}) "
                    f"Actual: {begun:%Y-%m-%d %H:%M} UTC. {_NEWER}"
                )

    # judging and recording -------------------------------------------------------------------------------------------

    def _judge(self, items: Sequence[_Item]) -> tuple[list[Imported], list[EvidenceRecord]]:
        """Judge everything before anything is recorded: what was imported in part could be brought neither again nor corrected."""
        done: dict[str, list[tuple[_Item, Done]]] = {}
        records: list[EvidenceRecord] = []
        for item in items:
            facts = self.facts(item.run.nodes)
            texts = outputs(item.run, {member.key: self._captured(member) for member in item.members})
            verdict = evaluated(item.gate, facts, item.run, texts)
            records.append(self._measured(item, texts, verdict))
            done.setdefault(item.gate.id, []).append((item, Done(item.run, verdict)))
        imported = [one for pairs in done.values() for one in self._conclude(pairs, records)]
        return imported, records

    def _captured(self, member: CapturedOutput) -> Captured:
        stderr = self.capture.files[member.stderr_file] if member.stderr_file else ""
        return Captured(self.capture.files[member.file], member.exit_code, stderr, member.seconds)

    def _conclude(self, pairs: Sequence[tuple[_Item, Done]], records: list[EvidenceRecord]) -> list[Imported]:
        """Say what the runs of one gate mean for each node; where no single run says it, that is recorded too."""
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
        """Return an error where runs of a gate with this node were not brought: who brings one rail of eight may have chosen it."""
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

    def _record(  # noqa: PLR0913, PLR0917 - what a record holds
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


def _when(item: CapturedOutput) -> str:
    return item.time.isoformat() + (f", which took {item.seconds:g} s" if item.seconds else "")


def check_by(by: str) -> str:
    """Return who imports. Raises RackreadyError for nobody."""
    if len(by.strip()) < 2:  # noqa: PLR2004 - as the manifest asks of who captured it
        raise RackreadyError(f"--by {by!r} - Expected: a person or a team. It stands in every record that is imported.")
    try:
        return readable(by.strip())
    except ValueError as error:
        raise RackreadyError(f"--by - {error} Actual: {by!r}. It stands in every record that is imported.") from error
