"""Outputs of healthy nodes: patterns from the gate tests with each node's own names, addresses, serials and digits."""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pytest

from rackready.design.facts import NodeFacts
from rackready.gates.base import Gate, GateFacts, Output, Run
from rackready.gates.engine.registry import gate as make_gate
from rackready.gates.engine.runner import evaluated
from rackready.gates.engine.shared_outputs import _key, shareable
from rackready.gates.engine.site_facts import site_facts
from rackready.model.outcome import Outcome, Verdict
from rackready.model.site import Site
from tests.gates.gathering import Collector, Seen

TESTS = (
    "tests/gates/gpu/test_fail_closed.py::test_a_healthy_capture_passes",
    "tests/gates/host/test_faults.py::test_a_healthy_node_passes",
    "tests/gates/test_bmc_gates.py::test_healthy_nodes_with_their_spread_pass_in_both_schemas",
    "tests/gates/test_collectives.py::test_a_node_alone",
    "tests/gates/test_inventory.py::test_verdict",
    "tests/gates/test_versions.py",
)
"""Gate tests that judge a healthy node."""
LEVELS = ("sanity", "validation", "performance")
_TRIED = 4
"""Nodes on which a pattern is tried."""

_SERIAL = r"\b\d{13}\b|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_DECIMAL = r"(?<![\d.:])\d+\.\d*[1-9]\d*(?![\d.])"
_SLOTS = (f"{_SERIAL}|{_DECIMAL}", _SERIAL, "(?!)")
"""What is drawn anew: as much as the gate's verdict bears."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One output of one gate, cut where a node's own words go. ``slots``: what stood there."""

    fixed: tuple[str, ...]
    slots: tuple[str, ...]
    output: Output

    def of(self, place: int, words: Mapping[str, str], dice: random.Random) -> Output:
        """Return the output of the node at a place of the site."""
        parts = [self.fixed[0]]
        for old, text in zip(self.slots, self.fixed[1:], strict=True):
            parts += (words.get(old) or _drawn(old, dice), text)
        return replace(self.output, node=words[self.output.node], stdout="".join(parts) + _tail(place))


def _tail(place: int) -> str:
    """Return blanks and an end of line that no other place has."""
    return "".join("\t" if bit == "1" else " " for bit in f"{place:b}") + "\n"


def _drawn(old: str, dice: random.Random) -> str:
    """Return another serial number or UUID of that form, or a number with another last digit."""
    if "." in old:
        return old[:-1] + str(dice.randrange(1, 10))
    digits = "0123456789abcdef" if "-" in old else "0123456789"
    return re.sub(r"[0-9a-f]", lambda _: dice.choice(digits), old)


@dataclass(frozen=True, slots=True)
class Measured:
    """A gate with patterns of its outputs, and what it says of them on the first node of the site."""

    gate: Gate
    patterns: tuple[Pattern, ...]
    verdict: Verdict
    shared: frozenset[str] = frozenset()
    """Keys of commands that run once for several gates, as in a stage: each of them has the same text of a node."""

    def outputs(self, place: int, facts: NodeFacts, seed: str = "") -> dict[str, Output]:
        """Return the outputs of a node, always the same ones."""
        words, dice = _words(facts), random.Random(f"{self.gate.id}{place}{seed}")  # noqa: S311 - repeatable, not secret
        out = {}
        for pattern in self.patterns:
            key = pattern.output.key
            own = random.Random(f"{pattern.output.command}{place}{seed}") if key in self.shared else dice  # noqa: S311
            out[key] = pattern.of(place, words, own)
        return out


def _words(facts: NodeFacts) -> dict[str, str]:
    """Return text of the pattern -> text of this node; pattern nodes are node01 of a benchmarking network."""
    return {"node01": facts.node.name} | {f"192.168.{nic.rail}.11": nic.address for nic in facts.nics}


def measured(site: Site) -> list[Measured]:
    """Return every gate of one node, of the levels that load little, with outputs that pass for nodes of this site."""
    known = _known(site)
    return _with_shared(list(_alone(known)), known)


