"""Every test of gates: BMCs answer as those of healthy nodes, and no test asks a network."""

from __future__ import annotations

import pytest

from rackready.gates import phase
from tests.gates.redfish_world import FakeBmcs


@pytest.fixture(autouse=True)
def bmcs_of_the_stage(monkeypatch: pytest.MonkeyPatch) -> FakeBmcs:
    """What a stage asks when a gate goes to a BMC. A test may put states of broken nodes into it."""
    found = FakeBmcs()
    monkeypatch.setattr(phase, "bmcs", lambda *_: found)
    return found
