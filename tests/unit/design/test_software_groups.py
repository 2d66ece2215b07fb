"""Nodes of one site with different version sets: what each gets, what a plan shows, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design.device_facts import device_facts
from rackready.design.facts import desired_digest, node_facts
from rackready.design.hostvars import groups
from rackready.design.plan import plan_site
from rackready.design.plan_summary import summary
from rackready.design.site import parse_site
from rackready.design.software_of import only, software_views
from rackready.model.problems import RackreadyError, SiteInvalidError
from rackready.model.site import Site
from rackready.render.plan_text import plan_text

ROOT = Path(__file__).resolve().parents[3]
ROCKY = {"name": "rocky", "nodes": ["node03"], "set": "hgx-r580-el9"}
UBUNTU = {"name": "ubuntu", "nodes": ["node[01-02]"], "set": "hgx-r580-ubuntu2404"}
MIXED = [UBUNTU, ROCKY]


def site_of(*parts: dict[str, Any]) -> Site:
    document = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    software = document["software"]
    del software["mirror"]
    key = {"url": "http://m.example", "key": "keys/m.asc", "fingerprint": "1" * 40}
    software["repositories"] = [key | {"name": kind, "kind": kind} for kind in ("apt", "rpm")]
    software["groups"] = list(parts)
    return parse_site(document, source="site.yml", base=ROOT)


def refusals(*parts: dict[str, Any]) -> list[str]:
    with pytest.raises(SiteInvalidError) as caught:
        site_of(*parts)
    return [str(problem) for problem in caught.value.problems]


def test_each_node_has_the_set_of_its_group() -> None:
    site = site_of(*MIXED)
    systems = {node.name: node_facts(site, node.name).software.os for node in site.nodes()}
    assert systems == {"node01": "ubuntu2404", "node02": "ubuntu2404", "node03": "el9", "node04": "debian12"}
    assert [(view.group, view.nodes) for view in software_views(site)] == [
        ("", ("node04",)),
        ("ubuntu", ("node01", "node02")),
        ("rocky", ("node03",)),
    ]


def test_another_set_changes_the_desired_state_of_its_nodes_only() -> None:
    before, after = site_of(), site_of(ROCKY)
    changed = [
        node.name for node in after.nodes() if desired_digest(before, node.name) != desired_digest(after, node.name)
    ]
    assert changed == ["node03"]


def test_ansible_gets_the_set_as_variables_of_a_group_that_wins() -> None:
    found = groups(site_of(*MIXED))
    assert found["nodes"]["vars"]["base_os"] == "debian12"
    assert found["software_rocky"]["hosts"] == found["variant_dgx_h100_rocky"]["hosts"] == ["node03"]
    assert found["software_rocky"]["vars"]["base_os"] == "el9"
    assert found["software_rocky"]["vars"]["nvidia_driver_stream"] == "nvidia-driver:580-open"
    # Ansible merges groups of one depth in the order of their names: the last wins.
    assert sorted(found)[-4:] == [
        "software_rocky",
        "software_ubuntu",
        "variant_dgx_h100_rocky",
        "variant_dgx_h100_ubuntu",
    ]
    assert not [name for name in groups(site_of()) if name.startswith(("software_", "variant_"))]


def test_a_plan_shows_the_sets_and_every_node_its_own() -> None:
    made = plan_site(site_of(*MIXED))
    assert (
        "  software    hgx-r580-debian12 (driver 580.173.02) on node04; hgx-r580-ubuntu2404 (driver 580.173.02) on "
        in (plan_text(summary(made)))
    )
    facts = device_facts(made)
    assert facts["node node03"]["software"] == "hgx-r580-el9, driver 580.173.02"
    assert facts["node node04"]["software"] == "hgx-r580-debian12, driver 580.173.02"
    assert "software " not in plan_text(summary(plan_site(site_of())))


def test_an_unknown_set_of_a_group_is_refused_at_its_place() -> None:
    [text] = refusals(UBUNTU, ROCKY | {"set": "hgx-r580-el8"})
    assert text == (
        "software.groups[1].set: software profile 'hgx-r580-el8' does not exist - Expected: one of hgx-r580-debian12, "
        "hgx-r580-el9, hgx-r580-ubuntu2204, hgx-r580-ubuntu2404. Correct the id or add the profile."
    )


WRONG = [
    (
        [ROCKY | {"driver_branch": 590}],
        (
            "software.groups[0].driver_branch: branch 590 is not in software set hgx-r580-el9 - Expected: one of 580. "
            "Choose one of these branches, or another set."
        ),
    ),
    (
        [ROCKY | {"driver_branch": 470}],
        (
            "software.groups[0].driver_branch: branch 470 cannot drive NVIDIA H100 80GB HBM3 (h100_sxm) - "
            "Expected: 525 or newer. Use another branch of hgx-r580-el9."
        ),
    ),
    (
        [ROCKY | {"nodes": ["node09"]}],
        "software.groups[0].nodes[0]: no node is called node09. Correct the name or the range.",
    ),
    (
        [UBUNTU, ROCKY | {"nodes": ["node[02-03]"]}],
        (
            "software.groups[1].nodes: node02 of software group rocky already belongs to ubuntu. Name each node in one "
            "group."
        ),
    ),
]


@pytest.mark.parametrize(("parts", "text"), WRONG)
def test_a_wrong_group_is_refused_at_its_place(parts: list[dict[str, Any]], text: str) -> None:
    assert refusals(*parts) == [text]


def test_a_mirror_is_made_for_one_set() -> None:
    site = site_of(*MIXED)
    chosen = only(site, "hgx-r580-el9")
    assert ([node.name for node in chosen.nodes()], chosen.software.set) == (["node03"], "hgx-r580-el9")
    assert only(site_of(), None) == site_of()
    with pytest.raises(RackreadyError) as caught:
        only(site, None)
    assert str(caught.value) == (
        "--set - Expected: one of hgx-r580-debian12, hgx-r580-el9, hgx-r580-ubuntu2404, because a mirror serves one "
        "version set Actual: none. Name one; run the command once for each."
    )
