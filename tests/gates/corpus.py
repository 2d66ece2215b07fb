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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from rackready.gates.base import Gate, GateFacts, Output, Run
from rackready.gates.registry import all_gates
from rackready.model.outcome import Outcome, Verdict
from tests.gates.mutators import MUTATORS

LOGS: Mapping[str, str] = {}
"""Gate -> why a line that is lost from its output cannot be missed. A log has no count of its lines: the line was the evidence."""

LOSING = frozenset({"drop_lines", "truncate", "json_lose", "reorder", "noise", "double", "garble", "json_other_type", "versions"})


@dataclass(frozen=True, slots=True)
class Seen:
    """One judgement that a test asked for."""

    gate: Gate
    facts: GateFacts
    run: Run
    outputs: Mapping[str, Output]
    outcome: Outcome


@dataclass(slots=True)
class Collector:
    """A pytest plug-in that notes what gates are given, once each."""

    seen: dict[str, Seen] = field(default_factory=dict)
    failed: int = 0

    def pytest_configure(self) -> None:
        """Stand between the tests and the gates."""
        for kind in all_gates().values():
            kind.evaluate = self._noting(kind.evaluate)  # type: ignore[method-assign]  # for the length of this program

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count failed tests: their outcomes are not to be relied on."""
        self.failed += report.failed

    def _noting(self, original: Any) -> Any:  # noqa: ANN401 - a method
        def evaluate(gate: Gate, facts: GateFacts, run: Run, outputs: Mapping[str, Output]) -> Verdict:
            verdict: Verdict = original(gate, facts, run, outputs)
            text = f"{gate.id} {gate.inputs!r} {run.target} " + " ".join(f"{key}={one!r}" for key, one in sorted(outputs.items()))
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
    """Yield (mutator, output, outputs) for ever, for outputs that said something."""
    keys = sorted(key for key, one in seen.outputs.items() if one.stdout)
    while keys:
        key = dice.choice(keys)
        name = dice.choice(sorted(MUTATORS))
        text = MUTATORS[name](seen.outputs[key].stdout, dice)
        if text != seen.outputs[key].stdout:
            yield name, key, {**seen.outputs, key: replace(seen.outputs[key], stdout=text)}
        else:
            yield "", key, seen.outputs


def judge(seen: Seen, name: str, key: str, outputs: Mapping[str, Output]) -> Wrong | None:
    """Judge one mutant; returns what is wrong with the gate, None when it held."""
    try:
        verdict = seen.gate.evaluate(seen.facts, seen.run, outputs)
    except Exception as error:  # noqa: BLE001 - a crash of any kind is what is looked for
        return Wrong(seen.gate.id, name, key, f"crashed: {error.__class__.__name__}: {error}", outputs[key].stdout)
    if verdict.outcome is Outcome.PASS and seen.outcome is not Outcome.PASS and not (name in LOSING and seen.gate.id in LOGS):
        return Wrong(seen.gate.id, name, key, f"{seen.outcome.value} became pass", outputs[key].stdout)
    return None


def ended_badly(seen: Seen) -> Iterator[tuple[str, str, Mapping[str, Output]]]:
    """Yield the ways in which one command did not end well while its text is whole."""
    steps = {command.key for command in seen.run.commands if command.role == "step"}
    for key in sorted(steps & set(seen.outputs)):
        one = seen.outputs[key]
        yield "timed out", key, {**seen.outputs, key: replace(one, timed_out=True, exit_code=None)}
        yield "unreachable", key, {**seen.outputs, key: replace(one, failure="connection lost", exit_code=None)}
        yield "killed", key, {**seen.outputs, key: replace(one, exit_code=137)}
        yield "missing", key, {name: value for name, value in seen.outputs.items() if name != key}
        if one.stdout:
            yield "empty", key, {**seen.outputs, key: replace(one, stdout="")}


def contradictions(seen: Seen) -> Iterator[Wrong]:
    """Yield the ways in which a pass outlived a command that did not end well."""
    if seen.outcome is not Outcome.PASS:
        return
    for name, key, outputs in ended_badly(seen):
        found = judge(seen, name, key, outputs)
        if found is None and seen.gate.evaluate(seen.facts, seen.run, outputs).outcome is Outcome.PASS:
            found = Wrong(seen.gate.id, name, key, f"passes although its command {name}", "")
        if found is not None:
            yield found


def collect() -> Collector:
    """Run the gate tests and return what they asked for."""
    collector = Collector()
    code = pytest.main(["-q", "-p", "no:cacheprovider", "--no-header", "-x", "tests/gates", "--deselect", "tests/gates/test_mutations.py"], plugins=[collector])
    if code != 0 or collector.failed:
        raise SystemExit(f"fuzz: the gate tests must pass first (exit code {int(code)})")
    return collector


def play(seen: list[Seen], count: int, seed: int) -> tuple[Counter[str], list[Wrong]]:
    """Judge ``count`` mutants drawn evenly over what was seen; returns mutants by gate and what was wrong."""
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
    sources = [(one, mutants(one, dice)) for one in seen if any(output.stdout for output in one.outputs.values())]
    played: Counter[str] = Counter()
    wrong: list[Wrong] = []
    while played.total() < count:
        for one, source in sources:
            name, key, outputs = next(source)
            if not name:
                continue
            played[one.gate.id] += 1
            if found := judge(one, name, key, outputs):
                wrong.append(found)
    return played, wrong


def main() -> int:
    """Make the corpus and judge it; exit code 1 when a gate did not hold."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=20261122)
    chosen = parser.parse_args()
    seen = list(collect().seen.values())
    began = time.monotonic()
    played, wrong = play(seen, chosen.mutants, chosen.seed)
    wrong += [found for one in seen for found in contradictions(one)]
    for item in wrong:
        sys.stdout.write(f"WRONG {item.gate} {item.mutator} of {item.key}: {item.what}\n{item.text[-1500:]}\n")
    for gate in sorted(all_gates()):
        sys.stdout.write(f"{gate}: {played[gate]} mutants\n")
    none = [gate for gate in all_gates() if not played[gate]]
    sys.stdout.write(f"{played.total()} mutants of {len(seen)} outputs, seed {chosen.seed}: {len(wrong)} wrong, {time.monotonic() - began:.0f} s\n")
    if none:
        sys.stdout.write(f"no output at all was found for: {', '.join(none)}\n")
    return 1 if wrong or none else 0


if __name__ == "__main__":
    sys.exit(main())
