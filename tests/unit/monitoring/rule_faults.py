"""A fault for every alert, and its twin: the nearest healthy thing, for which it must stay silent.

Series are in promtool's notation, a sample a minute. Labels are those of the real exporters: dcgm-exporter's templates
(internal/pkg/rendermetrics/render_metrics.go @d5e5f51) and node_exporter's collectors (@a7dcc3a0).
"""

from __future__ import annotations

from dataclasses import dataclass, field

Series = dict[str, str]
Labels = dict[str, str]

PLACE = {"site": "dc1", "rack": "r01", "unit": "1", "node": "n01"}
RAIL = {"rail": "3", "switch": "leaf03", "switch_port": "swp7"}
GPU = {
    "gpu": "5",
    "UUID": "GPU-00000005",
    "pci_bus_id": "00000000:AB:00.0",
    "device": "nvidia5",
    "modelName": "NVIDIA H100 80GB HBM3",
    "hostname": "n01",
}
DCGM = PLACE | {"job": "dcgm", "instance": "n01:9400"}
HOST = PLACE | {"job": "node", "instance": "n01:9100"}
PORT = HOST | {"device": "mlx5_2", "port": "1"}
OWN = {"job": "rackready", "instance": "admin:9100"}
STATE = PLACE | OWN
_DAY = 86400


def named(metric: str, labels: Labels) -> str:
    return metric + "{" + ",".join(f'{name}="{value}"' for name, value in sorted(labels.items())) + "}"


def gpu(metric: str, values: str, **labels: str) -> Series:
    return {named(metric, DCGM | GPU | labels): values}


def host(metric: str, values: str, **labels: str) -> Series:
    return {named(metric, HOST | labels): values}


def port(metric: str, values: str) -> Series:
    return {named(metric, PORT): values}


def own(metric: str, values: str, **labels: str) -> Series:
    return {named(metric, STATE | labels): values}


def xid(number: int, values: str = "0x5 1x10") -> Series:
    return gpu("DCGM_EXP_XID_ERRORS_COUNT", values, xid=str(number), window_size_in_ms="300000")


def rail(values: str = "1x400") -> Series:
    return own("rackready_rail_info", values, device="mlx5_2", **RAIL)


@dataclass(frozen=True)
class Case:
    """``fault`` fires at ``at`` minutes with these labels and value; with ``twin`` in its place it stays silent."""

    fault: Series
    labels: Labels
    twin: Series
    value: str = "1"
    at: int = 10
    both: Series = field(default_factory=dict)
    """Series of fault and twin."""


def _xid(number: int, other: int) -> Case:
    labels = DCGM | GPU | {"xid": str(number), "window_size_in_ms": "300000"}
    return Case(xid(number), labels, xid(other))


def _gpu(metric: str, fault: str, twin: str, value: str, at: int = 10, **labels: str) -> Case:
    return Case(gpu(metric, fault, **labels), DCGM | GPU | labels, gpu(metric, twin, **labels), value, at)


READY = own("rackready_node_state", "1x400", state="ready")
NOT_READY = own("rackready_node_state", "0x400", state="ready")
_HEALTH = {"health_watch": "MEM", "health_error_code": "DCGM_FR_VOLATILE_DBE_DETECTED"}
_GPUS = {f"{name}": "40x20" for name in (named("DCGM_FI_DEV_GPU_TEMP", DCGM | GPU | {"gpu": str(n)}) for n in range(7))}
_EIGHTH = {named("DCGM_FI_DEV_GPU_TEMP", DCGM | GPU | {"gpu": "7"}): "40x20"}
_DOWN = {
    named("up", HOST): "1x2 0x20",
    named("up", DCGM): "1x2 0x20",
    named("up", HOST | {"node": "n02", "instance": "n02:9100"}): "1x2 0x20",
}
_RACK = {label: PLACE[label] for label in ("site", "rack", "unit")}
_SWITCH = _RACK | {"job": "switch", "instance": "leaf03:9100", "switch": "leaf03"}
_SITE = OWN | {"site": "dc1"}
_CAMPAIGN = {"campaign": "20260101-1", "kind": "deploy"}


def _watch(condition: str) -> Case:
    labels = STATE | {"condition": condition, "part": "gpu3"}
    metric = "rackready_node_watch_fault"
    return Case(
        {named(metric, labels): "1x20"}, labels, {named(metric, labels | {"condition": "GpuXidResetGpu"}): "1x20"}
    )


