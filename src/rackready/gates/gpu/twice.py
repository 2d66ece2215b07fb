"""Two reports of nvidia-smi, before and after a load: of the same GPUs, and the second one later. Counters that differ in either tell nothing of the load."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from rackready.design.facts import NodeFacts
from rackready.gates.formats.smi_xml import SmiLog
from rackready.gates.gpu import parts
from rackready.gates.judge import Judge

_SHOWN = 2
"""As many GPUs are named in a message."""
_STEP = "Run the gate again. For outputs that were captured elsewhere: give the report before the load and the one after it, of this node."


def distinct(judge: Judge, node: str, program: str, launches: Sequence[Mapping[str, object]]) -> bool:
    """Whether several launches measured each for itself: what they measure differs in its last digits. ``launches``: part -> its figures, by launch.

    Two launches of which half of the parts have the same figures are one, of which some were damaged.
    """
    for one, other in itertools.combinations(range(len(launches)), 2):
        same = [part for part, figures in launches[one].items() if launches[other].get(part) == figures]
        if 2 * len(same) >= len(launches[one]):
            step = "Give the output of each launch. On a node: run the gate again."
            what = f"launches {one + 1} and {other + 1} of {program} are one"
            judge.error(node, what, "figures that differ", f"the same of {', '.join(same[:_SHOWN])}", step)
            return False
    return True


def same_gpus(judge: Judge, facts: NodeFacts, before: SmiLog, after: SmiLog, when: str = "after") -> bool:
    """Compare the UUIDs of the GPUs that both reports have, and their times; returns whether counters of the one may be taken from those of the other."""
    node, old = facts.node.name, {gpu.pci: gpu.text("uuid") for gpu in before.gpus}
    found = [(gpu, gpu.text("uuid")) for gpu in after.gpus if gpu.pci in old]
    others = [(gpu, uuid) for gpu, uuid in found if uuid is None or uuid != old[gpu.pci]]
    judge.judged += 1
    if others:
        words = [f"{parts.name(facts, gpu.pci, gpu.position)} {uuid or 'no UUID'} for {old[gpu.pci] or 'no UUID'}" for gpu, uuid in others]
        more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
        judge.error(node, f"nvidia-smi reports other GPUs {when} the load", "the UUIDs of before", f"{', '.join(words[:_SHOWN])}{more}", _STEP)
        return False
    return _later(judge, node, before, after, when)


def _later(judge: Judge, node: str, before: SmiLog, after: SmiLog, when: str) -> bool:
    if before.when is None or after.when is None:
        told = ", ".join(f"{word} {time or 'nothing'}" for word, time in (("before", before.when), (when, after.when)))
        judge.error(node, "time of nvidia-smi's report not told", f"a timestamp before and {when} the load", told, _STEP)
    elif after.when < before.when or (after.when == before.when and when == "after"):
        expected = f"later than {before.when}, the time of the report before it"
        judge.error(node, f"nvidia-smi's report {when} the load is not later", expected, str(after.when), _STEP)
    else:
        return True
    return False
