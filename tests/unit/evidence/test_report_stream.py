"""Reports of any size: written in parts they equal the whole document; a lost part is an error."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rackready.evidence import faults, overview
from rackready.evidence.junit import junit
from rackready.evidence.node_page import node_page
from rackready.evidence.node_report import Document
from rackready.evidence.overview import Overview
from rackready.evidence.parts import CHUNK, Figure, ReportError
from rackready.evidence.report import build, render, write
from rackready.evidence.report_source import ReportSource
from rackready.evidence.store import EvidenceStore, new_id
from rackready.ledger.store import Ledger
from rackready.model.evidence import COVERAGE, EvidenceRecord, RawOutput
from rackready.model.outcome import Finding, Metric, Outcome, Verdict
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.gates.stage import site_with
from tests.unit.evidence.test_damage import spoil
from tests.waiting import until

GATE = "node/gpu/performance/gemm"
PAIR = "pair/fabric/performance/ib-write-bw"
CLUSTER = "cluster/fabric/performance/nccl-all-reduce-ring"
AT = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)


class Stored:
    """A site with records of one gate on every node, and of two pairs; every ninth node fails."""

    def __init__(self, tmp_path: Path, nodes: int, env: str = "sim") -> None:
        self.site, self.paths = site_with(nodes), EnvPaths(tmp_path, env)
        self.ledger = Ledger.open(self.paths.database)
        self.ledger.put_campaign("c1", env=env, kind="validate", nodes=[], site_digest="", abi="1", status="ended")
        self.store = EvidenceStore.open(self.ledger, self.paths.raw)
        self.names = [node.name for node in self.site.nodes()]
        for place, name in enumerate(self.names):
            bad = place % 9 == 8
            self.record(GATE, name, [name], 350.0 if bad else 700.0 + place % 7, bad=bad)
            self.record(COVERAGE, name, [name], 1.0)
        for first in (0, 2):
            pair = self.names[first : first + 2]
            self.record(PAIR, f"{'+'.join(pair)}/rail1", pair, 390.0)
        self.ledger.event("c1", self.names[0], "validate", "a line <of> progress", level="warn")

    def record(
        self, gate: str, target: str, nodes: list[str], value: float, *, bad: bool = False, error: bool = False
    ) -> None:
        step = "Cool it \x1b[0m."
        finding = Finding(
            code="gemm-slow",
            where=target,
            what="slow",
            expected="at least 690 TFLOP/s",
            actual=f"{value:g}",
            next_step=step,
        )
        metrics = [
            Metric(name="rate", target=f"{nodes[0]}/gpu{gpu}", value=value + gpu / 8, unit="TFLOP/s")
            for gpu in range(8)
        ]
        verdict = Verdict(
            outcome=Outcome.FAIL if bad else Outcome.ERROR if error else Outcome.PASS,
            findings=[finding] if bad or error else [],
            metrics=metrics,
            measured=nodes,
        )
        digest = self.store.put_raw(f"output of {target}")
        raw = [
            RawOutput(
                host=nodes[0],
                command="gemm",
                exit_code=0,
                stdout_sha256=digest,
                stderr_sha256=overview.EMPTY,
                seconds=1.0,
                key="gemm",
            )
        ]
        self.store.append(
            EvidenceRecord(
                id=new_id(),
                campaign="c1",
                gate=gate,
                target=target,
                nodes=nodes,
                fingerprints=[],
                verdict=verdict,
                raw=raw,
                rackready_version="0",
                started=AT,
                finished=AT,
            )
        )


def as_written(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("nodes", [4, CHUNK + 5], ids=["in this process", "side by side"])
def test_what_is_written_in_parts_is_the_whole_document(tmp_path: Path, nodes: int) -> None:
    stored = Stored(tmp_path, nodes)
    written = write(stored.site, stored.paths, "c1")
    whole = build(stored.site, stored.paths, "c1")
    found = as_written(written.json)
    whole["generated"] = found["generated"]
    assert found == whole
    assert list(found) == list(whole)
    assert [node["name"] for node in found["nodes"]] == stored.names
    assert written.junit.read_text(encoding="utf-8") == junit(whole)
    raw = {stored_raw["stdout_sha256"]: stored.store.raw(stored_raw["stdout_sha256"]) for stored_raw in raw_of(whole)}
    assert written.html.read_text(encoding="utf-8") == render(whole, dict(sorted(raw.items())))
    assert written.outcomes == {
        outcome: count for outcome, count in (("pass", nodes - nodes // 9), ("fail", nodes // 9)) if count
    }
    assert sorted(path.name for path in stored.paths.reports.iterdir()) == ["c1.html", "c1.json", "c1.junit.xml"]
    assert {path.stat().st_mode & 0o777 for path in stored.paths.reports.iterdir()} == {0o600}


def test_a_phase_that_a_node_did_not_pass_is_in_all_three_files_though_its_gates_passed(tmp_path: Path) -> None:
    stored = Stored(tmp_path, 4)
    said = "node02: rail 3 - Expected: an answer Actual: none. Check the cable."
    results = {name: {"phase": "handover", "outcome": "pass", "message": "ready"} for name in stored.names}
    results["node02"] = {"phase": "fabric", "outcome": "fail", "message": said}
    stored.ledger.put_campaign("c1", summary={"results": results})
    written = write(stored.site, stored.paths, "c1")
    assert written.outcomes == {"pass": 3, "fail": 1}
    found = {node["name"]: (node["outcome"], node["result"]["message"]) for node in as_written(written.json)["nodes"]}
    assert found["node02"] == ("fail", said)
    assert found["node01"] == ("pass", "ready")
    assert f'<failure type="fail" message="{said}">' in written.junit.read_text(encoding="utf-8")
    assert "phase fabric did not pass" in written.html.read_text(encoding="utf-8")


def test_a_damaged_record_of_a_pair_is_an_error_of_that_pair_and_ends_no_report(tmp_path: Path) -> None:
    stored = Stored(tmp_path, 4)
    pair = f"{'+'.join(stored.names[:2])}/rail1"
    spoil(stored.ledger, stored.store.records(target=pair)[0], record="")
    written = write(stored.site, stored.paths, "c1")
    runs = {run["target"]: (run["outcome"], run["nodes"]) for run in as_written(written.json)["runs"]}
    assert runs[pair] == ("error", stored.names[:2])
    assert "2 pairs, 1 did not pass" in " ".join(written.html.read_text(encoding="utf-8").split())


def test_a_first_attempt_that_a_second_replaced_counts_nowhere_and_stays_in_the_json(tmp_path: Path) -> None:
    stored = Stored(tmp_path, 4)
    pair = stored.names[2:4]
    stored.record(PAIR, f"{'+'.join(pair)}/rail2", pair, 1.0, error=True)
    stored.record(PAIR, f"{'+'.join(pair)}/rail2", pair, 390.0)
    written = write(stored.site, stored.paths, "c1")
    assert [run["outcome"] for run in as_written(written.json)["runs"]] == ["pass", "pass", "error", "pass"]
    assert "<error" not in written.junit.read_text(encoding="utf-8")
    assert "over several nodes did not pass" not in written.html.read_text(encoding="utf-8")


@pytest.mark.parametrize("second", [slice(2, 4), slice(0, 2)], ids=["other nodes", "the same nodes"])
def test_a_fail_of_an_earlier_wave_stands_beside_a_later_waves_pass(tmp_path: Path, second: slice) -> None:
    """Waves of a cluster run have one target. Only an error is tried again: nothing takes a fail's place."""
    stored = Stored(tmp_path, 4)
    stored.record(CLUSTER, "cluster", stored.names[:2], 1.0, bad=True)
    stored.record(CLUSTER, "cluster", stored.names[second], 390.0)
    written = write(stored.site, stored.paths, "c1")
    found = written.junit.read_text(encoding="utf-8")
    assert found.count("<failure") == 1
    assert [f'name="nccl-all-reduce-ring [cluster]{number}"' in found for number in ("", " (2)")] == [True, True]
    page = " ".join(written.html.read_text(encoding="utf-8").split())
    assert "over several nodes did not pass" in page
    whole = build(stored.site, stored.paths, "c1")
    whole["generated"] = as_written(written.json)["generated"]
    assert junit(whole) == found


