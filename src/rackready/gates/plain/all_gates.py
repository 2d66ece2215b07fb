"""Judgement of captured outputs of one node by every gate that reads them; files are recognised by their contents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackready.gates.base import Command, Gate, GateFacts, Run, is_missing_output
from rackready.gates.engine.container import Containered
from rackready.gates.engine.registry import all_gates, gate
from rackready.gates.plain.document_makers import made, sources_of
from rackready.gates.plain.nvidia import NVLINK, SMI
from rackready.gates.plain.pcie import LSPCI
from rackready.gates.plain.source import Source, begins
from rackready.gates.records.offline import Captured, evaluate
from rackready.model.outcome import Outcome, Verdict

KINDS = (
    SMI,
    NVLINK,
    Source(
        "nvlink-errors",
        "nvidia-smi nvlink -e",
        begins(r"^\s+Link \d+: (?:Replay|Malformed packet|Rx|Tx|Local link|Link recovery|Raw|Effective)[\w ]*: "),
    ),
    Source("topology", "nvidia-smi topo -m", begins(r"^\s+(?:\x1b\[4m)?GPU0\s+(?:GPU1|NIC0|mlx5_\w+|CPU Affinity)\b")),
    LSPCI,
)
"""Outputs whose contents show which command printed them."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One gate that reads the given outputs. ``lacks``: further commands it needs; then only a fail is a verdict."""

    gate: str
    verdict: Verdict | None
    lacks: tuple[str, ...] = ()


def kind_of(text: str) -> Source | None:
    """Return the command that printed a text; None if unknown or ambiguous."""
    found = [kind for kind in KINDS if kind.marks(text)]
    return found[0] if len(found) == 1 else None


def judge_all(
    facts: GateFacts, inputs: Mapping[str, Mapping[str, object]], given: Mapping[str, Captured]
) -> list[Judged]:
    """Return every gate of one node that reads some of these outputs.

    ``inputs``: gate -> its inputs. ``given``: key of the kind -> output.
    """
    node = next(iter(facts.nodes))
    out = []
    for gate_id, kind in all_gates().items():
        if not gate_id.startswith("node/"):
            continue
        fixed: dict[str, object] = {"image": "captured elsewhere"} if issubclass(kind, Containered) else {}
        found = gate(gate_id, {**fixed, **inputs.get(gate_id, {})})
        runs = found.plan(facts, [node])[:1]
        out += [one for run in runs if (one := _judged(found, facts, run, given)) is not None]
    return out


def _judged(found: Gate, facts: GateFacts, run: Run, given: Mapping[str, Captured]) -> Judged | None:
    """Return the judgement of a gate; None if it reads none of the given outputs."""
    texts: dict[str, Captured] = {}
    plain: dict[str, dict[str, list[Captured]]] = {}
    lacks: list[str] = []
    if not any(_reads(facts, command, given) for command in run.commands):
        return None
    for command in run.commands:
        sources = sources_of(facts, command)
        if sources:
            plain[command.key] = {source.key: [given[source.key]] for source in sources if _is(source, given)}
            lacks += [source.gives for source in sources if source.needed and source.key not in plain[command.key]]
        elif (output := _own(run, command, given)) is not None:
            texts[command.key] = output
        elif command.role == "step":
            lacks.append(_words(run, command))
    if lacks:
        return Judged(found.id, _failed(found, facts, run, texts), tuple(dict.fromkeys(lacks)))
    documents, findings = made(facts, run, plain)
    if findings:
        return Judged(found.id, Verdict(outcome=Outcome.ERROR, findings=findings))
    return Judged(found.id, evaluate(found, facts, run, {**texts, **documents}))


def _failed(found: Gate, facts: GateFacts, run: Run, texts: Mapping[str, Captured]) -> Verdict | None:
    """Return the verdict on some of a gate's outputs if it is a fail, which more outputs cannot revoke; else None."""
    verdict = evaluate(found, facts, run, texts) if texts else None
    if verdict is None or verdict.outcome is not Outcome.FAIL:
        return None
    return verdict.model_copy(update={"findings": [item for item in verdict.findings if not is_missing_output(item)]})


def _reads(facts: GateFacts, command: Command, given: Mapping[str, Captured]) -> bool:
    sources = sources_of(facts, command)
    return any(_is(source, given) for source in sources) if sources else _kind(command) in given


def _is(source: Source, given: Mapping[str, Captured]) -> bool:
    """Return whether a source is given: the same command, whatever its key in a gate."""
    return source.key in given and any(kind.gives == source.gives for kind in KINDS if kind.key == source.key)


def _kind(command: Command) -> str:
    """Return the key of the kind of output that a command prints; empty if it is none of them."""
    return next((kind.key for kind in KINDS if tuple(kind.gives.split()) == command.argv), "")


def _own(run: Run, command: Command, given: Mapping[str, Captured]) -> Captured | None:
    """Return the given output of a command; None if the run needs several readings of it."""
    if sum(other.argv == command.argv for other in run.commands) > 1:
        return None
    return given.get(_kind(command))


def _words(run: Run, command: Command) -> str:
    many = sum(other.argv == command.argv for other in run.commands)
    words = " ".join(command.argv)
    return f"{words} ({many} readings)" if many > 1 else f"{words[:60]} ..." if len(words) > 64 else words  # noqa: PLR2004 - as much fits


def unknown(kinds: Sequence[Source] = KINDS) -> str:
    """Return the commands whose outputs are recognised, as text."""
    return ", ".join(kind.gives for kind in kinds)
