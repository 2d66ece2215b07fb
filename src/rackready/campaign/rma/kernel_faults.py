"""The kernel log of a case: of all boots that the journal holds, and what of it cannot be read."""

from __future__ import annotations

from rackready.campaign.rma import on_node
from rackready.campaign.rma.case import Case
from rackready.format_error import FormatError
from rackready.gates.formats import kernel_log
from rackready.gates.formats.kernel_log import Event, KernelLog

_SHOWN = 200
"""Characters of a line that are shown; the whole log is in the archive."""


def logged(case: Case) -> tuple[KernelLog, list[str]]:
    """Return what the logs of all boots tell together, and what could not be read, in words."""
    told = case.read(on_node.KERNEL, on_node.ALL_BOOTS)
    name = on_node.ALL_BOOTS
    if not told.strip():
        told, name = case.read(on_node.KERNEL, on_node.THIS_BOOT), on_node.THIS_BOOT
    logs: list[KernelLog] = []
    not_read: list[str] = []
    boots = kernel_log.by_boot(told)
    for number, text in enumerate(boots, start=1):
        try:
            logs.append(kernel_log.parse(text))
        except FormatError as error:
            not_read.append(f"{on_node.KERNEL}/{name}, boot {number} of {len(boots)}: {error}")
    unknown = [line for log in logs for line in log.unreadable]
    not_read += [f"{on_node.KERNEL}/{name}: an Xid of unknown form: {line[:_SHOWN]}" for line in unknown]
    return _together(logs), not_read


def _together(logs: list[KernelLog]) -> KernelLog:
    xids: list[Event] = [event for log in logs for event in log.xids]
    fallen: list[Event] = [event for log in logs for event in log.fallen]
    sxids: list[Event] = [event for log in logs for event in log.sxids]
    lines = sum(log.lines for log in logs)
    return KernelLog(tuple(xids), tuple(sxids), lines, from_boot=False, unreadable=(), fallen=tuple(fallen))
