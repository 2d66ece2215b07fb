"""The live table: a row per node where it fits, else a row per phase; problems are printed above it and stay."""

from __future__ import annotations

import io
import re
import time

from rich.console import Console

from rackready.cli.live_table import LiveTable, Mark, Progress
from rackready.cli.progress_lines import line_of
from rackready.ledger.store import DETAIL, EventRow

PHASES = ("provision", "install", "validate", "revalidate")
NODES = ["node01", "node02", "node03"]


def event(phase: str, text: str = "begins", level: str = "info", at: float = 0.0) -> EventRow:
    return EventRow(1, "c1", "node01", phase, level, text, at or time.time())


def screen(
    nodes: list[str],
    *events: tuple[EventRow, list[str]],
    height: int = 40,
    width: int = 120,
    phases: tuple[str, ...] = PHASES,
) -> tuple[str, list[str]]:
    """Return what the table shows after these events, and what was printed above it."""
    above: list[str] = []
    console = Console(file=io.StringIO(), width=width, height=height, markup=False, emoji=False)
    table = LiveTable(console, nodes, phases, lambda row, who: above.append(line_of(row, who)))
    for row, who in events:
        table(row, who)
    console.print(table.table())
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()), above


def marks(text: str, node: str) -> str:
    line = next(line for line in text.splitlines() if line.startswith(f"{node} "))
    return "".join(re.findall("[·▸✓✗!]", line))


def test_every_node_shows_how_far_it_is_and_what_it_does_now() -> None:
    text, above = screen(
        NODES,
        (event("provision"), NODES),
        (event("provision", "powered on", "ok"), ["node01", "node02"]),
        (event("install"), ["node01"]),
        (event("install", "driver 580.95.05", DETAIL), ["node01"]),
    )
    assert [marks(text, node) for node in NODES] == ["✓▸··", "✓···", "▸···"]
    assert re.search(r"^node01 .* 00:00 +driver 580\.95\.05$", text, re.MULTILINE)
    assert "3 nodes, 00:00: 3 running" in text
    assert (text.splitlines()[-1][9:], above) == ("node01     install    driver 580.95.05", [])


def test_a_narrow_terminal_shows_whole_names_and_the_step() -> None:
    nodes = ["gpu-a01-01", "gpu-a01-02"]
    text, _ = screen(
        nodes,
        (event("provision"), nodes),
        (event("install", "driver 580.95.05", DETAIL), ["gpu-a01-01"]),
        (event("provision", "no answer", "error"), ["gpu-a01-02"]),
        width=60,
    )
    assert re.search(r"^gpu-a01-01 +▸ install 2/4 +00:00 +driver 580\.95\.05$", text, re.MULTILINE)
    assert re.search(r"^gpu-a01-02 +! provision 1/4 +00:00 +no answer$", text, re.MULTILINE)
    assert all(len(line) <= 60 for line in text.splitlines())


def test_what_goes_wrong_stays_above_the_table() -> None:
    bad = event("validate", "node02 gpu3: Xid 79", "error", at=time.mktime((2026, 11, 24, 3, 0, 0, 0, 0, -1)))
    text, above = screen(NODES, (event("validate"), NODES), (bad, ["node02"]))
    assert above == ["03:00:00 node02     validate   node02 gpu3: Xid 79"]
    assert marks(text, "node02") == "✓✓!·"
    assert "2 running, 1 error" in text


def test_an_attempt_that_errs_is_not_the_end_of_a_phase() -> None:
    text, _ = screen(
        NODES,
        (event("validate", "no answer", "error"), ["node01"]),
        (event("validate", "second attempt", DETAIL), ["node01"]),
    )
    assert marks(text, "node01") == "✓✓▸·"


def test_gates_of_a_later_validation_do_not_take_a_node_back() -> None:
    text, _ = screen(
        NODES,
        (event("revalidate"), ["node01"]),
        (event("validate", "gemm pass", DETAIL), ["node01"]),
        (event("drain", "drained"), ["node01"]),
    )
    assert marks(text, "node01") == "✓✓✓▸"
    assert re.search(r"^node01 .*drained$", text, re.MULTILINE)


def test_a_node_is_through_only_with_its_last_phase() -> None:
    found = Progress(NODES, PHASES)
    found.take(event("install", "done", "ok"), ["node01"])
    found.take(event("revalidate", "done", "ok"), ["node02"])
    assert found.counts() == {Mark.WAITING: 1, Mark.RUNNING: 1, Mark.DONE: 1, Mark.FAILED: 0, Mark.ERROR: 0}


def test_the_counts_tell_every_outcome_apart() -> None:
    nodes = [f"node{number:02d}" for number in range(1, 7)]
    text, above = screen(
        nodes,
        (event("install"), nodes[:5]),
        (event("handover", "released", "ok"), nodes[:2]),
        (event("install", "GPU 3 is lost", "fail"), ["node03"]),
        (event("install", "no answer", "error"), ["node04"]),
        phases=("install", "handover"),
    )
    assert "6 nodes, 00:00: 1 waiting, 1 running, 2 ready, 1 failed, 1 error" in text
    assert [marks(text, node) for node in nodes] == ["✓✓", "✓✓", "✗·", "!·", "▸·", "··"]
    assert [line[9:] for line in above] == ["node03     install    GPU 3 is lost", "node04     install    no answer"]


def test_a_thousand_nodes_are_grouped_by_phase_and_the_bad_ones_named() -> None:
    nodes = [f"node{number:04d}" for number in range(1000)]
    text, _ = screen(
        nodes,
        (event("provision", "powered on", "ok"), nodes),
        (event("install"), nodes[:900]),
        (event("install", "apt: no space left", "error"), nodes[:9]),
        (event("install", "driver refused", "fail"), nodes[9:10]),
        (event("install", "changed", "ok"), nodes[10:40]),
    )
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.startswith(PHASES)}
    assert rows == {
        "provision": ["1000"],
        "install": ["100", "860", "30", "1", "9"],
        "validate": ["1000"],
        "revalidate": ["1000"],
    }
    assert len(text.splitlines()) <= 20
    assert "node0007: apt: no space left\nand 2 more" in text
    assert "1000 nodes, 00:00: 990 running, 1 failed, 9 error" in text


def test_words_of_tools_reach_no_terminal_as_commands() -> None:
    text, _ = screen(NODES, (event("install", "\x1b[2Jgone", DETAIL), ["node01"]))
    assert "\x1b" not in text
    assert r"\x1b[2Jgone" in text


def test_a_switch_is_no_row_of_the_table() -> None:
    text, _ = screen(NODES, (event("install", "leaf01: confirmed", "info"), ["leaf01"]))
    assert [marks(text, node) for node in NODES] == ["····"] * 3
    assert text.splitlines()[-1].endswith("leaf01: confirmed")
