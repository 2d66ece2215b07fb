"""The files of a rehearsal as the rack and the loader take them: site file, record, overlay, together a site."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from rackready.design.deployable import require
from rackready.design.site import load_site
from rackready_sim import definition, overlay
from rackready_sim.definition import Definition
from rackready_sim.plan import clone_id, subnet_candidates
from rackready_sim.rehearse.run import Rehearsal
from tests.unit.rehearse.small import SITES, SMALL, rehearsal, site

ALONE = [name for name in SMALL if name != "sim-k8s"]
"""Sites whose overlay needs nothing that only a rack makes."""


@pytest.mark.parametrize("name", ALONE)
def test_site_file_and_overlay_are_a_site_that_deploy_takes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definition, "taken_networks", list)
    monkeypatch.setattr(definition, "in_use", lambda _: False)
    small = rehearsal(name)
    made = Rehearsal(tmp_path, name, site(name), SITES[name], lambda _: None)
    made.write(small)
    made._judge(small)
    made._reserve()
    defined = Definition.load(tmp_path, made.paths.env)
    overlay.write(made.paths.overlay, overlay.build(defined.site, defined.plan, defined.store))
    made._prove()
    found = load_site(made.paths.env, root=tmp_path)
    require(found, small.nodes, "deploy")
    assert all(node.address in defined.plan.subnet for node in found.nodes())
    assert found.access.private_key == tmp_path / ".rackready/sim/keys/id_ed25519"


def test_the_rack_avoids_the_networks_of_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definition, "taken_networks", list)
    monkeypatch.setattr(definition, "in_use", lambda _: False)
    made = Rehearsal(tmp_path, "lab", site("lab-4-nodes"), SITES["lab-4-nodes"], lambda _: None)
    made.write(rehearsal("lab-4-nodes"))
    first, second, *_ = subnet_candidates(clone_id(tmp_path))
    one = Definition.load_or_choose(tmp_path, made.paths.env)
    other = Definition.load_or_choose(tmp_path, made.paths.env, avoid=[IPv4Network(f"{first[7]}/32")])
    assert (one.plan.subnet, other.plan.subnet) == (first, second)
