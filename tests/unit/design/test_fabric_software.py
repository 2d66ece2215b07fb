"""Packages that connect a server's GPUs: nothing, fabric manager, with NVLSM, or IMEX, as the platform needs."""

from __future__ import annotations

import pytest

from rackready.design.deployable import NotDeployableError, require
from rackready.design.fabric_software import FabricSoftware, fabric_software
from rackready.design.facts import desired_digest
from rackready.design.hostvars import node_vars, platform_vars
from rackready.gates.engine.site_facts import site_facts
from rackready.model.site import Site
from rackready.profiles import loader
from tests.unit.design.written import example, parse

VERSION = "580.173.02-1ubuntu1"


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


def test_gpus_that_report_no_fabric_state_are_not_waited_for() -> None:
    """bottlerocket-os/bottlerocket pull request 3873: N/A on A100 servers whose fabric manager runs."""
    site = parse(example("b200-4su-roce"))
    wanted = {name: platform_vars(site, loader.platform(name)) for name in ("dgx_a100", "dgx_h100", "dgx_b200")}
    assert {name: found["nvidia_fabricmanager_gpus"] for name, found in wanted.items()} == {
        "dgx_a100": 0,
        "dgx_h100": 8,
        "dgx_b200": 8,
    }
    assert wanted["dgx_a100"]["nvidia_fabricmanager_enabled"]


@pytest.mark.parametrize("platform", ["dgx_b200", "dgx_b300", "sys_a22ga_b200"])
def test_boards_with_nvlink_5_need_the_subnet_manager_too(platform: str) -> None:
    """NVIDIA/gpu-driver-container ubuntu24.04/precompiled/nvidia-driver 09dc954: libnvsdm, nvlsm, infiniband-diags."""
    assert needed("hgx-r580-ubuntu2404", platform) == FabricSoftware(
        {"nvidia-fabricmanager": VERSION, "libnvsdm": VERSION}, {"nvlsm": "2025.06.10-1", "infiniband-diags": ""}
    )


def test_nodes_of_a_rack_wide_domain_run_imex_and_no_fabric_manager() -> None:
    assert needed("hgx-r580-ubuntu2404", "gb200_nvl72") == FabricSoftware(
        imex={"nvidia-imex": VERSION, "nvidia-modprobe": VERSION}
    )
    assert needed("hgx-r580-el9", "gb300_nvl72") == FabricSoftware(imex={"nvidia-imex": "580.173.02-1"})


@pytest.mark.parametrize(
    ("name", "platform", "lacks"),
    [
        ("hgx-r580-debian12", "dgx_b200", ("nvlsm",)),
        ("hgx-r580-debian12", "gb300_nvl72", ("imex",)),
        ("hgx-r580-el9", "sys_a22ga_b200", ()),
        ("hgx-r580-ubuntu2204", "gb200_nvl72", ()),
    ],
)
def test_a_set_may_lack_what_a_platform_needs(name: str, platform: str, lacks: tuple[str, ...]) -> None:
    assert needed(name, platform).lacks == lacks


@pytest.fixture(scope="module")
def racks() -> Site:
    return parse(example("gb200-nvl72-8-racks"))


def refusal(site: Site) -> list[str]:
    with pytest.raises(NotDeployableError) as refused:
        require(site, [site.racks[0].nodes[0].name], "deploy")
    return str(refused.value).splitlines()


def with_set(site: Site, name: str) -> Site:
    return site.model_copy(update={"software": site.software.model_copy(update={"set": name})})


def test_a_site_whose_set_lacks_packages_is_refused_with_the_reason(racks: Site) -> None:
    assert (
        "  version set hgx-r580-debian12: imex - Expected: packages that gb200_nvl72 needs Actual: none, because "
        "NVIDIA's repository for Debian 12 on Arm begins with driver branch 590. Choose another set "
        "(software.set), or add your own beside site.yml (profiles/software/) with imex."
    ) in refusal(with_set(racks, "hgx-r580-debian12"))


