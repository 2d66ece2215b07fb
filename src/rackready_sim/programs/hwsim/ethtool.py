"""ethtool for the compute NICs; calls for other interfaces go to the machine's own ethtool."""

from __future__ import annotations

import sys
from typing import Any

from . import machine, paths, real, store
from .nic.tools import by_netdev, change, settings


def main(argv: list[str]) -> int:
    """Show the link, the driver (-i) or pause parameters (-a), or set them (-A)."""
    nic = next((found for found in map(by_netdev, argv) if found is not None), None)
    flag = argv[0] if argv and argv[0].startswith("-") else ""
    if nic is None or flag not in {"", "-i", "--driver", "-a", "--show-pause", "-A", "--pause", "-S", "--statistics"}:
        return real.become("ethtool", argv)
    if flag in {"-i", "--driver"}:
        sys.stdout.write(
            f"driver: mlx5_core\nversion: {paths.kernel()}\nfirmware-version: {nic['fw']} "
            f"({nic['board']})\nexpansion-rom-version: \nbus-info: {nic['pci']}\n"
        )
        return 0
    if flag in {"-a", "--show-pause"}:
        receive, send = settings(nic)["pause"]
        sys.stdout.write(
            "Pause parameters for "
            f"{nic['netdev']}:\nAutonegotiate:\toff\nRX:\t\t{_word(receive)}\nTX:\t\t{_word(send)}\n\n"
        )
        return 0
    if flag in {"-S", "--statistics"}:
        return _statistics(nic)
    return _pause(nic, argv) if flag else _link(nic)


_PRIORITY = ("bytes", "packets", "pause", "pause_duration")
_PHYSICAL = (
    "rx_discards_phy", "tx_discards_phy", "rx_out_of_buffer", "rx_crc_errors_phy", "rx_symbol_err_phy",
    "rx_global_pause", "tx_global_pause", "rx_pause_ctrl_phy", "tx_pause_ctrl_phy", "rx_vport_rdma_unicast_bytes",
    "tx_vport_rdma_unicast_bytes", "link_down_events_phy",
)  # fmt: skip


def _statistics(nic: dict[str, Any]) -> int:
    """Print the driver's counters: those raised since power-on, and zeros for the others."""
    have = store.runtime()["counters"].get(nic["rdma_device"], {})
    queues = [f"{way}_prio{prio}" for prio in range(8) for way in ("rx", "tx")]
    names = [*_PHYSICAL, *(f"{queue}_{what}" for queue in queues for what in _PRIORITY)]
    sys.stdout.write("NIC statistics:\n" + "".join(f"     {name}: {have.get(name, 0)}\n" for name in names))
    return 0


def _pause(nic: dict[str, Any], argv: list[str]) -> int:
    receive, send = settings(nic)["pause"]
    words = dict(zip(argv[2::2], argv[3::2], strict=False))
    wanted = [words.get("rx", _word(receive)) == "on", words.get("tx", _word(send)) == "on"]
    if wanted == [receive, send]:
        sys.stderr.write("rx unmodified, ignoring\ntx unmodified, ignoring\nno pause parameters changed, aborting\n")
        return 78
    change(nic, pause=wanted)
    return 0


def _link(nic: dict[str, Any]) -> int:
    up = machine.carrier(nic)
    speed = f"{nic['rate_gbps'] * 1000}Mb/s" if up else "Unknown!"
    sys.stdout.write(
        f"Settings for {nic['netdev']}:\n\tSupported ports: [ Backplane ]\n"
        f"\tSupported link modes:   {_modes(nic)}\n\tSupported pause frame use: Symmetric\n"
        "\tSupports auto-negotiation: Yes\n"
        f"\tSpeed: {speed}\n\tDuplex: {'Full' if up else 'Unknown! (255)'}\n\tAuto-negotiation: on\n\tPort: Direct "
        "Attach Copper\n"
        f"\tLink detected: {'yes' if up else 'no'}\n"
    )
    return 0


def _modes(nic: dict[str, Any]) -> str:
    """Return the link modes of four lanes as ethtool lists them, one a line (ethtool.c, dump_link_caps).

    Names as mlx5_core has them for 400GAUI-4 (en_ethtool.c, ptys2ext_ethtool_table).
    """
    kinds = ("KR4", "SR4", "LR4_ER4_FR4", "DR4", "CR4")
    return f"\n\t{' ' * 24}".join(f"{nic['rate_gbps'] * 1000}base{kind}/Full" for kind in kinds)


def _word(on: object) -> str:
    return "on" if on else "off"
