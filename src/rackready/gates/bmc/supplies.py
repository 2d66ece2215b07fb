"""Power supplies: each one of the platform is there, has input and works, and they are redundant.

How many there must be, and how many keep the server at full performance, comes from the platform profile: BMCs report
less (a DGX H100's reports MinNeededInGroup 1 for a server that needs four).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rackready.gates.base import Gate, GateFacts, Outputs, Run
from rackready.gates.bmc import documents, inputs, owner
from rackready.gates.bmc.documents import BmcAnswer, Document, absent, name, numeric, state, well, works
from rackready.gates.bmc.inputs import FEED
from rackready.gates.bmc.redundancy import NONE, groups, kind, spares, strange
from rackready.gates.bmc.words import OTHER_UNITS, READING_TYPES, SPARE_KINDS
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Criterion, Op, Verdict
from rackready.model.place import Place
from rackready.model.profile import PlatformProfile

_NEW, _METRICS = inputs.newer()
_OLD = inputs.older()
_SUBSYSTEM, _SENSORS = "Chassis/*/PowerSubsystem", "Chassis/*/Sensors/*"
_REPLACE = "Reseat the supply; if the fault stays, replace it."
_SPARE = "StandbyOffline"
"""State of a supply on standby (DSP0268): right for a spare, and the server does not run on it."""


SUPPLIES_NOT_REPORTED = ErrorKind(
    "psus-not-reported",
    "power supplies not reported",
    meaning="The BMC lists no power supply.",
    next_step="Update or restart the BMC, then run the gate again.",
)
SUPPLY_COUNT = FailKind(
    "psu-count",
    "power supplies",
    meaning="The server has fewer power supplies than its platform.",
    next_step="Reseat or replace the missing supply; the evidence lists those that are there.",
)
SUPPLIES_TOO_MANY = FailKind(
    "psu-too-many",
    "more power supplies than planned",
    meaning="The server has more power supplies than its platform.",
    next_step="Check the order; if the server has that many, set psus of the platform profile {platform} to it.",
)
TOO_FEW_GOOD = FailKind(
    "psu-too-few-good",
    "too few good power supplies",
    meaning="Too few good power supplies to run the server under full load.",
    next_step="The server slows down or stops under load: repair its supplies before anything else.",
)
REDUNDANCY_UNKNOWN = ErrorKind(
    "psu-redundancy-unknown",
    "redundancy unknown",
    meaning="The BMC reports the redundancy of the supplies in a word that Redfish does not define.",
    next_step="Update the BMC's firmware.",
)
NOT_REDUNDANT = FailKind(
    "psu-not-redundant",
    "power supplies not redundant",
    meaning="The supplies are not redundant: if one fails, the server slows down or stops.",
    next_step="Set the redundancy in the BMC, and repair the supply or feed that another finding names.",
)
NOT_REDUNDANT_UNDECLARED = ErrorKind(
    "psu-not-redundant-undeclared",
    "power supplies not redundant",
    meaning="The BMC reports that the supplies are not redundant, and the platform's profile does not "
    "say whether they should be.",
    next_step="Set the redundancy in the BMC, or add psus with min_count and its source to the platform "
    "profile {platform}.",
)
TOO_SMALL = FailKind(
    "psu-too-small",
    "power supplies too small",
    meaning="The supplies cannot carry the server's highest draw.",
    next_step="Fit the supplies that the vendor lists for this server.",
)
NONE_AT_WORK = ErrorKind(
    "psu-none-at-work",
    "no power supply in use",
    meaning="The BMC reports no supply that is on and good, and yet the server runs.",
    next_step="Update or restart the BMC; check its supplies.",
)
INPUT_UNKNOWN = ErrorKind(
    "psu-input-unknown",
    "input state unknown",
    meaning="The BMC reports a supply's input in a word that Redfish does not define.",
    next_step="Update the BMC's firmware.",
)
INPUT_LOST = FailKind(
    "psu-input-lost",
    "power supply input lost",
    meaning="A power supply has no input: its cord, outlet, breaker or feed is off.",
    next_step=FEED,
)
SUPPLY_STATE_NOT_REPORTED = ErrorKind(
    "psu-state-not-reported",
    "power supply state not reported",
    meaning="The BMC reports neither state nor power of a supply.",
    next_step="Update the BMC's firmware.",
)
CARRIES_NOTHING = FailKind(
    "psu-carries-nothing",
    "power supply delivers no power",
    meaning="A power supply is there and delivers no power.",
    next_step=FEED,
)
SUPPLY_NOT_WORKING = FailKind(
    "psu-not-working",
    "power supply not working",
    meaning="A power supply that has input does not work.",
    next_step=_REPLACE,
)
SUPPLY_NOT_FED = FailKind(
    "psu-not-fed",
    "power supply not working",
    meaning="A power supply does not work, and it has no input.",
    next_step=FEED,
)
REDUNDANCY_LOST = FailKind(
    "psu-redundancy-lost",
    "redundancy not working",
    meaning="The supplies are no longer redundant: if one more fails, the server may stop.",
    next_step="Repair the supply or feed that another finding names; if one more fails, the server may stop.",
)

FINDINGS = (
    SUPPLY_NOT_WORKING,
    SUPPLY_NOT_FED,
    REDUNDANCY_LOST,
    SUPPLIES_NOT_REPORTED,
    SUPPLY_COUNT,
    SUPPLIES_TOO_MANY,
    TOO_FEW_GOOD,
    REDUNDANCY_UNKNOWN,
    NOT_REDUNDANT,
    NOT_REDUNDANT_UNDECLARED,
    TOO_SMALL,
    NONE_AT_WORK,
    INPUT_UNKNOWN,
    INPUT_LOST,
    SUPPLY_STATE_NOT_REPORTED,
    CARRIES_NOTHING,
)


class Supplies(Gate):
    """Every power supply is there, has input and works, and the loss of one is covered."""

    id = "bmc/power/sanity/supplies"
    findings = (
        *owner.FINDINGS,
        *documents.PART,
        *FINDINGS,
    )
    stops_load = True
    looks = True

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002
        """Plan one request to each BMC."""
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
        if modules := inputs.modules(found):
            named = ", ".join(f"{name(item)} ({item['Model']})" for item in modules)
            judge.remark(f"listed as supplies, without capacity, input and output, so not counted: {named}")
        if not supplies:
            judge.error(Place(node, "BMC"), SUPPLIES_NOT_REPORTED, "at least one", "none")
        there = [item for item in supplies if not absent(item)]
        told_of = groups(found.at(_SUBSYSTEM), "PowerSupplyRedundancy", found.at(_OLD))
        idle = {_SPARE} if _planned_spares(platform) or spares(told_of) else set()
        good = [
            item
            for item in there
            if _tells(judge, node, item, there, found) and self._judge_supply(judge, node, item, found, idle)
        ]
        self._number(judge, node, platform, len(there), len([item for item in good if state(item) != _SPARE]))
        _capacity(judge, node, platform, there)
        for index, group in enumerate(told_of):
            _redundancy(judge, Place(node, f"power redundancy group {group.get('MemberId', index)}"), platform, group)
        return judge.verdict(node)

    @staticmethod
    def _judge_supply(judge: Judge, node: str, supply: Document, found: BmcAnswer, idle: Collection[str]) -> bool:
        """Judge one supply; ``idle``: the unused states that are right for it.

        One whose resource has no Status (DGX H100) is judged by the power sensors that name it.
        """
        where = Place(node, f"psu {name(supply)}")
        fed = _input(judge, where, supply, found)
        if isinstance(supply.get("Status"), dict):
            good = works(judge, where, "power supply", supply, SUPPLY_NOT_WORKING if fed else SUPPLY_NOT_FED, idle=idle)
        else:
            good = _by_sensor(judge, where, name(supply), found)
        if good and fed:
            judge.measured.add(f"{node}/psu/{name(supply)}")
        return good and fed

    @staticmethod
    def _number(judge: Judge, node: str, platform: PlatformProfile, there: int, good: int) -> None:
        """Compare the number of supplies with the profile's."""
        judge.metric("power_supplies_good", node, good, "1")
        if platform.psus is None:
            _any_at_work(judge, node, there, good)
            judge.remark(f"the number of supplies of {platform.id} is not published: only listed supplies were judged")
            return
        wanted = platform.psus
        judge.count("power_supplies", node, there, wanted.count, wanted.source)
        if there > wanted.count:
            judge.fail(node, SUPPLIES_TOO_MANY, wanted.count, there, platform=platform.id)
        else:
            judge.equal(node, SUPPLY_COUNT, wanted.count, there)
        if wanted.min_count is None:
            _any_at_work(judge, node, there, good)
            return
        judge.criterion(
            Criterion(
                metric="power_supplies_good",
                op=Op.GE,
                bound=wanted.min_count,
                unit="1",
                label="floor",
                source=wanted.source,
            )
        )
        if good < wanted.min_count:
            judge.fail(node, TOO_FEW_GOOD, f"at least {wanted.min_count} for full performance", good)


