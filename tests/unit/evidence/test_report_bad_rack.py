"""The report of a rack with long values, and with a node that only a phase failed, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

from rackready.evidence import overview_tables
from rackready.evidence.report import render
from tests.gates.stage import site_with
from tests.unit.evidence.test_report_browser import CHROMIUM, document, gate

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="Debian's chromium is not installed: `make setup-test` as root installs it"
)

LONG = (
    "at least 352.7 GB/s (median of the others 371.2; derived: median of the other parts of the node - max(z spread, "
    "d/2 median), spread = max(1.4826 MAD, standard error) sqrt(1 + 1.57/others), z = normal quantile of 1 - 0.01/M)"
)
MD5 = "74ede18bdab67c0ef8fac47c86f1523f"
FAULTS = (
    (
        "node01",
        "node/gpu/performance/nccl-all-reduce",
        "nccl-node-slow",
        "",
        "all-reduce of 8 GPUs is slow",
        "424 GB/s",
    ),
    ("node01", "node/gpu/sanity/nvlink", "nvlink-inactive", "gpu2", "NVLink down", "17"),
    ("node01", "node/host/sanity/memory-modules", "memory-modules", "", "memory modules", "31 (none in DIMM_P0_C1)"),
    ("node02", "node/gpu/sanity/ecc", "ecc-uncorrected", "gpu5", "uncorrected DRAM errors", "7"),
    ("node02", "bmc/power/sanity/supplies", "psu-not-working", "psu PSU2", "power supply not working", "Critical"),
    ("node03", "node/host/sanity/programs", "program-changed", "/usr/bin/all_reduce_perf", "not from its package", MD5),
    ("node03", "bmc/cooling/sanity/fans", "fan-slow", "fan SPD_FAN_SYS4_F", "fan too slow", "1800 RPM"),
)
CABLE = "node04: rail 3 - Expected: an answer to 9000 byte packets Actual: none. Check the cable to leaf01 swp3."


def bad(node: str, name: str, code: str, part: str, what: str, actual: str) -> dict[str, Any]:
    """Return a failed record with one finding."""
    where = f"{node} {part}".strip()
    finding = {"code": code, "where": where, "node": node, "part": part, "what": what, "expected": LONG}
    finding |= {"actual": actual, "next_step": "Repair it.", "text": f"{where}: {what}"}
    return gate(node, "fail", 310.0) | {"gate": name, "findings": [finding], "metrics": [], "criteria": []}


def waiting(node: str) -> dict[str, Any]:
    """Return a record of a gate that waits for a repair."""
    return bad(node, "cluster/fabric/stress/incast", "gate-not-run", "", "incast was not run", "-") | {
        "outcome": "not_run"
    }


def rack() -> dict[str, Any]:
    """Return a report of four nodes: seven faults that gates found, and a cable that the fabric phase found."""
    report = document()
    for node in report["nodes"]:
        found = [bad(*fault) for fault in FAULTS if fault[0] == node["name"]]
        node |= {"gates": [*found, waiting(node["name"])] if found else [gate(node["name"], "pass", 477.0)]}
        node |= {"state": "quarantined" if found else "installed", "outcome": "fail", "reason": ""}
    report["nodes"][3]["result"] = {"phase": "fabric", "outcome": "fail", "message": CABLE}
    report["racks"] = overview_tables.racks(site_with(4), report["nodes"])
    return report


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The report, opened."""
    folder: Path = tmp_path_factory.mktemp("report")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 1366, "height": 900})
        file = folder / "rack.html"
        file.write_text(render(rack()), encoding="utf-8")
        opened.goto(file.as_uri())
        yield opened
        browser.close()


def test_every_fault_is_a_card_with_its_code_its_place_and_its_next_step(page: Page) -> None:
    assert page.locator(".verdict strong").inner_text() == "4 of 4 nodes need work."
    cards = [" ".join(text.split()) for text in page.locator("article.fault:visible").all_inner_texts()]
    assert len(cards) == len(FAULTS) + 1
    for node, _, code, part, what, actual in FAULTS:
        (card,) = [text for text in cards if f" {code} " in text]
        assert all(word in card for word in (node, part.removeprefix("/"), what, actual, "Next step: Repair it.")), card
    (cable,) = [text for text in cards if "phase fabric did not pass" in text]
    assert "node04" in cable
    assert CABLE in cable
    assert "all-reduce" in cards[-1], "what is a consequence comes last"


@pytest.mark.parametrize("width", [320, 700, 1366])
def test_no_card_is_wider_than_it_may_be_and_no_part_stands_on_end(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    wide = "[...document.querySelectorAll('article.fault')].filter(one => one.scrollWidth > one.clientWidth).length"
    assert page.evaluate(wide) == 0
    part = page.locator("td.part strong", has_text="gpu5").first.bounding_box()
    assert part is not None
    assert part["width"] > part["height"], "a name is read from left to right"
