"""The count of outcomes after all gate tests: silent for a selection, red if a gate lacks a case."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rackready.gates.engine.registry import all_gates
from tests.gates.outcomes import OUTCOMES, EveryOutcome, files, report_properties
from tests.gates.unshown import NO_TEST_SHOWS, product_kinds

EVERYTHING = {(gate, outcome) for gate in all_gates() for outcome in OUTCOMES}


EVERY_FINDING = product_kinds().keys() - NO_TEST_SHOWS.keys()


def finished(
    seen: set[Any], ran: set[str], keyword: str = "", codes: Collection[str] = EVERY_FINDING
) -> tuple[EveryOutcome, Any]:
    plugin = EveryOutcome()
    for file in ran:
        plugin.pytest_runtest_logreport(
            cast("Any", SimpleNamespace(nodeid=f"{file}::test", user_properties=report_properties(seen, codes)))
        )
    config = SimpleNamespace(getoption=lambda _name: keyword)
    session = SimpleNamespace(config=config, exitstatus=pytest.ExitCode.OK)
    plugin.pytest_sessionfinish(cast("Any", session))
    return plugin, session


def test_all_cases_of_all_gates_are_green() -> None:
    assert finished(EVERYTHING, files())[1].exitstatus == pytest.ExitCode.OK


@pytest.mark.parametrize("lost", sorted(EVERYTHING)[:3], ids=str)
def test_a_case_that_no_test_shows_is_red_and_named(lost: Any) -> None:  # noqa: ANN401 - a gate and an outcome
    plugin, session = finished(EVERYTHING - {lost}, files())
    assert session.exitstatus == pytest.ExitCode.INTERRUPTED
    assert plugin.missing(session.config) == [f"{lost[0]}: {lost[1].value}"]


def test_a_finding_that_no_test_shows_is_red_and_named() -> None:
    plugin, session = finished(EVERYTHING, files(), codes=EVERY_FINDING - {"nvlink-inactive"})
    assert session.exitstatus == pytest.ExitCode.INTERRUPTED
    assert plugin.missing(session.config) == ["finding nvlink-inactive"]


def test_a_finding_that_is_shown_needs_no_reason() -> None:
    code = min(NO_TEST_SHOWS)
    plugin, session = finished(EVERYTHING, files(), codes=EVERY_FINDING | {code})
    assert plugin.missing(session.config) == [f"that finding {code} belongs in tests/gates/unshown.py: it is shown"]


def test_a_part_of_the_tests_says_nothing() -> None:
    assert finished(set(), set(sorted(files())[1:]))[1].exitstatus == pytest.ExitCode.OK
    assert finished(set(), files(), keyword="skip")[1].exitstatus == pytest.ExitCode.OK
