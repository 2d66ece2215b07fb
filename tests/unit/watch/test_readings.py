"""Polled values: each fault in a real or cited form, with its healthy twin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackready.design.monitoring.condition import Act
from rackready.model.evidence import Fingerprint
from rackready.ondevice import watch_node
from rackready.watch import readings
from tests.unit.watch.test_engine import DEVICE, PORTS
from tests.unit.watch.test_kernel import FACTS, ROOT

HEALTHY = (ROOT / "tests/fixtures/made/smi/dgx_h100_healthy.xml").read_text(encoding="utf-8")
CAPTURED = (ROOT / "tests/fixtures/captured/h200_vm/smi_q_x.xml").read_text(encoding="utf-8")


def smi(text: str, code: int = 0) -> list[tuple[str, str]]:
    return [(one.condition, one.part) for one in readings.of_gpus(FACTS, watch_node.gpus(code, text), None)]


def test_healthy_gpus_show_nothing() -> None:
    assert smi(HEALTHY) == []


def test_a_real_report_is_read() -> None:
    (gpu,) = watch_node.gpus(0, CAPTURED)["gpus"]
    assert (gpu["recovery"], gpu["remap_failed"], gpu["hot"], gpu["uncorrected"]) == ("None", "No", "Not Active", 0)


FAULTS = [
    ("<dram_uncorrectable>0<", "<dram_uncorrectable>2<", "GpuEccUncorrected"),
    ("<remapped_row_failure>No<", "<remapped_row_failure>Yes<", "GpuRowRemapFailed"),
    ("<remapped_row_pending>No<", "<remapped_row_pending>Yes<", "GpuRowRemapPending"),
    ("<gpu_recovery_action>None<", "<gpu_recovery_action>Reset<", "GpuRecoveryAction"),
    ("<sram_threshold_exceeded>No<", "<sram_threshold_exceeded>Yes<", "GpuSramThreshold"),
    ("hw_thermal_slowdown>Not Active<", "hw_thermal_slowdown>Active<", "GpuThermalSlowdown"),
]


@pytest.mark.parametrize(("good", "bad", "condition"), FAULTS, ids=[row[2] for row in FAULTS])
def test_a_value_of_a_gpu_is_a_fault_of_that_gpu(good: str, bad: str, condition: str) -> None:
    head, _, tail = HEALTHY.partition('<gpu id="00000000:43:00.0">')
    assert good in tail
    assert smi(f'{head}<gpu id="00000000:43:00.0">{tail.replace(good, bad, 1)}') == [(condition, "gpu1")]


def test_a_lost_gpu_is_named() -> None:
    head, _, rest = HEALTHY.partition('\t<gpu id="00000000:9D:00.0">')
    _, _, tail = rest.partition("</gpu>\n")
    said = "Unable to determine the device handle for GPU4: 0000:9D:00.0: Unknown Error\n"
    (found,) = readings.of_gpus(FACTS, watch_node.gpus(15, said + head + tail), None)
    assert (found.condition, found.part) == ("GpusMissing", "gpu4")
    assert found.actual.startswith("1 missing (none at 0000:9d:00.0, the place of gpu4): Unable to determine")


def test_a_driver_that_is_gone_is_a_fault_of_the_node() -> None:
    said = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that it runs."
    assert smi(said, 9) == [("GpusMissing", "node")]


def test_a_driver_that_was_changed_under_jobs_drains_nothing() -> None:
    said = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.178\n"
    (found,) = readings.of_gpus(FACTS, watch_node.gpus(18, said), None)
    assert (found.condition, found.about.watch) == ("NodeDrifted", Act.TICKET)
    assert "Driver/library version mismatch" in found.actual


def test_missing_gpus_count_after_the_time_of_their_alert() -> None:
    (found,) = readings.of_gpus(FACTS, watch_node.gpus(9, "No devices were found\n"), None)
    assert (found.condition, found.after_s) == ("GpusMissing", 300)


@pytest.mark.parametrize(
    ("code", "text"), [(127, "nvidia-smi: not installed"), (124, "nvidia-smi: no end within 60 s")]
)
def test_a_program_that_is_missing_or_late_is_no_fault_of_a_gpu(code: int, text: str) -> None:
    assert smi(text, code) == []


def fingerprint(**values: Any) -> Fingerprint:
    gpus = [gpu["serial"] for gpu in watch_node.gpus(0, HEALTHY)["gpus"]]
    base: dict[str, Any] = {
        "node": "node01",
        "chassis_serial": "S1",
        "gpus": gpus,
        "nics": [],
        "driver": "580.173.02",
        "vbios": [],
        "nic_firmware": [],
        "kernel": "6.1",
        "desired_digest": "d",
    }
    return Fingerprint(**{**base, **values})


def test_another_driver_or_gpu_than_certified_is_drift() -> None:
    reading = watch_node.gpus(0, HEALTHY)
    assert list(readings.of_gpus(FACTS, reading, fingerprint())) == []
    (drift,) = readings.of_gpus(FACTS, reading, fingerprint(driver="570.1"))
    assert (drift.condition, drift.actual) == ("NodeDrifted", "driver 580.173.02, certified with 570.1")
    own = fingerprint().gpus
    (drift,) = readings.of_gpus(FACTS, reading, fingerprint(gpus=[*own[:7], "other"]))
    assert (drift.condition, drift.part) == ("NodeDrifted", "GPU at 0000:df:00")


def links(active: int) -> dict[str, Any]:
    lines = ["GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000-0000-0000-000000000000)"]
    lines += [f"\t Link {n}: {'26.562 GB/s' if n < active else '<inactive>'}" for n in range(18)]
    return {"code": 0, "text": "\n".join(lines) + "\n"}


def test_inactive_nvlinks_are_a_fault_of_the_gpu_at_that_place() -> None:
    gpus = watch_node.gpus(0, HEALTHY)
    assert list(readings.of_links(FACTS, links(18), gpus)) == []
    (found,) = readings.of_links(FACTS, links(17), gpus)
    assert (found.condition, found.part, found.slot) == ("NvlinkInactive", "gpu0", "0000:1b:00")
    assert found.actual == "17 of 18 links active (inactive: 17)"
    assert found.after_s == 60, "links that are trained again are no fault"
    assert list(readings.of_links(FACTS, {"code": 1, "text": "x"}, gpus)) == []


def ports(**values: Any) -> list[tuple[str, str]]:
    changed = {**PORTS, DEVICE: {**PORTS[DEVICE], **values}}
    return [(one.condition, one.part) for one in readings.of_ports(FACTS, changed, PORTS)]


def test_ports() -> None:
    assert ports() == []
    assert ports(state="1: DOWN") == [("RailDown", DEVICE)]
    assert ports(rate="200 Gb/sec (4X HDR)") == [("RailSlow", DEVICE)]
    assert ports(rate="") == []
    assert ports(downed=1) == [("RailFlapping", DEVICE)]
    gone = {**PORTS, DEVICE: None}
    assert [one.condition for one in readings.of_ports(FACTS, gone, PORTS)] == ["RailMissing"]


def test_ports_are_read_from_sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / "mlx5_0/ports/1"
    (base / "counters").mkdir(parents=True)
    (base / "state").write_text("4: ACTIVE\n", encoding="utf-8")
    (base / "rate").write_text("400 Gb/sec (4X NDR)\n", encoding="utf-8")
    (base / "counters/link_downed").write_text("3\n", encoding="utf-8")
    monkeypatch.setattr(watch_node, "_BASE", str(tmp_path))
    assert watch_node.ports(["mlx5_0", "mlx5_9"]) == {
        "mlx5_0": {"state": "4: ACTIVE", "rate": "400 Gb/sec (4X NDR)", "downed": 3},
        "mlx5_9": None,
    }
