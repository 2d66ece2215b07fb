"""The plan of a site with several schedulers tells how gates of several nodes are grouped, and what none measures."""

from __future__ import annotations

from rackready.design.part_notes import part_notes
from rackready.design.plan import plan_site
from rackready.design.plan_summary import summary
from rackready.design.site import load_site
from rackready.render.plan_text import plan_text
from tests.unit.design.several_sites import BOTH, several


def test_the_plan_tells_the_groups_and_what_no_gate_measures() -> None:
    note = (
        "gates of several nodes run within each part (slurm: node[01-02], kubernetes: node[03-04]), and on nodes of "
        "one scheduler only: no gate measures the way from nodes of one part to those of another on rails 1-8."
    )
    plan = plan_site(several(*BOTH))
    assert note in plan.notes
    document = summary(plan)
    assert document["schedulers"] == [
        {"part": "slurm", "scheduler": "slurm 192.0.2.5", "launcher": "openmpi", "nodes": ["node01", "node02"]},
        {"part": "kubernetes", "scheduler": "kubernetes gpu", "launcher": "openmpi", "nodes": ["node03", "node04"]},
    ]
    assert (
        "  schedulers  part slurm (slurm 192.0.2.5, launcher openmpi): node01, node02; part kubernetes (kubernetes "
        "gpu, launcher openmpi): node03, node04\n"
    ) in plan_text(document)


def test_parts_without_a_common_rail_lose_nothing() -> None:
    raw = several(*BOTH)
    apart = raw.model_copy(update={"links": [link for link in raw.links if link.node in {"node01", "node02"}]})
    assert part_notes(apart) == [
        (
            "gates of several nodes run within each part (slurm: node[01-02], kubernetes: node[03-04]), and on nodes "
            "of one scheduler only."
        )
    ]


def test_a_site_with_one_scheduler_says_nothing_of_parts() -> None:
    site = load_site("sim")
    assert part_notes(site) == []
    document = summary(plan_site(site))
    assert [view["part"] for view in document["schedulers"]] == [""]
    assert "schedulers" not in plan_text(document)
