"""The display of a GPU in `nvidia-smi -q -x`: only an active one is found."""

from __future__ import annotations

import pytest

from rackready.gates.engine.registry import gate
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome
from tests.gates.captured import evaluate
from tests.gates.support import text

SETTINGS = "node/gpu/sanity/settings"
HEALTHY = text("smi/dgx_h100_healthy.xml")


@pytest.mark.parametrize(
    ("shown", "outcome", "says"),
    [
        (
            "Enabled",
            Outcome.FAIL,
            (
                "display active - Expected: Disabled Actual: Enabled. Stop the graphical session and boot without one "
                "(`systemctl set-default multi-user.target`), then run the gate again."
            ),
        ),
        (
            "N/A",
            Outcome.ERROR,
            (
                "display active not reported - Expected: Disabled Actual: nothing. Update the driver or the tool that "
                "reports it."
            ),
        ),
    ],
)
def test_an_active_display_fails_and_one_that_is_not_reported_is_an_error(
    shown: str, outcome: Outcome, says: str
) -> None:
    known, settings = facts("dgx_h100", 1), gate(SETTINGS)
    report = HEALTHY.replace("<display_active>Disabled<", f"<display_active>{shown}<", 1)
    verdict = evaluate(settings, known, settings.plan(known, ["node01"])[0], {"smi": report}, 0)
    assert [str(finding) for finding in verdict.findings] == [f"node01 gpu0: {says}"]
    assert verdict.outcome is outcome


def test_a_screen_that_is_only_attached_is_no_display() -> None:
    """A captured H200 has display_attached Yes, display_active Disabled, and display_mode deprecated (580.159.04)."""
    captured = text("h200_vm/smi_q_x.xml")
    assert "<display_attached>Yes<" in captured
    known = facts("dgx_h200", 1)
    settings = gate(SETTINGS)
    found = [
        evaluate(settings, known, settings.plan(known, ["node01"])[0], {"smi": report}, 0).findings
        for report in (captured, captured.replace("<display_active>Disabled<", "<display_active>Enabled<"))
    ]
    assert ["display-active" in {finding.code for finding in one} for one in found] == [False, True]
