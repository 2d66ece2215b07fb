"""The vendor's actions for Xids, from the Xid catalogue."""

from __future__ import annotations

from collections.abc import Sequence

from rackready.design.facts import NodeFacts
from rackready.gates.formats.kernel_log import Event
from rackready.gates.nodecheck.rules import NEW_DECODE, NVLINK5_XIDS, branch_of, nvlink5_action, strongest
from rackready.profiles import loader

_STEPS = {
    "RESET_GPU": "Vendor's action RESET_GPU: drain the node and reset the GPU (`nvidia-smi -r -i N`)",
    "RESTART_BM": "Vendor's action RESTART_BM: power the node off and on",
    "RESTART_VM": "Vendor's action RESTART_VM: restart the virtual machine",
    "RESTART_APP": "Vendor's action RESTART_APP: restart the application",
    "WORKFLOW_XID_48": "Vendor's action WORKFLOW_XID_48: reset the GPU; "
    "run the field diagnostic if the SRAM threshold flag is set (gate node/gpu/sanity/ecc)",
    "WORKFLOW_NVLINK_ERR": "Vendor's action WORKFLOW_NVLINK_ERR: reset the GPU or reboot; "
    "if it happens again, check both ends of the link",
    "WORKFLOW_NVLINK5_ERR": "Vendor's action WORKFLOW_NVLINK5_ERR: the message is in no "
    "row of the vendor's decode table; send it to support unchanged",
    "XID_154_EVAL": "Vendor's action XID_154_EVAL: follow the Xid 154 next to it "
    "(`nvidia-smi -q | grep 'Recovery Action'`)",
    "CHECK_MECHANICALS": "Vendor's action CHECK_MECHANICALS: check the GPU board's power cables and seating",
    "UPDATE_SWFW": "Vendor's action UPDATE_SWFW: update driver and firmware",
    "CHECK_UVM": "Vendor's action CHECK_UVM: follow the errors next to it; if there are none, open a support case",
    "CONTACT_SUPPORT": "Vendor's action CONTACT_SUPPORT: open a support case with nvidia-bug-report",
    "none": "The vendor's catalogue names no action: open a support case with nvidia-bug-report",
}


def action(facts: NodeFacts, events: Sequence[Event]) -> tuple[str, str]:
    """Return the vendor's action for an Xid, and its name; of several NVLink 5 events, the strongest action."""
    catalogue, code = loader.xids(), events[-1].code
    known = catalogue.xids.get(code)
    if known is None:
        return "CONTACT_SUPPORT", "not in the vendor's catalogue"
    if code in NVLINK5_XIDS:
        rows = nvlink5_rows(branch_of(facts.driver))
        return strongest(nvlink5_action(rows, event.code, event.text) for event in events), known.name
    return known.convenient or known.action, known.name


def nvlink5_rows(branch: int) -> list[tuple[int, int, str, str]]:
    """Return the decode table of Xids 144 to 150 for a driver branch: Xid, status, bits, action."""
    rules = loader.xids().nvlink5
    return [(row.xid, row.status, row.v2 if branch >= NEW_DECODE else row.v1, row.action) for row in rules]


def next_step(action: str, code: int) -> str:
    """Return the next step for an Xid with this action: the action, and what to do if it happens again."""
    entry = loader.xids().xids.get(code)
    again = f"; if it happens again: {entry.next}" if entry and entry.next != "none" else ""
    extra = (
        f"{_STEPS['RESTART_APP']}, and reset the GPU when convenient"
        if entry and entry.convenient
        else _STEPS.get(action, f"Vendor's action {action}")
    )
    return f"{extra}{again}: docs/runbooks/gpu.md."
