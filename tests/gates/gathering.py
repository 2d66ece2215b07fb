"""Gatherer of the outputs that gate tests give to gates, with outcomes, for the mutation corpus. Kept for many seeds.

The gate tests run in as many processes as there are cores (pytest-xdist), each with this module as a plug-in (``-p
tests.gates.gathering``). What they gave to gates is kept in ``.rackready/corpus`` with a digest of the files that
decide it: it is used again as long as none of them changes.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rackready.gates.base import Gate, GateFacts, Output, Run
from rackready.gates.engine.registry import all_gates
from rackready.gates.judging import common_findings
from rackready.gates.judging.finding_kinds import FindingKind
from rackready.model.outcome import Finding, Outcome, Verdict

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".rackready" / "corpus" / "outputs.pickle"
_INTO = "RACKREADY_CORPUS_INTO"
"""Environment variable: the folder into which each process of the tests writes what it saw."""
_DECIDES = ("src", "tests", "inventories", "templates", "playbooks", "roles", "pyproject.toml")
"""Where the files are that decide what gate tests give to gates, and what gates say of it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One judgement that a test asked for."""

    gate: Gate
    facts: GateFacts
    run: Run
    outputs: Mapping[str, Output]
    outcome: Outcome

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the gate by its id: some classes of gates are made, and have no name of their own in a module."""
        return _seen, (self.gate.id, vars(self.gate), self.facts, self.run, dict(self.outputs), self.outcome)


def _seen(
    gate_id: str, state: Mapping[str, Any], facts: GateFacts, run: Run, outputs: Mapping[str, Output], outcome: Outcome
) -> Seen:
    kind = all_gates()[gate_id]
    gate = kind.__new__(kind)
    vars(gate).update(state)
    return Seen(gate, facts, run, outputs, outcome)


Place = tuple[int, int]
"""Where a judgement was asked for: number of the test, number of the judgement in it."""


@dataclass(slots=True, eq=False)
class Collector:
    """Pytest plug-in that notes the outputs given to gates, each once. ``into``: folder for them."""

    seen: dict[str, Seen] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    codes: set[str] = field(default_factory=set)
    """Codes of the findings that were made, by gates and whoever else makes them."""
    undeclared: set[str] = field(default_factory=set)
    """Gates with the code (or title) of a finding that their class does not declare: of what is damaged, too."""
    closed: bool = False
    """Nothing is noted any more: what is judged from here on is damaged."""
    into: Path | None = None
    _numbers: dict[str, int] = field(default_factory=dict)
    _test: int = -1

    def pytest_configure(self) -> None:
        """Stand between the tests and the gates, for the length of this program."""
        self.stand_between(setattr)

    def stand_between(self, put: Callable[[type[Gate], str, Any], object]) -> None:
        """Have every gate's judgements noted; ``put`` sets an attribute of a class."""
        for kind in all_gates().values():
            put(kind, "evaluate", self._noting(kind.evaluate))
        put(FindingKind, "found", self._counting(FindingKind.found))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Number the tests: every process collects the same ones."""
        self._numbers = {item.nodeid: number for number, item in enumerate(session.items)}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note which test runs."""
        self._test = self._numbers.get(nodeid, -1)

    def pytest_sessionfinish(self) -> None:
        """Write what was seen, where somebody waits for it."""
        if self.into is not None:
            rows = [(self.places[key], key, one) for key, one in self.seen.items()]
            (self.into / f"{os.getpid()}.pickle").write_bytes(pickle.dumps(rows))

    def _noting(self, original: Any) -> Any:  # noqa: ANN401 - a method
        def evaluate(gate: Gate, facts: GateFacts, run: Run, outputs: Mapping[str, Output]) -> Verdict:
            verdict: Verdict = original(gate, facts, run, outputs)
            self.undeclared |= _undeclared(type(gate), verdict)
            if self.closed:
                return verdict
            # The same output may be judged by other facts: another platform, another limit.
            text = f"{gate.id} {gate.inputs!r} {run.target} {verdict.outcome} " + " ".join(
                f"{key}={one!r}" for key, one in sorted(outputs.items())
            )
            key = hashlib.sha256(text.encode()).hexdigest()
            if key not in self.seen:
                self.places[key] = self._test, len(self.seen)
                self.seen[key] = Seen(gate, facts, run, dict(outputs), verdict.outcome)
            return verdict

        return evaluate

    def _counting(self, original: Any) -> Any:  # noqa: ANN401 - a method
        def found(kind: FindingKind, /, *place: Any, **values: object) -> Finding:
            if not self.closed:
                self.codes.add(kind.code)
            made: Finding = original(kind, *place, **values)
            return made

        return found


