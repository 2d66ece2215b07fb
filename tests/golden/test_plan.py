"""The plan of the lab of four nodes, held by golden files: its figures and the facts by which changes are seen.

`GOLDENS=rewrite pytest tests/golden` rewrites them: read the difference.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rackready.design.device_facts import device_facts
from rackready.design.diff import difference
from rackready.design.plan import Plan, plan_site
from rackready.design.plan_summary import summary
from rackready.render.plan_markdown import plan_markdown
from rackready.render.plan_text import plan_text
from tests.unit.design.written import example, parse

HERE = Path(__file__).resolve().parent / "plan"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_site(parse(example("lab-4-nodes")))


def made(plan: Plan) -> dict[str, str]:
    facts = device_facts(plan)
    document = summary(plan, None, difference({}, facts))
    return {
        "lab.json": json.dumps(document, indent=1) + "\n",
        "lab-facts.json": json.dumps(facts, indent=1) + "\n",
        "lab.txt": plan_text(document),
        "lab.md": plan_markdown(document),
    }


@pytest.mark.parametrize("name", ["lab.json", "lab-facts.json", "lab.txt", "lab.md"])
def test_plan_of_the_lab_is_as_reviewed(plan: Plan, name: str) -> None:
    text = made(plan)[name]
    if os.environ.get("GOLDENS") == "rewrite":
        (HERE / name).write_text(text, encoding="utf-8")
    assert text == (HERE / name).read_text(encoding="utf-8")


def test_golden_sees_a_link_that_moved(plan: Plan) -> None:
    document = example("lab-4-nodes")
    document["links"][0]["ports"] = "swp2-swp17"
    other = plan_site(parse(document))
    assert {name for name, text in made(other).items() if text != made(plan)[name]} == {"lab-facts.json"}
