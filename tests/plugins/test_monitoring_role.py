"""Role monitoring: what it refuses, its packages by system, and its units, which the real node_exporter starts with."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from rackready.design.site import load_site
from rackready.drivers.mirror.plan import plan
from rackready.drivers.role_packages import asked_for
from rackready.model.monitoring import Monitoring
from rackready.model.site import Site
from rackready.ondevice.exporters import samples
from rackready.paths import EnvPaths
from rackready.profiles import loader

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "roles/monitoring"
DEFAULTS: dict[str, Any] = yaml.safe_load((ROLE / "defaults/main.yml").read_text(encoding="utf-8"))
OWN: dict[str, Any] = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
NODE = {
    "monitoring_managed": True,
    "monitoring_dcgm": True,
    "monitoring_address": "192.0.2.11",
    "monitoring_gpus": 8,
    "monitoring_interfaces": ["enp24s0np0", "enp64s0np0"],
    "monitoring_counters_file": "DCGM_FI_DEV_GPU_TEMP,gauge,Heat\nDCGM_EXP_XID_ERRORS_COUNT,gauge,Xids\n",
    "monitoring_gpu_metrics": ["DCGM_FI_DEV_GPU_TEMP", "DCGM_EXP_XID_ERRORS_COUNT"],
}
USED = ("_unit", "_listen", "_counters")
"""Ends of the role's own variables that templates read."""
ANYWHERE = "0.0.0.0"  # noqa: S104 - what a role must not do by itself


def templar(**known: Any) -> Templar:
    texts = {key: trust_as_template(value) if isinstance(value, str) else value for key, value in OWN.items()}
    lists = {key: value for key, value in texts.items() if not isinstance(value, list)}
    return Templar(loader=DataLoader(), variables=DEFAULTS | lists | NODE | known)


def judged(number: int, **known: Any) -> tuple[bool, str]:
    """Return whether a check of the preflight holds, and its words."""
    tasks = yaml.safe_load((ROLE / "tasks/preflight.yml").read_text(encoding="utf-8"))
    check = [task["rackready_check"] for task in tasks if "rackready_check" in task][number]
    evaluate = templar(**known)
    holds = all(evaluate.template(trust_as_template(f"{{{{ {item} }}}}")) for item in check["that"])
    words = {key: evaluate.template(trust_as_template(check[key])) for key in ("expected", "actual", "next_step")}
    return holds, f"Expected: {words['expected']} Actual: {words['actual']}. {words['next_step']}"


