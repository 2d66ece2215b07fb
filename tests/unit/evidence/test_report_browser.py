"""The report in a real browser: self-contained, complete, links that lead somewhere, no overflow, no request."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, sync_playwright

from rackready.design.site import load_site
from rackready.evidence import overview_tables
from rackready.evidence.report import render

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="Debian's chromium is not installed: `make setup-test` as root installs it"
)

PAIR = "pair/fabric/performance/ib-write-bw"
DIGEST = "a" * 64
COMMAND = "all_reduce_perf " + "-b 8 " * 40
ROWS = "</pre><script>document.title = 'broken'</script> busbw 477.06"


def gate(name: str, outcome: str, value: float) -> dict[str, Any]:
    finding = {
        "where": f"{name} gpu2",
        "what": "NVLink down",
        "expected": "18 links active",
        "actual": "17",
        "next_step": "Run `rackready <b>`.",
    }
    text = f"{name} gpu2: NVLink down - Expected: 18 links active Actual: 17. Power the node off and on."
    return {
        "title": "All GPUs reduce together.",
        "id": f"r-{name}",
        "campaign": "c1",
        "gate": "node/gpu/performance/nccl-all-reduce",
        "target": name,
        "nodes": [name],
        "raw": [
            {
                "host": name,
                "command": "all_reduce_perf " + "-b 8 " * 40,
                "exit_code": 0,
                "stdout_sha256": DIGEST,
                "stderr_sha256": "b" * 64,
                "seconds": 1.0,
            }
        ],
        "inputs": {},
        "outcome": outcome,
        "findings": [] if outcome == "pass" else [{**finding, "text": text}],
        "metrics": [{"name": "busbw", "target": name, "value": value, "unit": "GB/s"}],
        "criteria": [
            {
                "metric": "busbw",
                "op": "ge",
                "bound": 456.0,
                "unit": "GB/s",
                "label": "floor",
                "source": "a source",
                "derived": False,
                "inputs": {"P": 450.0},
            }
        ],
        "fleet_pending": False,
        "note": None,
        "transport": "NVLink",
        "started": "2026-01-01T00:00:00Z",
        "seconds": 5.0,
    }


def document() -> dict[str, Any]:
    values = {"node01": 477.0, "node02": 478.0, "node03": 310.0, "node04": 476.0}
    bound = {"op": "ge", "source": "a source", "derived": False, "inputs": {}}
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
            "result": None,
        }
        for name, value in values.items()
    ]
    pair = gate("node01", "pass", 391.0) | {
        "gate": PAIR,
        "target": "node01+node02/rail1",
        "nodes": ["node01", "node02"],
    }
    errors = {"name": "port_errors", "target": "node01/mlx5_0", "value": 0.0, "unit": "1"}
    pair["metrics"] = [
        errors,
        {"name": "bw_average", "target": "node01/mlx5_0->node02/mlx5_0", "value": 391.0, "unit": "Gb/s"},
    ]
    pair["criteria"] = [
        {**bound, "metric": "port_errors", "op": "eq", "bound": 0.0, "unit": "1", "label": "identity"},
        {**bound, "metric": "bw_average", "op": "le", "bound": 412.0, "unit": "Gb/s", "label": "ceiling"},
    ]
    return {
        "schema": "rackready/report/v1",
        "rackready": "0",
        "env": "sim",
        "site": "sim",
        "campaign": {"id": "c1", "kind": "deploy", "status": "ended", "begun": None, "ended": None},
        "generated": "2026-01-01T00:00:00+00:00",
        "summary": {"ready": 3, "quarantined": 1},
        "racks": overview_tables.racks(load_site("sim"), nodes),
        "nodes": nodes,
        "runs": [pair],
        "declared_skips": [{"gate": "node/gpu/validation/dcgm-r3", "nodes": ["node04"], "reason": "a <b>reason</b>"}],
        "gate_set": "bringup",
        "unseen": [{"gate": "node/gpu/stress/burn", "what": "what only <b>load</b> shows"}],
        "warnings": [],
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
    assert page.locator(f"pre#raw-{DIGEST}").text_content() == ROWS


def test_the_bad_node_is_seen_at_once_and_its_cell_leads_to_it(page: Page) -> None:
    cell = page.locator(".map .cell", has_text="node03")
    assert cell.is_visible()
    assert cell.evaluate("one => getComputedStyle(one).backgroundColor") == "rgb(179, 38, 30)"
    assert (
        page.locator(".map .cell", has_text="node01").evaluate("one => getComputedStyle(one).backgroundColor")
        == "rgb(26, 127, 55)"
    )
    cell.click()
    assert page.url.endswith("#node03")
    assert page.get_by_text("node03 gpu2: NVLink down - Expected: 18 links active Actual: 17.").first.is_visible()


def test_every_link_leads_somewhere(page: Page) -> None:
    targets = page.eval_on_selector_all("a[href^='#']", "all => all.map(one => one.getAttribute('href').slice(1))")
    assert targets
    missing = [name for name in set(targets) if page.locator(f"[id='{name}']").count() != 1]
    assert missing == []


def words(found: Locator) -> str:
    """The text as it stands on the page."""
    return " ".join(str(found.evaluate("one => one.innerText || one.textContent")).split())


def test_what_is_bad_stands_on_top_with_its_place_and_its_next_step(page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    assert words(page.get_by_role("status")) == "1 of 4 nodes needs work. 1 fail 3 pass"
    assert words(page.locator(".fault")) == (
        "fail NVLink down on 1 node, node/gpu/performance/nccl-all-reduce Next step: Run rackready <b>. "
        "rack01 U17 node03 gpu2 expected 18 links active actual 17"
    )
    box = page.locator(".fault").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 900, "it is seen without scrolling"


def test_passes_are_folded_away_and_what_failed_is_open(page: Page) -> None:
    page.reload()
    assert not page.locator("summary", has_text="3 nodes that need no work").locator("..").evaluate("one => one.open")
    for summary in ("node01 ready 1 gate", "1 pair, all passed; bw_average 391 to 391 Gb/s", "1 run passed or skipped"):
        (folded,) = [one for one in page.locator("details").all() if summary in words(one.locator("summary").first)]
        assert not folded.evaluate("one => one.open"), summary
    assert page.locator("h3#node03 ~ details").first.evaluate("one => one.open")


def test_a_link_opens_what_is_folded_away(page: Page) -> None:
    page.locator(".map .cell", has_text="node01").click()
    assert page.locator("#node01").is_visible()


def test_a_pair_shows_its_bandwidth_in_its_unit(page: Page) -> None:
    assert words(page.locator(".matrix td[title='1 run']").first) == "391 Gb/s"


def test_the_gate_matrix_names_its_gates_and_its_nodes(page: Page) -> None:
    table = page.locator("table.gates")
    assert [words(one) for one in table.locator("thead th").all()] == ["gpu", "node01", "node02", "node03", "node04"]
    assert words(table.locator("tbody tr")) == "nccl-all-reduce performance P P F P"


def test_distributions_are_drawn_with_each_bound_under_its_own_name_and_with_its_source(page: Page) -> None:
    strip = page.locator("figure", has_text="busbw")
    assert (
        words(strip.locator("figcaption"))
        == "busbw: 4 units, 310 to 478, median 476.5 GB/s floor: at least 456 GB/s (source: a source)"
    )
    assert strip.locator("svg .bad").count() == 1
    box = strip.locator("svg").bounding_box()
    assert box is not None
    assert box["width"] > 300
    pair = page.locator("figure", has_text="bw_average")
    assert words(pair.locator("li")) == "ceiling: at most 412 Gb/s (source: a source)"
    assert words(pair.locator("svg .middle")) == "ceiling 412"
    assert page.locator("figure", has_text="port_errors").count() == 0


def test_it_is_dark_where_the_reader_wants_it_and_white_on_paper(page: Page) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(colour) == "rgb(255, 255, 255)"
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(colour) == "rgb(13, 17, 23)"
    page.emulate_media(color_scheme="dark", media="print")
    assert page.evaluate(colour) == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    page.emulate_media(color_scheme="light", media="screen")


def test_the_keyboard_reaches_the_summary_and_everything_that_scrolls(page: Page) -> None:
    page.goto(page.url.split("#")[0])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip-link"
    assert page.evaluate("[...document.querySelectorAll('.scroll, pre')].every(one => one.tabIndex === 0)")


def test_it_says_what_the_gate_set_cannot_see(page: Page) -> None:
    assert page.get_by_role("heading", name="What gate set bringup cannot see").is_visible()
    assert page.get_by_text("what only <b>load</b> shows").is_visible()


@pytest.mark.parametrize("width", [320, 400, 1280])
def test_the_page_does_not_scroll_sideways(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