def _redundancy(judge: Judge, where: str, platform: PlatformProfile, group: Document) -> None:
    """Judge a group's redundancy and health.

    A group may be without redundancy only where the profile plans no spare.
    """
    if absent(group):
        return
    planned = platform.psus is not None and platform.psus.min_count is not None
    bare = kind(group) == NONE
    if strange(group):
        judge.error(
            where, REDUNDANCY_UNKNOWN, f"one of {', '.join(sorted({NONE} | SPARE_KINDS))}", kind(group) or "nothing"
        )
    elif bare and _planned_spares(platform) and platform.psus is not None:
        judge.judged += 1
        wanted = f"spares, since {platform.psus.min_count} of {platform.psus.count} are enough ({platform.psus.source})"
        judge.fail(where, NOT_REDUNDANT, wanted, NONE)
    elif bare and not planned:
        judge.error(
            where,
            NOT_REDUNDANT_UNDECLARED,
            "spares, or a profile that plans none",
            NONE,
            platform=platform.id,
        )
    if isinstance(group.get("Status"), dict):
        idle = {"Disabled"} if bare else ()  # nothing to be redundant with, as judged above
        works(judge, where, "redundancy", group, REDUNDANCY_LOST, idle=idle)


def _capacity(judge: Judge, node: str, platform: PlatformProfile, there: Sequence[Document]) -> None:
    """Compare the capacity of the fewest supplies that the server needs with its highest draw.

    The smallest supplies count, because other ones may be fitted. A highest draw that is itself derived is not a bound:
    the figure is only recorded.
    """
    least, most = platform.psus.min_count if platform.psus is not None else None, platform.max_power
    watts = sorted(value for item in there if (value := numeric(item.get("PowerCapacityWatts"))))
    if platform.psus is None or least is None or len(watts) < least:
        return
    carried = sum(watts[:least])
    judge.metric("power_supplies_capacity", node, carried, "W")
    if most.derived:
        if carried < most.value:
            judge.remark(
                f"{least} of its supplies can carry {carried:.0f} W, less than {most.value:.0f} W ({most.source}): "
                "recorded only"
            )
        return
    source = f"derived: highest draw ({most.source}), carried by {least} supplies ({platform.psus.source})"
    judge.criterion(
        Criterion(
            metric="power_supplies_capacity",
            op=Op.GE,
            bound=most.value,
            unit="W",
            label="floor",
            source=source,
            derived=True,
        )
    )
    if carried < most.value:
        expected = f"at least {most.value:.0f} W from {least} of them ({most.source})"
        judge.fail(node, TOO_SMALL, expected, f"{carried:.0f} W")


