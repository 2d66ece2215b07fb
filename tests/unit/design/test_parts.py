"""A site with several schedulers: each node has exactly one, and each scheduler has its own nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackready.design.facts import desired_digest
from rackready.design.handover_of import by_scheduler, handover_site, handover_views, part_of, served, view_of_kind
from rackready.design.hostvars import groups
from rackready.design.site import load_site, parse_site
from rackready.model.problems import RackreadyError, SiteInvalidError
from rackready.model.site import Site
from tests.unit.design.several_sites import BOTH, FILE, KUBERNETES, SLURM, document, part, several

NEW_CONTROLLER = SLURM | {"controller": "192.0.2.6"}


def problems(*parts: dict[str, Any], **sections: dict[str, Any]) -> list[str]:
    with pytest.raises(SiteInvalidError) as caught:
        several(*parts, **sections)
    return [str(problem) for problem in caught.value.problems]


def test_each_node_has_the_scheduler_of_its_part() -> None:
    site = several(*BOTH)
    assert [(view.called, view.nodes) for view in handover_views(site)] == [
        ("slurm", ("node01", "node02")),
        ("kubernetes", ("node03", "node04")),
    ]
    assert [handover_site(site, node).handover.kind for node in ("node02", "node03")] == ["slurm", "kubernetes"]
    assert [node.name for node in served(handover_site(site, "node04"))] == ["node03", "node04"]
    assert part_of(site, "node01") == "slurm"
    assert part_of(site) == ""


def test_nodes_are_grouped_by_scheduler_in_their_order() -> None:
    site = several(*BOTH)
    assert [(view.called, view.nodes) for view in by_scheduler(site, ["node04", "node02", "node03"])] == [
        ("slurm", ("node02",)),
        ("kubernetes", ("node04", "node03")),
    ]


def test_a_site_with_one_scheduler_is_its_own_view() -> None:
    site = load_site("sim")
    (view,) = by_scheduler(site, ["node01"])
    assert view.site is site
    assert (view.called, view.nodes, len(served(site))) == ("", ("node01",), 4)


def test_the_digest_of_what_is_desired_knows_no_scheduler() -> None:
    one = parse_site(document() | {"handover": dict(FILE)}, source="site.yml", base=Path("/base"))
    assert desired_digest(several(*BOTH), "node03") == desired_digest(one, "node03")


def test_a_node_of_no_part_is_told() -> None:
    with pytest.raises(RackreadyError) as caught:
        handover_site(several(*BOTH), "node09")
    assert str(caught.value) == (
        "node09: its scheduler - Expected: in one of handover.parts Actual: in none. Name it in the part of its "
        "scheduler."
    )


def test_a_part_has_its_own_launcher() -> None:
    site = several(part("node[01-02]", SLURM, launcher="srun"), BOTH[1])
    assert [view.site.gates.launcher for view in handover_views(site)] == ["srun", "openmpi"]
    assert site.gates.launcher == "openmpi"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (
            (part("node[01-02]", SLURM), part("node03", KUBERNETES)),
            "handover.parts: part of node04 - Expected: one Actual: none. Name each node in the part of its scheduler.",
        ),
        (
            (part("node[01-03]", SLURM), part("node[03-04]", KUBERNETES)),
            (
                "handover.parts[1].nodes: part of node03 - Expected: one Actual: parts[0] (slurm) and parts[1] "
                "(kubernetes). Name each node in the part of its scheduler only."
            ),
        ),
        (
            (part("node[01-02]", SLURM), part("node[03-05]", KUBERNETES)),
            "handover.parts[1].nodes[0]: no node is called node05. Correct the name or the range.",
        ),
        (
            (part("node[01-04]", SLURM),),
            (
                "handover.parts: parts of the handover - Expected: 2 or more Actual: 1. Write the part's handover as "
                "that of the site: a site with one scheduler has no parts."
            ),
        ),
        (
            (BOTH[0], part("node[03-04]", {"kind": "several", "parts": list(BOTH)})),
            (
                "handover.parts[1].handover: parts in a part - Expected: one scheduler: kind slurm, kubernetes, file "
                "or plugin Actual: several. Correct it."
            ),
        ),
        (
            (part("node[01-02]", SLURM, name="a"), part("node[03-04]", SLURM | {"port": 2222}, name="b")),
            (
                "handover.parts[1].handover: scheduler of parts[1] (b) - Expected: another one in each part Actual: "
                "slurm 192.0.2.5:2222, as in parts[0] (a). Join the two parts, or correct the address."
            ),
        ),
        (
            (part("node[01-02]", KUBERNETES, name="a"), part("node[03-04]", KUBERNETES, name="b")),
            (
                "handover.parts[1].handover: scheduler of parts[1] (b) - Expected: another one in each part Actual: "
                "kubernetes gpu of /kube/config, as in parts[0] (a). Join the two parts, or correct the address."
            ),
        ),
        (
            (part("node[01-02]", FILE, name="a"), part("node[03-04]", FILE, name="b")),
            (
                "handover.parts[1].handover: scheduler of parts[1] (b) - Expected: another one in each part Actual: "
                "file /lists/ready.txt, as in parts[0] (a). Join the two parts, or correct the address."
            ),
        ),
        (
            (part("node[01-02]", SLURM), part("node[03-04]", NEW_CONTROLLER)),
            (
                "handover.parts[1].name: name slurm - Expected: one part of that name; without a name, a part is "
                "called by the kind of its scheduler Actual: parts[0] and parts[1]. Give each part a name of its own."
            ),
        ),
        (
            (part("node[01-02]", SLURM, launcher="mpijob"), BOTH[1]),
            (
                "handover.parts[0].launcher: launcher of parts[0] (slurm) - Expected: one that works with slurm "
                "Actual: mpijob. Set the launcher of this part, e.g. openmpi."
            ),
        ),
        (
            (part("node[01-02]", SLURM | {"files": {"folder": "/etc/slurm"}}, launcher="srun"), BOTH[1]),
            (
                "handover.parts[0].launcher: launcher of gates on several nodes beside handover.files - Expected: "
                "openmpi: rackready adds a node to Slurm once its gates passed Actual: srun, which needs the node in "
                "Slurm before. Remove launcher; or remove handover.files and write the nodes into Slurm's files "
                "yourself."
            ),
        ),
        (
            (BOTH[0], part("node[03-04]", KUBERNETES | {"node_names": {"node09": "a"}})),
            (
                "handover.parts[1].handover.node_names.node09: no node is called node09 - Expected: one of node01, "
                "node02, node03, node04. Correct the name."
            ),
        ),
        (
            (BOTH[0], part("node[03-04]", KUBERNETES | {"context": ""})),
            "handover.parts[1].handover.context: Expected: at least 1 character Actual: ''. Correct it.",
        ),
        (
            (BOTH[0], part("", KUBERNETES)),
            "handover.parts[1].nodes: Expected: at least 1 item Actual: none. Correct it.",
        ),
    ],
)
def test_parts_that_cannot_be(parts: tuple[dict[str, Any], ...], expected: str) -> None:
    assert problems(*parts) == [expected]


def test_a_launcher_of_the_site_must_work_in_every_part_that_names_none() -> None:
    assert problems(*BOTH, gates={"launcher": "srun"}) == [
        (
            "handover.parts[1].launcher: launcher of parts[1] (kubernetes) - Expected: one that works with kubernetes "
            "Actual: srun, of gates.launcher. Set the launcher of this part, e.g. openmpi."
        )
    ]


def test_an_nvlink_domain_has_one_scheduler() -> None:
    raw = document(part("node[01-02]", SLURM), part("node[03-04]", KUBERNETES))
    for node in raw["racks"][0]["nodes"]:
        node["platform"] = "gb200_nvl72"
    raw["nvlink_domains"] = [{"name": "domain1", "nodes": ["node[02-03]"]}]
    with pytest.raises(SiteInvalidError) as caught:
        parse_site(raw, source="site.yml", base=Path("/base"))
    assert (
        "nvlink_domains[0]: scheduler of NVLink domain domain1 - Expected: one Actual: parts[0] (slurm): node02; "
        "parts[1] (kubernetes): node03. Give all its nodes to one part: gates measure a domain as a whole, and never "
        "nodes of two schedulers together."
    ) in [str(problem) for problem in caught.value.problems]


def test_two_controllers_are_two_schedulers() -> None:
    site = several(part("node[01-02]", SLURM, name="old"), part("node[03-04]", NEW_CONTROLLER, name="new"))
    assert [view.called for view in handover_views(site)] == ["old", "new"]
    with pytest.raises(RackreadyError) as caught:
        view_of_kind(site, "slurm", "", "site.yml")
    assert str(caught.value) == (
        "--part - Expected: one of old, new Actual: none. Name one; run the command once for each."
    )
    assert part_of(view_of_kind(site, "slurm", "new", "site.yml")) == "new"


@pytest.mark.parametrize(
    ("site", "wanted", "expected"),
    [
        (
            several(part("node[01-02]", FILE), BOTH[1]),
            "",
            (
                "site.yml - Expected: a part of kind slurm in handover.parts Actual: file (file), kubernetes "
                "(kubernetes). See docs/howto/two-schedulers.md."
            ),
        ),
        (several(*BOTH), "x", "--part - Expected: one of slurm Actual: x. Name one; run the command once for each."),
        (
            load_site("sim"),
            "slurm",
            "--part - Expected: no part: the site has one scheduler Actual: slurm. Leave it out.",
        ),
    ],
)
def test_a_part_that_is_not_there(site: Site, wanted: str, expected: str) -> None:
    with pytest.raises(RackreadyError) as caught:
        view_of_kind(site, "slurm", wanted, "site.yml")
    assert str(caught.value) == expected


def test_nodes_have_the_variables_of_their_own_scheduler() -> None:
    found = groups(several(*BOTH))
    assert found["part_slurm"]["hosts"] == ["node01", "node02"]
    assert found["part_slurm"]["vars"]["slurm_node_controller"] == "192.0.2.5"
    assert found["part_kubernetes"]["vars"]["nvidia_container_toolkit_kubelet"] is True
    assert not {"slurm_node_controller", "nvidia_container_toolkit_kubelet"} & found["nodes"]["vars"].keys()
    assert "kubeconfig" not in found["part_kubernetes"]["vars"]["rackready_handover"]
