"""Network cards in the site: stack, link type, parameters, ib_umad; DOCA without a source is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from rackready.design.deployable import NotDeployableError, require
from rackready.design.facts import node_facts
from rackready.design.hostvars import node_vars, platform_vars, site_vars
from rackready.design.nic_stack import nic_cards
from rackready.design.site import load_site, parse_site
from rackready.model.problems import SiteInvalidError
from rackready.model.server_parts import NicParameters
from rackready.model.site import Site
from rackready.profiles import loader

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def site() -> Site:
    return load_site("sim")


def with_doca(site: Site, name: str) -> Site:
    software = site.software.model_copy(update={"nic_stack": "doca", "set": name})
    return site.model_copy(update={"software": software})


def test_every_compute_card_gets_the_link_type_of_its_fabric(site: Site) -> None:
    cards = node_vars(site, "node01")["nic_stack_cards"]
    assert len(cards) == 8
    assert {str(values) for values in cards.values()} == {"{'LINK_TYPE_P1': 2, 'ATS_ENABLED': 0}"}
    infiniband = site.model_copy(update={"fabric": site.fabric.model_copy(update={"kind": "infiniband"})})
    assert {values["LINK_TYPE_P1"] for values in node_vars(infiniband, "node01")["nic_stack_cards"].values()} == {1}


def test_a_second_function_is_the_second_port_and_a_platform_adds_its_own(site: Site) -> None:
    facts = node_facts(site, "node01")
    nic, platform = facts.nics[0], facts.platform
    own = NicParameters(values={"MAX_ACC_OUT_READ": 44}, source="a test's own")
    changed = replace(
        facts,
        nics=(replace(nic, pci="0000:18:00.1"),),
        platform=platform.model_copy(update={"nic_parameters": own}),
    )
    assert nic_cards(site, changed) == {"0000:18:00.1": {"LINK_TYPE_P2": 2, "ATS_ENABLED": 0, "MAX_ACC_OUT_READ": 44}}


@pytest.mark.parametrize(
    ("platform", "kind", "wanted"),
    [
        ("dgx_h100", "roce", False),
        ("dgx_b200", "roce", True),
        ("gb200_nvl72", "roce", False),
        ("dgx_h100", "infiniband", True),
    ],
)
def test_ib_umad_is_for_boards_with_nvlink_5_and_for_infiniband(
    site: Site, platform: str, kind: str, *, wanted: bool
) -> None:
    of_kind = site.model_copy(update={"fabric": site.fabric.model_copy(update={"kind": kind})})
    assert platform_vars(of_kind, loader.platform(platform))["nic_stack_ib_umad"] is wanted


def test_inbox_is_the_default_and_brings_the_set_s_mft(site: Site) -> None:
    found = site_vars(site)
    assert (found["nic_stack_kind"], found["nic_stack_doca_packages"]) == ("inbox", {})
    assert found["gate_tools_packages"]["mft"] == found["nic_stack_mft"] == "4.33.0-169"
    assert (found["host_roce_stack"], found["host_roce_package_version"]) == ("inbox", "25.10.0-1")


@pytest.mark.parametrize(
    ("name", "version"),
    [("hgx-r580-ubuntu2204", "3.2.1"), ("hgx-r580-ubuntu2404", "3.2.3"), ("hgx-r580-el9", "3.2.2")],
)
def test_doca_comes_with_its_own_mft(site: Site, name: str, version: str) -> None:
    found = site_vars(with_doca(site, name))
    assert (found["nic_stack_doca_version"], found["nic_stack_doca_packages"]) == (version, {"doca-ofed": ""})
    assert "mft" not in found["gate_tools_packages"]
    assert (found["host_roce_stack"], found["host_roce_package_version"]) == ("doca", "")
    require(with_doca(site, name), ["node01"], "install")


def test_doca_for_a_system_that_no_source_names_is_refused_before_any_change(site: Site) -> None:
    with pytest.raises(NotDeployableError) as caught:
        require(with_doca(site, "hgx-r580-debian12"), ["node01"], "install")
    assert str(caught.value).splitlines()[1] == (
        "  software.nic_stack: doca - Expected: packages of DOCA-OFED for debian12 (doca_ofed of version set "
        "hgx-r580-debian12) Actual: none, because no source names them. Set software.nic_stack: inbox, or add a set "
        "beside site.yml (profiles/software/) with doca_ofed and its source."
    )


def test_max_read_request_is_left_to_the_firmware_unless_the_site_names_it(site: Site) -> None:
    assert site_vars(site)["nic_stack_max_read_request"] == 0
    named = site.model_copy(update={"software": site.software.model_copy(update={"nic_max_read_request": 4096})})
    assert site_vars(named)["nic_stack_max_read_request"] == 4096


def test_a_max_read_request_that_pcie_does_not_have_is_refused() -> None:
    document = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    document["software"]["nic_max_read_request"] = 300
    with pytest.raises(SiteInvalidError) as caught:
        parse_site(document, source="site.yml", base=ROOT)
    assert [str(problem) for problem in caught.value.problems] == [
        "software.nic_max_read_request: Expected: 128, 256, 512, 1024, 2048 or 4096 Actual: 300. Correct it."
    ]