def test_a_board_with_nvlink_5_is_refused_with_the_reason_of_its_own() -> None:
    site = with_set(parse(example("b200-4su-roce")), "hgx-r580-debian12")
    assert (
        "  version set hgx-r580-debian12: nvlsm - Expected: packages that dgx_b200 needs Actual: none, because no "
        "source names NVLSM in NVIDIA's repository for Debian 12. Choose another set (software.set), or add your "
        "own beside site.yml (profiles/software/) with nvlsm."
    ) in refusal(site)


def test_a_set_without_a_reason_is_refused_as_it_is(racks: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = loader.software("hgx-r580-debian12").model_copy(update={"absent": {}})
    monkeypatch.setattr(loader, "software", lambda _name: plain)
    assert (
        "  version set hgx-r580-debian12: imex - Expected: packages that gb200_nvl72 needs Actual: none. Choose "
        "another set (software.set), or add your own beside site.yml (profiles/software/) with imex."
    ) in refusal(with_set(racks, "hgx-r580-debian12"))


@pytest.mark.parametrize("name", ["hgx-r580-ubuntu2204", "hgx-r580-ubuntu2404", "hgx-r580-el9"])
def test_a_set_with_the_packages_is_not_refused_for_them(racks: Site, name: str) -> None:
    assert [line for line in refusal(with_set(racks, name)) if "version set" in line] == []


@pytest.mark.parametrize(
    ("lost", "nvlsm", "of_rack", "of_board"),
    [
        ({"imex": {}}, "2025.06.10-1", True, False),
        ({"fabric_nvlink5": {}}, "2025.06.10-1", False, True),
        ({}, "1-1", False, True),
    ],
    ids=["imex", "fabric_nvlink5", "nvlsm"],
)
def test_packages_of_other_servers_void_no_evidence(
    racks: Site, monkeypatch: pytest.MonkeyPatch, lost: dict[str, object], nvlsm: str, *, of_rack: bool, of_board: bool
) -> None:
    sites = [with_set(site, "hgx-r580-ubuntu2404") for site in (racks, parse(example("b200-4su-roce")))]
    before = [desired_digest(site, site.racks[0].nodes[0].name) for site in sites]
    full = loader.software("hgx-r580-ubuntu2404")
    less = full.model_copy(update={"nvlsm": nvlsm, "driver": {580: full.driver[580].model_copy(update=lost)}})
    monkeypatch.setattr(loader, "software", lambda _name: less)
    after = [desired_digest(site, site.racks[0].nodes[0].name) for site in sites]
    assert [old != new for old, new in zip(before, after, strict=True)] == [of_rack, of_board]


def test_every_node_of_a_domain_gets_the_same_list(racks: Site) -> None:
    nodes = racks.racks[0].nodes
    lists = [node_vars(racks, node.name)["nvidia_fabricmanager_imex_nodes"] for node in nodes]
    assert lists[0] == [str(node.address) for node in nodes]
    assert len(lists[0]) == 18
    assert all(one == lists[0] for one in lists)
    assert platform_vars(racks, loader.platform("gb200_nvl72"))["nvidia_fabricmanager_enabled"] is False


@pytest.mark.parametrize(
    ("kind", "more", "made"),
    [
        ("slurm", {}, True),
        ("slurm", {"imex_channels": "per_job"}, False),
        ("kubernetes", {}, True),
        ("file", {}, True),
    ],
)
def test_a_node_gets_an_imex_channel_where_its_scheduler_makes_none(
    kind: str, more: dict[str, str], *, made: bool
) -> None:
    own = {
        "slurm": {"controller": "198.18.0.9", "private_key": "keys/slurm"},
        "kubernetes": {"kubeconfig": "kube/config", "context": "prod"},
        "file": {"path": "ready.txt"},
    }
    document = example("gb200-nvl72-8-racks") | {"handover": {"kind": kind, **own[kind], **more}}
    document["gates"]["launcher"] = "openmpi" if made else "srun"
    site = parse(document)
    node = site.racks[0].nodes[0].name
    assert node_vars(site, node)["nvidia_fabricmanager_imex_channel"] is made
    assert site_facts(site, [node]).imex_channel is made
