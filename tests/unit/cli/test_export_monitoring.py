"""`rackready export prometheus`, `grafana` and `metrics` in a checkout."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rackready.evidence.store import EvidenceStore
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.unit.handover.evidence import T0, record

Call = Callable[..., tuple[int, str, str]]
PLACE = 'site="sim",rack="rack01",unit="1"'
RAIL = 'rail="1",device="mlx5_0",switch="leaf01",switch_port="swp1"'


@pytest.fixture
def records(call: Call, tmp_path: Path) -> Path:
    """node01 is ready, node02 quarantined, node03 retired, node04 never deployed; the last campaign was cut off."""
    del call
    paths = EnvPaths(tmp_path, "sim")
    with Ledger.open(paths.database) as ledger:
        for node, state in (
            ("node01", NodeState.READY),
            ("node02", NodeState.QUARANTINED),
            ("node03", NodeState.RETIRED),
        ):
            ledger.set_state(node, state, 'said "no"', phase="", campaign="c1")
        ledger.put_campaign(
            "c1", env="sim", kind="deploy", nodes=[], site_digest="", abi="", status="running", begun=1000.5, summary={}
        )
        EvidenceStore.open(ledger, paths.raw).append(
            record("node/gpu/sanity/versions"), record("node/gpu/sanity/ecc", Outcome.FAIL, minutes=5)
        )
    return tmp_path


def test_prometheus_files_are_written_and_what_is_open_is_told(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "prometheus"
    code, said, told = call("export", "prometheus", "--env", "sim", "--out", str(out))
    assert code == 0
    assert f"{out}/rackready.rules.yml\n" in said
    assert "monitoring.metrics_target is not set" in told
    code, said, _ = call("export", "prometheus", "--env", "sim", "--out", str(out))
    assert (code, said.count("(unchanged)")) == (0, 8)


def test_prometheus_files_as_json(call: Call, tmp_path: Path) -> None:
    code, said, _ = call("export", "prometheus", "--env", "sim", "--out", str(tmp_path / "p"), "--output", "json")
    found = json.loads(said)
    assert code == 0
    assert found["changed"] == found["files"]
    assert sorted(found["files"])[:2] == ["alertmanager.yml", "dcgm-counters.csv"]
    assert len(found["notes"]) == 4


def test_an_edited_rules_file_is_refused(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "prometheus"
    call("export", "prometheus", "--env", "sim", "--out", str(out))
    rules = out / "rackready.rules.yml"
    rules.write_text("groups: []\n", encoding="utf-8")
    code, _, told = call("export", "prometheus", "--env", "sim", "--out", str(out))
    assert code == 2
    assert (
        f"{rules} - Expected: no file, or what this command wrote Actual: it was changed since rackready wrote it"
        in told
    )
    assert rules.read_text(encoding="utf-8") == "groups: []\n"


def test_dashboards_are_written(call: Call, tmp_path: Path) -> None:
    code, said, _ = call("export", "grafana", "--env", "sim", "--out", str(tmp_path / "grafana"))
    assert (code, len(said.splitlines())) == (0, 5)
    assert (
        json.loads((tmp_path / "grafana/rackready-fleet.json").read_text(encoding="utf-8"))["uid"] == "rackready-fleet"
    )


def test_metrics_before_the_first_deploy_are_the_plan_alone(call: Call) -> None:
    code, said, _ = call("export", "metrics", "--env", "sim")
    assert code == 0
    assert said.startswith("# Written by rackready export metrics of environment sim of site sim.\n")
    assert f'rackready_node_state{{{PLACE},node="node04",state="declared"}} 1\n' in said
    assert "rackready_campaign" not in said
    assert "rackready_rail_info" not in said


def test_metrics_tell_states_gates_campaign_and_what_is_expected(call: Call, records: Path) -> None:
    del records
    code, said, _ = call("export", "metrics", "--env", "sim")
    assert code == 0
    for line in (
        f'rackready_node_state{{{PLACE},node="node01",state="ready"}} 1',
        f'rackready_node_state{{{PLACE},node="node02",state="quarantined"}} 1',
        f'rackready_node_state{{{PLACE},node="node04",state="declared"}} 1',
        f'rackready_node_gpus_expected{{{PLACE},node="node02"}} 8',
        f'rackready_rail_info{{{PLACE},node="node01",{RAIL}}} 1',
        f'rackready_rail_rate_bytes_per_second{{{PLACE},node="node01",{RAIL}}} 50000000000',
        'rackready_campaign_status{site="sim",campaign="c1",kind="deploy",status="cut off"} 1',
        'rackready_campaign_begun_timestamp_seconds{site="sim",campaign="c1",kind="deploy"} 1000.5',
        f'rackready_node_gate_results{{{PLACE},node="node01",outcome="pass"}} 1',
        f'rackready_node_gate_results{{{PLACE},node="node01",outcome="fail"}} 1',
        f'rackready_node_gate_results{{{PLACE},node="node01",outcome="error"}} 0',
        f'rackready_node_evidence_timestamp_seconds{{{PLACE},node="node01"}} {int(T0.timestamp()) + 360}',
    ):
        assert f"{line}\n" in said


def test_nothing_is_expected_of_retired_and_undeployed_nodes(call: Call, records: Path) -> None:
    del records
    lines = call("export", "metrics", "--env", "sim")[1].splitlines()
    expected = [line for line in lines if line.startswith(("rackready_rail", "rackready_node_gpus"))]
    assert expected
    assert [line for line in expected if "node03" in line or "node04" in line] == []


def test_metrics_are_what_prometheus_reads(call: Call, records: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is missing (apt: prometheus)")
    del records
    said = call("export", "metrics", "--env", "sim")[1]
    done = subprocess.run(["promtool", "check", "metrics"], input=said, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_file_is_replaced_as_a_whole_and_servers_may_read_it(call: Call, records: Path) -> None:
    out = records / "rackready.prom"
    for _ in range(2):
        code, said, _ = call("export", "metrics", "--env", "sim", "--out", str(out))
        assert code == 0
        assert said.endswith(f"metrics written to {out}\n")
    assert out.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in records.glob("*.prom*")] == ["rackready.prom"]
    document = json.loads(call("export", "metrics", "--env", "sim", "--out", str(out), "--output", "json")[1])
    assert document == {"file": str(out), "samples": document["samples"]}
    assert document["samples"] > 40


def test_a_file_of_an_older_version_is_replaced(call: Call, records: Path) -> None:
    out = records / "rackready.prom"
    out.write_text("# Written by rackready export metrics.\na 1\n", encoding="utf-8")
    assert call("export", "metrics", "--env", "sim", "--out", str(out))[0] == 0
    assert "\na 1\n" not in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("metrics.txt", None, "Expected: a file name that ends with .prom: node_exporter reads no other"),
        (
            "apt.prom",
            "# HELP apt_upgrades\n",
            "Expected: no file, or one that rackready wrote for this environment Actual: somebody else's file",
        ),
        (
            "rackready.prom",
            "# Written by rackready export metrics of environment sim of site berlin.\na 1\n",
            (
                "Expected: no file, or one that rackready wrote for this environment Actual: Written by rackready "
                "export metrics of environment sim of site berlin. Name another file."
            ),
        ),
        ("gone/rackready.prom", None, "Expected: a folder that exists and can be written Actual: No such file"),
    ],
)
def test_other_files_and_folders_are_refused(
    name: str, content: str | None, told: str, call: Call, tmp_path: Path
) -> None:
    out = tmp_path / name
    if content is not None:
        out.write_text(content, encoding="utf-8")
    code, _, error = call("export", "metrics", "--env", "sim", "--out", str(out))
    assert code == 2
    assert told in error
    assert (out.read_text(encoding="utf-8") if out.exists() else None) == content
