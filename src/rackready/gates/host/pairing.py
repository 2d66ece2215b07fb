"""Check that two readings of a node were made before and after one load: by boot, uptime and GPU UUIDs."""

from __future__ import annotations

import re

from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates.base import Output
from rackready.gates.formats import smi_nvlink
from rackready.gates.host.reading import Answers
from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.gates.judging.judge import Judge

BOOT_ID = "/proc/sys/kernel/random/boot_id"
"""Random at each boot (random(4)), so no two nodes have the same."""
UPTIME = "/proc/uptime"
_ROUNDING_S, _DRIFT = 1.0, 0.001
"""Judgement: the controller's clock measures the load's time, the node's clock the uptime."""
_STEP = (
    "Run the gate again. For captured readings: give the one before the load and the one after it, both from this node."
)
Pair = tuple[Answers, Answers]


ONE_READING = ErrorKind(
    "one-reading-twice",
    "one reading before and after the load",
    meaning="One output was given for both readings, so no counter can have risen.",
    next_step=_STEP,
)
OTHER_BOOT = ErrorKind(
    "readings-of-two-boots",
    "readings of two boots or two nodes",
    meaning="The readings are of two boots or two nodes, so their counters cannot be compared.",
    next_step=_STEP,
)
READING_TIME_MISSING = ErrorKind(
    "reading-time-missing",
    "time of a reading missing",
    meaning="A reading has no time.",
    next_step=_STEP,
)
READINGS_TOO_CLOSE = ErrorKind(
    "readings-not-around-load",
    "readings not from before and after the load",
    meaning="The time between the readings is shorter than the load, so they are not from before and after it.",
    next_step=_STEP,
)
READINGS_OTHER_GPUS = ErrorKind(
    "readings-of-other-gpus",
    "readings of different GPUs",
    meaning="The readings name different GPUs, so their counters cannot be compared.",
    next_step=_STEP,
)

FINDINGS = (ONE_READING, OTHER_BOOT, READING_TIME_MISSING, READINGS_TOO_CLOSE, READINGS_OTHER_GPUS)


def paired(judge: Judge, facts: NodeFacts, outputs: tuple[Output, Output], readings: Pair, seconds: float) -> bool:
    """Return whether the counters of both readings can be compared; else add an error. ``seconds``: load time."""
    node = facts.node.name
    judge.judged += 1
    if outputs[0].stdout == outputs[1].stdout:
        judge.error(node, ONE_READING, "two readings", "the same output twice")
        return False
    return (
        _one_boot(judge, node, readings)
        and _apart(judge, node, readings, seconds)
        and _same_gpus(judge, node, readings)
    )


def _one_boot(judge: Judge, node: str, readings: Pair) -> bool:
    first, last = (reading.one(BOOT_ID) for reading in readings)
    if first is None and last is None:
        judge.remark(
            "the readings have no boot id (an earlier version made them): only the GPUs show that they are of one node"
        )
        return True
    if not first or first != last:
        actual = f"{first or 'nothing'} before, {last or 'nothing'} after"
        judge.error(node, OTHER_BOOT, f"one boot ({BOOT_ID})", actual)
        return False
    return True


def _apart(judge: Judge, node: str, readings: Pair, seconds: float) -> bool:
    """Return whether the readings are at least the length of the load apart; else add an error."""
    if readings[0].one(BOOT_ID) is None:
        return True
    times = [_uptime(reading) for reading in readings]
    if times[0] is None or times[1] is None:
        judge.error(node, READING_TIME_MISSING, f"seconds since boot ({UPTIME})", "nothing")
        return False
    gap = times[1] - times[0]
    if gap < seconds - max(_ROUNDING_S, _DRIFT * seconds):
        expected = f"at least {seconds:g} s, the length of the load, from the first reading to the second"
        judge.error(node, READINGS_TOO_CLOSE, expected, f"{gap:.1f} s")
        return False
    return True


def _uptime(reading: Answers) -> float | None:
    found = re.match(r"(\d+\.\d+) ", f"{reading.one(UPTIME) or ''} ")
    return float(found[1]) if found else None


def _same_gpus(judge: Judge, node: str, readings: Pair) -> bool:
    """Compare the UUIDs that nvidia-smi nvlink -e prints. An unreadable output is judged with the counters."""
    try:
        reports = [
            smi_nvlink.errors(str(reading.commands["nvlink"]["stdout"]))
            for reading in readings
            if "nvlink" in reading.commands
        ]
    except FormatError:
        return True
    if not reports:
        return True
    uuids = [{gpu.index: gpu.uuid for gpu in report.gpus.values()} for report in reports]
    others = [
        f"gpu{index} {uuids[-1][index]} for {uuid}"
        for index, uuid in uuids[0].items()
        if uuids[-1].get(index, uuid) != uuid
    ]
    if others:
        judge.error(node, READINGS_OTHER_GPUS, "the UUIDs of the first reading", ", ".join(others[:2]))
    return not others
