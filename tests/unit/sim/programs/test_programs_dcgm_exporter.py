"""dcgm-exporter of the simulated node: the counters file of rackready, and what a lost GPU or a wrong name does."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.design.monitoring.conditions import counters
from rackready.design.monitoring.counters import counters_csv
from rackready.design.monitoring.dashboards import expressions
from rackready.design.monitoring.exporters import gpu_metrics
from rackready.ondevice.exporters import ExportersWanted, findings, samples
from rackready.profiles import loader
from rackready_sim.programs.hwsim.dcgm import engine, exporter
from rackready_sim.programs.hwsim.smi import main as smi

from .conftest import VERSION, Machine


@pytest.fixture
def text(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> exporter.Scrape:
    machine.ready()
    monkeypatch.setattr(engine, "reachable", lambda: True)
    path = tmp_path / "counters.csv"
    path.write_text(counters_csv(counters(expressions())), encoding="utf-8")
    return exporter.Scrape(exporter.read_counters(path))


WANTED = ExportersWanted("10.0.0.11", dcgm_port=9400, gpus=8, per_gpu=gpu_metrics(loader.gpu("h100_sxm")))


def test_a_healthy_node_answers_every_counter_of_every_gpu(text: exporter.Scrape) -> None:
    assert findings(WANTED, lambda _url: text.text()) == []
    first = next(line for line in text.text().splitlines() if line.startswith("DCGM_FI_DEV_GPU_TEMP{"))
    assert first.startswith('DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-')
    assert ',device="nvidia0",modelName="NVIDIA H100 80GB HBM3",hostname="' in first


def test_counters_of_nvlink_5_do_not_come_from_a_hopper(text: exporter.Scrape) -> None:
    assert "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS" not in samples(text.text())


def test_a_lost_gpu_is_missing(text: exporter.Scrape, machine: Machine) -> None:
    machine.inject("gpu-lost", gpu=2)
    assert findings(WANTED, lambda _url: text.text()) == [
        "dcgm-exporter at http://10.0.0.11:9400/metrics: 7 GPUs: 0, 1, 3, 4, 5, 6, 7, not 8"
    ]


def test_an_xid_after_the_start_is_counted_with_its_number(text: exporter.Scrape, machine: Machine) -> None:
    machine.inject("xid", gpu=2, code=119)
    [hit] = [line for line in text.text().splitlines() if 'xid="119"' in line]
    assert hit.startswith('DCGM_EXP_XID_ERRORS_COUNT{gpu="2",')
    assert hit.endswith(" 1")


def test_rows_that_wait_for_a_reset_are_told(text: exporter.Scrape, machine: Machine) -> None:
    machine.inject("row-remap-pending", gpu=3)
    rows = [line for line in text.text().splitlines() if line.startswith("DCGM_FI_DEV_ROW_REMAP_PENDING{")]
    assert [line.rsplit(" ", 1)[1] for line in rows] == ["0", "0", "0", "1", "0", "0", "0", "0"]


# --- MIG --------------------------------------------------------------------------------------------------------------


def divided(machine: Machine, tmp_path: Path, devices: str) -> exporter.Scrape:
    """Return the exporter of a node whose first GPU has seven instances."""
    _ = machine.run(smi.main, "-i", "0", "-mig", "1", version=VERSION)
    assert machine.run(smi.main, "mig", "-i", "0", "-cgi", ",".join(["1g.10gb"] * 7), "-C", version=VERSION)[0] == 0
    return exporter.Scrape(exporter.read_counters(tmp_path / "counters.csv"), devices)


def rows(text: str, name: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"{name}{{")]


@pytest.mark.usefixtures("text")
def test_whole_gpus_are_complete_with_instances_too(machine: Machine, tmp_path: Path) -> None:
    """What role monitoring starts it with."""
    scrape = divided(machine, tmp_path, "g")
    machine.inject("xid", gpu=0, code=79)
    machine.inject("xid", gpu=0, code=94)
    text = scrape.text()
    assert findings(WANTED, lambda _url: text) == []
    assert "GPU_I_ID" not in text
    assert len(rows(text, "DCGM_FI_DEV_POWER_USAGE")) == 8
    [fell] = [line for line in rows(text, "DCGM_EXP_XID_ERRORS_COUNT") if "xid=" in line]
    assert 'gpu="0"' in fell
    assert 'xid="79"' in fell, "the Xid of an instance does not come"


@pytest.mark.usefixtures("text")
def test_by_default_instances_stand_for_their_gpu(machine: Machine, tmp_path: Path) -> None:
    scrape = divided(machine, tmp_path, "f")
    machine.inject("xid", gpu=0, code=79)
    machine.inject("xid", gpu=0, code=94)
    text = scrape.text()
    power = rows(text, "DCGM_FI_DEV_POWER_USAGE")
    assert len([line for line in power if 'GPU_I_PROFILE="1g.10gb",GPU_I_ID="' in line]) == 7
    assert len(power) == 14
    assert 'xid="79"' not in text, "the Xid of the whole GPU does not come"
    assert len([line for line in rows(text, "DCGM_EXP_XID_ERRORS_COUNT") if 'xid="94"' in line]) == 7
    health = [line for line in rows(text, "DCGM_EXP_GPU_HEALTH_STATUS") if 'gpu="0"' in line]
    assert len(health) == 11
    assert "GPU_I_ID" not in "".join(health)


def test_devices_that_it_does_not_know_end_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "counters.csv").write_text("DCGM_FI_DEV_GPU_TEMP,gauge,Heat\n", encoding="utf-8")
    assert exporter.run(["-f", str(tmp_path / "counters.csv"), "--devices", "x"]) == 1
    assert "are 'g' or 'i', but found 'x'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "DCGM_FI_DEV_NONSENSE,gauge,Nothing",
            "could not find DCGM field; err: unknown ExporterCounter field 'DCGM_FI_DEV_NONSENSE'",
        ),
        ("DCGM_FI_DEV_GPU_TEMP,number,Heat", "could not find Prometheus metric type 'number'"),
        (
            "DCGM_FI_DEV_GPU_TEMP,gauge",
            (
                "malformed CSV record; err: failed to parse line 0 (`['DCGM_FI_DEV_GPU_TEMP', 'gauge']`), "
                "expected 3 fields"
            ),
        ),
    ],
)
def test_a_wrong_line_ends_it(line: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "counters.csv").write_text(f"{line}\n", encoding="utf-8")
    assert exporter.run(["-f", str(tmp_path / "counters.csv"), "-a", "127.0.0.1:0"]) == 1
    assert capsys.readouterr().err == f'level=ERROR msg="Failed to create registry: {said}"\n'


def test_it_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert exporter.run(["--version"]) == 0
    assert capsys.readouterr().out == "DCGM Exporter version 4.5.3-4.8.2\n"


def test_it_needs_the_host_engine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "reachable", lambda: False)
    (tmp_path / "counters.csv").write_text("DCGM_FI_DEV_GPU_TEMP,gauge,Heat\n", encoding="utf-8")
    assert exporter.run(["--collectors", str(tmp_path / "counters.csv"), "--address=127.0.0.1:0"]) == 1
    assert "error connecting to nv-hostengine" in capsys.readouterr().err
