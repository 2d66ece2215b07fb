"""Lines of the kernel log: which condition one reports, and on which part."""

from __future__ import annotations

import re

from rackready.design.facts import NodeFacts
from rackready.design.monitoring.xid_conditions import UNLISTED, condition_id, condition_of
from rackready.gates.formats import kernel_log
from rackready.gates.formats.kernel_log import Event
from rackready.gates.gpu import parts
from rackready.gates.gpu.recovery import ACTIONS
from rackready.gates.gpu.xid_actions import nvlink5_rows
from rackready.gates.nodecheck.rules import (
    FATAL_SXIDS,
    NVLINK5_XIDS,
    RECOVERY_XID,
    UNDECODED,
    branch_of,
    nvlink5_action,
)
from rackready.profiles import loader
from rackready.watch.sighting import Sighting

_STAMP = "2000-01-01T00:00:00+0000 node kernel: "
"""The reader of logs takes whole lines; the time of a line of the journal is a field of its own."""
_MEMORY = re.compile(r"EDAC MC\d+: \d+ UE |Memory failure: 0x[0-9a-f]+: recovery action ")
"""Linux, drivers/edac/edac_mc.c (edac_ue_error) and mm/memory-failure.c (action_result): data in memory is lost."""
_SHOWN = 160


def sighting(facts: NodeFacts, text: str) -> Sighting | None:
    """Return what a line reports, None for a line that asks for nothing."""
    if _MEMORY.search(text):
        return Sighting("NodeMemoryUncorrected", "memory", text[:_SHOWN])
    log = kernel_log.parse(_STAMP + text.replace("\n", " "))
    if log.xids:
        return _xid(facts, log.xids[0])
    if log.sxids:
        return _sxid(log.sxids[0])
    if log.fallen:
        return _of_gpu(facts, log.fallen[0], condition_of(kernel_log.FALLEN), log.fallen[0].text)
    if log.unreadable:
        return Sighting(UNLISTED, "node", f"an Xid in an unknown form: {text[:_SHOWN]}")
    return None


def _xid(facts: NodeFacts, event: Event) -> Sighting | None:
    known = loader.xids().xids.get(event.code)
    name = known.name if known else "not in the vendor's catalogue"
    condition = _condition(facts, event)
    return _of_gpu(facts, event, condition, f"Xid {event.code} ({name}): {event.said}") if condition else None


def _condition(facts: NodeFacts, event: Event) -> str:
    """Return the condition of an Xid, by its decoded message where the number alone does not tell."""
    if event.code == RECOVERY_XID:
        wanted = kernel_log.recovery(event.text)
        return "" if wanted == "None" else condition_of(event.code) if wanted in ACTIONS else UNLISTED
    if event.code in NVLINK5_XIDS:
        action = nvlink5_action(nvlink5_rows(branch_of(facts.driver)), event.code, event.text)
        return condition_id(action) if action in {"RESET_GPU", UNDECODED} else ""
    return condition_of(event.code)


def _of_gpu(facts: NodeFacts, event: Event, condition: str, actual: str) -> Sighting:
    part = parts.name(facts, event.pci) if event.pci else "node"
    return Sighting(condition, part, actual[:_SHOWN].rstrip(". "), event.pci)


def _sxid(event: Event) -> Sighting | None:
    entry = loader.xids().sxids.get(event.code)
    fatal = event.text.startswith("Fatal") or (entry is not None and entry.kind in FATAL_SXIDS)
    if entry is not None and not fatal:
        return None
    part = f"nvswitch{event.switch}" if event.switch is not None and event.switch >= 0 else f"NVSwitch at {event.pci}"
    actual = f"SXid {event.code} ({entry.name if entry else 'not in the guide'}): {event.text}"
    condition = "NvswitchSxidFatal" if fatal else "NvswitchSxidUnlisted"
    return Sighting(condition, part, actual[:_SHOWN].rstrip(". "), event.pci)