def rendered(name: str, **known: Any) -> str:
    evaluate = templar(**known)
    names = [name for name in (*DEFAULTS, *OWN) if not name.startswith("__") or name.endswith(USED)]
    values = {name: evaluate.template(trust_as_template(f"{{{{ {name} }}}}")) for name in names}
    text = (ROLE / "templates" / f"{name}.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True, autoescape=False)  # noqa: S701 - units
    return environment.from_string(text).render(values | {"ansible_managed": "rackready"})


def argv(unit: str) -> list[str]:
    """Return the words of the last ExecStart, as systemd reads them (systemd.service(5), command lines)."""
    lines = unit.replace("\\\n", " ").splitlines()
    words = [line for line in lines if line.startswith("ExecStart=")][-1].removeprefix("ExecStart=").split()
    assert [word for word in words if "$" in word.replace("$$", "")] == [], "systemd would expand it"
    return [word.replace("$$", "$") for word in words]


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_node_as_planned_passes() -> None:
    assert judged(0)[0] is True
    assert judged(0, monitoring_listen=ANYWHERE)[0] is True
    assert judged(1)[0] is True


@pytest.mark.parametrize(
    ("wrong", "actual"),
    [
        ({"monitoring_address": ""}, "'', listen '', ports 9100 and 9400, 30 s, 8 GPUs"),
        ({"monitoring_address": ANYWHERE}, "'0.0.0.0', listen '', ports 9100 and 9400, 30 s, 8 GPUs"),
        ({"monitoring_listen": "eth0"}, "'192.0.2.11', listen 'eth0', ports 9100 and 9400, 30 s, 8 GPUs"),
        ({"monitoring_dcgm_port": 9100}, "'192.0.2.11', listen '', ports 9100 and 9100, 30 s, 8 GPUs"),
        ({"monitoring_interval_s": 1}, "'192.0.2.11', listen '', ports 9100 and 9400, 1 s, 8 GPUs"),
        ({"monitoring_gpus": 0}, "'192.0.2.11', listen '', ports 9100 and 9400, 30 s, 0 GPUs"),
    ],
)
def test_wrong_inputs_are_refused(wrong: dict[str, Any], actual: str) -> None:
    words = (
        "Expected: the node's address, an IPv4 address to listen on or none, two ports, an interval of 5 to 60 s, and "
        f"GPUs Actual: {actual}. Correct `monitoring` in the site file, or the variables monitoring_* in the "
        "group_vars of the environment. Nothing was changed."
    )
    assert judged(0, **wrong) == (False, words)


@pytest.mark.parametrize(
    ("content", "actual"),
    [
        ("", "DCGM_FI_DEV_GPU_TEMP, DCGM_EXP_XID_ERRORS_COUNT"),
        ("DCGM_FI_DEV_GPU_TEMP,gauge,Heat\n", "DCGM_EXP_XID_ERRORS_COUNT"),
    ],
)
def test_a_counters_file_without_what_alerts_read_is_refused(content: str, actual: str) -> None:
    words = (
        f"Expected: a counters file with every counter that alerts read Actual: no {actual}. Leave "
        "monitoring_counters_file to the site file, or add these counters to yours. Nothing was changed."
    )
    assert judged(1, monitoring_counters_file=content) == (False, words)


# --- packages ---------------------------------------------------------------------------------------------------------


def site(name: str = "hgx-r580-debian12", **monitoring: Any) -> Site:
    made = load_site("sim", root=ROOT)
    software = made.software.model_copy(update={"set": name})
    return made.model_copy(
        update={"software": software, "monitoring": Monitoring(**{"manage_exporters": True, **monitoring})}
    )


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("hgx-r580-debian12", "prometheus-node-exporter"),
        ("hgx-r580-ubuntu2204", "prometheus-node-exporter"),
        ("hgx-r580-ubuntu2404", "prometheus-node-exporter"),
        ("hgx-r580-el9", "golang-github-prometheus-node-exporter"),
    ],
)
def test_each_system_has_its_packages(name: str, package: str) -> None:
    found = asked_for(site(name), ROOT, loader.platform("dgx_h100")).roles["monitoring"]
    assert found == {package: "", "datacenter-gpu-manager-exporter": ""}


def test_no_package_is_asked_for_where_the_site_manages_its_exporters() -> None:
    assert "monitoring" not in asked_for(site(manage_exporters=False), ROOT, loader.platform("dgx_h100")).roles


def test_a_site_pins_versions_and_names_by_its_group_vars(tmp_path: Path) -> None:
    (tmp_path / "nodes.yml").write_text(
        "monitoring_node_package: node_exporter\nmonitoring_node_version: 1.12.1-1\nmonitoring_dcgm_version: 4.8.2-1\n",
        encoding="utf-8",
    )
    found = asked_for(site(), ROOT, loader.platform("dgx_h100"), tmp_path).roles["monitoring"]
    assert found == {"node_exporter": "1.12.1-1", "datacenter-gpu-manager-exporter": "4.8.2-1"}


def test_the_mirror_has_the_exporters() -> None:
    [need] = plan(site(), EnvPaths(ROOT, "sim"), build=False).needs
    assert {"prometheus-node-exporter", "datacenter-gpu-manager-exporter"} <= set(need.packages)


def test_the_mirror_of_several_schedulers_has_the_exporters_of_each() -> None:
    """The part of Slurm has dcgm-exporter from the role, that of Kubernetes from the GPU Operator."""
    path = ROOT / "inventories/examples/slurm-and-kubernetes.yml"
    made = load_site("shared", site_file=path, root=ROOT)
    managed = made.model_copy(update={"monitoring": Monitoring(manage_exporters=True)})
    [need] = plan(managed, EnvPaths(ROOT, "shared"), build=False).needs
    assert {"prometheus-node-exporter", "datacenter-gpu-manager-exporter"} <= set(need.packages)


# --- version ----------------------------------------------------------------------------------------------------------


