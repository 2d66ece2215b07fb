"""Which nodes get which exporters, and what these must answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design import hostvars
from rackready.design.monitoring.condition import metrics_of
from rackready.design.monitoring.conditions import conditions, records
from rackready.design.monitoring.exporters import gpu_metrics
from rackready.design.monitoring.routes import alertmanager
from rackready.design.site import load_site
from rackready.model.monitoring import Monitoring, WebhookFile, Webhooks
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.profiles import loader
from rackready.render.monitoring import missing

ROOT = Path(__file__).resolve().parents[3]
NVLINK_4 = {"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"}
NVLINK_5 = {"DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS"}


def site(**monitoring: Any) -> Site:
    return load_site("sim", root=ROOT).model_copy(
        update={"monitoring": Monitoring(**{"manage_exporters": True, **monitoring})}
    )


def in_kubernetes(made: Site) -> Site:
    return made.model_copy(update={"handover": load_site("sim-k8s", root=ROOT).handover})


def variables(made: Site) -> dict[str, Any]:
    platform = loader.platform("dgx_h100")
    found = hostvars.site_vars(made) | hostvars.platform_vars(made, platform) | hostvars.node_vars(made, "node01")
    return {name: value for name, value in found.items() if name.startswith("monitoring_")}


def test_a_site_without_monitoring_gets_no_exporter() -> None:
    assert variables(load_site("sim", root=ROOT)) == {}


def test_a_pinned_site_gets_none_either() -> None:
    """A pinned site has every key: what was not written looks as if it had been."""
    again = Site.model_validate_json(load_site("sim", root=ROOT).model_dump_json(by_alias=True))
    assert variables(again) == {}


def test_a_site_that_manages_its_exporters_gets_none() -> None:
    assert variables(site(manage_exporters=False)) == {}


def test_ports_address_interval_and_rails_are_those_of_the_site() -> None:
    found = variables(site(node_port=19100, dcgm_port=19400, scrape_interval_s=15))
    wanted = {
        "monitoring_managed": True,
        "monitoring_dcgm": True,
        "monitoring_address": "192.0.2.11",
        "monitoring_node_port": 19100,
        "monitoring_dcgm_port": 19400,
        "monitoring_interval_s": 15,
        "monitoring_gpus": 8,
    }
    assert {name: found[name] for name in wanted} == wanted
    assert found["monitoring_devices"][:2] == ["mlx5_0", "mlx5_3"]
    assert len(found["monitoring_interfaces"]) == len(found["monitoring_devices"]) == found["monitoring_rails"] == 8


def test_infiniband_has_no_interfaces_for_ethtool() -> None:
    made = load_site("sim-ib", root=ROOT).model_copy(update={"monitoring": Monitoring(manage_exporters=True)})
    found = hostvars.node_vars(made, made.nodes()[0].name)
    assert found["monitoring_interfaces"] == []
    assert len(found["monitoring_devices"]) == 8


def test_every_metric_that_an_alert_reads_of_a_node_is_asked_for() -> None:
    """Apart from those of the other NVLink, up, and rackready's own."""
    found = variables(site())
    asked = {*found["monitoring_gpu_metrics"], *found["monitoring_node_metrics"], *found["monitoring_device_metrics"]}
    exprs = [*(one.expr for one in conditions()), *(one.expr for one in records().values())]
    read = {name for expr in exprs for name in metrics_of(expr) if name.startswith(("DCGM_", "node_"))}
    assert read - asked == NVLINK_5
    assert asked <= read


def test_the_counters_file_has_every_counter_that_is_asked_for_and_none_that_profiles() -> None:
    found = variables(site())
    names = {line.split(",")[0] for line in found["monitoring_counters_file"].splitlines() if line[0] != "#"}
    assert {*found["monitoring_gpu_metrics"]} <= names
    assert [name for name in names if "_PROF_" in name] == []


@pytest.mark.parametrize(
    ("gpu", "has", "lacks"),
    [
        ("h100_sxm", NVLINK_4, NVLINK_5),
        ("b200_sxm", NVLINK_5, NVLINK_4),
        ("l40s", set(), NVLINK_4 | NVLINK_5),
    ],
)
def test_counters_that_a_gpu_cannot_have_are_not_asked_for(gpu: str, has: set[str], lacks: set[str]) -> None:
    found = {*gpu_metrics(loader.gpu(gpu))}
    assert has <= found
    assert lacks.isdisjoint(found)
    assert "DCGM_EXP_XID_ERRORS_COUNT" in found


def test_the_gpu_operator_and_a_foreign_dcgm_bring_their_own_exporter() -> None:
    made = site()
    foreign = made.model_copy(update={"software": made.software.model_copy(update={"manage_dcgm": False})})
    assert [variables(one)["monitoring_dcgm"] for one in (made, in_kubernetes(made), foreign)] == [True, False, False]
    assert variables(in_kubernetes(made))["monitoring_managed"]


def test_the_export_tells_who_must_run_dcgm_exporter() -> None:
    made = site(dcgm_port=9401)
    foreign = made.model_copy(update={"software": made.software.model_copy(update={"manage_dcgm": False})})
    operator = (
        "role monitoring leaves dcgm-exporter to the GPU Operator, whose pods must answer at port 9401 of every node"
    )
    own = (
        "software.manage_dcgm is false: role monitoring installs no dcgm-exporter, and yours must answer at port 9401 "
        "of every node"
    )
    assert operator in missing(in_kubernetes(made))
    assert own in missing(foreign)
    assert [note for note in missing(made) if "dcgm-exporter" in note] == []
    unmanaged = made.model_copy(update={"monitoring": Monitoring(manage_exporters=False)})
    assert [note for note in missing(in_kubernetes(unmanaged)) if "dcgm-exporter" in note] == []


def test_an_address_with_a_secret_stays_in_its_file() -> None:
    """`url_file` is Alertmanager's, since 0.26 (its CHANGELOG)."""
    made = site(
        webhooks=Webhooks(critical=WebhookFile(url_file="/etc/alertmanager/pager"), warning="https://chat.example/b")
    )
    assert [one.get("webhook_configs") for one in alertmanager(made)["receivers"]] == [
        [{"url_file": "/etc/alertmanager/pager"}],
        [{"url": "https://chat.example/b"}],
        None,
    ]


@pytest.mark.parametrize("path", ["pager", "/etc/al ert", "../x", "/etc/{{ x }}"])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="String should match pattern"):
        WebhookFile(url_file=path)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (
            "ftp://pager.example.com/a",
            (
                r"""monitoring.webhooks.critical.url: Expected: text that matches ^https?://[A-Za-z0-9][^\s\"'\\]*$ """
                "Actual: 'ftp://pager.example.com/a'. Correct it."
            ),
        ),
        (
            {"url_file": "pager"},
            (
                "monitoring.webhooks.critical.url_file: Expected: text that matches ^/[A-Za-z0-9._/-]+$ "
                "Actual: 'pager'. Correct it."
            ),
        ),
    ],
)
def test_a_wrong_receiver_is_refused_once(written: object, words: str, tmp_path: Path) -> None:
    document = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    document["monitoring"] = {"webhooks": {"critical": written}}
    (tmp_path / "site.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    with pytest.raises(RackreadyError) as error:
        load_site("x", site_file=tmp_path / "site.yml", root=ROOT)
    assert str(error.value).splitlines()[1:] == [f"  {words}"]
