"""The reports of three racks in a real browser: what an engineer sees first, what is folded, how large the page is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, sync_playwright

from tests.unit.evidence import report_racks as racks
from tests.unit.evidence.test_report_browser import CHROMIUM, pytestmark, words

__all__ = ["pytestmark"]

DESK, PHONE = (1280, 900), (320, 700)
MADE: Mapping[str, Callable[[], racks.Report]] = {
    "healthy": racks.healthy,
    "eight": racks.eight_faults,
    "thousand": racks.thousand,
}
every_rack = pytest.mark.parametrize("rack", MADE)

CONTRAST = """() => {
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => [r, g, b].map(v => linear(v / 255))
    .reduce((sum, v, at) => sum + v * [.2126, .7152, .0722][at], 0);
  const behind = one => { for (let at = one; at; at = at.parentElement) {
    const found = parts(getComputedStyle(at).backgroundColor); if (found.length < 4 || found[3] === 1) return found; }
    return [255, 255, 255]; };
  return [...document.querySelectorAll('body *')].filter(one => !one.closest('svg') && one.checkVisibility()
    && [...one.childNodes].some(child => child.nodeType === 3 && child.textContent.trim())).map(one => {
      const pair = [light(parts(getComputedStyle(one).color)), light(behind(one))].sort((a, b) => b - a);
      return [(pair[0] + .05) / (pair[1] + .05), one.className + ': ' + one.textContent.slice(0, 40)];
    }).filter(([ratio]) => ratio < 4.5).map(([ratio, text]) => ratio.toFixed(2) + ' ' + text);
}"""
"""Texts with less contrast than WCAG 2.2 asks for (1.4.3, AA: 4.5 to 1), with their contrast."""


@dataclass(frozen=True)
class Shown:
    """A report and its page in the browser."""

    report: racks.Report
    file: Path
    page: Page

    def at(self, size: tuple[int, int]) -> Page:
        """Return the page as it opens on a screen of this size."""
        self.page.emulate_media(color_scheme="light", media="screen")
        self.page.set_viewport_size({"width": size[0], "height": size[1]})
        self.page.goto("about:blank")
        self.page.goto(self.file.as_uri())
        return self.page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def shown(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Shown]:
    """The report of a rack, made and opened once."""
    made: dict[str, Shown] = {}
    folder = tmp_path_factory.mktemp("reports")

    def one(rack: str) -> Shown:
        if rack not in made:
            report, file = MADE[rack](), folder / f"{rack}.html"
            file.write_text(report.html(), encoding="utf-8")
            made[rack] = Shown(report, file, browser.new_page())
        return made[rack]

    return one


def bottom(found: Locator) -> float:
    """The lower edge of something on the page, px from the top of the screen."""
    box = found.bounding_box()
    assert box is not None, "it is not visible"
    return box["y"] + box["height"]


def rows(page: Page) -> list[Locator]:
    """The rows of where to begin."""
    return page.locator("table.begin tbody tr").all()


NODE03 = (
    "node03 rack01 U17, 5 findings GPU fell off the PCIe bus gpu5; uncorrected memory errors dimm CPU1_DIMM_B2; "
    "RDMA device missing mlx5_3; power supply input lost psu 2; RDMA write is slow mlx5_6 "
    "Power the node off and on; if it happens again, replace the GPU: docs/runbooks/gpu.md."
)


def test_the_first_screen_of_a_bad_rack_names_every_fault_with_its_place_and_the_worst_node_first(
    shown: Callable[[str], Shown],
) -> None:
    page = shown("eight").at(DESK)
    assert words(page.get_by_role("status")) == "3 of 4 nodes need work. 3 fail 1 pass"
    first, second, third = rows(page)
    assert words(first) == NODE03
    assert words(second).startswith("node02 rack01 U9, 2 findings NVLink down gpu2; drive warns nvme3 Power the node")
    assert words(third).startswith("node01 rack01 U1, 1 finding firmware of NICs mlx5_1 Flash the wanted version")
    assert bottom(third) < DESK[1]
    assert bottom(page.locator(".map")) < DESK[1]


def test_the_first_screen_of_a_thousand_nodes_names_the_rack_and_the_node_to_go_to(
    shown: Callable[[str], Shown],
) -> None:
    page = shown("thousand").at(DESK)
    assert words(page.get_by_role("status")) == (
        "26 of 1000 nodes need work. 24 fail 1 not run 975 pass 1 passed, but set aside"
    )
    feed, worst = rows(page)
    assert words(feed) == (
        "r041 3 of 8 nodes power supply input lost on n0322, n0323, n0325: look for one cause in the rack "
        "Check its power cord, the PDU outlet and the breaker of that feed; if they are good, replace the supply."
    )
    assert words(worst).startswith("n0017 r003 U1, 3 findings NVLink down gpu2; uncorrected memory errors dimm")
    assert bottom(worst) < DESK[1]
    bad = page.locator(".aside > .map")
    assert bottom(bad) < DESK[1]
    assert bad.locator(".rack").count() == 24


@pytest.mark.parametrize("rack", ["eight", "thousand"])
def test_the_first_screen_of_a_phone_has_the_first_row_whole(rack: str, shown: Callable[[str], Shown]) -> None:
    first = rows(shown(rack).at(PHONE))[0]
    assert bottom(first) < PHONE[1]
    label = first.locator("td").last.evaluate("one => getComputedStyle(one, '::before').content")
    assert label == '"next step: "'


@every_rack
def test_every_code_stands_with_its_finding_on_top(rack: str, shown: Callable[[str], Shown]) -> None:
    found = shown(rack)
    gates = [gate for node in found.report.document["nodes"] for gate in node["gates"]]
    codes = {(gate["gate"], finding["code"]) for gate in gates for finding in gate["findings"]}
    cards = [card.locator(".facts code").all_text_contents() for card in found.at(DESK).locator(".fault").all()]
    assert {tuple(card) for card in cards if len(card) == 2} == codes
    assert len(codes) == (0 if rack == "healthy" else 8 + 3), "eight kinds of faults, and three gates not run"


@every_rack
def test_what_passed_is_folded_away(rack: str, shown: Callable[[str], Shown]) -> None:
    page = shown(rack).at(DESK)
    opened = [words(one.locator("summary").first) for one in page.locator("details[open]").all()]
    assert [text for text in opened if "passed" in text or text.startswith("pass ")] == []
    assert bool(opened) == (rack != "healthy")
    gates = page.locator("table.gates tbody tr").all()
    assert all(row.locator(".o-fail, .o-error").count() for row in gates if row.is_visible())
    seen = [one for one in page.locator(".rack").all() if one.is_visible()]
    assert rack != "thousand" or all(one.locator(".cell:not(.o-pass)").count() for one in seen)


@pytest.mark.parametrize("rack", ["eight", "thousand"])
def test_what_follows_from_other_findings_is_folded_below_them(rack: str, shown: Callable[[str], Shown]) -> None:
    folded = shown(rack).at(DESK).locator("details.follow")
    assert words(folded.locator("summary").first).startswith("On the same nodes: 4 more kinds of findings")
    assert not folded.evaluate("one => one.open")
    assert [words(one).split(" on ")[0] for one in folded.locator("h3").all()] == [
        "not run node/gpu/performance/gemm was not run",
        "not run node/gpu/performance/nccl-all-reduce was not run",
        "not run node/gpu/performance/nvbandwidth was not run",
        "error parts that no gate measured",
    ]


@every_rack
@pytest.mark.parametrize("size", [PHONE, (703, 900), DESK], ids=["phone", "paper", "desk"])
@pytest.mark.parametrize("opened", [False, True], ids=["as it opens", "unfolded"])
def test_no_rack_scrolls_sideways(
    rack: str, size: tuple[int, int], *, opened: bool, shown: Callable[[str], Shown]
) -> None:
    page = shown(rack).at(size)
    if size[0] == 703:  # A4 between margins of 12 mm, in px
        page.emulate_media(media="print")
    if opened:
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]


@every_rack
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(rack: str, scheme: Any, shown: Callable[[str], Shown]) -> None:  # noqa: ANN401
    page = shown(rack).at(DESK)
    page.emulate_media(color_scheme=scheme)
    assert page.evaluate(CONTRAST) == []


SIGNS = """() => [...document.querySelectorAll('.aside .sign')].map(one => {
  const words = document.createRange(); words.selectNode(one.nextSibling);
  const [sign, text] = [one.getBoundingClientRect(), words.getClientRects()[0]];
  return Math.abs(sign.top + sign.bottom - text.top - text.bottom) / 2; })"""
"""How far the middle of each sign of the map's legend is from that of the word beside it, px."""


