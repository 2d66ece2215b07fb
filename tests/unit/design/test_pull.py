"""The site's section `pull`: how nodes apply releases, and which Python runs them."""

from __future__ import annotations

from typing import Any

import pytest

from rackready.design.pull import node_processor, node_python
from rackready.model.pull import Pull
from tests.unit.design.written import Change, change, example, parse, refusals

LAB, MIXED, GB200 = "lab-4-nodes", "mixed-metal-virtual", "gb200-nvl72-8-racks"
URL = "http://192.0.2.1:8480"


def with_pull(name: str, *changes: Change, **pull: Any) -> dict[str, Any]:
    document = example(name)
    document["pull"] = {"url": URL, **pull}
    for each in changes:
        each(document)
    return document


def of_system(name: str) -> Change:
    return change("software.set", f"hgx-r580-{name}")


def test_a_site_without_the_section_pushes() -> None:
    assert parse(example(LAB)).pull is None


def test_only_the_url_is_required() -> None:
    assert parse(with_pull(LAB, python="3.11")).pull == Pull(
        url=URL, phases=("install", "optimize"), every_min=30, limit_min=60, python="3.11"
    )


def test_a_slash_at_the_end_of_the_url_is_left_out() -> None:
    assert Pull(url=f"{URL}/depot/").url == f"{URL}/depot"


@pytest.mark.parametrize(
    ("pull", "text"),
    [
        (
            {"url": "192.0.2.1:8480"},
            (
                "pull.url: Expected: text that matches "
                "^https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~%+/-]*)?$ "
                "Actual: '192.0.2.1:8480'. Correct it."
            ),
        ),
        (
            {"phases": ["install", "validate"]},
            "pull.phases[1]: Expected: 'install' or 'optimize' Actual: 'validate'. Correct it.",
        ),
        (
            {"phases": []},
            "pull.phases: Expected: at least 1 item Actual: none. Correct it.",
        ),
        (
            {"python": "3.9"},
            "pull.python: Expected: '3.11', '3.12' or '3.13' Actual: '3.9'. Correct it.",
        ),
        (
            {"python": 3.11},
            'pull.python: a number - Expected: a text in quotes, e.g. "3.11" Actual: 3.11. Correct it.',
        ),
        (
            {"every_min": 1},
            "pull.every_min: Expected: at least 5 Actual: 1. Correct it.",
        ),
        (
            {"limit_min": 600},
            "pull.limit_min: Expected: at most 240 Actual: 600. Correct it.",
        ),
    ],
)
def test_what_no_node_could_follow_is_refused(pull: dict[str, Any], text: str) -> None:
    assert text in refusals(with_pull(LAB, **({"python": "3.11"} | pull)))


@pytest.mark.parametrize("system", ["ubuntu2204", "el9"])
def test_a_system_whose_python_is_too_old_needs_another_named(system: str) -> None:
    assert refusals(with_pull(LAB, of_system(system))) == [
        (
            f'pull.python: {system} has no Python for ansible-core 2.19 - Expected: e.g. "3.11" Actual: none. '
            "Install python3.11 or newer beside it (docs/howto/pull.md), and name it here."
        )
    ]
    site = parse(with_pull(LAB, of_system(system), python="3.12"))
    assert node_python(site, site.nodes()[0].name) == "3.12"


@pytest.mark.parametrize(("system", "python"), [("debian12", "3.11"), ("ubuntu2404", "3.12")])
def test_newer_systems_bring_theirs(system: str, python: str) -> None:
    site = parse(with_pull(LAB, of_system(system)))
    assert node_python(site, site.nodes()[0].name) == python


def test_a_superchip_has_arm_cores() -> None:
    site = parse(example(GB200))
    assert node_processor(site, site.nodes()[0].name) == "aarch64"
    site = parse(example(LAB))
    assert node_processor(site, site.nodes()[0].name) == "x86_64"
