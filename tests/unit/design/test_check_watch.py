"""The site's section `watch`: conditions that it names must exist, and may not drain and not drain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rackready.design.check import check
from rackready.design.site import load_site
from rackready.model.watch import Watch

ROOT = Path(__file__).resolve().parents[3]


def problems(**watch: Any) -> list[tuple[str, str]]:
    site = load_site("sim", root=ROOT).model_copy(update={"watch": Watch(**watch)})
    return [(".".join(map(str, flaw.loc)), f"{flaw.message} {flaw.hint}") for flaw in check(site)]


def test_conditions_of_the_right_kind_are_taken() -> None:
    assert problems(never_drain=["GpuXidRestartBm"], also_drain=["GpuRowRemapPending"]) == []


def test_a_condition_that_does_not_exist_is_refused() -> None:
    ((path, text),) = problems(also_drain=["GpuXid79"])
    assert path == "watch.also_drain.0"
    assert text == (
        "GpuXid79 is not a condition of this kind - Expected: one of those that only open a ticket by default: "
        "BmcEventCritical, GpuRowRemapPending, GpuThermalSlowdown, GpuXidCheckUvm, GpuXidNoAction, GpuXidUnlisted, "
        "GpuXidUpdateSwfw, GpuXidWorkflowNvlink5Err, NodeDrifted, NvswitchSxidUnlisted, RailFlapping Actual: GpuXid79. "
        "Take it from docs/reference/alerts.md."
    )


def test_an_error_of_user_code_never_drains() -> None:
    ((_, text),) = problems(also_drain=["GpuXidRestartApp"])
    assert "Actual: GpuXidRestartApp" in text


def test_a_condition_in_both_lists_is_refused() -> None:
    with pytest.raises(ValidationError) as refused:
        Watch(never_drain=["RailDown"], also_drain=["RailDown"])
    assert "RailDown in never_drain and also_drain - Expected: in one of them" in str(refused.value)