@every_rack
def test_the_signs_of_the_legend_stand_on_the_line_of_their_words(rack: str, shown: Callable[[str], Shown]) -> None:
    off = shown(rack).at(DESK).evaluate(SIGNS)
    assert off
    assert max(off) < 3


def test_counts_that_need_another_line_begin_below_the_verdict(shown: Callable[[str], Shown]) -> None:
    page = shown("thousand").at(PHONE)
    boxes = [one.bounding_box() for one in page.locator(".verdict > *").all()]
    lines: dict[float, float] = {}
    for box in boxes:
        assert box is not None
        lines.setdefault(round(box["y"] + box["height"] / 2), box["x"])
    assert len(lines) > 2
    assert len(set(lines.values())) == 1


@every_rack
def test_the_counts_of_parts_are_explained_where_they_stand(rack: str, shown: Callable[[str], Shown]) -> None:
    page = shown(rack).at(DESK)
    note = page.get_by_text("GPUs, NVLinks, NICs, rails: parts that a gate measured, of those that the site declares.")
    assert note.count() == 1
    assert note.is_visible() == (rack != "healthy")
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert note.is_visible()


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (
            "n0700",
            (
                "repair set aside without a finding of a gate on 1 node Next step: When it is back, run rackready rma "
                "NODE --returned --reason '...', then rackready deploy. r088 U19 n0700 reason its fans are being "
                "replaced"
            ),
        ),
        (
            "n0990",
            (
                "stuck set aside without a finding of a gate on 1 node Next step: When it is repaired, run rackready "
                "repair NODE --reason '...', then rackready deploy. r124 U31 n0990 reason its BMC does not answer "
                "since the power-on"
            ),
        ),
    ],
)
def test_a_node_that_no_gate_set_aside_has_its_way_back(node: str, text: str, shown: Callable[[str], Shown]) -> None:
    assert words(shown("thousand").at(DESK).locator(".fault", has_text=node)) == text


