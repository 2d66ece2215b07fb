"""The metrics of others that conditions and dashboards read: names, types and units, each with its source.

dcgm-exporter stops at a name that it does not know (internal/pkg/counters/counter_config.go @d5e5f51, release
4.5.3-4.8.2), so the file for it has only names of this table. Every name is in go-dcgm @ec245c09, which that release
is built with, and in @b7fa315 (DCGM 4.6.1). The exporter's own code, built with each, read a file of these names, and
refused one with a wrong name. DCGM 4.6 renamed fields: the old names stay aliases, and a metric is called as the file
calls it.

Older releases lack DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION: the go-dcgm of 4.4.2-4.7.1 (@7ac2f77) does not have it, that
of 4.5.1-4.8.0 (@6cbb046) does. DCGM has the field since 4.5.0 (NVIDIA/DCGM @e137795, dcgmlib/dcgm_fields.h, 1523).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

FIELDS_SOURCE = "NVIDIA/DCGM @72fa3fe, dcgmlib/dcgm_fields.h"
EXPORTER_SOURCE = "NVIDIA/dcgm-exporter @d5e5f51 (4.5.3-4.8.2)"
NODE_SOURCE = "prometheus/node_exporter @a7dcc3a0 (1.12.1)"


@dataclass(frozen=True, slots=True)
class DcgmField:
    """A counter of dcgm-exporter. ``number``: DCGM's field id; 0: the exporter's own."""

    name: str
    type: Literal["gauge", "counter"]
    help: str
    unit: str
    number: int


_FIELDS = (
    DcgmField("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock (in MHz).", "MHz", 100),
    DcgmField("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Memory temperature (in C).", "celsius", 140),
    DcgmField("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", "celsius", 150),
    DcgmField("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", "watt", 155),
    DcgmField("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "PCIe replays.", "replays", 202),
    DcgmField("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", "percent", 203),
    DcgmField("DCGM_FI_DEV_XID_ERRORS", "gauge", "Last Xid: it never falls back.", "xid", 230),
    DcgmField("DCGM_FI_DEV_POWER_VIOLATION", "counter", "Throttling by the power limit (in ns).", "ns", 240),
    DcgmField("DCGM_FI_DEV_THERMAL_VIOLATION", "counter", "Throttling by temperature (in ns).", "ns", 241),
    DcgmField("DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).", "MiB", 252),
    DcgmField(
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", "Corrected ECC errors since the driver loaded.", "errors", 310
    ),
    DcgmField(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Uncorrected ECC errors since the driver loaded.", "errors", 311
    ),
    DcgmField("DCGM_FI_DEV_THRESHOLD_SRM", "gauge", "SRAM errors above NVIDIA's threshold (1: yes).", "boolean", 346),
    DcgmField(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", "Rows remapped for uncorrectable errors.", "rows", 393
    ),
    DcgmField("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "Row remapping failed (1: yes).", "boolean", 395),
    DcgmField(
        "DCGM_FI_DEV_ROW_REMAP_PENDING", "gauge", "Row remapping waits for a GPU reset (1: yes).", "boolean", 396
    ),
    DcgmField(
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
        "counter",
        "NVLink flit CRC errors of all links.",
        "errors",
        409,
    ),
    DcgmField(
        "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
        "counter",
        "NVLink recovery errors of all links.",
        "errors",
        439,
    ),
    DcgmField(
        "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS",
        "counter",
        "NVLink 5 and later: links that failed to recover and went down.",
        "events",
        1212,
    ),
    DcgmField(
        "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", "gauge", "Recovery action that the driver asks for.", "action", 1523
    ),
    DcgmField("DCGM_EXP_XID_ERRORS_COUNT", "gauge", "Xids of the last 300 s by number.", "xids", 0),
    DcgmField(
        "DCGM_EXP_GPU_HEALTH_STATUS", "gauge", "DCGM health by watch (0: pass, 10: warning, 20: failure).", "health", 0
    ),
)
DCGM = {field.name: field for field in _FIELDS}
"""Name -> counter of dcgm-exporter."""

NODE = {
    "node_boot_time_seconds": "seconds since 1970",
    "node_edac_uncorrectable_errors_total": "errors",
    "node_infiniband_link_downed_total": "events",
    "node_infiniband_port_data_received_bytes_total": "byte",
    "node_infiniband_port_data_transmitted_bytes_total": "byte",
    "node_infiniband_port_transmit_wait_total": "ticks",
    "node_infiniband_rate_bytes_per_second": "byte/s",
    "node_infiniband_state_id": "0: no change, 1: down, 2: init, 3: armed, 4: active, 5: act defer",
    "node_infiniband_symbol_error_total": "errors",
    "node_load1": "processes",
    "node_memory_MemAvailable_bytes": "byte",
    "node_memory_MemTotal_bytes": "byte",
    "node_textfile_scrape_error": "boolean",
    "node_timex_sync_status": "boolean",
}
"""Metric of node_exporter -> unit. Its collectors edac, infiniband, loadavg, meminfo, stat, textfile and timex are
on by default; ethtool is off."""

_HEAD = (
    "# Written by `rackready export prometheus`: the counters that its rules and dashboards read.\n"
    "# Needs dcgm-exporter 4.5.1-4.8.0 or newer, which stops at a name that it does not know, and DCGM 4.5 or newer.\n"
    "# DCGM field, Prometheus metric type, help\n"
)


def counters_csv(names: Iterable[str]) -> str:
    """Return the counters file of dcgm-exporter for these metrics. Raises KeyError for a name that is in no table."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n")
    for name in sorted({*names}, key=lambda name: (DCGM[name].number == 0, DCGM[name].number, name)):
        write.writerow((name, DCGM[name].type, DCGM[name].help))
    return _HEAD + out.getvalue()
