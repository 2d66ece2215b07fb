"""Check after all gate tests that every gate passed, failed and erred in some test, and every finding was shown.

Whichever workers ran them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rackready.gates.engine.registry import all_gates
from rackready.model.outcome import Outcome
from tests.gates.unshown import NO_TEST_SHOWS, product_kinds

GATES = Path(__file__).resolve().parent
OUTCOMES = (Outcome.PASS, Outcome.FAIL, Outcome.ERROR)
"""Outcomes that each gate must show. A skip never reaches a gate (gates.skip): test_skips.py tests it for all."""
WITHOUT: Mapping[tuple[str, Outcome], str] = {}
"""(Gate, outcome) -> why it cannot have that outcome."""
_PROPERTY = "gate outcome"
_FOUND = "finding"


def report_properties(seen: Iterable[tuple[str, Outcome]], codes: Iterable[str] = ()) -> list[tuple[str, object]]:
    """Return the gates and findings of a test for its report, which a worker sends to the counting process."""
    return [(_PROPERTY, f"{gate} {outcome.value}") for gate, outcome in sorted(seen)] + [
        (_FOUND, code) for code in sorted(codes)
    ]


def missing_outcomes(seen: Iterable[tuple[str, Outcome]]) -> list[str]:
    """Return which gates were never seen with an outcome that they must be seen with."""
    known = set(seen)
    return [
        f"{gate}: {wanted.value}"
        for gate in all_gates()
        for wanted in OUTCOMES
        if (gate, wanted) not in WITHOUT and (gate, wanted) not in known
    ]


def unshown(codes: Iterable[str]) -> list[str]:
    """Return which kinds of findings no test showed, and which have a reason for that and were shown nevertheless."""
    seen = set(codes)
    return [f"finding {code}" for code in sorted(product_kinds().keys() - seen - NO_TEST_SHOWS.keys())] + [
        f"that finding {code} belongs in tests/gates/unshown.py: it is shown"
        for code in sorted(NO_TEST_SHOWS.keys() & seen)
    ]


def files() -> set[str]:
    """Return the files of all gate tests."""
    return {path.relative_to(GATES.parents[1]).as_posix() for path in GATES.rglob("test_*.py")}


@dataclass(slots=True, eq=False)
class EveryOutcome:
    """A pytest plug-in of the process that counts. It says nothing where only some of the gate tests were chosen."""

    seen: set[tuple[str, Outcome]] = field(default_factory=set)
    codes: set[str] = field(default_factory=set)
    ran: set[str] = field(default_factory=set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what a test judged."""
        self.ran.add(report.nodeid.split("::", 1)[0])
        for name, value in report.user_properties:
            if name == _PROPERTY:
                gate, outcome = str(value).split(" ")
                self.seen.add((gate, Outcome(outcome)))
            elif name == _FOUND:
                self.codes.add(str(value))

    def missing(self, config: pytest.Config) -> list[str]:
        """Return what was not seen, once all files were run and none of their tests was left out by name."""
        return (
            []
            if config.getoption("keyword") or not files() <= self.ran
            else [*missing_outcomes(self.seen), *unshown(self.codes)]
        )

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A gate without one of its cases ends the run with 2: no repeat of a failed test makes up for it."""
        if self.missing(session.config):
            session.exitstatus = pytest.ExitCode.INTERRUPTED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        """Name the gates and the outcomes."""
        for text in self.missing(config):
            terminalreporter.write_line(
                f"FAILED no gate test shows {text} - give tests/gates a case, or say why it has none (outcomes.py, "
                "unshown.py)"
            )
