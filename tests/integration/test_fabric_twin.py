"""Two scalable units, 64 nodes with 8 adapters each, under the real opensm: 20 faults, partitions, losses."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready_sim.ibtwin.report import rehearse
from tests.unit.infiniband.cabling_faults import unnamed
from tests.unit.infiniband.fabrics import plan_of, site_of
from tests.unit.infiniband.twins import LACKING, REASON, twenty_faults

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(bool(LACKING), reason=REASON),
]

TENANTS = """
tenants:
  - {name: research, racks: ["a[01-08]"], pkey: "0x0011"}
  - {name: product, racks: ["a[09-16]"], pkey: "0x0012", full_member: false}
"""


@pytest.mark.parametrize("seed", range(1, 6))
def test_twenty_faults_in_two_scalable_units_are_each_named_once(tmp_path: Path, seed: int) -> None:
    healthy, faults, found = twenty_faults(plan_of(tmp_path, 64)[1], tmp_path, seed)
    assert healthy == []
    assert len(faults) == 20
    assert list(unnamed(faults, found)) == []
    assert len(found) == 20


@pytest.mark.parametrize("engine", ["updn", "ftree"])
def test_two_scalable_units_with_tenants_survive_each_spine_and_uplink(tmp_path: Path, engine: str) -> None:
    found = rehearse(site_of(tmp_path, 64, tenants=TENANTS), engine, 32)
    assert found.passed, "\n".join(found.lines())
    assert found.keys_read == 512
    assert found.routes is not None
    assert found.routes.paths == 512 * 511
    assert [(item.lost, item.pairs) for item in found.losses if item.pairs] == []
    assert len(found.losses) == 8 + 32
