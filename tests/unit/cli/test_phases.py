"""The commands of single phases: what they ask of a campaign."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from rackready.cli import campaign_run
from rackready.cli.main import build


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(
        campaign_run, "run", lambda kind, phases, **more: calls.append({"kind": kind, "phases": phases, **more})
    )
    return calls


def call(*arguments: str) -> int:
    return CliRunner().invoke(build(list(arguments)), list(arguments)).exit_code


@pytest.mark.parametrize(("flags", "again"), [((), False), (("--again",), True)])
def test_validate_says_whether_everything_is_measured_anew(
    asked: list[dict[str, Any]], flags: tuple[str, ...], *, again: bool
) -> None:
    assert call("validate", "--limit", "node01", *flags) == 0
    assert (asked[0]["kind"], asked[0]["phases"], asked[0]["limit"], asked[0]["again"]) == (
        "validate",
        ("validate",),
        "node01",
        again,
    )


@pytest.mark.parametrize(
    ("command", "phases"), [("optimize", ("optimize", "revalidate")), ("handover", ("certify", "handover"))]
)
def test_other_phases_know_no_again(asked: list[dict[str, Any]], command: str, phases: tuple[str, ...]) -> None:
    assert call(command) == 0
    assert asked[0]["phases"] == phases
    assert call(command, "--again") == 2


def test_certificate_verify_has_no_dry_run_and_shows_every_step(asked: list[dict[str, Any]]) -> None:
    """A look is what it records and judges: without one there is nothing to show."""
    assert call("certificate", "verify", "-v") == 0
    assert (asked[0]["check"], asked[0]["verbose"]) == (False, True)
    assert call("certificate", "verify", "--check") == 2
