"""Power limits in the BMC: none keeps the node or its GPU board below the power that it needs.

A limit is compared with the default or the highest value that the BMC itself gives for it. The limit of the whole
server is compared with the platform profile's highest draw, or with the cap that the site wants.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pydantic import Field

from rackready.gates import base
from rackready.gates.base import Gate, GateFacts, Outputs, Run
from rackready.gates.bmc import owner
from rackready.gates.bmc.documents import BmcAnswer, Document, numeric, parts
from rackready.gates.bmc.words import CONTEXTS, CONTROL_TYPES
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Criterion, Op, Verdict
from rackready.model.place import Place
from rackready.model.supply import Figure

_CHASSIS, _METRICS, _CONTROLS, _OLD = (
    "Chassis/*",
    "Chassis/*/EnvironmentMetrics",
    "Chassis/*/Controls/*",
    "Chassis/*/Power",
)
_WATTS = frozenset({"W", "Watt", "Watts"})
"""SetPointUnits of watts: UCUM's code (DSP0268, Control), and Watt of a Lenovo XCC (NVIDIA/libredfish c094c9e6,
tests/mockups/lenovo, Chassis/1/Controls/PowerLimit)."""
_MODES = frozenset({"Automatic", "Override", "Manual", "Disabled"})
_INNER = frozenset({"Card", "Component", "Expansion", "Module", "Rack", "StorageEnclosure", "Zone"})
"""ChassisType (DSP0268) of a part of a server, or of something that holds several servers."""
_STEP = (
    "Remove or raise the limit in the BMC (PowerLimitWatts or its power capping page), or set the gate's "
    "input cap_w if the site wants it."
)
_CAP = "Set the limit in the BMC, or correct cap_w."
_SWITCHED_OFF = (
    "If the BMC shows a limit that is switched off (iDRAC: ServerPwr.PowerCapSetting), set it to the "
    "platform's maximum, so that the gate can tell."
)


LIMIT_NOT_REPORTED = ErrorKind(
    "bmc-power-limit-not-reported",
    "power limit not reported",
    meaning="The site wants a power limit, and the BMC does not show that it is set.",
    next_step="Update the BMC's firmware, or remove cap_w from the gate set: the limit cannot be verified.",
)
NO_CHASSIS = ErrorKind(
    "bmc-no-chassis",
    "no chassis reported",
    meaning="The BMC lists no chassis, so its power limits are not known.",
    next_step="Update or restart the BMC, then run the gate again.",
)
MODE_UNKNOWN = ErrorKind(
    "bmc-power-limit-mode-unknown",
    "power limit mode unknown",
    meaning="The BMC reports a power limit's mode in a word that Redfish does not define.",
    next_step="Update the BMC's firmware.",
)
BELOW_DEFAULT = FailKind(
    "bmc-power-limit-below-default",
    "power limit below the BMC's own default",
    meaning="Somebody lowered a power limit: the server slows down under load.",
    next_step=_STEP,
)
LIMIT_OTHER = FailKind(
    "bmc-power-limit",
    "power limit",
    meaning="The server's power limit is not the one that the site wants.",
    next_step=_CAP,
)
CONTROL_UNKNOWN = ErrorKind(
    "bmc-power-control-unknown",
    "unknown what the control limits",
    meaning="The BMC does not report what a power control limits.",
    next_step="Update the BMC's firmware.",
)
BELOW_HIGHEST_DRAW = FailKind(
    "bmc-power-limit-below-draw",
    "power limit below the platform's highest draw",
    meaning="The server may not draw what it needs under full load, so it slows down.",
    next_step=_STEP,
)
BELOW_HIGHEST_DRAW_SWITCHED_OFF = FailKind(
    "bmc-power-limit-below-draw-old",
    "power limit below the platform's highest draw",
    meaning="The server may not draw what it needs under full load, unless the BMC shows a limit that is switched off.",
    next_step=f"{_STEP} {_SWITCHED_OFF}",
)

FINDINGS = (
    BELOW_HIGHEST_DRAW,
    BELOW_HIGHEST_DRAW_SWITCHED_OFF,
    LIMIT_NOT_REPORTED,
    NO_CHASSIS,
    MODE_UNKNOWN,
    BELOW_DEFAULT,
    LIMIT_OTHER,
    CONTROL_UNKNOWN,
)


class PowerLimit(Gate):
    """No power limit in the BMC keeps the node below the power that it needs."""

    id = "bmc/power/sanity/limit"
    findings = (
        *owner.FINDINGS,
        *FINDINGS,
    )
    looks = True

    class Inputs(base.Inputs):
        """The limit that the site wants."""

        cap_w: float | None = Field(
            None,
            gt=0,
            le=1e6,
            description="limit of the whole server that the site wants, W, at most 10^6 (judgement); "
            "none: no limit below the platform's highest draw",
        )

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002
        """Plan one request to each BMC."""
        return [Run.of_node(node, owner.ask(node, _CHASSIS, _METRICS, _CONTROLS, _OLD)) for node in nodes]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge every limit that the BMC shows; a BMC without any power control cannot limit."""
        node = run.nodes[0]
        judge = Judge()
        found = owner.server(judge, facts.nodes[node], "power limits", run, outputs)
        if found is None:
            return judge.verdict(node)
        most = facts.nodes[node].platform.max_power
        limits = [
            (document, document["PowerLimitWatts"])
            for document in found.at(_METRICS)
            if isinstance(document.get("PowerLimitWatts"), dict)
        ]
        limits += [(document, document) for document in found.at(_CONTROLS) if _of_power(judge, node, document)]
        whole = _of_the_server(found)
        for document, limit in limits:
            self._newer(judge, node, document, limit, most if _limits(document, whole) else None)
        controls = _old(found)
        for control in controls:
            self._older(judge, node, control, most)
        points = [
            point
            for _, limit in limits
            if (point := numeric(limit.get("SetPoint"))) is not None and limit.get("ControlMode") != "Disabled"
        ]
        if self.inputs.cap_w is not None and not controls and self.inputs.cap_w not in points:
            actual = ", ".join(f"{point:.0f} W" for point in points) or "no power control"
            judge.error(Place(node, "BMC"), LIMIT_NOT_REPORTED, f"{self.inputs.cap_w:.0f} W, as the site wants", actual)
        if not found.has(_CHASSIS):
            judge.error(Place(node, "BMC"), NO_CHASSIS, "at least one", "none")
        if judge.judged == 0 and not judge.errors:
            judge.judged += 1
            judge.remark("the BMC shows no power control: it limits nothing")
        judge.measured.add(f"{node}/power-limit")
        return judge.verdict(node)

    def _newer(self, judge: Judge, node: str, document: Document, limit: Document, most: Figure | None) -> None:
        """Compare a set point with the BMC's own default, or else with the highest that it allows.

        The cap that the site wants is not a fault. ``most``: the platform's highest draw, given for a limit of the
        whole server, because the BMC's default may itself have been lowered.
        """
        where = Place(node, _place(document))
        mode, point = limit.get("ControlMode"), numeric(limit.get("SetPoint"))
        judge.judged += 1
        if mode is not None and mode not in _MODES:
            judge.error(where, MODE_UNKNOWN, "one of " + ", ".join(sorted(_MODES)), mode)
            return
        if mode == "Disabled" or point is None:
            return
        judge.metric("power_limit", f"{node}/{_place(document)}", point, "W")
        bound = next(
            (value for key in ("DefaultSetPoint", "AllowableMax") if (value := numeric(limit.get(key))) is not None),
            None,
        )
        if bound is not None and point < bound and point != self.inputs.cap_w:
            judge.fail(where, BELOW_DEFAULT, f"{bound:.0f} W", f"{point:.0f} W")
        elif most is not None and self.inputs.cap_w is None and not (most.derived and point == bound):
            _compare(judge, where, point, most, BELOW_HIGHEST_DRAW)
        elif most is not None and self.inputs.cap_w is not None and 0 < point < self.inputs.cap_w:
            judge.fail(where, LIMIT_OTHER, f"{self.inputs.cap_w:.0f} W, as the site wants", f"{point:.0f} W")
        elif bound is None:
            judge.remark("a limit without default and maximum in the BMC is recorded only")

    def _older(self, judge: Judge, node: str, control: Document, most: Figure) -> None:
        """Compare LimitInWatts of the whole server with the platform's highest draw, or with the site's cap."""
        limit = control.get("PowerLimit")
        judge.judged += 1
        point = numeric(limit.get("LimitInWatts")) if isinstance(limit, dict) else None
        where = Place(node, f"power control {control.get('MemberId', 0)}")
        wanted = self.inputs.cap_w
        if wanted is not None:
            judge.criterion(
                Criterion(
                    metric="power_limit",
                    op=Op.EQ,
                    bound=wanted,
                    unit="W",
                    label="identity",
                    source="input cap_w of the gate set",
                )
            )
            if point != wanted:
                judge.fail(where, LIMIT_OTHER, f"{wanted:.0f} W, as the site wants", _watts(point))
            return
        if not point:
            return
        judge.metric("power_limit", f"{node}/power-control{control.get('MemberId', 0)}", point, "W")
        if not _metered(control):
            judge.remark(
                f"{where} shows a limit of {point:.0f} W and measures no power: it cannot limit, and is recorded only"
            )
            return
        _compare(judge, where, point, most, BELOW_HIGHEST_DRAW_SWITCHED_OFF)