def known_exporter(stdout: str, counters: str = "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION,gauge,x\n") -> tuple[bool, str]:
    """Return whether the role goes on with an exporter that says this of its version, and the words."""
    tasks = yaml.safe_load((ROLE / "tasks/install.yml").read_text(encoding="utf-8"))
    task = next(one for one in tasks if one["name"] == "install | Check that dcgm-exporter knows every counter")
    said = {"__monitoring_dcgm_said": {"stdout": stdout}, "__monitoring_blind": False}
    evaluate = templar(monitoring_counters_file=counters, **said)
    if not evaluate.template(trust_as_template(f"{{{{ {task['when']} }}}}")):
        return True, ""
    check = task["rackready_check"]
    holds = evaluate.template(trust_as_template(f"{{{{ {check['that']} }}}}"))
    words = {key: evaluate.template(trust_as_template(check[key])) for key in ("expected", "actual", "next_step")}
    return holds, f"Expected: {words['expected']} Actual: {words['actual']}. {words['next_step']}"


def test_an_exporter_that_stops_at_the_counters_file_is_refused() -> None:
    """Its go-dcgm has no DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION."""
    words = (
        "Expected: dcgm-exporter 4.5.1-4.8.0 or newer Actual: DCGM Exporter version 4.4.2-4.7.1, which stops at "
        "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION in the counters file. Put a newer datacenter-gpu-manager-exporter into "
        "the site's repository, correct monitoring_dcgm_version if the group_vars pin one, and install again. The "
        "exporter was not started with the new settings."
    )
    assert known_exporter("DCGM Exporter version 4.4.2-4.7.1") == (False, words)


@pytest.mark.parametrize("version", ["4.5.1-4.8.0", "4.5.3-4.8.2", "4.6.0-4.10.0", "5.0.0-5.0.0-ubi9"])
def test_a_newer_exporter_is_taken(version: str) -> None:
    assert known_exporter(f"DCGM Exporter version {version}")[0]


@pytest.mark.parametrize("said", ["", "DCGM Exporter version Filled by the build system"])
def test_an_exporter_without_a_number_is_judged_by_its_counters_alone(said: str) -> None:
    assert known_exporter(said) == (True, "")


def test_a_counters_file_without_the_newest_counter_asks_for_no_version() -> None:
    assert known_exporter("DCGM Exporter version 4.4.2-4.7.1", "DCGM_FI_DEV_GPU_TEMP,gauge,x\n") == (True, "")


# --- units ------------------------------------------------------------------------------------------------------------


def test_dcgm_exporter_listens_on_the_node_s_address_and_reads_as_often_as_it_is_asked() -> None:
    assert argv(rendered("dcgm-exporter.conf", monitoring_interval_s=15)) == [
        "/usr/bin/dcgm-exporter",
        *("--devices", "g"),
        *("--collectors", "/etc/dcgm-exporter/rackready-counters.csv"),
        *("--address", "192.0.2.11:9400"),
        *("--collect-interval", "15000"),
        *("--remote-hostengine-info", "localhost:5555"),
    ]


def test_the_site_may_listen_elsewhere() -> None:
    for name in ("dcgm-exporter.conf", "node-exporter.conf"):
        assert f"{ANYWHERE}:9" in rendered(name, monitoring_listen=ANYWHERE)
        assert ANYWHERE not in rendered(name)


def test_dcgm_exporter_stops_and_starts_with_the_host_engine() -> None:
    """Its own start would start the host engine while a driver change unloads the module."""
    assert "BindsTo=nvidia-dcgm.service\n" in rendered("dcgm-exporter.conf")
    assert rendered("nvidia-dcgm.conf").endswith("[Unit]\nWants=nvidia-dcgm-exporter.service\n")