def _any_at_work(judge: Judge, node: str, there: int, good: int) -> None:
    """Report an error where none is in use and the needed number is unknown.

    A server that answers runs on one at least.
    """
    if there and not good:
        judge.error(node, NONE_AT_WORK, "at least one that is switched on and good", f"none of {there}")


def _planned_spares(platform: PlatformProfile) -> bool:
    """Return whether the profile gives the platform more supplies than it needs."""
    return (
        platform.psus is not None
        and platform.psus.min_count is not None
        and platform.psus.count > platform.psus.min_count
    )


def _fed_by_the_rack(judge: Judge, node: str, platform: PlatformProfile) -> Verdict:
    judge.judged += 1
    judge.measured.add(f"{node}/psu")
    # NVL72 trays take their power from the rack's bus bar; the profile of such a server has an NVLink domain across
    # servers, and no supplies.
    judge.remark(
        f"{platform.id}: neither the profile nor the BMC has power supplies, the rack feeds it: nothing "
        "to judge on the node"
    )
    return judge.verdict(node)


def _tells(judge: Judge, node: str, supply: Document, among: Sequence[Document], found: BmcAnswer) -> bool:
    """Return whether a supply that reports itself well shows any figure, where the others do; else report it dead."""
    if not (well(supply) and inputs.silent(supply, among, found)):
        return True
    judge.judged += 1
    where = Place(node, f"psu {name(supply)}")
    judge.fail(where, CARRIES_NOTHING, "capacity, input or output, as of the others", "none of them")
    return False