@pytest.mark.parametrize("env", ["sim", "prod"])
def test_commands_in_all_three_files_name_the_environment(tmp_path: Path, env: str) -> None:
    stored = Stored(tmp_path, 9, env)
    spoil(stored.ledger, stored.store.records(target=f"{'+'.join(stored.names[:2])}/rail1")[0], record="")
    spoil(stored.ledger, stored.store.records(target="node03", gate=COVERAGE)[0], record="")
    stored.ledger.set_state("node02", NodeState.QUARANTINED, "rail 3 is down: `rackready repair node02`")
    stored.ledger.event("c1", "node02", "validate", "look: `rackready status`")
    written = write(stored.site, stored.paths, "c1")
    found = {
        path: re.findall(
            r"rackready (?:validate|repair|deploy|report|status)[^`<\"]*", path.read_text(encoding="utf-8")
        )
        for path in (written.html, written.json, written.junit)
    }
    assert all(found.values())
    for words in (words for listed in found.values() for words in listed):
        assert words.endswith(f" --env {env}") is (env == "prod"), words
    whole = build(stored.site, stored.paths, "c1")
    assert (as_written(written.json)["nodes"], as_written(written.json)["runs"]) == (whole["nodes"], whole["runs"])


@pytest.mark.parametrize("state", [NodeState.QUARANTINED, NodeState.STUCK, NodeState.REPAIR])
def test_a_node_that_is_set_aside_makes_the_report_bad_though_its_gates_passed(
    tmp_path: Path, state: NodeState
) -> None:
    stored = Stored(tmp_path, 4)
    assert write(stored.site, stored.paths, "c1").good
    stored.ledger.set_state("node02", state, "rail 3 is down")
    written = write(stored.site, stored.paths, "c1")
    assert (dict(written.outcomes), written.aside, written.good) == ({"pass": 4}, 1, False)
    assert f'message="node02: {state.value}: rail 3 is down"' in written.junit.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("status", "ended"), [("running", False), ("interrupted", False), ("paused", False), ("finished", True)]
)
def test_a_campaign_without_an_end_has_not_nothing_to_repair(tmp_path: Path, status: str, *, ended: bool) -> None:
    stored = Stored(tmp_path, 4)
    stored.ledger.put_campaign("c1", status=status)
    written = write(stored.site, stored.paths, "c1")
    page = written.html.read_text(encoding="utf-8")
    assert (written.good, "Nothing to repair" in page, "The campaign has not ended" in page) == (
        ended,
        ended,
        not ended,
    )
    assert ("campaign.end" not in written.junit.read_text(encoding="utf-8").replace('" name="', ".")) is ended


