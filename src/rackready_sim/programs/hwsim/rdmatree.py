"""/sys/class/infiniband of one NIC, for RDMA programs and people."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from typing import Any

from . import kmod, kmsg, machine, paths, store
from .ib import node as ib
from .nic import nv

_SPEEDS = {10: "1X QDR", 25: "1X EDR", 50: "2X EDR", 100: "4X EDR", 200: "4X HDR", 400: "4X NDR", 800: "8X NDR"}
_COUNTERS = (
    "excessive_buffer_overrun_errors", "link_downed", "link_error_recovery", "local_link_integrity_errors",
    "multicast_rcv_packets", "multicast_xmit_packets", "port_rcv_constraint_errors", "port_rcv_data",
    "port_rcv_errors", "port_rcv_packets", "port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors", "port_xmit_data", "port_xmit_discards", "port_xmit_packets", "port_xmit_wait",
    "symbol_error", "unicast_rcv_packets", "unicast_xmit_packets", "VL15_dropped",
)  # fmt: skip
_HW_COUNTERS = (
    "duplicate_request", "implied_nak_seq_err", "local_ack_timeout_err", "np_cnp_sent", "np_ecn_marked_roce_packets",
    "out_of_buffer", "out_of_sequence", "packet_seq_err", "req_cqe_error", "roce_adp_retrans", "roce_slow_restart",
    "rnr_nak_retry_err", "rp_cnp_handled", "rp_cnp_ignored", "rx_atomic_requests", "rx_icrc_encapsulated",
    "rx_read_requests", "rx_write_requests", "lifespan",
)  # fmt: skip
_CC_PARAMS = {
    "np_cnp_dscp": 48, "np_cnp_prio": 6, "np_cnp_prio_mode": 0, "np_min_time_between_cnps": 4, "rp_ai_rate": 5,
    "rp_byte_reset": 32767, "rp_clamp_tgt_rate": 0, "rp_clamp_tgt_rate_ati": 0, "rp_dce_tcp_g": 1019,
    "rp_dce_tcp_rtt": 1, "rp_gd": 11, "rp_hai_rate": 50, "rp_initial_alpha_value": 1023, "rp_max_rate": 0,
    "rp_min_dec_fac": 50, "rp_min_rate": 1, "rp_rate_reduce_monitor_period": 4, "rp_rate_to_set_on_first_cnp": 0,
    "rp_threshold": 1, "rp_time_reset": 300,
}  # fmt: skip
_ACTIVE = "4: ACTIVE"
_IB_STATES = {"Init": "2: INIT", "Armed": "3: ARMED", "Active": _ACTIVE}
_IB_RATES = {
    ("4x", "10.0G"): "40 Gb/sec (4X QDR)",
    ("4x", "14G"): "56 Gb/sec (4X FDR)",
    ("4x", "25G"): "100 Gb/sec (4X EDR)",
    ("4x", "50G"): "200 Gb/sec (4X HDR)",
}
"""Width and speed as ibsim's console prints them, to the rate as the kernel does."""
_NO_GID = ":".join(["0000"] * 8)
"""Entry of an unused GID; it has neither a type nor an interface."""
_SIOCGIFADDR = 0x8915
_SIOCGIFMTU = 0x8921


def folder(nic: dict[str, Any]) -> Path:
    """Return the NIC's folder below /sys/class/infiniband."""
    return paths.at(f"/sys/class/infiniband/{nic['rdma_device']}")


def write(nic: dict[str, Any]) -> None:
    """Lay out the folder of one NIC, with counters at zero."""
    top = folder(nic)
    guid = nic["guid"].replace(":", "")
    mac = nic["mac"].replace(":", "")
    _put(top, fw_ver=nic["fw"], board_id=nic["board"], hca_type="MT4129", node_type="1: CA", hw_rev="0")
    _put(
        top,
        node_guid=_quads(guid),
        sys_image_guid=_quads(f"{mac[:6]}0300{mac[6:]}"),
        node_desc=f"{os.uname().nodename} {nic['rdma_device']}",
    )
    port = top / "ports/1"
    _put(port / "counters", **dict.fromkeys(_COUNTERS, "0"))
    _put(port / "hw_counters", **{**dict.fromkeys(_HW_COUNTERS, "0"), "lifespan": "10"})
    _put(
        port,
        lid="0x0",
        sm_lid="0x0",
        lid_mask_count="0",
        sm_sl="0",
        cap_mask="0x04010000",
        has_smi="0",
    )
    if kmod.has_ofed() and not (top / "tc/1").exists():  # the kernel's own driver has no such file
        _put(top / "tc/1", traffic_class="")
    _put(
        paths.at(f"/sys/kernel/debug/mlx5/{nic['pci']}/cc_params"),
        **{key: str(value) for key, value in _CC_PARAMS.items()},
    )
    device = top / "device"
    if not device.exists():
        device.symlink_to(paths.at(f"/sys/bus/pci/devices/{nic['pci']}"))
    refresh(nic)


