"""Two hours of a healthy rack: two nodes with eight GPUs and eight rails each, under load, and their switch."""

from __future__ import annotations

from tests.unit.monitoring.rule_faults import DCGM, GPU, HOST, OWN, PLACE, RAIL, STATE, Series, named

NODES = ("n01", "n02")
_STEADY = "x130"


def _node(name: str) -> Series:
    at = {"node": name}
    host, state = HOST | at | {"instance": f"{name}:9100"}, STATE | at
    found = {
        named("up", host): f"1{_STEADY}",
        named("node_boot_time_seconds", host): f"-100000{_STEADY}",
        named("node_timex_sync_status", host): f"1{_STEADY}",
        named("node_textfile_scrape_error", host): f"0{_STEADY}",
        named("node_load1", host): f"12{_STEADY}",
        named("node_memory_MemAvailable_bytes", host): f"1.5e12{_STEADY}",
        named("node_memory_MemTotal_bytes", host): f"2e12{_STEADY}",
        named("node_edac_uncorrectable_errors_total", host | {"controller": "0"}): f"0{_STEADY}",
        named("rackready_node_gpus_expected", state): f"8{_STEADY}",
        named("rackready_node_evidence_timestamp_seconds", state): f"0{_STEADY}",
        named("rackready_node_gate_results", state | {"outcome": "pass"}): f"60{_STEADY}",
        named("rackready_node_gate_results", state | {"outcome": "fail"}): f"0{_STEADY}",
    }
    for kind in ("ready", "quarantined", "stuck"):
        found[named("rackready_node_state", state | {"state": kind})] = f"{int(kind == 'ready')}{_STEADY}"
    for number in range(8):
        found |= _gpu(name, number) | _rail(name, number)
    return found


def _gpu(node: str, number: int) -> Series:
    labels = DCGM | GPU | {"node": node, "instance": f"{node}:9400", "gpu": str(number), "UUID": f"GPU-{node}-{number}"}
    health = {"health_watch": "MEM", "health_error_code": "DCGM_FR_OK"}
    return {
        named("DCGM_FI_DEV_SM_CLOCK", labels): f"1755{_STEADY}",
        named("DCGM_FI_DEV_GPU_TEMP", labels): f"61+0{_STEADY}",
        named("DCGM_FI_DEV_MEMORY_TEMP", labels): f"70{_STEADY}",
        named("DCGM_FI_DEV_GPU_UTIL", labels): f"98{_STEADY}",
        named("DCGM_FI_DEV_FB_USED", labels): f"70000{_STEADY}",
        named("DCGM_FI_DEV_POWER_USAGE", labels): f"690{_STEADY}",
        # A GPU at its power limit is usual under load; a little thermal slowdown now and then, too.
        named("DCGM_FI_DEV_POWER_VIOLATION", labels): f"0+4e10{_STEADY}",
        named("DCGM_FI_DEV_THERMAL_VIOLATION", labels): f"5e9+1e8{_STEADY}",
        named("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", labels): f"3{_STEADY}",
        named("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", labels): f"4{_STEADY}",
        named("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", labels): f"0{_STEADY}",
        named("DCGM_FI_DEV_THRESHOLD_SRM", labels): f"0{_STEADY}",
        named("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", labels): f"1{_STEADY}",
        named("DCGM_FI_DEV_ROW_REMAP_FAILURE", labels): f"0{_STEADY}",
        named("DCGM_FI_DEV_ROW_REMAP_PENDING", labels): f"0{_STEADY}",
        named("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", labels): f"0{_STEADY}",
        named("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", labels): f"0+30{_STEADY}",
        named("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", labels): f"2{_STEADY}",
        # The gauge of the last Xid keeps an old one for ever: no alert reads it.
        named("DCGM_FI_DEV_XID_ERRORS", labels | {"err_code": "79", "err_msg": "old"}): f"79{_STEADY}",
        # Without an Xid the exporter gives 0 and no number; 63 and 43 ask for nothing.
        named("DCGM_EXP_XID_ERRORS_COUNT", labels | {"window_size_in_ms": "300000"}): f"0{_STEADY}",
        named("DCGM_EXP_XID_ERRORS_COUNT", labels | {"window_size_in_ms": "300000", "xid": "63"}): "_x20 1x5",
        named("DCGM_EXP_GPU_HEALTH_STATUS", labels | health): f"0{_STEADY}",
    } | ({named("up", DCGM | {"node": node, "instance": f"{node}:9400"}): f"1{_STEADY}"} if number == 0 else {})


def _rail(node: str, number: int) -> Series:
    device = {"device": f"mlx5_{number}"}
    port = HOST | {"node": node, "instance": f"{node}:9100", "port": "1"} | device
    planned = STATE | {"node": node} | RAIL | {"rail": str(number + 1)} | device
    return {
        named("node_infiniband_state_id", port): f"4{_STEADY}",
        named("node_infiniband_rate_bytes_per_second", port): f"50e9{_STEADY}",
        named("node_infiniband_link_downed_total", port): f"1{_STEADY}",
        named("node_infiniband_symbol_error_total", port): "0x60 1x70",
        named("node_infiniband_port_data_received_bytes_total", port): f"0+9e11{_STEADY}",
        named("node_infiniband_port_data_transmitted_bytes_total", port): f"0+9e11{_STEADY}",
        named("node_infiniband_port_transmit_wait_total", port): f"0+100{_STEADY}",
        named("rackready_rail_info", planned): f"1{_STEADY}",
        named("rackready_rail_rate_bytes_per_second", planned): f"50e9{_STEADY}",
    }


_SITE = {"site": PLACE["site"]}
_DOWN_PORT = HOST | {"device": "mlx5_bond_0", "port": "1"}
HEALTHY: Series = {
    **_node("n01"),
    **_node("n02"),
    # A port that no plan names: nobody expects a link there.
    named("node_infiniband_state_id", _DOWN_PORT): f"1{_STEADY}",
    named(
        "up", {**_SITE, "rack": "r01", "unit": "1", "job": "switch", "instance": "leaf03:9100", "switch": "leaf03"}
    ): (f"1{_STEADY}"),
    named("rackready_metrics_timestamp_seconds", OWN | _SITE): f"0+60{_STEADY}",
    named(
        "rackready_campaign_status",
        OWN | _SITE | {"campaign": "20260101-1", "kind": "deploy", "status": "finished"},
    ): f"1{_STEADY}",
}