def _of_power(judge: Judge, node: str, control: Document) -> bool:
    """Return whether a control limits power in W; report it as an error where that is unknown.

    A control in percent is not compared with bounds in W, and one that is switched off limits nothing.
    """
    where, kind, unit, context = (
        Place(node, _place(control)),
        control.get("ControlType"),
        control.get("SetPointUnits"),
        control.get("PhysicalContext"),
    )
    if control.get("ControlMode") == "Disabled":
        return kind == "Power"
    known = (
        ("ControlType", kind, CONTROL_TYPES),
        ("SetPointUnits", unit, _WATTS | {"%"} if kind == "Power" else {unit}),
        ("PhysicalContext", context, CONTEXTS if kind == "Power" else {context}),
    )
    for key, value, words in known:
        if value is not None and value not in words:
            judge.judged += 1
            judge.error(where, CONTROL_UNKNOWN, f"a {key} of Redfish", value)
            return False
    if kind == "Power" and unit == "%":
        judge.judged += 1
        judge.remark(f"{_place(control)} limits power in percent: recorded only")
    return kind == "Power" and unit != "%"


def _compare(judge: Judge, where: str, point: float, most: Figure, fault: FailKind) -> None:
    """Compare a limit of the whole server with the platform's highest draw; 0 W is no limit."""
    judge.criterion(
        Criterion(metric="power_limit", op=Op.GE, bound=most.value, unit="W", label="floor", source=most.source)
    )
    if 0 < point < most.value:
        expected = f"none, or at least {most.value:.0f} W ({most.source})"
        judge.fail(where, fault, expected, f"{point:.0f} W")


