"""The mutation corpus: every output that a gate test judges is damaged in every way, and judged again.

``python -m tests.gates.corpus --mutants 20000`` (``make fuzz``) takes each output that the gate tests give to a gate
(see gathering.py), and asks of every mutant: no gate crashes, a result that was not a pass never becomes one, and a
command that did not end well never passes. ``--seed`` may be given several times: outputs are gathered once, and each
seed draws mutants of its own. A seed alone draws the same mutants again of the same outputs, of a gate by itself
(``--gate``), too.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import multiprocessing
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle

from rackready.gates.base import Output
from rackready.gates.engine.registry import all_gates
from rackready.model.outcome import Outcome
from tests.gates.gathering import Seen, gathered
from tests.gates.mutators import MUTATORS, sealed
from tests.gates.outcomes import OUTCOMES, missing_outcomes

_LOG = (
    "the kernel's log: what its line says was never logged once the line is lost, and a log has no count of its lines"
)
LOSABLE: Mapping[str, str] = {
    "node/gpu/sanity/xid": _LOG,
    "node/host/sanity/memory-errors": _LOG,
    "node/host/sanity/links": _LOG,
    "node/host/sanity/kernel-settings": "the command line says what the kernel was asked for: a "
    "word that is lost was not asked for",
    "node/host/sanity/pcie-acs": "lspci names a bridge once, above its lines: a line that is moved "
    "below another bridge is that one's",
    "bmc/log/sanity/events": "an entry whose date cannot be read is an old one once somebody said "
    "that everything until then was dealt "
    "with (since, repair)",
    "node/gpu/performance/inference": "its tests have an answer of two programs, which is a whole "
    "one of the first without the other",
    "node/host/sanity/environment": "a line that is lost sets nothing: what is not in a file is not set by it",
    "node/host/sanity/services": "its tests have an answer with one state too many, which is a whole one without it",
}
"""Gate -> why a bad output that lost a part may be good: its digest would show damage in transit."""

WORDLESS: Mapping[tuple[str, str], str] = {
    (
        f"node/gpu/validation/dcgm-r{level}",
        "json_lose",
    ): "a test gives its warnings as a list, or none: a list that is lost was not given"
    for level in range(1, 5)
} | {
    ("node/gpu/validation/dcgm-health", "json_lose"): "dcgmi health lists entities with incidents alone "
    "(dcgmi/Health.cpp): an entity that is lost has none, where the overall word does not contradict it"
}
"""(Gate, mutator) -> the same for this way of losing alone."""

SILENT: Mapping[tuple[str, str], str] = {
    (
        "node/host/stress/counter-deltas",
        "load",
    ): "a load that the site names may print nothing: that it ended with 0 is its proof, the counters are measured"
}
"""(Gate, command) -> why an empty output of it is no contradiction."""

_INSIDE = 0.75
"""Share of the mutants of a sealed document that are damaged before they were sealed."""
_EACH = 12
"""Of how many outputs of each gate and outcome every command is also ended badly."""

LOSING = frozenset(
    {
        "drop_lines",
        "truncate",
        "json_lose",
        "reorder",
        "noise",
        "double",
        "garble",
        "json_other_type",
        "versions",
        "colour",
        "invisible",
        "inside",
    }
)


@dataclass(frozen=True, slots=True)
class Wrong:
    """A mutant that showed a defect."""

    gate: str
    mutator: str
    key: str
    what: str
    text: str


def mutants(seen: Seen, dice: random.Random) -> Iterator[tuple[str, str, Mapping[str, Output]]]:
    """Yield (mutator, output, outputs) endlessly, for non-empty outputs; the mutator is empty if nothing changed."""
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
    if verdict.outcome is Outcome.PASS and seen.outcome is not Outcome.PASS and not _may_lose(seen.gate.id, name):
        return Wrong(seen.gate.id, name, key, f"{seen.outcome.value} became pass", text)
    return None


def _may_lose(gate: str, mutator: str) -> bool:
    return (mutator in LOSING and gate in LOSABLE) or (gate, mutator) in WORDLESS


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


def by_gate(seen: Iterable[Seen], gates: Iterable[str] = ()) -> dict[str, list[Seen]]:
    """Return what was seen of each of these gates (none given: of all), in the order of their ids."""
    found: dict[str, list[Seen]] = {gate: [] for gate in sorted(gates) or all_gates()}
    for one in seen:
        if one.gate.id in found:
            found[one.gate.id].append(one)
    return found


def play(seen: Sequence[Seen], count: int, seed: int) -> list[Wrong]:
    """Judge ``count`` mutants of one gate, drawn in turn from all its non-empty outputs; return the wrong verdicts."""
    dice = random.Random(f"{seed} {seen[0].gate.id}")  # noqa: S311 - repeatable, not secret
    sources = cycle([(one, mutants(one, dice)) for one in seen if _says(one)])
    wrong: list[Wrong] = []
    for _ in range(count):
        name = ""
        while not name:
            one, source = next(sources)
            name, key, outputs = next(source)
        wrong += [found] if (found := judge(one, name, key, outputs)) else []
    return wrong


def _says(seen: Seen) -> bool:
    return any(item.stdout for item in seen.outputs.values())


def damaged_sample(seen: Iterable[Seen]) -> list[Wrong]:
    """Damage one of these outputs, and end one of its commands badly; return what a gate then judged wrongly.

    Gate ids and outputs seed the draw, not the test that judged them: a renamed or moved test draws the same.
    """
    told = sorted(((fingerprint(one), one) for one in seen if _says(one)), key=lambda pair: pair[0])
    if not told:
        return []
    dice = random.Random(" ".join(seed for seed, _ in told))  # noqa: S311 - repeatable, not secret
    one = dice.choice(told)[1]
    name, key, outputs = next(mutants(one, dice))
    bad = dice.choice(list(ended_badly(one)) or [(name, key, outputs)])
    return [
        found for found in (judge(one, name, key, outputs), judge(replace(one, outcome=Outcome.ERROR), *bad)) if found
    ]


_TEMPORARY = re.compile(rf"{re.escape(tempfile.gettempdir())}/[^\s'\"]*")


def fingerprint(seen: Seen) -> str:
    """Return the gate's id with a digest of its outputs.

    Paths of temporary folders are left out: pytest names these folders after the test and the run.
    """
    told = [(key, one.exit_code, one.stdout, one.failure) for key, one in sorted(seen.outputs.items())]
    digest = hashlib.sha256(_TEMPORARY.sub("TEMPORARY", repr(told)).encode()).hexdigest()
    return f"{seen.gate.id} {digest}"


@dataclass(frozen=True, slots=True)
class Corpus:
    """Outputs of every gate, and the number of mutants per gate and seed.

    Each gate and seed is an independent piece of work.
    """

    seen: Mapping[str, Sequence[Seen]]
    count: int

    def wrong(self, work: tuple[str, int | None]) -> tuple[tuple[str, int | None], list[Wrong]]:
        """Return the wrong verdicts of a gate: on the mutants of a seed or, without one, on commands that failed."""
        gate, seed = work
        if seed is not None:
            return work, play(self.seen[gate], self.count, seed)
        few = [
            one for outcome in OUTCOMES for one in [one for one in self.seen[gate] if one.outcome is outcome][:_EACH]
        ]
        return work, [found for one in few for found in contradictions(one)]

    def played(self, seeds: Sequence[int], jobs: int) -> dict[tuple[str, int | None], list[Wrong]]:
        """Return what is wrong, by gate and seed."""
        told = [gate for gate, those in self.seen.items() if any(map(_says, those))]
        works = [(gate, seed) for seed in (None, *seeds) for gate in (told if seed is not None else self.seen)]
        with multiprocessing.get_context("fork").Pool(jobs) as pool:
            return dict(pool.imap_unordered(self.wrong, works))


def main() -> int:
    """Play the corpus; exit code 1 when a gate did not hold, or was not seen with each outcome."""
    chosen = _arguments()
    seen = gathered(chosen.jobs, whatever_code=chosen.kept, say=_say)
    corpus = Corpus(
        those := by_gate(seen, chosen.gate),
        math.ceil(chosen.mutants / max(1, sum(any(map(_says, one)) for one in those.values()))),
    )
    began = time.monotonic()
    found = corpus.played(chosen.seed, chosen.jobs)
    for gate, ones in those.items():
        outcomes = Counter(one.outcome.value for one in ones)
        _say(
            f"{gate}: {corpus.count} mutants a seed of "
            f"{', '.join(f'{count} {outcome}' for outcome, count in sorted(outcomes.items())) or 'nothing'}"
        )
    missing = [
        text for text in missing_outcomes((one.gate.id, one.outcome) for one in seen) if text.rsplit(":", 1)[0] in those
    ]
    for text in missing:
        _say(f"never seen in tests: {text}")
    for seed in (None, *chosen.seed):
        _report(seed, {gate: wrong for (gate, of), wrong in found.items() if of == seed}, corpus)
    total = sum(len(wrong) for wrong in found.values())
    outputs = sum(len(ones) for ones in those.values())
    _say(
        f"{len(chosen.seed)} seeds, {outputs} outputs of {len(those)} gates: {total} wrong, "
        f"{time.monotonic() - began:.0f} s in {chosen.jobs} processes"
    )
    return 1 if total or missing else 0


def _report(seed: int | None, found: Mapping[str, Sequence[Wrong]], corpus: Corpus) -> None:
    """Say what a seed showed, or commands that did not end well."""
    for gate in sorted(found):
        for item in found[gate]:
            _say(f"WRONG {item.gate} {item.mutator} of {item.key}: {item.what}\n{item.text[-1500:]}")
    wrong = sum(len(ones) for ones in found.values())
    _say(
        f"seed {seed}: {corpus.count * len(found)} mutants, {wrong} wrong"
        if seed is not None
        else f"commands that did not end well: {wrong} wrong"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mutants", type=int, default=20_000, help="mutants of each seed, as many of each gate")
    parser.add_argument(
        "--seed", type=int, action="append", help="draw mutants by this seed; may be given several times"
    )
    parser.add_argument(
        "--gate",
        action="append",
        default=[],
        metavar="ID",
        help="only mutants of this gate; may be given several times",
    )
    parser.add_argument(
        "--kept",
        action="store_true",
        help="take the outputs that were gathered last although code has changed since, and judge them anew",
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes; one for each core when left out"
    )
    chosen = parser.parse_args()
    chosen.seed = list(dict.fromkeys(chosen.seed or [20261122]))
    if unknown := sorted(set(chosen.gate) - set(all_gates())):
        parser.error(
            f"--gate {', '.join(unknown)} - Expected: an id that `rackready gate list` shows Actual: none of them."
        )
    if min(chosen.mutants, chosen.jobs) < 1:
        parser.error("--mutants and --jobs - Expected: at least 1.")
    return chosen


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    from tests.gates import corpus  # the module that the tests import: this one, run as a program, is another

    sys.exit(corpus.main())