def log_link(nic: dict[str, Any], *, up: bool) -> None:
    """Write the driver's line about a link to the kernel log; none for an InfiniBand port.

    mlx5e_update_carrier writes it (Linux mlx5/core/en_main.c); IPoIB's profile has no update_carrier (ipoib/ipoib.c).
    """
    if not nv.is_infiniband(nic):
        kmsg.say(f"mlx5_core {nic['pci']} {nic['netdev']}: Link {'up' if up else 'down'}")


def refresh(nic: dict[str, Any]) -> bool:
    """Update link state, rate and GIDs; return whether the link changed."""
    port = folder(nic) / "ports/1"
    if ib.is_cabled(nic):
        return _refresh_ib(nic, port)
    up = machine.carrier(nic)
    state = "4: ACTIVE" if up else "1: DOWN"
    changed = not (port / "state").exists() or (port / "state").read_text().strip() != state
    if changed:
        _put(port, state=state, phys_state="5: LinkUp" if up else "3: Disabled")
    _put(port, link_layer="InfiniBand" if nv.is_infiniband(nic) else "Ethernet")
    _put(port, rate=f"{nic['rate_gbps']} Gb/sec ({_SPEEDS.get(nic['rate_gbps'], '4X NDR')})")
    there = gids(nic)
    gone = len(list((port / "gids").iterdir())) - len(there) if (port / "gids").exists() else 0
    for index, (gid, kind) in enumerate([*there, *[(_NO_GID, "")] * gone]):
        _put(port / "gids", **{str(index): gid})
        _put(port / "gid_attrs/types", **{str(index): kind})
        _put(port / "gid_attrs/ndevs", **{str(index): nic["netdev"] if kind else ""})
    return changed


def _refresh_ib(nic: dict[str, Any], port: Path) -> bool:
    """Update a port from what the InfiniBand switches report (the kernel's words: drivers/infiniband/core/sysfs.c)."""
    seen = ib.port(nic)
    state = _IB_STATES.get(seen["state"], "1: DOWN")
    before = (port / "state").read_text().strip() if (port / "state").exists() else ""
    _put(
        port,
        state=state,
        phys_state="5: LinkUp" if seen["phys"] == "LinkUp" else "2: Polling",
        link_layer="InfiniBand" if nv.is_infiniband(nic) else "Ethernet",
        rate=_IB_RATES.get((seen["width"], seen["speed"]), "10 Gb/sec (4X SDR)"),
        lid=f"0x{int(seen['lid']):x}",
        sm_lid=f"0x{int(seen['smlid']):x}",
    )
    _put(port / "gids", **{"0": gids(nic)[0][0]})
    _put(port / "gid_attrs/types", **{"0": "IB/RoCE v1"})
    return before != "" and (before == _ACTIVE) != (state == _ACTIVE)


def gids(nic: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (GID, type) by index: link-local first, then IPv4 in both RoCE versions."""
    if ib.is_cabled(nic):  # the subnet's prefix and the port's GUID
        return [(_quads(f"fe80000000000000{int(ib.guid(nic), 16) + 1:016x}"), "IB/RoCE v1")]
    mac = bytes.fromhex(nic["mac"].replace(":", ""))
    local = bytes.fromhex("fe80000000000000") + bytes([mac[0] ^ 2]) + mac[1:3] + b"\xff\xfe" + mac[3:]
    found = [local]
    address = ipv4(nic["netdev"])
    if address:
        found.append(bytes(10) + b"\xff\xff" + bytes(map(int, address.split("."))))
    kinds = ("IB/RoCE v1",) if nic.get("roce_v1_only") else ("IB/RoCE v1", "RoCE v2")
    return [(_quads(gid.hex()), kind) for gid in found for kind in kinds]


def ipv4(netdev: str) -> str | None:
    """Return the first IPv4 address of a network interface; None if it has none or does not exist."""
    raw = _ioctl(netdev, _SIOCGIFADDR)
    return ".".join(map(str, raw[20:24])) if raw else None


def mtu(netdev: str) -> int:
    """Return an interface's MTU, bytes; 0 if it does not exist."""
    raw = _ioctl(netdev, _SIOCGIFMTU)
    return struct.unpack("i", raw[16:20])[0] if raw else 0


def path_mtu(netdev: str) -> int:
    """Return the RDMA path MTU that fits the interface, bytes."""
    room = mtu(netdev) - 58
    return next((size for size in (4096, 2048, 1024, 512, 256) if size <= room), 0)


def add(nic: dict[str, Any], counters: dict[str, int], *, hardware: bool = False) -> None:
    """Raise port counters."""
    place = folder(nic) / "ports/1" / ("hw_counters" if hardware else "counters")
    with store.change():
        for name, amount in counters.items():
            path = place / name
            if path.exists() and amount:
                path.write_text(f"{int(path.read_text()) + amount}\n")


def _ioctl(netdev: str, request: int) -> bytes | None:
    import socket  # noqa: PLC0415  (most calls do not ask the kernel, and programs start often)

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        try:
            return fcntl.ioctl(handle.fileno(), request, struct.pack("256s", netdev[:15].encode()))
        except OSError:
            return None


def _quads(digits: str) -> str:
    return ":".join(digits[at : at + 4] for at in range(0, len(digits), 4))


def _put(place: Path, **values: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        path = place / name
        text = f"{value}\n"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