CASES: dict[str, Case] = {
    "GpuXidCheckMechanicals": _xid(54, 63),
    "GpuXidCheckUvm": _xid(159, 160),
    "GpuXidContactSupport": _xid(142, 141),
    "GpuXidNoAction": _xid(162, 161),
    "GpuXidResetGpu": _xid(95, 92),
    "GpuXidResetGpuSoon": _xid(94, 93),
    "GpuXidRestartApp": _xid(13, 43),
    "GpuXidRestartBm": _xid(79, 67),
    "GpuXidRestartVm": _xid(151, 152),
    "GpuXidUpdateSwfw": _xid(78, 66),
    "GpuXidWorkflowNvlink5Err": _xid(149, 153),
    "GpuXidWorkflowNvlinkErr": _xid(74, 44),
    "GpuXidWorkflowXid45": _xid(45, 44),
    "GpuXidWorkflowXid48": _xid(48, 63),
    "GpuXid154": _xid(154, 157),
    "GpuXidUnlisted": _xid(999, 63),
    "GpuRecoveryAction": _gpu("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", "0x5 1x10", "0x20", "1"),
    "GpuEccUncorrected": _gpu("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "0x5 2x10", "0x20", "2"),
    "GpuSramThreshold": _gpu("DCGM_FI_DEV_THRESHOLD_SRM", "0x5 1x10", "0x20", "1"),
    "GpuRowRemapFailed": _gpu("DCGM_FI_DEV_ROW_REMAP_FAILURE", "0x5 1x10", "0x20", "1"),
    "GpuRowRemapPending": _gpu("DCGM_FI_DEV_ROW_REMAP_PENDING", "0x5 1x10", "0x20", "1"),
    # 3 s of each minute, then 0.3 s of each: the counter is in ns.
    "GpuThermalSlowdown": _gpu("DCGM_FI_DEV_THERMAL_VIOLATION", "0+3e9x30", "0+3e8x30", "5%", 20),
    "GpuHealthFailed": _gpu("DCGM_EXP_GPU_HEALTH_STATUS", "0x2 20x20", "0x2 10x20", "20", **_HEALTH),
    "GpuHealthWarning": _gpu("DCGM_EXP_GPU_HEALTH_STATUS", "0x2 10x20", "0x20", "10", 15, **_HEALTH),
    "NvlinkCrcErrors": _gpu("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "0+12000x20", "0+5400x20", "200", 15),
    "NvlinkRecoveryErrors": _gpu("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "7x30 9x60", "7x100", "2", 70),
    "Nvlink5LinkLost": _gpu("DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS", "7x30 9x60", "7x100", "2", 70),
    "GpusMissing": Case(
        {},
        PLACE,
        _EIGHTH,
        at=12,
        both=_GPUS | own("rackready_node_gpus_expected", "8x20") | {named("up", DCGM): "1x20"},
    ),
    "GpuExporterDown": Case({named("up", DCGM): "1x2 0x20"}, DCGM, {named("up", DCGM): "1x8 0x20"}, "0"),
    "RackUnreachable": Case(_DOWN, _RACK, _DOWN | {named("up", _SWITCH): "1x20"}, "0"),
    "NodeUnreachable": Case({named("up", HOST): "1x2 0x20"}, HOST, {named("up", HOST): "1x8 0x20"}, "0"),
    "NodeRebooted": Case(
        host("node_boot_time_seconds", "300x20"), HOST, host("node_boot_time_seconds", "-3400x20"), "5m 0s"
    ),
    "NodeMemoryUncorrected": Case(
        host("node_edac_uncorrectable_errors_total", "0x30 2x60", controller="0"),
        PLACE,
        host("node_edac_uncorrectable_errors_total", "2x100", controller="0"),
        "2",
        70,
    ),
    "NodeClockNotSynchronised": Case(
        host("node_timex_sync_status", "0x20"), HOST, host("node_timex_sync_status", "1x8 0x20"), "0", 15
    ),
    "RailDown": Case(
        port("node_infiniband_state_id", "4x2 1x20"), PORT | RAIL, port("node_infiniband_state_id", "4x20"), both=rail()
    ),
    "RailMissing": Case(
        {},
        STATE | RAIL | {"device": "mlx5_2"},
        port("node_infiniband_state_id", "1x20"),
        both=rail() | {named("up", HOST): "1x20"},
    ),
    "RailSlow": Case(
        port("node_infiniband_rate_bytes_per_second", "25e9x20"),
        PORT | RAIL,
        port("node_infiniband_rate_bytes_per_second", "50e9x20"),
        "25G",
        both=own("rackready_rail_rate_bytes_per_second", "50e9x20", device="mlx5_2", **RAIL)
        | port("node_infiniband_state_id", "4x20"),
    ),
    "RailFlapping": Case(
        port("node_infiniband_link_downed_total", "3x30 5x60"),
        PORT | RAIL,
        port("node_infiniband_link_downed_total", "3x100"),
        "2",
        70,
        rail(),
    ),
    # At 400 Gb/s 3 errors in 125 min are 1e-15.
    "RailSymbolErrors": Case(
        port("node_infiniband_symbol_error_total", "0x60 30x90"),
        PORT | RAIL,
        port("node_infiniband_symbol_error_total", "0x60 2x90"),
        "1e-14",
        130,
        rail() | port("node_infiniband_rate_bytes_per_second", "50e9x200"),
    ),
    "RailCounterFull": Case(
        port("node_infiniband_symbol_error_total", "65535x30"),
        PORT | RAIL,
        port("node_infiniband_symbol_error_total", "65536x30"),  # a driver with a wider counter
        "65535",
        20,
        rail() | port("node_infiniband_link_downed_total", "254x30"),
    ),
    "SwitchUnreachable": Case({named("up", _SWITCH): "1x2 0x20"}, _SWITCH, {named("up", _SWITCH): "1x8 0x20"}, "0"),
    "NodeQuarantined": Case(
        own("rackready_node_state", "1x20", state="quarantined"),
        STATE | {"state": "quarantined"},
        own("rackready_node_state", "0x20", state="quarantined"),
    ),
    "NodeStuck": Case(
        own("rackready_node_state", "1x20", state="stuck"),
        STATE | {"state": "stuck"},
        own("rackready_node_state", "0x20", state="stuck"),
    ),
    "NodeGateFailed": Case(
        own("rackready_node_gate_results", "2x20", outcome="fail") | READY,
        PLACE,
        own("rackready_node_gate_results", "2x20", outcome="fail") | NOT_READY,
        "2",
    ),
    "NodeEvidenceOld": Case(
        own("rackready_node_evidence_timestamp_seconds", f"{-31 * _DAY}x20") | READY,
        STATE,
        own("rackready_node_evidence_timestamp_seconds", f"{-29 * _DAY}x20") | READY,
        "31d 0h 10m 0s",
    ),
    "CampaignCutOff": Case(
        {named("rackready_campaign_status", OWN | _CAMPAIGN | {"site": "dc1", "status": "cut off"}): "1x20"},
        OWN | _CAMPAIGN | {"site": "dc1", "status": "cut off"},
        {named("rackready_campaign_status", OWN | _CAMPAIGN | {"site": "dc1", "status": "running"}): "1x20"},
    ),
    "RackreadyMetricsOld": Case(
        {named("rackready_metrics_timestamp_seconds", OWN | {"site": "dc1"}): "-3600x20"},
        OWN | {"site": "dc1"},
        {named("rackready_metrics_timestamp_seconds", OWN | {"site": "dc1"}): "-2900x20"},
        "1h 10m 0s",
    ),
    "RackreadyMetricsMissing": Case(  # those of another site on the same Prometheus do not count
        {named("rackready_metrics_timestamp_seconds", OWN | {"site": "dc2"}): "0x20"},
        {"site": "dc1"},
        {named("rackready_metrics_timestamp_seconds", OWN | {"site": name}): "0x20" for name in ("dc1", "dc2")},
        at=20,
        both={named("up", HOST): "0x20", named("up", DCGM | {"site": "dc2"}): "1x20"},
    ),
    **{
        name: _watch(name)
        for name in (
            "NvswitchSxidFatal",
            "NvswitchSxidUnlisted",
            "NvlinkInactive",
            "BmcLeak",
            "BmcEventCritical",
            "NodeDrifted",
        )
    },
    "NodeNotWatched": Case(own("rackready_node_watched", "0x20"), STATE, own("rackready_node_watched", "1x20"), "0"),
    "WatchSilent": Case(
        {named("rackready_watch_beat_timestamp_seconds", _SITE): "-300x20"},
        _SITE,
        {named("rackready_watch_beat_timestamp_seconds", _SITE): "-299x20"},  # written then: the file is old, not it
        "5m 1s",
        both={named("rackready_metrics_timestamp_seconds", _SITE): "1x20"},
    ),
    "WatchStorm": Case(
        {named("rackready_watch_storm", _SITE): "1x20"}, _SITE, {named("rackready_watch_storm", _SITE): "0x20"}
    ),
    "TicketsWaiting": Case(
        {named("rackready_watch_tickets_waiting", _SITE): "2x20"},
        _SITE,
        {named("rackready_watch_tickets_waiting", _SITE): "0x20"},
        "2",
        15,
    ),
}
"""Alert -> case."""
