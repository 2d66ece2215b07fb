"""Power supplies: every one that the platform has is there, has input, works, and the set is redundant.

How many there must be, and how many keep the server at full performance, comes from the platform profile: BMCs say less (a DGX H100's
says MinNeededInGroup 1 for a server that needs four).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rackready.gates.base import Gate, GateFacts, Outputs, Run
from rackready.gates.bmc import inputs, owner
from rackready.gates.bmc.documents import Document, Told, absent, name, numeric, state, works
from rackready.gates.bmc.inputs import FEED
from rackready.gates.bmc.redundancy import NONE, groups, kind, spares, strange
from rackready.gates.bmc.words import OTHER_UNITS, READING_TYPES, SPARE_KINDS
from rackready.gates.judge import Judge
from rackready.model.outcome import Criterion, Op, Verdict
from rackready.model.profile import PlatformProfile

_NEW, _METRICS = inputs.newer()
_OLD = inputs.older()
_SUBSYSTEM, _SENSORS = "Chassis/*/PowerSubsystem", "Chassis/*/Sensors/*"
_REPLACE = "Reseat the supply; if it stays so, replace it."
_SPARE = "StandbyOffline"
"""State of a supply that waits for somebody to switch it on (DSP0268): right for a spare, and no supply on which the server runs."""


class Supplies(Gate):
    """Every power supply is there, has input and works, and the loss of one is covered."""

    id = "bmc/power/sanity/supplies"
    stops_load = True
    looks = True

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002
        """One request to every BMC."""
        return [Run.of_node(node, owner.ask(node, _NEW, _METRICS, _SUBSYSTEM, _OLD, _SENSORS)) for node in nodes]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge every supply, then their number, then their redundancy."""
        node = run.nodes[0]
        judge = Judge()
        found = owner.server(judge, facts.nodes[node], "power supplies", run, outputs)
        if found is None:
            return judge.verdict(node)
        platform = facts.nodes[node].platform
        supplies = list(inputs.supplies(found))
        if platform.psus is None and platform.nvlink_domain is not None and not supplies:
            return _fed_by_the_rack(judge, node, platform)
        if not supplies:
            judge.error(f"{node} BMC", "power supplies not reported", "at least one", "none", "Update or restart the BMC, then run the gate again.")
        there = [item for item in supplies if not absent(item)]
        told_of = groups(found.at(_SUBSYSTEM), "PowerSupplyRedundancy", found.at(_OLD))
        idle = {_SPARE} if _planned_spares(platform) or spares(told_of) else set()
        good = [item for item in there if self._one(judge, node, item, found, idle)]
        self._number(judge, node, platform, len(there), len([item for item in good if state(item) != _SPARE]))
        _capacity(judge, node, platform, there)
        for index, group in enumerate(told_of):
            _redundancy(judge, f"{node} power redundancy group {group.get('MemberId', index)}", platform, group)
        return judge.verdict(node)

    @staticmethod
    def _one(judge: Judge, node: str, supply: Document, found: Told, idle: Collection[str]) -> bool:
        """Judge one supply; ``idle``: states in which it may rest. One whose resource has no Status (DGX H100) is judged by the power sensors that name it."""
        where = f"{node} psu {name(supply)}"
        fed = _input(judge, where, supply, found)
        if isinstance(supply.get("Status"), dict):
            good = works(judge, where, "power supply", supply, _REPLACE if fed else FEED, idle=idle)
        else:
            good = _by_sensor(judge, where, name(supply), found)
        if good and fed:
            judge.measured.add(f"{node}/psu/{name(supply)}")
        return good and fed

    @staticmethod
    def _number(judge: Judge, node: str, platform: PlatformProfile, there: int, good: int) -> None:
        """Hold the number of supplies against the profile's."""
        judge.metric("power_supplies_good", node, good, "1")
        if platform.psus is None:
            _any_at_work(judge, node, there, good)
            judge.remark(f"how many supplies {platform.id} has is not published: only those that the BMC lists were judged")
            return
        wanted = platform.psus
        judge.count("power_supplies", node, there, wanted.count, wanted.source)
        judge.equal(node, "power supplies", wanted.count, there, "Reseat or replace the supply that is missing; the evidence lists those that are there.")
        if wanted.min_count is None:
            _any_at_work(judge, node, there, good)
            return
        judge.criterion(Criterion(metric="power_supplies_good", op=Op.GE, bound=wanted.min_count, unit="1", label="floor", source=wanted.source))
        if good < wanted.min_count:
            judge.fail(
                node,
                "too few good power supplies",
                f"at least {wanted.min_count} for full performance",
                good,
                "The server slows down or stops under load: repair its supplies before anything else.",
            )


