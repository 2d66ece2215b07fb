"""The fabric twin: real opensm, ibsim and diagnostics on a small plan; the large one is an integration test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.infiniband.cabling_faults import unnamed
from tests.unit.infiniband.fabrics import plan_of
from tests.unit.infiniband.twins import LACKING, REASON, twenty_faults

pytestmark = pytest.mark.skipif(bool(LACKING), reason=REASON)


@pytest.mark.parametrize("seed", [1, 2])
def test_twenty_faults_are_each_named_once_and_nothing_else(tmp_path: Path, seed: int) -> None:
    healthy, faults, found = twenty_faults(plan_of(tmp_path, 16, 8)[1], tmp_path, seed)
    assert healthy == []
    assert len(faults) == 20
    assert list(unnamed(faults, found)) == []
    assert len(found) == 20
