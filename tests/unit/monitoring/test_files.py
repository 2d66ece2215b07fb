"""Files for Prometheus, Alertmanager and dcgm-exporter: complete, and taken by the real programs."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design.monitoring.condition import metrics_of
from rackready.design.monitoring.conditions import conditions, counters, records
from rackready.design.monitoring.counters import DCGM, NODE, counters_csv
from rackready.design.monitoring.dashboards import dashboards, expressions
from rackready.design.monitoring.targets import targets
from rackready.design.monitoring.xid_conditions import xid_conditions
from rackready.design.site import load_site
from rackready.model.monitoring import Monitoring, Webhooks
from rackready.model.site import Site
from rackready.profiles import loader
from rackready.render.grafana import grafana_files
from rackready.render.monitoring import COUNTERS, missing, monitoring_files

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def site() -> Site:
    whole = Monitoring(
        switch_port=9100,
        metrics_target="admin01:9100",
        alertmanagers=["admin01:9093"],
        webhooks=Webhooks(critical="https://pager.example.com/a", warning="https://chat.example.com/b", info=None),
    )
    return load_site("sim", root=ROOT).model_copy(update={"monitoring": whole})


@pytest.fixture
def folder(site: Site, tmp_path: Path) -> Path:
    for name, data in monitoring_files(site).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return tmp_path


def read(*argv: str, cwd: Path) -> str:
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is missing (apt: prometheus, prometheus-alertmanager)")
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_counters_file_has_exactly_what_rules_and_dashboards_read(folder: Path) -> None:
    lines = [line for line in (folder / COUNTERS).read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    rows = list(csv.reader(lines))
    assert {len(row) for row in rows} == {3}
    read_by = [one.expr for one in conditions()] + [one.expr for one in records().values()] + [*expressions()]
    wanted = {metric for expr in read_by for metric in metrics_of(expr) if metric.startswith("DCGM_")}
    assert {row[0] for row in rows} == wanted
    assert {row[1] for row in rows} <= {"gauge", "counter"}
    assert all(row[2] and row[2] == row[2].strip() for row in rows)


def test_an_unknown_counter_is_refused_because_it_would_stop_the_exporter() -> None:
    with pytest.raises(KeyError, match="DCGM_FI_DEV_NO_SUCH_FIELD"):
        counters_csv([*counters(), "DCGM_FI_DEV_NO_SUCH_FIELD"])


def test_every_metric_is_in_a_table_with_its_unit_and_source() -> None:
    read_by = [one.expr for one in conditions()] + [one.expr for one in records().values()] + [*expressions()]
    found = {metric for expr in read_by for metric in metrics_of(expr)}
    known = DCGM.keys() | NODE.keys() | {"up"}
    assert {metric for metric in found - known if not metric.startswith("rackready_")} == set()
    assert {name for one in conditions() for name in one.records} <= records().keys()
    assert all(one.unit and one.source for one in conditions())


def test_no_rule_reads_the_gauge_of_the_last_xid() -> None:
    assert [one.id for one in conditions() if "DCGM_FI_DEV_XID_ERRORS" in one.metrics] == []


def test_every_xid_of_the_catalogue_has_one_alert_or_asks_for_nothing() -> None:
    expressions_of = {one.id: one.expr for one in xid_conditions() if one.id != "GpuXidUnlisted"}
    for number, xid in loader.xids().xids.items():
        of = [name for name, expr in expressions_of.items() if str(number) in expr.split('"')[1].split("|")]
        assert len(of) == (0 if xid.action == "IGNORE" else 1), (number, xid.action, of)


def test_an_alert_carries_the_catalogues_action() -> None:
    actions = {one.id: (one.action, one.severity.value) for one in xid_conditions()}
    assert actions["GpuXidRestartBm"] == ("RESTART_BM", "critical")
    assert actions["GpuXidResetGpu"] == ("RESET_GPU", "critical")
    assert actions["GpuXidResetGpuSoon"] == ("RESET_GPU", "warning")
    assert actions["GpuXidRestartApp"] == ("RESTART_APP", "info")
    assert actions["GpuXidUnlisted"] == ("CONTACT_SUPPORT", "critical")


def test_targets_carry_node_rack_unit_and_rails(site: Site) -> None:
    found = targets(site)
    assert found["node"][0] == {
        "targets": ["192.0.2.11:9100"],
        "labels": {"site": "sim", "rack": "rack01", "unit": "1", "node": "node01"},
    }
    assert [one["targets"] for one in found["dcgm"]] == [[f"192.0.2.1{n}:9400"] for n in (1, 2, 3, 4)]
    assert found["switch"][0] == {
        "targets": ["192.0.2.21:9100"],
        "labels": {"site": "sim", "switch": "leaf01", "role": "compute", "rails": "1,2,3,4"},
    }
    assert found["rackready"] == [{"targets": ["admin01:9100"], "labels": {}}]


def test_switches_that_a_topology_makes_are_targets_with_their_planned_address_and_rack() -> None:
    made = load_site("x", site_file=ROOT / "inventories/examples/b200-4su-roce.yml", root=ROOT)
    found = targets(made.model_copy(update={"monitoring": Monitoring(switch_port=9101)}))["switch"]
    by_name = {one["labels"]["switch"]: one for one in found}
    assert len(by_name) == 63
    assert by_name["leaf-su001-r1"]["targets"] == ["10.20.32.250:9101"]
    assert by_name["leaf-su001-r1"]["labels"]["rails"] == "1"
    assert by_name["leaf-su001-r1"]["labels"]["role"] == "compute"
    assert by_name["oob-net-leaf-018"]["labels"]["role"] == "oob"
    assert {one["labels"].get("rack", "") for one in found} != {""}


def test_nodes_whose_rails_nobody_can_watch_are_named() -> None:
    made = load_site("x", site_file=ROOT / "inventories/examples/b200-4su-roce.yml", root=ROOT)
    assert missing(made)[-1] == (
        "profiles without names of RDMA devices: dgx_b200: rails of these nodes are not watched. "
        "`rackready profile learn` reads the names from a node"
    )


def test_a_site_that_leaves_monitoring_open_is_told_what_stays_silent() -> None:
    bare = load_site("sim", root=ROOT)
    assert targets(bare)["switch"] == targets(bare)["rackready"] == []
    assert missing(bare) == [
        (
            "monitoring.metrics_target is not set: alerts about missing GPUs, planned rails and node states cannot "
            "fire, and nodes that are not there yet, out for repair or retired count as unreachable"
        ),
        "monitoring.alertmanagers is empty: Prometheus sends its alerts nowhere",
        "monitoring.webhooks has no critical and no warning: Alertmanager only shows those alerts",
        "monitoring.switch_port is not set: switches are not scraped",
    ]


def test_a_complete_site_leaves_nothing_open(site: Site) -> None:
    assert missing(site) == []


def test_prometheus_takes_the_configuration(folder: Path) -> None:
    """Promtool also reads rules and targets that the configuration names."""
    said = read("promtool", "check", "config", "prometheus.yml", cwd=folder)
    assert "is valid prometheus config file syntax" in said


def test_own_metrics_keep_their_labels_and_nothing_else_of_that_machine_is_kept(folder: Path) -> None:
    jobs = {one["job_name"]: one for one in yaml.safe_load((folder / "prometheus.yml").read_text())["scrape_configs"]}
    assert jobs["rackready"]["honor_labels"] is True
    assert [job for job, one in jobs.items() if one.get("honor_labels")] == ["rackready"]
    assert jobs["rackready"]["metric_relabel_configs"][0]["regex"] == "rackready_.*|node_textfile_.*"


def test_alertmanager_takes_its_configuration(folder: Path) -> None:
    assert "SUCCESS" in read("amtool", "check-config", "alertmanager.yml", cwd=folder)


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (["alertname=RackUnreachable", "severity=critical", "rack=r01"], "rackready-critical"),
        (["alertname=GpuThermalSlowdown", "severity=warning", "node=n01"], "rackready-warning"),
        (["alertname=NodeRebooted", "severity=info"], "rackready-info"),
        (["alertname=SomebodyElses", "severity=page"], "rackready-warning"),
    ],
)
def test_alerts_go_to_the_receiver_of_their_severity(labels: list[str], receiver: str, folder: Path) -> None:
    argv = ("amtool", "config", "routes", "test", "--config.file=alertmanager.yml", *labels)
    assert read(*argv, cwd=folder).strip() == receiver


def test_receivers_have_the_webhooks_of_the_site(folder: Path) -> None:
    found = yaml.safe_load((folder / "alertmanager.yml").read_text(encoding="utf-8"))["receivers"]
    assert found == [
        {"name": "rackready-critical", "webhook_configs": [{"url": "https://pager.example.com/a"}]},
        {"name": "rackready-warning", "webhook_configs": [{"url": "https://chat.example.com/b"}]},
        {"name": "rackready-info"},
    ]


def test_grafana_gets_five_dashboards_with_every_query() -> None:
    made: dict[str, dict[str, Any]] = {name: json.loads(data) for name, data in grafana_files().items()}
    assert sorted(made) == [f"rackready-{name}.json" for name in ("campaign", "fleet", "node", "rack", "rail")]
    for dashboard in dashboards():
        found = made[f"{dashboard.uid}.json"]
        assert (found["uid"], found["title"], found["editable"]) == (dashboard.uid, dashboard.title, False)
        assert [panel["targets"][0]["expr"] for panel in found["panels"]] == [one.expr for one in dashboard.panels]
        assert [panel["fieldConfig"]["defaults"]["unit"] for panel in found["panels"]] == [
            one.unit for one in dashboard.panels
        ]
        names = [variable["name"] for variable in found["templating"]["list"]]
        assert names == ["datasource", *(choice.name for choice in dashboard.choices)]
        assert {panel["datasource"]["uid"] for panel in found["panels"]} == {"${datasource}"}
        places = [(one["gridPos"]["x"], one["gridPos"]["y"]) for one in found["panels"]]
        assert len(set(places)) == len(places)