def raw_of(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        raw
        for item in [*(gate for node in report["nodes"] for gate in node["gates"]), *report["runs"]]
        for raw in item["raw"]
    ]


def test_a_node_is_a_line_of_the_json(tmp_path: Path) -> None:
    stored = Stored(tmp_path, 4)
    lines = write(stored.site, stored.paths, "c1").json.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line.strip().rstrip(","))["name"] for line in lines if line.startswith('    {"name": "node0')][
        -4:
    ] == stored.names


def test_a_line_of_progress_is_read_without_copying_all_of_it(tmp_path: Path) -> None:
    """`dataclasses.asdict` copies every field; a campaign of 1,000 nodes has 128,630 lines, each read twice."""
    stored = Stored(tmp_path, 4)
    (line,) = stored.ledger.progress("c1")
    plain = SimpleNamespace(**dataclasses.asdict(line))  # no dataclass: `asdict` refuses it
    read = SimpleNamespace(progress=lambda _: iter([plain]))
    with ReportSource.open(stored.site, stored.paths, "c1") as source:
        whole = list(source.events())
        assert list(dataclasses.replace(source, ledger=read).events()) == whole  # type: ignore[arg-type]
    assert [list(event) for event in whole] == [["at", "node", "phase", "level", "text"]]


def test_a_report_without_any_record_has_empty_lists(tmp_path: Path) -> None:
    paths = EnvPaths(tmp_path, "sim")
    Ledger.open(paths.database).close()
    found = as_written(write(site_with(2), paths, "c1").json)
    assert (found["runs"], found["events"], [node["outcome"] for node in found["nodes"]]) == (
        [],
        [],
        ["not_run", "not_run"],
    )


