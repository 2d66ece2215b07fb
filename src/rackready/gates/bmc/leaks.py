"""Leaks: every leak detector of a liquid-cooled node is there and dry.

Whether a node is liquid-cooled comes from the platform profile (cooling.kind) or from the site (the rack's cooling).
Such a node without a detector is an error, since nobody would see a leak.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rackready.gates.base import Gate, GateFacts, Outputs, Run
from rackready.gates.bmc import documents, owner
from rackready.gates.bmc.documents import BmcAnswer, Document, absent, name, parts, state, works
from rackready.gates.bmc.fans import nothing_to_judge
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Verdict
from rackready.model.place import Place

DETECTION = "Chassis/*/ThermalSubsystem/LeakDetection"
DETECTORS = f"{DETECTION}/LeakDetectors/*"
_STEP = (
    "Cut the power of this node and close its coolant supply; find the leak before anything is switched "
    "on again; inform the facility's operator."
)
_WORDS = frozenset({"OK", "Warning", "Critical"})


NO_DETECTOR = ErrorKind(
    "leak-no-detector",
    "no leak detector",
    meaning="The node is liquid-cooled, and the BMC shows no leak detector: a leak would not be seen.",
    next_step="Update the BMC's firmware, or watch for leaks by other means and declare the gate's skip "
    "with that reason.",
)
COOLING_NOT_DECLARED = ErrorKind(
    "leak-cooling-not-declared",
    "no leak detector",
    meaning="Neither profile nor site says whether the node is liquid-cooled, and the BMC shows no leak detector.",
    next_step="Add cooling, with its source, to the platform profile {platform}.",
)
DETECTOR_OFF = FailKind(
    "leak-detector-off",
    "{what} switched off",
    meaning="A leak detector is switched off: a leak would not be seen.",
    next_step="Switch it on in the BMC, so that a leak is seen.",
)
LEAK = FailKind(
    "leak-detected",
    "leak detected",
    meaning="A detector reports coolant where none should be.",
    next_step=_STEP,
)
DETECTOR_UNKNOWN = ErrorKind(
    "leak-detector-state-unknown",
    "leak detector state unknown",
    meaning="A leak detector does not report whether there is a leak.",
    next_step="Check the detector's cable.",
)
DETECTION_NOT_WORKING = FailKind(
    "leak-detection-not-working",
    "leak detection not working",
    meaning="The leak detection as a whole reports a fault, which may be a leak.",
    next_step=_STEP,
)
DETECTOR_NOT_WORKING = FailKind(
    "leak-detector-not-working",
    "leak detector not working",
    meaning="A leak detector is broken: a leak would not be seen.",
    next_step="Check the detector's cable, or else replace it: a leak would not be seen.",
)

DETECTED = (*documents.PART, DETECTION_NOT_WORKING, DETECTOR_NOT_WORKING, DETECTOR_OFF, LEAK, DETECTOR_UNKNOWN)
"""Findings of the detectors of a node or device."""
FINDINGS = (*DETECTED, NO_DETECTOR, COOLING_NOT_DECLARED)


class Leaks(Gate):
    """No leak detector of a liquid-cooled node sees liquid, and there is at least one."""

    id = "bmc/cooling/sanity/leaks"
    findings = (
        *owner.FINDINGS,
        *FINDINGS,
    )
    stops_load = True
    looks = True

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002
        """Plan one request to each BMC."""
        return [Run.of_node(node, owner.ask(node, DETECTORS, DETECTION)) for node in nodes]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge every detector; none at all is right only on an air-cooled node."""
        node = run.nodes[0]
        judge = Judge()
        found = owner.server(judge, facts.nodes[node], "leak detection", run, outputs)
        if found is None:
            return judge.verdict(node)
        platform = facts.nodes[node].platform
        kind = platform.cooling.kind if platform.cooling is not None else None
        wet = kind in {"liquid", "hybrid"} or node in facts.liquid
        seen = judge_detectors(judge, node, found, DETECTION, DETECTORS, wet=wet)
        if seen or judge.fails or judge.errors:
            return judge.verdict(node)
        if wet:
            judge.error(Place(node, "BMC"), NO_DETECTOR, "at least one, since the node is liquid-cooled", "none")
        elif kind is None:
            judge.error(
                Place(node, "BMC"),
                COOLING_NOT_DECLARED,
                "to know whether the node is liquid-cooled",
                "the profile does not say how it is cooled",
                platform=platform.id,
            )
        else:
            return nothing_to_judge(
                judge,
                node,
                f"{platform.id} is air-cooled (its profile), and its BMC has no leak detector: nothing to judge",
            )
        return judge.verdict(node)


def judge_detectors(
    judge: Judge, where: str, found: BmcAnswer, detection: str, detectors: str, *, wet: bool = True
) -> int:
    """Judge every leak detector at the end of these trails; return how many there are.

    ``wet``: whether it is liquid-cooled. Leak detection may be switched off where it is air-cooled and has no detector.
    """
    seen = 0
    for detector in _detectors(found, detection, detectors):
        seen += 1
        _judge_detector(judge, f"{where} leak detector {name(detector)}", f"{where}/leak/{name(detector)}", detector)
    for document in found.at(detection):
        if not isinstance(document.get("Status"), dict) or (
            state(document) in {"Disabled", "Absent"} and not seen and not wet
        ):
            continue
        if not _off(judge, f"{where} leak detection", "leak detection", document):
            works(judge, f"{where} leak detection", "leak detection", document, DETECTION_NOT_WORKING)
    return seen


def _off(judge: Judge, where: str, what: str, document: Document) -> bool:
    """Return whether leak detection is switched off, and report it as a fail."""
    if state(document) != "Disabled":
        return False
    judge.fail(where, DETECTOR_OFF, "State Enabled", "State Disabled", what=what)
    return True


def _detectors(found: BmcAnswer, detection: str, detectors: str) -> Iterator[Document]:
    yield from found.at(detectors)
    for document in found.at(detection):
        for group in parts(document, "LeakDetectorGroups"):
            yield from (
                item
                for item in parts(group, "Detectors")
                if "DetectorState" in item and item.get("@odata.id") not in found.documents
            )


def _judge_detector(judge: Judge, where: str, part: str, detector: Document) -> None:
    judge.judged += 1
    seen = detector.get("DetectorState")
    if seen in {"Warning", "Critical"} and not absent(detector):
        kind = detector.get("LeakDetectorType") or "liquid"
        judge.fail(where, LEAK, "DetectorState OK", f"{seen} ({kind})")
    elif _off(judge, where, "leak detector", detector):
        return
    elif seen not in _WORDS or absent(detector):
        judge.error(where, DETECTOR_UNKNOWN, "one of OK, Warning, Critical", "Absent" if absent(detector) else seen)
    elif works(judge, where, "leak detector", detector, DETECTOR_NOT_WORKING):
        judge.measured.add(part)