def _of_the_server(found: BmcAnswer) -> set[str]:
    """Return the addresses of the chassis that are the whole server.

    That is the only chassis, or else every one that no other contains and that links to the host's system.
    """
    listed = list(found.at(_CHASSIS))
    return {str(item.get("@odata.id")).rstrip("/") for item in listed if len(listed) == 1 or _is_whole(item)}


def _is_whole(chassis: Document) -> bool:
    links = chassis.get("Links")
    if not isinstance(links, dict) or links.get("ContainedBy") or chassis.get("ChassisType") in _INNER:
        return False
    systems = [str(item.get("@odata.id")).rstrip("/").rsplit("/", 1)[-1] for item in parts(links, "ComputerSystems")]
    return any(
        not system.lower().startswith("hgx_") for system in systems
    )  # an HGX server's GPU board is a system of its own


def _limits(document: Document, whole: Collection[str]) -> bool:
    """Return whether a limit applies to one of these chassis as a whole, and not to a part in it."""
    address = str(document.get("@odata.id")).rstrip("/")
    if document.get("ControlType") is not None and document.get("PhysicalContext") != "Chassis":
        return False
    return any(address.startswith(f"{chassis}/") for chassis in whole)


def _old(found: BmcAnswer) -> list[Document]:
    return [control for document in found.at(_OLD) for control in parts(document, "PowerControl")]


def _metered(control: Document) -> bool:
    """Return whether the control measures the machine's power.

    One that reads nothing cannot enforce a limit (a DGX H100's shows 500 W and 0 W drawn).
    """
    metrics = control.get("PowerMetrics")
    drawn = [
        control.get("PowerConsumedWatts"),
        *(metrics.get(key) for key in ("AverageConsumedWatts", "MaxConsumedWatts") if isinstance(metrics, dict)),
    ]
    return any((numeric(value) or 0) > 0 for value in drawn)


def _place(document: Document) -> str:
    """Return the chassis that a limit belongs to, and the control's name."""
    words = str(document.get("@odata.id", "")).split("/")
    chassis = words[words.index("Chassis") + 1] if "Chassis" in words[:-1] else "chassis"
    return chassis if words[-1] == "EnvironmentMetrics" else f"{chassis} {words[-1]}"


def _watts(value: float | None) -> str:
    return "none" if value is None else f"{value:.0f} W"
