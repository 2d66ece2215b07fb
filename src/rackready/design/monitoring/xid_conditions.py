"""Conditions of Xids, one for each action of NVIDIA's catalogue.

dcgm-exporter's gauge DCGM_FI_DEV_XID_ERRORS is the last Xid: it never falls back and hides repeats, so no rule reads it
(NVIDIA/dcgm-exporter#500). DCGM_EXP_XID_ERRORS_COUNT counts the Xids of the last 300 s by number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rackready.design.monitoring.condition import Act, Condition, Scope, Severity
from rackready.design.monitoring.counters import EXPORTER_SOURCE
from rackready.profiles import loader

COUNT = "DCGM_EXP_XID_ERRORS_COUNT"
UNLISTED = "GpuXidUnlisted"
_IGNORE, _SOON = "IGNORE", "_SOON"
"""``_SOON``: ends actions that the catalogue recommends when convenient."""
_KEEP_S = 3600
"""An Xid leaves the counter after 300 s; its alert stays an hour, so that nobody misses it at night. Our judgement."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """How an action is announced."""

    severity: Severity
    meaning: str
    next_step: str
    watch: Act
    job_lost: bool = False


_DRAIN = "Drain the node, then {what} See docs/runbooks/gpu.md."
_ANSWERS = {
    "CHECK_MECHANICALS": _Answer(
        Severity.CRITICAL,
        "A GPU board has no auxiliary power.",
        _DRAIN.format(what="check the power connectors of the GPU board."),
        watch=Act.DRAIN,
        job_lost=True,
    ),
    "CHECK_UVM": _Answer(
        Severity.WARNING,
        "The driver's unified memory reports an error.",
        "Read the kernel log of the node.",
        watch=Act.TICKET,
    ),
    "CONTACT_SUPPORT": _Answer(
        Severity.CRITICAL,
        "NVIDIA asks to be told of this Xid.",
        _DRAIN.format(what="open a case with NVIDIA."),
        watch=Act.DRAIN,
    ),
    "RESET_GPU": _Answer(
        Severity.CRITICAL,
        "The GPU needs a reset before it computes again.",
        _DRAIN.format(what="reset the GPU (`nvidia-smi -r -i N`) and run `rackready validate --limit NODE`."),
        watch=Act.DRAIN,
        job_lost=True,
    ),
    "RESET_GPU_SOON": _Answer(
        Severity.WARNING,
        "A job failed with a contained memory error; the GPU needs a reset when convenient.",
        "Start the job again; drain the node and reset the GPU (`nvidia-smi -r -i N`) when its jobs have ended.",
        watch=Act.DRAIN,
    ),
    "RESTART_APP": _Answer(
        Severity.INFO,
        "A job failed with this Xid; the GPU needs nothing.",
        "Read the job's output, then start it again.",
        watch=Act.RECORD,
    ),
    "RESTART_BM": _Answer(
        Severity.CRITICAL,
        "The GPU fell off the bus, or needs a restart of the machine.",
        _DRAIN.format(what="power it off and on and run `rackready validate --limit NODE`."),
        watch=Act.DRAIN,
        job_lost=True,
    ),
    "RESTART_VM": _Answer(
        Severity.CRITICAL,
        "The virtual machine needs a restart.",
        _DRAIN.format(what="restart the virtual machine."),
        watch=Act.DRAIN,
        job_lost=True,
    ),
    "UPDATE_SWFW": _Answer(
        Severity.WARNING,
        "Software or firmware is too old.",
        "Compare the node with its version set (`rackready drift`).",
        watch=Act.TICKET,
    ),
    "WORKFLOW_NVLINK5_ERR": _Answer(
        Severity.CRITICAL,
        "NVLink reports an error. Its kind is in the kernel log alone.",
        "Run `rackready validate --limit NODE`: its Xid gate decodes the kernel log. See docs/runbooks/nvlink-down.md.",
        watch=Act.TICKET,
    ),
    "WORKFLOW_NVLINK_ERR": _Answer(
        Severity.CRITICAL,
        "NVLink reports an error.",
        _DRAIN.format(what="run `rackready validate --limit NODE`; docs/runbooks/nvlink-down.md has the next steps."),
        watch=Act.DRAIN,
        job_lost=True,
    ),
    "WORKFLOW_XID_45": _Answer(
        Severity.INFO,
        "A job was ended after an earlier error.",
        "Look at the other Xids of this GPU.",
        watch=Act.RECORD,
    ),
    "WORKFLOW_XID_48": _Answer(
        Severity.CRITICAL,
        "The GPU's memory lost data.",
        _DRAIN.format(
            what="reset the GPU, and run `rackready validate --limit NODE`: its ECC gate reads the SRAM flag."
        ),
        watch=Act.DRAIN,
        job_lost=True,
    ),
    "XID_154": _Answer(
        Severity.WARNING,
        "The driver asks for another recovery action.",
        "Read the alert GpuRecoveryAction of this GPU.",
        watch=Act.DRAIN,
        job_lost=True,
    ),
    "none": _Answer(
        Severity.WARNING,
        "The catalogue has no action for this Xid.",
        "Read the kernel log; tell NVIDIA when it returns.",
        watch=Act.TICKET,
    ),
}


def xid_conditions() -> Iterator[Condition]:
    """Yield a condition for each action that asks for something, and one for Xids that the catalogue does not list.

    Raises KeyError for an action without an answer here: a new catalogue needs one.
    """
    catalogue = loader.xids()
    numbers: dict[str, list[int]] = {}
    for number, xid in catalogue.xids.items():
        numbers.setdefault(f"{xid.convenient}{_SOON}" if xid.convenient else xid.action, []).append(number)
    for action, codes in sorted(numbers.items()):
        if action != _IGNORE:
            yield _condition(action, codes, _ANSWERS[action], catalogue.source)
    known = "|".join(str(number) for number in sorted(catalogue.xids))
    yield Condition(
        id=UNLISTED,
        severity=Severity.CRITICAL,
        scope=Scope.GPU,
        meaning="The GPU reports an Xid that NVIDIA's catalogue does not list.",
        expr=f'{COUNT}{{xid!="", xid!~"{known}"}} > 0',
        unit="Xids in 300 s",
        expected="no such Xid",
        actual="Xid {{ $labels.xid }}, {{ $value }} times in 300 s",
        next_step=_DRAIN.format(what="open a case with NVIDIA."),
        source=f"{catalogue.source}; {EXPORTER_SOURCE}, xid_collector.go",
        keep_s=_KEEP_S,
        action="CONTACT_SUPPORT",
        watch=Act.TICKET,  # a new driver may bring a harmless one: no reason to empty a fleet
    )


def _condition(action: str, codes: list[int], answer: _Answer, source: str) -> Condition:
    return Condition(
        id=condition_id(action),
        severity=answer.severity,
        scope=Scope.GPU,
        meaning=answer.meaning,
        expr=f'{COUNT}{{xid=~"{"|".join(str(code) for code in sorted(codes))}"}} > 0',
        unit="Xids in 300 s",
        expected="no such Xid",
        actual="Xid {{ $labels.xid }}, {{ $value }} times in 300 s",
        next_step=answer.next_step,
        source=f"{source}; {EXPORTER_SOURCE}, xid_collector.go",
        keep_s=_KEEP_S,
        action="" if action == "none" else action.removesuffix(_SOON),
        watch=answer.watch,
        job_lost=answer.job_lost,
    )


def condition_id(action: str) -> str:
    """Return the id of the condition of an action of the catalogue (`RESET_GPU_SOON`: convenient; `none`)."""
    words = "NoAction" if action == "none" else "".join(word.capitalize() for word in action.split("_"))
    return f"GpuXid{words.removeprefix('Xid')}"


def condition_of(number: int) -> str:
    """Return the id of the condition of an Xid; "" for one that asks for nothing."""
    xid = loader.xids().xids.get(number)
    if xid is None:
        return UNLISTED
    return "" if xid.action == _IGNORE else condition_id(f"{xid.convenient}{_SOON}" if xid.convenient else xid.action)
