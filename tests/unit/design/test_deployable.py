"""Sites that can be planned but not deployed are refused with every reason before any change."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.design.deployable import NotDeployableError, require
from rackready.design.site import load_site
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.paths import EnvPaths
from rackready.stacks.args import rack_args
from tests.unit.design.written import example, parse

IMPORT = "Import the vendor's manifest (rackready import manifest FILE.csv), or exclude them with --limit."


def lab(*serials: str) -> Site:
    nodes = [{"name": f"node{number:02d}", "serial": serial} for number, serial in enumerate(serials, 1)]
    return parse(example("lab-4-nodes"), {"racks": [{"name": "rack01", "nodes": nodes}]})


def reasons(site: Site, nodes: list[str], command: str) -> list[str]:
    with pytest.raises(NotDeployableError) as caught:
        require(site, nodes, command)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"rackready {command}: site {site.name} can be planned but not deployed; nothing was changed."
    assert lines[-1] == "`rackready plan` works on it."
    return [line.strip() for line in lines[1:-1]]


def everything(site: Site) -> list[str]:
    return [node.name for node in site.nodes()]


def test_known_nodes_of_a_leaf_only_site_are_deployable() -> None:
    site = lab("S1", "S2")
    require(site, ["node01", "node02"], "deploy")
    assert [node.node for node in rack_args(site, "lab", "rack01").nodes] == ["node01", "node02"]


def test_nodes_without_serial_number_are_refused_and_can_be_left_out() -> None:
    site = lab("S1", "S2")
    assert reasons(site, everything(site), "deploy") == [
        f"node03, node04: serial number - Expected: known Actual: not given yet. {IMPORT}"
    ]


def test_bmc_is_asked_for_by_what_talks_to_it_alone() -> None:
    document = example("lab-4-nodes")
    document["templates"]["nodes"]["h100"] = {"platform": "dgx_h100", "serial": "{name}"}
    del document["racks"][0]["nodes"][0]["bmc"]
    site = parse(document)
    require(site, everything(site), "install")
    assert reasons(site, everything(site), "provision") == [
        f"node01, node02, node03, node04: address of the BMC - Expected: known Actual: not given yet. {IMPORT}",
        f"node01, node02, node03, node04: password of the BMC - Expected: known Actual: not given yet. {IMPORT}",
    ]


def test_infiniband_and_topologies_are_planned_only() -> None:
    site = parse(example("h100-1su-infiniband"))
    assert reasons(site, ["a01-n1"], "deploy") == [
        "fabric.kind: infiniband - Expected: roce. rackready does not configure InfiniBand switches and NICs yet.",
        (
            "topology: set - Expected: links to leaf switches only. "
            "rackready does not configure spines, planes and the cables of a topology yet."
        ),
        f"a01-n1: serial number - Expected: known Actual: not given yet. {IMPORT}",
    ]


def test_ports_that_are_split_are_planned_only() -> None:
    document = example("lab-4-nodes")
    document["switches"][0]["ports"] = [{"ports": "swp33", "breakout": 2}]
    assert reasons(parse(document), [], "fabric") == [
        "leaf01, leaf02: ports with breakout - Expected: whole ports. rackready does not configure breakout yet."
    ]


def test_virtual_nodes_and_unpublished_platforms_are_planned_only() -> None:
    found = reasons(parse(example("mixed-metal-virtual")), ["vm-a03", "vm-a04"], "install")
    assert found[0] == (
        "vm-a03, vm-a04: kind virtual - Expected: metal. rackready does not provision virtual nodes yet. "
        "Exclude them with --limit."
    )
    assert found[1] == (
        "profiles/platform/sys_521ge_l40s.yml: the PCI addresses of its GPUs - Expected: known "
        "Actual: not published. Read them from a machine that runs: `rackready profile learn vm-a03 --write`."
    )


def test_many_nodes_are_counted() -> None:
    site = parse(example("b200-4su-roce"))
    assert reasons(site, everything(site), "validate")[-1].startswith(
        "a01-n1, a01-n2, a01-n3, a01-n4, a02-n1 and 123 more: serial number"
    )


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc", "..", ".hidden", ""])
def test_environment_that_leads_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(RackreadyError) as caught:
        EnvPaths(tmp_path, name)
    expected = (
        f"--env {name} - Expected: a plain name such as prod (letters, digits, - _ .) Actual: {name!r}. "
        "Give the name of a folder in inventories/."
    )
    assert str(caught.value) == expected
    with pytest.raises(RackreadyError, match="Expected: a plain name"):
        load_site(name, root=tmp_path)