@pytest.mark.parametrize(("coverage", "wanted"), [(False, "pass"), (True, "fail")], ids=["whole", "not whole"])
def test_a_node_is_no_better_than_its_coverage(tmp_path: Path, *, coverage: bool, wanted: str) -> None:
    """Every gate passed, and some part was measured by none of them."""
    stored = Stored(tmp_path, 4)
    stored.record(COVERAGE, "node02", ["node02"], 1.0, bad=coverage)
    written = write(stored.site, stored.paths, "c1")
    assert [node["outcome"] for node in as_written(written.json)["nodes"]] == ["pass", wanted, "pass", "pass"]
    assert dict(written.outcomes) == ({"pass": 3, wanted: 1} if coverage else {"pass": 4})


def test_what_a_killed_process_left_is_removed_and_a_living_ones_parts_stay(tmp_path: Path) -> None:
    stored = Stored(tmp_path, 4)
    dead, living = (stored.paths.reports / f".c1.{pid}.parts" for pid in (2**22 + 1, os.getppid()))
    for folder in (dead, living):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "0.json").write_text("", encoding="utf-8")
    write(stored.site, stored.paths, "c1")
    assert (dead.exists(), living.exists()) == (False, True)


class Dying:
    """A judge whose process is killed at one node."""

    def begin(self, site: Site, ledger: Ledger, store: EvidenceStore) -> None:
        """Nothing to make ready."""

    def node(
        self, name: str, newest: Mapping[str, EvidenceRecord]
    ) -> tuple[Mapping[str, EvidenceRecord], Sequence[Figure]]:
        if name == "node18":
            os._exit(137)
        return newest, ()

    def compare(self, site: Site, figures: Iterable[Figure]) -> Mapping[str, Any]:
        del site, figures
        return {}

    def complete(self, found: Document, change: Any) -> Document:  # noqa: ANN401 - the protocol's
        del change
        return found


def test_a_process_that_dies_is_an_error_and_no_report_is_written(tmp_path: Path) -> None:
    stored = Stored(tmp_path, CHUNK + 5)
    with pytest.raises(ReportError) as refusal:
        write(stored.site, stored.paths, "c1", Dying())
    assert str(refusal.value) == (
        "the report was not written - Expected: every part of it Actual: a process that made parts was killed. "
        "Look for an out-of-memory kill (`journalctl -k -g oom`), then run `rackready report`."
    )
    assert list(stored.paths.reports.iterdir()) == []


class Waiting(Dying):
    """A judge that says which process it is in, and takes its time."""

    def __init__(self, said_in: Path) -> None:
        self.said_in = said_in

    def node(
        self, name: str, newest: Mapping[str, EvidenceRecord]
    ) -> tuple[Mapping[str, EvidenceRecord], Sequence[Figure]]:
        del name
        (self.said_in / str(os.getpid())).touch()
        time.sleep(120)
        return newest, ()


def test_a_report_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    said_in = tmp_path / "said"
    said_in.mkdir()
    source = f"""
from pathlib import Path
from tests.unit.evidence.test_report_stream import CHUNK, Stored, Waiting, write
if __name__ == "__main__":
    stored = Stored(Path({str(tmp_path)!r}), CHUNK + 5)
    write(stored.site, stored.paths, "c1", Waiting(Path({str(said_in)!r})))
"""
    script = tmp_path / "report.py"
    script.write_text(source, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, str(script)], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ) as process:
        until(lambda: any(said_in.iterdir()))
        workers = [Path("/proc", path.name) for path in said_in.iterdir()]
        process.kill()
    until(lambda: not any(worker.exists() for worker in workers))


# a large site's page -----------------------------------------------------------------------------------------------


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Stored, str]:
    """A page on which the details of two nodes have room."""
    monkeypatch.setattr(overview, "DETAILED", 2)
    stored = Stored(tmp_path, 27)
    return stored, render(build(stored.site, stored.paths, "c1"))


