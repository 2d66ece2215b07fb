"""The report in a real browser: it stands alone, shows what was found, its links lead somewhere, and nothing overflows or is asked for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

from rackready.design.site import load_site
from rackready.evidence import heat
from rackready.evidence.report import render

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed: `make setup-test` as root installs it")

DIGEST = "a" * 64
COMMAND = "all_reduce_perf " + "-b 8 " * 40
ROWS = "</pre><script>document.title = 'broken'</script> busbw 477.06"


def gate(name: str, outcome: str, value: float) -> dict[str, Any]:
    text = f"{name} gpu2: NVLink down - Expected: 18 links active Actual: 17. Power the node off and on."
    return {
        "title": "All GPUs reduce together.",
        "id": f"r-{name}",
        "campaign": "c1",
        "gate": "node/gpu/performance/nccl-all-reduce",
        "target": name,
        "nodes": [name],
        "raw": [
            {"host": name, "command": "all_reduce_perf " + "-b 8 " * 40, "exit_code": 0, "stdout_sha256": DIGEST, "stderr_sha256": "b" * 64, "seconds": 1.0}
        ],
        "inputs": {},
        "outcome": outcome,
        "findings": [] if outcome == "pass" else [{"text": text}],
        "metrics": [{"name": "busbw", "target": name, "value": value, "unit": "GB/s"}],
        "criteria": [
            {"metric": "busbw", "op": "ge", "bound": 456.0, "unit": "GB/s", "label": "floor", "source": "a source", "derived": False, "inputs": {"P": 450.0}}
        ],
        "fleet_pending": False,
        "note": None,
        "transport": "NVLink",
        "started": "2026-01-01T00:00:00Z",
        "seconds": 5.0,
    }


def document() -> dict[str, Any]:
    values = {"node01": 477.0, "node02": 478.0, "node03": 310.0, "node04": 476.0}
    coverage = {"outcome": "pass", "counts": {"gpu": [8, 8]}, "unmeasured": [], "skipped": {}, "measured_by": {}}
    nodes = [
        {
            "name": name,
            "serial": f"S{name}",
            "state": "quarantined" if value < 400 else "ready",
            "reason": "NVLink down" if value < 400 else "",
            "outcome": "fail" if value < 400 else "pass",
            "fingerprint": None,
            "gates": [gate(name, "fail" if value < 400 else "pass", value)],
            "coverage": coverage,
        }
        for name, value in values.items()
    ]
    pair = gate("node01", "pass", 391.0) | {"gate": "pair/fabric/performance/ib-write-bw", "target": "node01+node02/rail1", "nodes": ["node01", "node02"]}
    return {
        "schema": "rackready/report/v1",
        "rackready": "0",
        "env": "sim",
        "site": "sim",
        "campaign": {"id": "c1", "kind": "deploy", "status": "ended", "begun": None, "ended": None},
        "generated": "2026-01-01T00:00:00+00:00",
        "summary": {"ready": 3, "quarantined": 1},
        "racks": heat.racks(load_site("sim"), nodes),
        "nodes": nodes,
        "runs": [pair],
        "declared_skips": [{"gate": "node/gpu/validation/dcgm-r3", "nodes": ["node04"], "reason": "a <b>reason</b>"}],
        "gate_set": "bringup",
        "unseen": [{"gate": "node/gpu/stress/burn", "what": "what only <b>load</b> shows"}],
        "events": [],
    }


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The report, opened from a file, with a record of everything that it asks for and complains of."""
    file: Path = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(render(document(), {DIGEST: ROWS}), encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 1280, "height": 900})
        asked: list[str] = []
        opened.on("request", lambda request: asked.append(request.url))
        opened.on("pageerror", lambda error: asked.append(f"error: {error}"))
        opened.on("console", lambda message: asked.append(f"console: {message.text}"))
        opened.goto(file.as_uri())
        opened.asked = [url for url in asked if url != file.as_uri()]  # type: ignore[attr-defined]
        yield opened
        browser.close()


def test_it_asks_for_nothing_and_no_raw_output_becomes_markup(page: Page) -> None:
    assert page.asked == []  # type: ignore[attr-defined]
    assert page.title() == "rackready: sim, campaign c1"
    assert page.locator("script").count() == 0
    assert page.locator(f"#raw-{DIGEST} pre").text_content() == ROWS


def test_the_bad_node_is_seen_at_once_and_its_cell_leads_to_it(page: Page) -> None:
    cell = page.locator(".map .cell", has_text="node03")
    assert cell.is_visible()
    assert cell.evaluate("one => getComputedStyle(one).backgroundColor") == "rgb(179, 38, 30)"
    assert page.locator(".map .cell", has_text="node01").evaluate("one => getComputedStyle(one).backgroundColor") == "rgb(26, 127, 55)"
    cell.click()
    assert page.url.endswith("#node03")
    assert page.get_by_text("node03 gpu2: NVLink down - Expected: 18 links active Actual: 17.").first.is_visible()


def test_every_link_leads_somewhere(page: Page) -> None:
    targets = page.eval_on_selector_all("a[href^='#']", "all => all.map(one => one.getAttribute('href').slice(1))")
    assert targets
    missing = [name for name in set(targets) if page.locator(f"[id='{name}']").count() != 1]
    assert missing == []


def test_the_pair_and_the_distribution_are_drawn(page: Page) -> None:
    assert page.locator(".matrix td[title^='1 runs']").first.text_content() == "P 391"
    strip = page.locator("figure", has_text="busbw").first
    assert "4 units, 310 to 478, median 476.5 GB/s" in " ".join((strip.text_content() or "").split())
    assert strip.locator("svg .mark").count() >= 2
    box = strip.locator("svg").bounding_box()
    assert box is not None
    assert box["width"] > 300


def test_it_says_what_the_gate_set_cannot_see(page: Page) -> None:
    assert page.get_by_role("heading", name="What gate set bringup cannot see").is_visible()
    assert page.get_by_text("what only <b>load</b> shows").is_visible()


@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_does_not_scroll_sideways(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
