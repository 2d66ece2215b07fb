"""The mutation corpus: every output that a gate test judges is damaged in every way, and judged again.

``python -m tests.gates.corpus --mutants 20000`` (``make fuzz``) runs the gate tests, notes each output that a gate was given with the
outcome, and then asks of every mutant: no gate crashes, a result that was not a pass never becomes one, and a command that did not end
well never passes. The seed is printed; it alone draws the same mutants again.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any

import pytest

from rackready.gates.base import Gate, GateFacts, Output, Run
from rackready.gates.registry import all_gates
from rackready.model.outcome import Outcome, Verdict
from tests.gates.mutators import MUTATORS, sealed
from tests.gates.outcomes import OUTCOMES, lacking

_LOG = "the kernel's log: what its line says was never logged once the line is lost, and a log has no count of its lines"
LOSABLE: Mapping[str, str] = {
    "node/gpu/sanity/xid": _LOG,
    "node/host/sanity/memory-errors": _LOG,
    "node/host/sanity/links": _LOG,
    "node/host/sanity/kernel-settings": "the command line says what the kernel was asked for: a word that is lost was not asked for",
    "node/host/sanity/pcie-acs": "lspci names a bridge once, above its lines: a line that is moved below another bridge is that one's",
    "bmc/log/sanity/events": "an entry whose date cannot be read is an old one once somebody said that everything until then was dealt with (since, repair)",
    "node/gpu/performance/inference": "its tests have an answer of two programs, which is a whole one of the first without the other",
    "node/host/sanity/environment": "a line that is lost sets nothing: what is not in a file is not set by it",
    "node/host/sanity/services": "its tests have an answer with one state too many, which is a whole one without it",
}
"""Gate -> why a bad output of it of which a part is lost may be a good one: damage on its way is not meant, that its digest shows."""

SILENT: Mapping[tuple[str, str], str] = {
    ("node/host/stress/counter-deltas", "load"): "a load that the site names may print nothing: that it ended with 0 is its proof, the counters are measured"
}
"""(Gate, command) -> why an empty output of it is no contradiction."""

_INSIDE = 0.75
"""Share of the mutants of a sealed document that are damaged before they were sealed."""
_EACH = 12
"""Of how many outputs of each gate and outcome every command is also ended badly."""

LOSING = frozenset(
    {"drop_lines", "truncate", "json_lose", "reorder", "noise", "double", "garble", "json_other_type", "versions", "colour", "invisible", "inside"}
)


@dataclass(frozen=True, slots=True)
class Seen:
    """One judgement that a test asked for."""

    gate: Gate
    facts: GateFacts
    run: Run
    outputs: Mapping[str, Output]
    outcome: Outcome


@dataclass(slots=True, eq=False)
class Collector:
    """A pytest plug-in that notes what gates are given, once each."""

    seen: dict[str, Seen] = field(default_factory=dict)
    failed: int = 0
    closed: bool = False
    """Nothing is noted any more: what is judged from here on is damaged."""

    def pytest_configure(self) -> None:
        """Stand between the tests and the gates, for the length of this program."""
        self.stand_between(setattr)

    def stand_between(self, put: Callable[[type[Gate], str, Any], object]) -> None:
        """Have every gate's judgements noted; ``put`` sets an attribute of a class."""
        for kind in all_gates().values():
            put(kind, "evaluate", self._noting(kind.evaluate))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count failed tests: their outcomes are not to be relied on."""
        self.failed += report.failed

    def _noting(self, original: Any) -> Any:  # noqa: ANN401 - a method
        def evaluate(gate: Gate, facts: GateFacts, run: Run, outputs: Mapping[str, Output]) -> Verdict:
            verdict: Verdict = original(gate, facts, run, outputs)
            if self.closed:
                return verdict
            # The same output may be judged by other facts: another platform, another limit.
            text = f"{gate.id} {gate.inputs!r} {run.target} {verdict.outcome} " + " ".join(f"{key}={one!r}" for key, one in sorted(outputs.items()))
            self.seen.setdefault(hashlib.sha256(text.encode()).hexdigest(), Seen(gate, facts, run, dict(outputs), verdict.outcome))
            return verdict

        return evaluate


@dataclass(frozen=True, slots=True)
class Wrong:
    """A mutant that showed a defect."""

    gate: str
    mutator: str
    key: str
    what: str
    text: str


def mutants(seen: Seen, dice: random.Random) -> Iterator[tuple[str, str, Mapping[str, Output]]]:
    """Yield (mutator, output, outputs) for ever, for outputs that said something; the mutator is empty where it found nothing to change."""
    keys = sorted(key for key, one in seen.outputs.items() if one.stdout)
    while keys:
        key = dice.choice(keys)
        text = seen.outputs[key].stdout
        name = "inside" if sealed(text) and dice.random() < _INSIDE else dice.choice(sorted(MUTATORS))
        damaged = MUTATORS[name](text, dice)
        yield name if damaged != text else "", key, {**seen.outputs, key: replace(seen.outputs[key], stdout=damaged)}


def judge(seen: Seen, name: str, key: str, outputs: Mapping[str, Output]) -> Wrong | None:
    """Judge one mutant; returns what is wrong with the gate, None when it held."""
    text = outputs[key].stdout if key in outputs else ""
    try:
        verdict = seen.gate.evaluate(seen.facts, seen.run, outputs)
    except Exception as error:  # noqa: BLE001 - a crash of any kind is what is looked for
        return Wrong(seen.gate.id, name, key, f"crashed: {error.__class__.__name__}: {error}", text)
    if verdict.outcome is Outcome.PASS and seen.outcome is not Outcome.PASS and not (name in LOSING and seen.gate.id in LOSABLE):
        return Wrong(seen.gate.id, name, key, f"{seen.outcome.value} became pass", text)
    return None


def ended_badly(seen: Seen) -> Iterator[tuple[str, str, Mapping[str, Output]]]:
    """Yield the ways in which one command did not end well while its text is whole.

    Not of servers: they are ended with the run, and what they would have shown is in what their clients say.
    """
    for command in seen.run.commands:
        key = command.key
        if command.role == "server" or key not in seen.outputs:
            continue
        one = seen.outputs[key]
        yield "timed out", key, {**seen.outputs, key: replace(one, timed_out=True, exit_code=None)}
        yield "unreachable", key, {**seen.outputs, key: replace(one, failure="connection lost", exit_code=None)}
        yield "killed", key, {**seen.outputs, key: replace(one, exit_code=137)}
        yield "missing", key, {name: value for name, value in seen.outputs.items() if name != key}
        if one.stdout and (seen.gate.id, key) not in SILENT:
            yield "empty", key, {**seen.outputs, key: replace(one, stdout="")}


def contradictions(seen: Seen) -> Iterator[Wrong]:
    """Yield the ways in which a gate crashed over a command that did not end well, or passed."""
    for name, key, outputs in ended_badly(seen):
        if found := judge(replace(seen, outcome=Outcome.ERROR), name, key, outputs):
            yield found


def collect() -> Collector:
    """Run the gate tests and return what they asked for. Those that damage outputs themselves are left out: damage twice over shows nothing more."""
    collector = Collector()
    code = pytest.main(["-q", "-p", "no:cacheprovider", "--no-header", "-x", "tests/gates", "--ignore-glob=*/test_mutations.py"], plugins=[collector])
    if code != 0 or collector.failed:
        raise SystemExit(f"fuzz: the gate tests must pass first (exit code {int(code)})")
    return collector


def by_gate(seen: Iterable[Seen]) -> dict[str, list[Seen]]:
    """Return what was seen of each gate, in the order of their ids."""
    found: dict[str, list[Seen]] = {gate: [] for gate in all_gates()}
    for one in seen:
        found[one.gate.id].append(one)
    return found


def play(seen: Iterable[Seen], count: int, seed: int) -> tuple[Counter[str], list[Wrong]]:
    """Judge ``count`` mutants, as many of each gate, drawn in turn from all its outputs; returns mutants by gate and what was wrong."""
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
    told = {gate: [(one, mutants(one, dice)) for one in those if any(item.stdout for item in one.outputs.values())] for gate, those in by_gate(seen).items()}
    sources = {gate: cycle(those) for gate, those in told.items() if those}
    played: Counter[str] = Counter()
    wrong: list[Wrong] = []
    while played.total() < count:
        for gate, those in sources.items():
            name = ""
            while not name:
                one, source = next(those)
                name, key, outputs = next(source)
            played[gate] += 1
            wrong += [found] if (found := judge(one, name, key, outputs)) else []
    return played, wrong


def some(seen: Iterable[Seen], seed: str) -> list[Wrong]:
    """Judge one of these again, once damaged and once with a command that did not end well; returns what was wrong. The same for the same seed."""
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
    told = [one for one in seen if any(item.stdout for item in one.outputs.values())]
    if not told:
        return []
    one = dice.choice(told)
    name, key, outputs = next(mutants(one, dice))
    bad = dice.choice(list(ended_badly(one)) or [(name, key, outputs)])
    return [found for found in (judge(one, name, key, outputs), judge(replace(one, outcome=Outcome.ERROR), *bad)) if found]


def main() -> int:
    """Make the corpus and judge it; exit code 1 when a gate did not hold, or was not seen with each outcome."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=20261122)
    chosen = parser.parse_args()
    seen = list(collect().seen.values())
    began = time.monotonic()
    played, wrong = play(seen, chosen.mutants, chosen.seed)
    few = [one for those in by_gate(seen).values() for outcome in OUTCOMES for one in [one for one in those if one.outcome is outcome][:_EACH]]
    wrong += [found for one in few for found in contradictions(one)]
    for item in wrong:
        sys.stdout.write(f"WRONG {item.gate} {item.mutator} of {item.key}: {item.what}\n{item.text[-1500:]}\n")
    for gate, those in by_gate(seen).items():
        outcomes = Counter(one.outcome.value for one in those)
        sys.stdout.write(f"{gate}: {played[gate]} mutants of {', '.join(f'{count} {outcome}' for outcome, count in sorted(outcomes.items())) or 'nothing'}\n")
    missing = lacking((one.gate.id, one.outcome) for one in seen)
    for text in missing:
        sys.stdout.write(f"never seen in tests: {text}\n")
    sys.stdout.write(f"{played.total()} mutants of {len(seen)} outputs, seed {chosen.seed}: {len(wrong)} wrong, {time.monotonic() - began:.0f} s\n")
    return 1 if wrong or missing else 0


if __name__ == "__main__":
    from tests.gates import corpus  # the module that the tests import: this one, run as a program, is another

    sys.exit(corpus.main())
