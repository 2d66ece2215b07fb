"""Packages that connect a server's GPUs: nothing, fabric manager, with NVLSM, or IMEX, as the platform needs."""

from __future__ import annotations

import pytest

from rackready.design.deployable import NotDeployableError, require
from rackready.design.fabric_software import FabricSoftware, fabric_software
from rackready.design.hostvars import node_vars, platform_vars
from rackready.model.site import Site
from rackready.profiles import loader
from tests.unit.design.written import example, parse

VERSION = "580.173.02-1"


def needed(name: str, platform: str) -> FabricSoftware:
    software = loader.software(name)
    return fabric_software(software, software.driver[580], loader.platform(platform))


def test_servers_without_nvswitches_need_nothing() -> None:
    assert needed("hgx-r580-ubuntu2404", "r760xa_l4") == FabricSoftware()


@pytest.mark.parametrize("platform", ["dgx_a100", "dgx_h100", "xe9680_h200"])
def test_switches_up_to_nvlink_4_need_the_fabric_manager_alone(platform: str) -> None:
    assert needed("hgx-r580-ubuntu2404", platform) == FabricSoftware(
        {"nvidia-fabricmanager": VERSION, "libnvidia-nscq": VERSION}
    )


@pytest.mark.parametrize("platform", ["dgx_b200", "dgx_b300", "sys_a22ga_b200"])
def test_boards_with_nvlink_5_need_the_subnet_manager_too(platform: str) -> None:
    """NVIDIA/gpu-driver-container ubuntu24.04/precompiled/nvidia-driver 09dc954: libnvsdm, nvlsm, infiniband-diags."""
    assert needed("hgx-r580-ubuntu2404", platform) == FabricSoftware(
        {"nvidia-fabricmanager": VERSION, "libnvsdm": VERSION}, {"nvlsm": "2025.06.10-1", "infiniband-diags": ""}
    )


def test_nodes_of_a_rack_wide_domain_run_imex_and_no_fabric_manager() -> None:
    software = loader.software("hgx-r580-ubuntu2404")
    driver = software.driver[580].model_copy(update={"imex": {"nvidia-imex": VERSION}})
    found = fabric_software(software, driver, loader.platform("gb200_nvl72"))
    assert found == FabricSoftware(imex={"nvidia-imex": VERSION})


@pytest.mark.parametrize(
    ("name", "platform", "lacks"),
    [
        ("hgx-r580-debian12", "dgx_b200", ("fabric_nvlink5", "nvlsm")),
        ("hgx-r580-el9", "sys_a22ga_b200", ("fabric_nvlink5", "nvlsm")),
        ("hgx-r580-ubuntu2404", "gb300_nvl72", ("imex",)),
    ],
)
def test_a_set_may_lack_what_a_platform_needs(name: str, platform: str, lacks: tuple[str, ...]) -> None:
    assert needed(name, platform).lacks == lacks


@pytest.fixture(scope="module")
def racks() -> Site:
    return parse(example("gb200-nvl72-8-racks"))


def test_a_site_whose_set_lacks_packages_is_refused_before_any_change(racks: Site) -> None:
    first = racks.racks[0].nodes[0].name
    with pytest.raises(NotDeployableError) as refused:
        require(racks, [first], "deploy")
    assert (
        f"  version set {racks.software.set}: imex - Expected: packages that gb200_nvl72 needs Actual: none. Choose "
        "another set (software.set), or add your own beside site.yml (profiles/software/) with imex."
    ) in str(refused.value).splitlines()


def test_every_node_of_a_domain_gets_the_same_list(racks: Site) -> None:
    nodes = racks.racks[0].nodes
    lists = [node_vars(racks, node.name)["nvidia_fabricmanager_imex_nodes"] for node in nodes]
    assert lists[0] == [str(node.address) for node in nodes]
    assert len(lists[0]) == 18
    assert all(one == lists[0] for one in lists)
    assert platform_vars(racks, loader.platform("gb200_nvl72"))["nvidia_fabricmanager_enabled"] is False