def _redundancy(judge: Judge, where: str, platform: PlatformProfile, group: Document) -> None:
    """Hold a group against redundant and healthy. One that is not redundant is right only where the profile plans no spare."""
    if absent(group):
        return
    planned = platform.psus is not None and platform.psus.min_count is not None
    bare = kind(group) == NONE
    if strange(group):
        judge.error(where, "redundancy unknown", f"one of {', '.join(sorted({NONE} | SPARE_KINDS))}", kind(group) or "nothing", "Update the BMC's firmware.")
    elif bare and _planned_spares(platform) and platform.psus is not None:
        judge.judged += 1
        wanted = f"spares, since {platform.psus.min_count} of {platform.psus.count} are enough ({platform.psus.source})"
        judge.fail(
            where, "power supplies not redundant", wanted, NONE, "Set the redundancy in the BMC, and repair the supply or feed that is named beside this."
        )
    elif bare and not planned:
        step = f"Set the redundancy in the BMC, or give the platform profile {platform.id} its psus with min_count and the source."
        judge.error(where, "power supplies not redundant", "spares, or a profile that says that there are none", NONE, step)
    if isinstance(group.get("Status"), dict):
        idle = {"Disabled"} if bare else ()  # nothing to be redundant with, as judged above
        works(judge, where, "redundancy", group, "Repair the supply or feed that is named beside this; the loss of one more may stop the server.", idle=idle)


def _capacity(judge: Judge, node: str, platform: PlatformProfile, there: Sequence[Document]) -> None:
    """Hold what the fewest supplies that the server needs can carry, the smallest of them, against its highest draw: other supplies may be fitted.

    A draw that is itself derived is no bound: the figure is noted alone.
    """
    least, most = platform.psus.min_count if platform.psus is not None else None, platform.max_power
    watts = sorted(value for item in there if (value := numeric(item.get("PowerCapacityWatts"))))
    if platform.psus is None or least is None or len(watts) < least:
        return
    carried = sum(watts[:least])
    judge.metric("power_supplies_capacity", node, carried, "W")
    if most.source.startswith("derived"):
        if carried < most.value:
            judge.remark(f"{least} of its supplies can carry {carried:.0f} W, less than {most.value:.0f} W ({most.source}): recorded only")
        return
    source = f"derived: highest draw ({most.source}), carried by {least} supplies ({platform.psus.source})"
    judge.criterion(Criterion(metric="power_supplies_capacity", op=Op.GE, bound=most.value, unit="W", label="floor", source=source, derived=True))
    if carried < most.value:
        expected = f"at least {most.value:.0f} W from {least} of them ({most.source})"
        judge.fail(node, "power supplies too small", expected, f"{carried:.0f} W", "Fit the supplies that the vendor lists for this server.")


def _any_at_work(judge: Judge, node: str, there: int, good: int) -> None:
    """Where nobody says how many it needs: a server that answers runs on one at least."""
    if there and not good:
        judge.error(
            node, "no power supply at work", "at least one that is switched on and good", f"none of {there}", "Update or restart the BMC; check its supplies."
        )


def _planned_spares(platform: PlatformProfile) -> bool:
    """Whether the profile says that the platform has more supplies than it needs."""
    return platform.psus is not None and platform.psus.min_count is not None and platform.psus.count > platform.psus.min_count


def _fed_by_the_rack(judge: Judge, node: str, platform: PlatformProfile) -> Verdict:
    judge.judged += 1
    judge.measured.add(f"{node}/psu")
    # NVL72 trays take their power from the rack's bus bar; the profile of such a server has an NVLink domain that spans servers, and no supplies.
    judge.remark(f"{platform.id}: neither the profile nor the BMC has power supplies, the rack feeds it: nothing to judge on the node")
    return judge.verdict(node)


def _input(judge: Judge, where: str, supply: Document, found: Told) -> bool:
    """Hold a supply's input against normal, as far as the BMC says anything of it."""
    word = supply.get("LineInputStatus")
    if word is not None and word not in inputs.INPUT_WORDS:
        judge.error(where, "input state unknown", "one of " + ", ".join(sorted(inputs.INPUT_WORDS)), word, "Update the BMC's firmware.")
        return False
    volts = inputs.volts(supply, found)
    if volts is not None:
        judge.metric("psu_input_voltage", where.replace(" psu ", "/psu/"), volts, "V")
    if word == "OutOfRange" or inputs.fed(supply, found) is False:
        shown = word if volts is None or word in {"LossOfInput", "OutOfRange"} else f"{volts:.0f} V"
        judge.fail(where, "power supply input lost", "Normal input", shown, FEED)
        return False
    return True


def _of_power(sensor: Document) -> bool:
    """Whether a sensor reads power, by its type or, where nobody knows that, by its unit (UCUM: W); one that tells neither may."""
    kind_of, unit = sensor.get("ReadingType"), sensor.get("ReadingUnits")
    return kind_of == "Power" or unit == "W" or (kind_of not in READING_TYPES and unit not in OTHER_UNITS)


def _by_sensor(judge: Judge, where: str, supply: str, found: Told) -> bool:
    sensors = [item for item in found.at(_SENSORS) if _of_power(item) and supply.lower() in name(item).lower()]
    judge.judged += 1
    if not sensors:
        judge.error(where, "power supply state not reported", "a Status, or a power sensor that names it", "neither", "Update the BMC's firmware.")
        return False
    bad = False
    for sensor in sensors:
        watts = numeric(sensor.get("Reading"))
        if watts is None or watts == 0:
            judge.fail(where, "power supply carries nothing", f"power on {name(sensor)}", f"{sensor.get('Reading')} W", FEED)
            bad = True
        else:
            bad |= not works(judge, where, "power supply", sensor, _REPLACE)
    return not bad