def test_the_keyboard_goes_from_the_worst_node_to_its_folded_evidence(shown: Callable[[str], Shown]) -> None:
    page = shown("thousand").at(DESK)
    assert not page.locator("#n0017").is_visible()
    page.locator("table.begin").get_by_role("link", name="n0017").focus()
    page.keyboard.press("Enter")
    page.locator("#n0017").wait_for(state="visible", timeout=5000)
    assert "n0017 gpu2: NVLink down - Expected: 18 links active" in words(page.locator("#n0017"))


def test_a_node_that_passed_and_is_set_aside_is_in_the_map_and_in_the_table(shown: Callable[[str], Shown]) -> None:
    page = shown("thousand").at(DESK)
    cell = page.locator(".cell[title^='n0700 ']")
    assert (cell.text_content(), cell.is_visible()) == ("!", True)
    assert page.locator("tr", has_text="n0700").last.is_visible()


def test_a_pair_names_its_rail_that_did_not_pass(shown: Callable[[str], Shown]) -> None:
    page = shown("eight").at(DESK)
    matrix = page.locator("details", has_text="6 pairs, 3 did not pass")
    assert words(matrix.locator("tbody tr").nth(2)) == "node03 fail 201.3 Gb/s fail 201.3 Gb/s - fail 201.3 Gb/s"
    assert "Did not pass: node01+node03/rail7, node02+node03/rail7, node03+node04/rail7." in words(matrix)


def test_a_page_of_a_thousand_nodes_is_no_larger_than_what_is_bad(shown: Callable[[str], Shown]) -> None:
    """A good node costs one element and about 80 bytes, in the map; a bad one about 100 elements and 4 kB."""
    found = shown("thousand")
    page = found.at(DESK)
    raw = sum(len(escape(text)) for text in found.report.raw.values())
    assert page.evaluate("document.querySelectorAll('*').length") < 8_000, "few enough to open at once on a phone"
    assert found.file.stat().st_size - raw < 350_000, "raw outputs left out: they have a bound of their own"
    height = page.evaluate("document.documentElement.scrollHeight")
    assert height < 10_000, "12 screens; with the evidence of every bad node unfolded it had 24"
