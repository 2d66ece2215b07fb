"""Rules that gates and the check on a node share. Standard library only: it runs on nodes, too."""

from __future__ import annotations

from collections.abc import Iterable

from rackready.gates.formats import kernel_log

UNCORRECTED = {
    "sram_uncorrectable_parity": "SRAM parity",
    "sram_uncorrectable_secded": "SRAM SEC-DED",
    "dram_uncorrectable": "DRAM",
}
"""Counters of uncorrected memory errors in `nvidia-smi -q -x`, and what they count."""
FABRIC_PARTS = {
    "health/bandwidth": (frozenset({"Full"}), "bandwidth"),
    "health/route_recovery_in_progress": (frozenset({"False"}), "route recovery in progress"),
    "health/route_unhealthy": (frozenset({"False"}), "route unhealthy"),
    "health/access_timeout_recovery": (frozenset({"False"}), "access timeout recovery"),
    "health/incorrect_configuration": (frozenset({"None"}), "incorrect configuration"),
}
"""Fields of the fabric health mask and their good values (NVML nvmlGpuFabricInfo health mask; nvidia-smi of 580)."""
NOT_SUPPORTED = "Not Supported"
"""nvidia-smi's value of a field of the fabric's health that this GPU does not have."""
HEALTHY_FABRIC = frozenset({"Healthy", NOT_SUPPORTED})
CORRUPT_INFOROM, LOST = 14, 15
"""Exit codes of nvidia-smi (its manual): an InfoROM is corrupt, a GPU is lost. The report is still printed."""
HARMLESS = frozenset({"IGNORE", "RESTART_APP", "WORKFLOW_XID_45"})
"""Vendor's actions for an Xid that ask for no more than restarting an application."""
FATAL_SXIDS = frozenset({"fatal", "always_fatal"})
RECOVERY_XID = 154
NVLINK5_XIDS = range(144, 151)
NEW_DECODE = 575
"""Driver branch with a new layout of the NVLink 5 interrupt information (Xid catalogue, sheet 'Xid 144-150 Decode')."""
UNDECODED = "WORKFLOW_NVLINK5_ERR"


def branch_of(driver: str) -> int:
    """Return the branch of a driver's version, e.g. 580; 0 for a text that is none."""
    head = driver.split(".", 1)[0]
    return int(head) if head.isdigit() else 0


def nvlink5_action(rows: Iterable[tuple[int, int, str, str]], code: int, text: str) -> str:
    """Return the vendor's action for the message of an Xid 144 to 150. ``rows``: Xid, status, bits, action."""
    found = kernel_log.nvlink5(text)
    if found is None:
        return UNDECODED
    for xid, status, bits, action in rows:
        if xid == code and status == found.status and _matches_bits(bits, found.info):
            return action
    return UNDECODED


def strongest(actions: Iterable[str]) -> str:
    """Return the strongest of the vendor's actions for NVLink 5 events."""
    there = set(actions)
    return next((action for action in ("RESET_GPU", UNDECODED, "XID_154_EVAL") if action in there), "IGNORE")


def _matches_bits(pattern: str, info: int) -> bool:
    bits = f"{info & 0xFFFFFFFF:032b}"
    return all(wanted in ("-", bit) for wanted, bit in zip(pattern, bits))  # noqa: B905 - Python 3.9; both have 32