def test_a_page_shows_control_characters_and_holds_none(large: tuple[Stored, str]) -> None:
    stored, page = large
    assert r"Cool it \x1b[0m." in page
    record = next(iter(build(stored.site, stored.paths, "c1")["nodes"][8]["gates"]))["raw"][0]["stdout_sha256"]
    whole = render(build(stored.site, stored.paths, "c1"), {record: "one\x00\x9b\r\ntwo <b>"})
    assert f'<pre id="raw-{record}" tabindex="0">one\\x00\\x9b\ntwo &lt;b&gt;</pre>' in whole
    assert not re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", page + whole)


def test_a_large_sites_page_has_every_node_in_its_map_and_few_in_full(large: tuple[Stored, str]) -> None:
    _, page = large
    assert page.count('class="cell o-pass" title="node') == 24
    assert [name for name in ("node09", "node18", "node27") if f'<h3 id="{name}">' in page] == ["node09", "node18"]
    assert 'id="node01"' not in page
    assert "27 nodes. By outcome: 3 fail, 24 pass. By state: 27 declared." in page
    assert "the first 2 of those that did not pass have a section with what did not pass" in " ".join(page.split())
    assert page.count('<tr><td class="keep">node27</td>') == 1


def test_a_large_sites_page_links_only_to_what_is_there(large: tuple[Stored, str]) -> None:
    _, page = large
    targets = {part.split('"', 1)[0] for part in page.split('href="#')[1:]}
    assert {target for target in targets if f'id="{target}"' not in page} == set()


def test_a_large_sites_page_counts_the_outcomes_of_each_gate_and_draws_all_values(large: tuple[Stored, str]) -> None:
    _, page = large
    row = next(line for line in page.splitlines() if line.startswith(f"<tr><td><code>{GATE}"))
    assert [part.split("</td>")[0] for part in row.split('<td class="number">')[1:]] == ["3", "", "", "", "24"]
    assert f"<code>{GATE}</code>: 1 metric" in page
    assert "<strong>rate</strong>: 216 units" in page


def test_a_large_sites_page_says_on_top_what_is_bad_and_where(large: tuple[Stored, str]) -> None:
    _, page = large
    top = " ".join(page.split('<h2 id="nodes">')[0].split())
    assert "<strong>3 of 27 nodes need work.</strong>" in top
    assert f'slow <span class="facts">on 3 nodes, <code>{GATE}</code>, <code>gemm-slow</code></span>' in top
    assert r"<strong>Next step:</strong> Cool it \x1b[0m." in top
    assert " <code>gemm-slow</code></li>" in page, "beside the finding"
    assert all(name in top.split('id="faults"')[1].split('id="map"')[0] for name in ("node09", "node18", "node27"))


def test_what_is_bad_stays_small_where_a_thousand_nodes_have_it() -> None:
    found = Overview(1000)
    finding = {"where": "", "what": "slow", "expected": "700", "actual": "350", "next_step": "Cool it."}
    item = {
        "gate": GATE,
        "title": "A title.",
        "outcome": "fail",
        "findings": [finding],
        "fleet_pending": False,
        "note": None,
    }
    coverage = {"outcome": "pass", "counts": {}, "unmeasured": []}
    for number in range(1000):
        name = f"node{number:04}"
        gates = [{**item, "findings": [{**finding, "where": f"{name} gpu{gpu}"} for gpu in range(8)]}]
        found.node(
            node_page(
                {
                    "name": name,
                    "state": "quarantined",
                    "reason": "",
                    "outcome": "fail",
                    "gates": gates,
                    "coverage": coverage,
                    "result": None,
                },
                small=False,
            )
        )
    (group,) = found.faults.groups.values()
    assert (group.nodes, len(group.places), group.left) == (1000, faults.MOST_PLACES, 1000 - faults.MOST_PLACES)
    assert (group.places[0].parts, group.places[0].count) == (["gpu0", "gpu1", "gpu2", "gpu3", "gpu4", "gpu5"], 8)
    assert sum(node.document is not None for node in found.listed) == 0, (
        "no more than the shown documents stay in memory"
    )