def _undeclared(kind: type[Gate], verdict: Verdict) -> set[str]:
    """Return what a gate of ours found and does not declare; gates that a test makes for itself declare nothing."""
    if not kind.__module__.startswith("rackready."):
        return set()
    declared = {item.code for item in (*kind.findings, *common_findings.FINDINGS)}
    return {
        f"{kind.id}: {finding.code or finding.what}" for finding in verdict.findings if finding.code not in declared
    }


def pytest_configure(config: pytest.Config) -> None:
    """Have a process of the gate tests note what gates are given, where ``gather`` has started it."""
    if (into := os.environ.get(_INTO)) and (hasattr(config, "workerinput") or not config.getoption("numprocesses")):
        config.pluginmanager.register(Collector(into=Path(into)))


def gathered(jobs: int, *, whatever_code: bool, say: Callable[[str], object]) -> list[Seen]:
    """Return the outputs that gate tests give to gates, in the order of the tests; gather again if code changed.

    ``whatever_code``: take what is kept although code has changed since, and have today's code judge it. Raises
    SystemExit when a gate test fails.
    """
    state = _state()
    if KEPT.is_file():
        kept = pickle.loads(KEPT.read_bytes())  # noqa: S301 - written below, by this program
        if kept["state"] == state:
            say(f"outputs gathered {kept['at']} are used again: no code has changed since")
            return list(kept["seen"])
        if whatever_code:
            say(
                f"outputs gathered {kept['at']} with other code are judged anew by today's; "
                "new tests and cases are not among them"
            )
            return [
                replace(one, outcome=one.gate.evaluate(one.facts, one.run, one.outputs).outcome) for one in kept["seen"]
            ]
    begun = time.monotonic()
    say(f"the gate tests run in {jobs} processes, and their outputs are gathered: some minutes")
    seen = _gather(jobs)
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=KEPT.parent, delete=False) as out:
        pickle.dump({"state": state, "at": datetime.now(UTC).isoformat(timespec="seconds"), "seen": seen}, out)
    Path(out.name).replace(KEPT)
    say(f"{len(seen)} outputs gathered in {time.monotonic() - begun:.0f} s, kept in {KEPT.relative_to(ROOT)}")
    return seen


def _gather(jobs: int) -> list[Seen]:
    """Run the gate tests and return their outputs, without the tests that damage outputs themselves."""
    with tempfile.TemporaryDirectory() as folder:
        words = [
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "tests.gates.gathering",
            "--no-header",
            "-x",
            "tests/gates",
            "--ignore-glob=*/test_mutations.py",
        ]
        argv = [sys.executable, "-m", "pytest", *words, *(["-n", str(jobs)] if jobs > 1 else [])]
        code = subprocess.run(argv, cwd=ROOT, env={**os.environ, _INTO: folder}, check=False).returncode
        if code != 0:
            raise SystemExit(f"fuzz: the gate tests must pass first (exit code {code})")
        rows = [row for path in Path(folder).glob("*.pickle") for row in pickle.loads(path.read_bytes())]  # noqa: S301 - written by our own processes
    return list({key: seen for _, key, seen in sorted(rows, key=lambda row: row[0])}.values())


def _state() -> str:
    """Return the digest of Python's version and of all files that decide what tests give to gates."""
    found = hashlib.sha256(sys.version.encode())
    for path in sorted(path for top in _DECIDES for path in _files(ROOT / top)):
        found.update(f"{path.relative_to(ROOT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def _files(top: Path) -> Iterable[Path]:
    return (
        [top]
        if top.is_file()
        else (path for path in top.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    )