@pytest.mark.parametrize("dcgm", [True, False])
def test_each_unit_is_started_anew_when_a_file_of_its_own_is_newer(dcgm: bool) -> None:  # noqa: FBT001 - of the role
    """A run that was cut off wrote the files and started nothing."""
    lists = {
        name: trust_as_template(OWN[name]) for name in ("__monitoring_node_files_of", "__monitoring_dcgm_files_of")
    }
    paths = {
        name: [{"path": trust_as_template(item["path"])} for item in OWN[name]]
        for name in ("__monitoring_node_files", "__monitoring_dcgm_files")
    }
    evaluate = templar(**lists, **paths, monitoring_dcgm=dcgm)
    found = evaluate.template(trust_as_template("{{ __monitoring_files_of }}"))
    node = "prometheus-node-exporter.service"
    of_node = {node: [f"/etc/systemd/system/{node}.d/rackready.conf"]}
    of_dcgm = {
        "nvidia-dcgm-exporter.service": [
            "/etc/systemd/system/nvidia-dcgm-exporter.service.d/rackready.conf",
            "/etc/systemd/system/nvidia-dcgm.service.d/rackready-exporter.conf",
            "/etc/dcgm-exporter/rackready-counters.csv",
        ]
    }
    assert found == of_node | (of_dcgm if dcgm else {})
    start = yaml.safe_load((ROLE / "tasks/service.yml").read_text(encoding="utf-8"))[1][
        "ansible.builtin.systemd_service"
    ]
    for older, fresh, state in (([], False, "started"), ([node], False, "restarted"), ([], True, "restarted")):
        known = {"item": node, "__monitoring_read": {"older": older}, "__monitoring_fresh": fresh}
        evaluate = templar(**known)
        assert evaluate.template(trust_as_template(start["state"])) == state
        assert evaluate.template(trust_as_template(start["daemon_reload"])) is (state == "restarted")


def test_infiniband_has_no_ethtool() -> None:
    assert "ethtool" in rendered("node-exporter.conf")
    assert "ethtool.device" not in rendered("node-exporter.conf", monitoring_interfaces=[])


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing")
    for name, template in (("node", "node-exporter.conf"), ("dcgm", "dcgm-exporter.conf")):
        text = rendered(template).replace("/usr/bin/prometheus-node-exporter", "/bin/true")
        text = text.replace("/usr/bin/dcgm-exporter", "/bin/true").replace("BindsTo=nvidia-dcgm.service\n", "")
        (tmp_path / f"{name}.service").write_text(text, encoding="utf-8")
        done = subprocess.run(
            ["systemd-analyze", "verify", str(tmp_path / f"{name}.service")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert [line for line in done.stderr.splitlines() if f"{name}.service:" in line] == []


@contextlib.contextmanager
def running(words: list[str]) -> Iterator[None]:
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield
    finally:
        process.terminate()
        said = process.communicate(timeout=120)[1].decode()
    assert "error: " not in said.splitlines()[0], said


def test_the_real_node_exporter_starts_with_these_arguments_and_has_the_collectors(tmp_path: Path) -> None:
    if shutil.which("prometheus-node-exporter") is None:
        pytest.skip("prometheus-node-exporter is missing (apt)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    known = {"monitoring_address": "127.0.0.1", "monitoring_node_port": port, "monitoring_interfaces": ["lo"]}
    words = argv(rendered("node-exporter.conf", **known, monitoring_textfiles=str(tmp_path)))
    words[0] = "prometheus-node-exporter"
    with running(words):
        text = asked(f"http://127.0.0.1:{port}/metrics")
    found = {labels["collector"] for labels in samples(text)["node_scrape_collector_success"]}
    assert {"edac", "ethtool", "hwmon", "infiniband", "systemd", "textfile", "timex", "stat"} <= found
    assert {"node_boot_time_seconds", "node_timex_sync_status"} <= set(samples(text))


def asked(url: str) -> str:
    for _ in range(200):
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - a program of this test, on loopback
                return str(answer.read().decode())
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"no answer at {url}")


def noted(**known: Any) -> list[str]:
    """Return what the role says about rails that it measures nothing of."""
    tasks = yaml.safe_load((ROLE / "tasks/check.yml").read_text(encoding="utf-8"))
    task = next(task for task in tasks if task["name"] == "check | Report rails whose counters nobody asks for")
    evaluate = templar(**known)
    if not evaluate.template(trust_as_template(f"{{{{ {task['when']} }}}}")):
        return []
    return [evaluate.template(trust_as_template(text)) for text in task["vars"]["notes"]]


def test_rails_without_a_named_device_are_said_to_be_measured_by_nothing() -> None:
    assert noted(monitoring_rails=2, monitoring_devices=["mlx5_0", "mlx5_1"]) == []
    (said,) = noted(monitoring_rails=8, monitoring_devices=[])
    assert said == (
        "node_exporter was not asked for 8 of 8 rails: the platform profile does not name their RDMA devices, so "
        "alerts on these rails never fire. `rackready profile learn` reads the names from a node"
    )
