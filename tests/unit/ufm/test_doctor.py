"""`rackready doctor` asks UFM as the fabric phase does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackready.cli.doctor_scene import Scene
from rackready.cli.doctor_ufm import ufm as check
from rackready.design.site import load_site
from rackready.model.outcome import Outcome
from rackready.paths import EnvPaths
from tests.unit.ufm.ufms import ROOT, simulated, site_of, up


@pytest.mark.parametrize(
    ("fault", "outcome", "text"),
    [
        ({}, Outcome.PASS, "UFM 6.22.1-7: 33 switches and adapters"),
        ({"version": "6.12.0-1"}, Outcome.FAIL, "UFM app/ufm_version - Expected: 6.17 or newer Actual: 6.12.0-1."),
        ({"absent": {"resources/links"}}, Outcome.FAIL, "resources/links - Expected: HTTP 200 Actual: HTTP 404."),
    ],
)
def test_a_ufm_that_the_fabric_phase_could_not_use_fails(
    tmp_path: Path, fault: dict[str, Any], outcome: Outcome, text: str
) -> None:
    ufm = simulated(site_of())
    for name, value in fault.items():
        setattr(ufm, name, value)
    with up(ufm, tmp_path) as own:
        assert own.token is not None
        site = site_of(own.url, token={"file": str(own.token.file)}, ca=str(own.ca))
        found = check(Scene(EnvPaths(tmp_path, "t"), site))
    assert found[0] is outcome
    assert text in found[1]
    assert {method for method, _ in ufm.requests} == {"GET"}


def test_sites_without_ufm_skip_it(tmp_path: Path) -> None:
    site = load_site("no-overlay", site_file=ROOT / "inventories/sim-ib/site.yml", root=ROOT)
    for one in (site, None):
        assert check(Scene(EnvPaths(tmp_path, "t"), one)) == (Outcome.SKIP, "no UFM manages a subnet of the site")