def _input(judge: Judge, where: Place, supply: Document, found: BmcAnswer) -> bool:
    """Judge a supply's input, as far as the BMC reports it."""
    word = supply.get("LineInputStatus")
    if word is not None and word not in inputs.INPUT_WORDS:
        judge.error(where, INPUT_UNKNOWN, "one of " + ", ".join(sorted(inputs.INPUT_WORDS)), word)
        return False
    volts = inputs.volts(supply, found)
    if volts is not None:
        judge.metric("psu_input_voltage", f"{where.node}/{where.part.replace(' ', '/', 1)}", volts, "V")
    if word == "OutOfRange" or inputs.fed(supply, found) is False:
        shown = word if volts is None or word in {"LossOfInput", "OutOfRange"} else f"{volts:.0f} V"
        judge.fail(where, INPUT_LOST, "Normal input", shown)
        return False
    return True


def _sensors(supply: str, found: BmcAnswer) -> list[Document]:
    """Return the power sensors that name a supply: by type or, where the type is unknown, by unit (UCUM: W).

    One that reports neither may read power. It counts only where no sensor is known to: a DGX H100 has STATUS_PSU0,
    which reads 0, beside PWR_PSU0, which reads watts (NVIDIA/libredfish c094c9e6, tests/mockups/nvidia_viking).
    """
    named = [item for item in found.at(_SENSORS) if supply.lower() in name(item).lower()]
    known = [item for item in named if item.get("ReadingType") == "Power" or item.get("ReadingUnits") == "W"]
    return known or [
        item
        for item in named
        if item.get("ReadingType") not in READING_TYPES and item.get("ReadingUnits") not in OTHER_UNITS
    ]


def _by_sensor(judge: Judge, where: str, supply: str, found: BmcAnswer) -> bool:
    sensors = _sensors(supply, found)
    judge.judged += 1
    if not sensors:
        judge.error(where, SUPPLY_STATE_NOT_REPORTED, "a Status, or a power sensor with its name", "neither")
        return False
    bad = False
    for sensor in sensors:
        watts = numeric(sensor.get("Reading"))
        if watts is None or watts == 0:
            judge.fail(where, CARRIES_NOTHING, f"power on {name(sensor)}", f"{sensor.get('Reading')} W")
            bad = True
        else:
            bad |= not works(judge, where, "power supply", sensor, SUPPLY_NOT_WORKING)
    return not bad
