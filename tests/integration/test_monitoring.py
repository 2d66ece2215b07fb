"""A real Prometheus fills every panel; a real Alertmanager makes one alert of a rack without power."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.cli import main
from rackready.design.monitoring.dashboards import Choice, Panel, dashboards
from rackready.design.monitoring.routes import alertmanager
from rackready.design.site import load_site
from rackready.evidence.store import EvidenceStore
from rackready.ledger.store import Ledger
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.integration import monitoring_parts as parts
from tests.unit.cli.keys import put_key
from tests.unit.handover.evidence import record

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(bool(parts.missing_programs()), reason=parts.missing_programs() or "nothing is missing"),
]
ROOT = Path(__file__).resolve().parents[2]
NODES = {f"node0{n}": f"127.0.0.{10 + n}" for n in (1, 2, 3, 4)}
CHOSEN = {"site": "sim", "rack": "rack01", "node": "node01", "rail": "1"}


@dataclass(frozen=True)
class Watched:
    """``url`` of Prometheus, ``alerts`` of Alertmanager."""

    url: str
    alerts: str

    def query(self, expr: str) -> list[dict[str, Any]]:
        for name, value in CHOSEN.items():
            expr = expr.replace(f"${name}", value)
        found: list[dict[str, Any]] = parts.get(f"{self.url}/api/v1/query", query=expr)["data"]["result"]
        return found


def _site(root: Path, ports: dict[str, int]) -> None:
    """Write the simulated rack's site file with nodes on loopback."""
    document = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    for node in document["racks"][0]["nodes"]:
        node["address"] = NODES[node["name"]]
    document["monitoring"] = {
        "node_port": ports["node"],
        "dcgm_port": ports["dcgm"],
        "metrics_target": f"127.0.0.1:{ports['own']}",
        "alertmanagers": [f"127.0.0.1:{ports['alertmanager']}"],
    }
    (root / "inventories/sim").mkdir(parents=True)
    (root / "playbooks").mkdir()
    (root / "inventories/sim/site.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    put_key(root / ".rackready/sim/keys/id_ed25519")


def _records(root: Path) -> None:
    """Three nodes are ready, the fourth is quarantined."""
    paths = EnvPaths(root, "sim")
    with Ledger.open(paths.database) as ledger:
        for node in NODES:
            state = NodeState.QUARANTINED if node == "node04" else NodeState.READY
            ledger.set_state(node, state, "", phase="", campaign="c1")
        ledger.put_campaign(
            "c1", env="sim", kind="deploy", nodes=[], site_digest="", abi="", status="finished", begun=1.0, summary={}
        )
        EvidenceStore.open(ledger, paths.raw).append(record("node/gpu/sanity/versions"))


def _quick(out: Path) -> None:
    """Scrape and judge each second."""
    path = out / "prometheus.yml"
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    document["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    path.write_text(yaml.safe_dump(document), encoding="utf-8")


def _export(*arguments: str) -> None:
    assert main.run(["export", *arguments, "--env", "sim"]).code == 0


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    root = tmp_path_factory.mktemp("monitored")
    ports = {name: parts.free_port() for name in ("node", "dcgm", "own", "prometheus", "alertmanager")}
    _site(root, ports)
    _records(root)
    out, texts, empty = root / "prometheus", root / "texts", root / "empty"
    texts.mkdir()
    empty.mkdir()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RACKREADY_ROOT", str(root))
        _export("prometheus", "--out", str(out))
        _export("metrics", "--out", str(texts / "rackready.prom"))
    _quick(out)
    devices = [f"mlx5_{number}" for number in range(12)]
    made = parts.sysfs(root / "sys", devices)
    with ExitStack() as up:
        for node, address in NODES.items():
            said = parts.dcgm_text(out / "dcgm-counters.csv", node)
            up.enter_context(parts.serving(address, ports["dcgm"], lambda said=said: said))
            up.enter_context(parts.node_exporter(root, address, ports["node"], made, empty))
        up.enter_context(parts.node_exporter(root, "127.0.0.1", ports["own"], made, texts))
        up.enter_context(_alertmanager(root, out / "alertmanager.yml", ports["alertmanager"]))
        up.enter_context(
            parts.running(
                root / "prometheus.log",
                "prometheus",
                f"--config.file={out / 'prometheus.yml'}",
                f"--storage.tsdb.path={root / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{ports['prometheus']}",
            )
        )
        url = f"http://127.0.0.1:{ports['prometheus']}"
        assert parts.until(lambda: len(parts.get(f"{url}/api/v1/targets")["data"]["activeTargets"]) == 9)
        yield Watched(url, f"http://127.0.0.1:{ports['alertmanager']}")


def _alertmanager(root: Path, config: Path, port: int) -> Any:  # noqa: ANN401 - a context
    return parts.running(
        root / "alertmanager.log",
        "prometheus-alertmanager",
        f"--config.file={config}",
        f"--storage.path={root / 'alertmanager'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    )


def test_every_target_answers(watched: Watched) -> None:
    def up() -> list[str]:
        found = parts.get(f"{watched.url}/api/v1/targets")["data"]["activeTargets"]
        return [one["scrapeUrl"] for one in found if one["health"] == "up"]

    assert len(parts.until(lambda: up() if len(up()) == 9 else [])) == 9


@pytest.mark.parametrize(
    "panel",
    [panel for dashboard in dashboards() for panel in dashboard.panels],
    ids=[f"{dashboard.uid}: {panel.title}" for dashboard in dashboards() for panel in dashboard.panels],
)
def test_the_query_of_every_panel_returns_data(panel: Panel, watched: Watched) -> None:
    found = parts.until(lambda: watched.query(panel.expr))
    assert found, panel.expr
    assert all(one["value"][1] != "NaN" for one in found)


@pytest.mark.parametrize("choice", sorted({c for d in dashboards() for c in d.choices}, key=repr), ids=repr)
def test_every_variable_of_a_dashboard_has_values(choice: Choice, watched: Watched) -> None:
    metric = choice.metric.replace("$site", "sim")
    url = f"{watched.url}/api/v1/label/{choice.name}/values"
    assert CHOSEN[choice.name] in parts.until(lambda: parts.get(url, **{"match[]": metric})["data"])


def test_planned_rails_meet_the_ports_of_node_exporter(watched: Watched) -> None:
    """Names of RDMA devices, labels and units of the plan are those that node_exporter uses."""
    expr = (
        "node_infiniband_rate_bytes_per_second == on (site, rack, unit, node, device) group_left (rail) "
        "rackready_rail_rate_bytes_per_second"
    )
    assert len(parts.until(lambda: watched.query(expr))) == 4 * 8


def test_own_metrics_are_about_nodes_and_not_about_the_machine_that_serves_them(watched: Watched) -> None:
    found = parts.until(lambda: watched.query("rackready_node_state"))
    assert {one["metric"]["node"]: one["metric"]["state"] for one in found} == dict.fromkeys(NODES, "ready") | {
        "node04": "quarantined"
    }
    assert watched.query('{job="rackready", __name__=~"node_(load1|boot_time_seconds)"}') == []


def test_only_the_quarantined_node_is_an_alert_and_it_reaches_alertmanager(watched: Watched) -> None:
    found = parts.until(lambda: parts.get(f"{watched.alerts}/api/v2/alerts"))
    names = {one["labels"]["alertname"]: one for one in found}
    assert names["NodeQuarantined"]["labels"]["node"] == "node04"
    assert names["NodeQuarantined"]["annotations"]["summary"] == "node node04: rackready took the node out of service."
    assert names["NodeQuarantined"]["receivers"] == [{"name": "rackready-warning"}]
    firing = {one["metric"]["alertname"] for one in watched.query('ALERTS{alertstate="firing"}')}
    assert firing - {"NodeEvidenceOld", "NodeRebooted"} == {"NodeQuarantined"}  # this machine may be young


# --- inhibitions ------------------------------------------------------------------------------------------------------

R1, R2 = {"site": "sim", "rack": "rack01"}, {"site": "sim", "rack": "rack02"}
NODE = {"alertname": "NodeUnreachable", "severity": "critical", "scope": "node"}
GPU = {"severity": "warning", "scope": "gpu", "node": "n1", "gpu": "3"}


@pytest.fixture(scope="module")
def alerts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[list[dict[str, str]]], set[str]]]:
    """Return a function that posts alerts and returns the ``id`` labels of those that are not silenced."""
    root, port = tmp_path_factory.mktemp("alertmanager"), parts.free_port()
    config = root / "alertmanager.yml"
    config.write_text(json.dumps(alertmanager(load_site("sim", root=ROOT))), encoding="utf-8")
    url = f"http://127.0.0.1:{port}/api/v2"
    group = iter(range(1000))

    def posted(labels: list[dict[str, str]]) -> set[str]:
        """Alerts of one test are a site of their own: those of others never silence them."""
        site = f"site{next(group)}"
        sent = [{"labels": {**one, "site": site}, "startsAt": datetime.now(UTC).isoformat()} for one in labels]
        parts.post(f"{url}/alerts", sent)
        found = parts.get(f"{url}/alerts", filter=f'site="{site}"')
        assert len(found) == len(labels)
        return {one["labels"]["id"] for one in found if one["status"]["state"] != "suppressed"}

    with _alertmanager(root, config, port):
        assert parts.until(lambda: parts.get(f"{url}/status")["cluster"])
        yield posted


Posted = Callable[[list[dict[str, str]]], set[str]]


def test_a_rack_without_power_is_one_alert(alerts: Posted) -> None:
    dark = [
        {"id": "rack", "alertname": "RackUnreachable", "severity": "critical", "scope": "rack", **R1},
        *({"id": f"n{n}", **NODE, "node": f"n{n}", **R1} for n in range(4)),
        {"id": "dcgm", "alertname": "GpuExporterDown", "severity": "warning", "scope": "node", "node": "n1", **R1},
        {
            "id": "leaf",
            "alertname": "SwitchUnreachable",
            "severity": "critical",
            "scope": "switch",
            "switch": "l1",
            **R1,
        },
    ]
    assert alerts(dark) == {"rack"}


def test_a_rack_without_power_silences_no_other_rack(alerts: Posted) -> None:
    dark = {"id": "rack", "alertname": "RackUnreachable", "severity": "critical", "scope": "rack", **R1}
    other = {"id": "other", **NODE, "node": "n9", **R2}
    nowhere = {"id": "site", "alertname": "CampaignCutOff", "severity": "warning", "scope": "site"}
    assert alerts([dark, other, nowhere]) == {"rack", "other", "site"}


def test_a_node_that_does_not_answer_hides_what_follows_and_not_the_cause(alerts: Posted) -> None:
    down = {"id": "node", **NODE, "node": "n1", **R1}
    cause = {"id": "xid", "alertname": "GpuXidRestartBm", **GPU, **R1}
    exporter = {"alertname": "GpuExporterDown", "severity": "warning", "scope": "node", **R1}
    own, other = {**exporter, "id": "own", "node": "n1"}, {**exporter, "id": "other", "node": "n2"}
    assert alerts([down, cause, own, other]) == {"node", "xid", "other"}


def test_a_switch_whose_exporter_does_not_answer_hides_no_rail(alerts: Posted) -> None:
    leaf = {"id": "leaf", "alertname": "SwitchUnreachable", "severity": "critical", "scope": "switch", "switch": "l1"}
    rail = {"id": "rail", "alertname": "RailDown", "severity": "critical", "scope": "rail", "switch": "l1"}
    assert alerts([leaf, {**rail, "node": "n1", **R1}]) == {"leaf", "rail"}


def test_a_gpu_that_needs_a_reset_silences_its_own_warnings_alone(alerts: Posted) -> None:
    reset = {"id": "reset", "alertname": "GpuXidResetGpu", **GPU, **R1, "severity": "critical", "action": "RESET_GPU"}
    warm = {"id": "warm", "alertname": "GpuThermalSlowdown", **GPU, **R1}
    lost = {"id": "lost", "alertname": "Nvlink5LinkLost", **GPU, **R1, "severity": "critical"}
    other = {"id": "other", "alertname": "GpuThermalSlowdown", **GPU, **R1, "gpu": "4"}
    assert alerts([reset, warm, lost, other]) == {"reset", "lost", "other"}


def test_a_boot_explains_links_that_flapped(alerts: Posted) -> None:
    boot = {"id": "boot", "alertname": "NodeRebooted", "severity": "info", "scope": "node", "node": "n1", **R1}
    flap = {"alertname": "RailFlapping", "severity": "warning", "scope": "rail", **R1}
    assert alerts([boot, {**flap, "id": "own", "node": "n1"}, {**flap, "id": "other", "node": "n2"}]) == {
        "boot",
        "other",
    }
