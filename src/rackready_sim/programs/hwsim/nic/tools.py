"""mlnx_qos, cma_roce_mode, cma_roce_tos, show_gids and ibdev2netdev; settings stay in the NIC until power-off."""

from __future__ import annotations

import sys
from typing import Any

from .. import kmsg, machine, paths, rdmatree, store

_PRIORITIES = 8
_DEFAULTS: dict[str, Any] = {
    "trust": "pcp",
    "pfc": [0] * 8,
    "cma_mode": 1,
    "cma_tos": 0,
    "dcbx": "OS",
    "pause": [True, True],
}


def settings(nic: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a NIC, with defaults for unset ones."""
    return {**_DEFAULTS, **store.runtime()["nic"].get(nic["rdma_device"], {})}


def change(nic: dict[str, Any], **values: Any) -> None:
    """Set values on a NIC."""
    with store.change() as runtime:
        runtime["nic"].setdefault(nic["rdma_device"], {}).update(values)


def by_netdev(name: str) -> dict[str, Any] | None:
    """Return the NIC behind a network interface."""
    return next((nic for nic in machine.nics() if nic["netdev"] == name), None)


def by_device(name: str) -> dict[str, Any] | None:
    """Return the NIC of an RDMA device."""
    return next((nic for nic in machine.nics() if nic["rdma_device"] == name), None)


def mlnx_qos(argv: list[str]) -> int:
    """Show or set QoS of one interface."""
    options = _options(
        argv,
        {
            "-i": "i",
            "--interface": "i",
            "--trust": "trust",
            "-f": "pfc",
            "--pfc": "pfc",
            "-d": "dcbx",
            "--dcbx": "dcbx",
            "-p": "p",
        },
    )
    name = str(options.get("i", ""))
    nic = by_netdev(name)
    if nic is None:
        sys.stderr.write(f"Interface {name or '(none)'} does not exist or does not support QoS\n")
        return 1
    if "trust" in options:
        if options["trust"] not in {"pcp", "dscp"}:
            sys.stderr.write("Bad trust state: possible values are dscp and pcp\n")
            return 1
        change(nic, trust=options["trust"])
    if "pfc" in options:
        values = options["pfc"].split(",")
        if len(values) != _PRIORITIES or any(value not in {"0", "1"} for value in values):
            sys.stderr.write("Bad parameter to --pfc: 8 comma separated values of 0 or 1 are needed\n")
            return 1
        _set_pfc(nic, [int(value) for value in values])
    if "dcbx" in options:
        change(nic, dcbx="OS" if options["dcbx"] == "os" else "Firmware")
    sys.stdout.write(_qos_text(settings(nic)))
    return 0


def _set_pfc(nic: dict[str, Any], wanted: list[int]) -> None:
    """Set the lossless priorities; a change takes a link that is up down and up again.

    Linux, mlx5/core/en_dcbnl.c, mlx5e_dcbnl_ieee_setpfc: it calls mlx5_toggle_port_link only where they differ.
    """
    toggles = wanted != settings(nic)["pfc"] and machine.carrier(nic)
    change(nic, pfc=wanted)
    if toggles:
        kmsg.say(f"mlx5_core {nic['pci']} {nic['netdev']}: Link down")
        kmsg.say(f"mlx5_core {nic['pci']} {nic['netdev']}: Link up")
        rdmatree.add(nic, {"link_downed": 1})


def _qos_text(values: dict[str, Any]) -> str:
    lines = [f"DCBX mode: {values['dcbx']} controlled", f"Priority trust state: {values['trust']}"]
    if values["trust"] == "dscp":
        lines.append("dscp2prio mapping:")
        lines += [
            f"\tprio:{prio} dscp:{''.join(f'{code:02d},' for code in range(prio * 8 + 7, prio * 8 - 1, -1))}"
            for prio in range(_PRIORITIES)
        ]
        lines.append("default priority:")
    buffers = [1 if on else 0 for on in values["pfc"]]
    sizes = "130944,130944,0,0,0,0,0,0," if any(buffers) else "262016,0,0,0,0,0,0,0,"
    lines += [
        f"Receive buffer size (bytes): {sizes}",
        "Cable len: 7",
        "PFC configuration:",
        "\tpriority    0   1   2   3   4   5   6   7",
    ]
    lines.append("\tenabled     " + "".join(f"{on}   " for on in values["pfc"]))
    lines.append("\tbuffer      " + "".join(f"{on}   " for on in buffers))
    for tc, prio in enumerate((1, 0, 2, 3, 4, 5, 6, 7)):
        lines += [f"tc: {tc} ratelimit: unlimited, tsa: vendor", f"\t priority:  {prio}"]
    return "\n".join(lines) + "\n"


def cma_roce_mode(argv: list[str]) -> int:
    """Show or set the RoCE version that rdma_cm uses."""
    return _cma(argv, "mode")


def cma_roce_tos(argv: list[str]) -> int:
    """Show or set the type of service that rdma_cm uses."""
    return _cma(argv, "tos")


def _cma(argv: list[str], what: str) -> int:
    options = _options(argv, {"-d": "d", "-p": "p", "-m": "m", "-t": "t", "-h": "h"})
    nic = by_device(str(options.get("d", "")))
    if "rdma_cm" not in store.runtime()["modules"]:
        sys.stderr.write("rdma_cm module is not loaded\n")
        return 1
    if nic is None:
        sys.stderr.write(f"Device {options.get('d', '')} not found\n")
        return 1
    key, value = ("cma_mode", options.get("m")) if what == "mode" else ("cma_tos", options.get("t"))
    if value is not None:
        if not str(value).isdigit() or (what == "mode" and value not in {"1", "2"}):
            sys.stderr.write("Bad value\n")
            return 1
        change(nic, **{key: int(value)})
    found = settings(nic)[key]
    sys.stdout.write({1: "IB/RoCE v1\n", 2: "RoCE v2\n"}[found] if what == "mode" else f"{found}\n")
    return 0


def show_gids(_argv: list[str]) -> int:
    """List the GIDs of all ports."""
    sys.stdout.write(
        "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV\n---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---\n"
    )
    count = 0
    for nic in machine.nics():
        for index, (gid, kind) in enumerate(rdmatree.gids(nic)):
            address = rdmatree.ipv4(nic["netdev"]) if gid.startswith("0000") else ""
            version = "v2" if kind == "RoCE v2" else "v1"
            sys.stdout.write(
                f"{nic['rdma_device']}\t1\t{index}\t{gid}\t{address or '':<15}\t{version}\t{nic['netdev']}\n"
            )
            count += 1
    sys.stdout.write(f"n_gids_found={count}\n")
    return 0


def ibdev2netdev(_argv: list[str]) -> int:
    """Map RDMA devices to network interfaces."""
    for nic in machine.nics():
        sys.stdout.write(
            f"{nic['rdma_device']} port 1 ==> {nic['netdev']} ({'Up' if machine.carrier(nic) else 'Down'})\n"
        )
    return 0


def _options(argv: list[str], known: dict[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    queue = list(argv)
    while queue:
        name, _, value = queue.pop(0).partition("=")
        if name in known:
            found[known[name]] = value or (queue.pop(0) if queue else "")
    return found


def traffic_class(nic: dict[str, Any]) -> int:
    """Return the default traffic class of verbs on a NIC; 0 if none was set."""
    path = paths.at(f"/sys/class/infiniband/{nic['rdma_device']}/tc/1/traffic_class")
    text = path.read_text().strip() if path.exists() else ""
    return int(text) if text.isdigit() else 0
