"""Checks that two outputs belong together: reports before and after a load, and launches of one program.

The reports must be of the same GPUs and the second one later, or their counters prove nothing about the load.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from rackready.design.facts import NodeFacts
from rackready.gates.formats.smi_xml import SmiLog
from rackready.gates.gpu import parts
from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.gates.judging.judge import Judge

_SHOWN = 2
"""Number of GPUs that a message names."""
_STEP = (
    "Run the gate again. For captured outputs: give the report before the load and the one after it, both from this "
    "node."
)


SAME_LAUNCH = ErrorKind(
    "same-launch-twice",
    "launches {one} and {other} of {program} have the same figures",
    meaning="Two launches have the same figures, so one output was given twice: their median would mean nothing.",
    next_step="Give the output of each launch. On a node: run the gate again.",
)
OTHER_GPUS = ErrorKind(
    "other-gpus-after-load",
    "nvidia-smi reports other GPUs {when} the load",
    meaning="The reports before and after the load are of different GPUs, so their counters cannot be compared.",
    next_step=_STEP,
)
NO_TIMES = ErrorKind(
    "report-time-not-told",
    "time of nvidia-smi's report missing",
    meaning="A report has no time, so the order of the two is unknown.",
    next_step=_STEP,
)
NOT_LATER = ErrorKind(
    "report-not-later",
    "nvidia-smi's report {when} the load is not later",
    meaning="The report after the load is not later than the one before it, so it may be the same report.",
    next_step=_STEP,
)

AROUND_LOAD = (OTHER_GPUS, NO_TIMES, NOT_LATER)
"""Findings of ``same_gpus``."""


def distinct(judge: Judge, node: str, program: str, launches: Sequence[Mapping[str, object]]) -> bool:
    """Return whether all launches are different: figures of two launches differ in their last digits.

    Two launches with the same figures for half of their parts or more are one launch whose output was altered.
    ``launches``: per launch, part -> its figures.
    """
    for one, other in itertools.combinations(range(len(launches)), 2):
        same = [part for part, figures in launches[one].items() if launches[other].get(part) == figures]
        if 2 * len(same) >= len(launches[one]):
            judge.error(
                node,
                SAME_LAUNCH,
                "figures that differ",
                f"the same of {', '.join(same[:_SHOWN])}",
                one=one + 1,
                other=other + 1,
                program=program,
            )
            return False
    return True


def same_gpus(judge: Judge, facts: NodeFacts, before: SmiLog, after: SmiLog, when: str = "after") -> bool:
    """Return whether two reports are of the same GPUs (by UUID) and in order, so that counters can be compared."""
    node, old = facts.node.name, {gpu.pci: gpu.text("uuid") for gpu in before.gpus}
    found = [(gpu, gpu.text("uuid")) for gpu in after.gpus if gpu.pci in old]
    others = [(gpu, uuid) for gpu, uuid in found if uuid is None or uuid != old[gpu.pci]]
    judge.judged += 1
    if others:
        words = [
            f"{parts.name(facts, gpu.pci, gpu.position)} {uuid or 'no UUID'} for {old[gpu.pci] or 'no UUID'}"
            for gpu, uuid in others
        ]
        more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
        judge.error(node, OTHER_GPUS, "the UUIDs from before", f"{', '.join(words[:_SHOWN])}{more}", when=when)
        return False
    return _later(judge, node, before, after, when)


def _later(judge: Judge, node: str, before: SmiLog, after: SmiLog, when: str) -> bool:
    if before.when is None or after.when is None:
        told = ", ".join(f"{word} {time or 'nothing'}" for word, time in (("before", before.when), (when, after.when)))
        judge.error(node, NO_TIMES, f"a timestamp before and {when} the load", told)
    elif after.when < before.when or (after.when == before.when and when == "after"):
        expected = f"later than {before.when}, the time of the report before it"
        judge.error(node, NOT_LATER, expected, str(after.when), when=when)
    else:
        return True
    return False