def _with_shared(found: list[Measured], known: Mapping[int, GateFacts]) -> list[Measured]:
    """Return the gates with one text for each command that several of them may share, where it passes for them all."""
    users: dict[object, list[tuple[int, str]]] = {}
    (node,) = known[0].nodes
    for number, made in enumerate(found):
        run = _run(made.gate, known[0], node)
        users_of = {command.key: _key(command) for command in run.commands if command.key in shareable(run)}
        for key, command in users_of.items():
            users.setdefault(command, []).append((number, key))
    for places in users.values():
        best: dict[int, Measured] = {}
        for number, key in places if len(places) > 1 else ():
            pattern = next(item for item in found[number].patterns if item.output.key == key)
            tried = {at: _sharing(found[at], name, pattern) for at, name in places}
            good = {at: made for at, made in tried.items() if _passes(made, known)}
            best = good if len(good) > len(best) else best
        for at, made in best.items() if len(best) > 1 else ():
            found[at] = made
    return found


def _sharing(made: Measured, key: str, pattern: Pattern) -> Measured:
    """Return a gate with another pattern for one of its commands."""
    same = replace(pattern, output=replace(pattern.output, key=key))
    patterns = tuple(same if item.output.key == key else item for item in made.patterns)
    return replace(made, patterns=patterns, shared=made.shared | {key})


def _passes(made: Measured, known: Mapping[int, GateFacts]) -> bool:
    return all(judged(made, place, facts).outcome is Outcome.PASS for place, facts in known.items())


def _known(site: Site) -> dict[int, GateFacts]:
    names = [node.name for node in site.nodes()]
    places = sorted({0, 1, len(names) // 2, len(names) - 1})[:_TRIED]
    return {place: site_facts(site, [names[place]]) for place in places}


def _alone(known: Mapping[int, GateFacts]) -> Iterator[Measured]:
    for gate_id, found in sorted(_collected().items()):
        made = next((made for item in found for made in _tried(item, known)), None)
        if made is None:
            sys.stderr.write(f"not in this benchmark: {gate_id}: its outputs of the tests do not pass for this site\n")
        else:
            yield made


def _collected() -> dict[str, list[Seen]]:
    """Return gate -> judgements of the gate tests that passed on one DGX H100."""
    collector = Collector()
    silent, kept = os.open(os.devnull, os.O_WRONLY), os.dup(1)
    os.dup2(silent, 1)
    try:
        code = pytest.main(["-q", "-p", "no:cacheprovider", "--no-header", *TESTS], plugins=[collector])
    finally:
        os.dup2(kept, 1)
    if code != 0:
        raise SystemExit(f"the gate tests must pass first (exit code {int(code)}): pytest {' '.join(TESTS)}")
    out: dict[str, list[Seen]] = {}
    for seen in collector.seen.values():
        alone = seen.run.nodes == ("node01",) and seen.facts.nodes["node01"].platform.id == "dgx_h100"
        if alone and seen.outcome is Outcome.PASS and seen.gate.level in LEVELS:
            out.setdefault(seen.gate.id, []).append(seen)
    return out


def _tried(seen: Seen, known: Mapping[int, GateFacts]) -> Iterator[Measured]:
    """Yield the judgement's outputs as patterns that pass on all nodes tried, those with most drawn anew first."""
    gate = make_gate(seen.gate.id, seen.gate.inputs.model_dump())
    for slots in _SLOTS:
        made = Measured(
            gate, tuple(_pattern(output, slots) for output in seen.outputs.values()), Verdict(outcome=Outcome.PASS)
        )
        if _passes(made, known):
            yield replace(made, verdict=judged(made, 0, known[0]))


def judged(made: Measured, place: int, facts: GateFacts) -> Verdict:
    """Return what the gate says of a node's outputs."""
    (node,) = facts.nodes
    return evaluated(made.gate, facts, _run(made.gate, facts, node), made.outputs(place, facts.nodes[node]))


def _run(gate: Gate, facts: GateFacts, node: str) -> Run:
    return next((run for run in gate.plan(facts, [node]) if run.nodes == (node,)), Run("", node, (node,), ()))


def _pattern(output: Output, slots: str) -> Pattern:
    cut = re.compile(rf"node01|192\.168\.\d\.11(?!\d)|{slots}")
    return Pattern(tuple(cut.split(output.stdout)), tuple(cut.findall(output.stdout)), output)
