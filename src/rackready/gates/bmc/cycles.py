"""Repeated power cycles: after each one, every part of the node must be there as before the first.

Ten cycles with an inventory comparison after each is what bring-up teams do (our judgement of practice; no vendor
publishes a number). AC where the site names the PDU outlets that feed the node, or its BMC can cut its own mains (reset
type FullPowerCycle), or else cold and warm in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from rackready.format_error import FormatError
from rackready.gates import base
from rackready.gates.base import Command, Gate, GateFacts, Output, Outputs, Run
from rackready.gates.bmc import parts_seen
from rackready.gates.bmc.cycle import FORMAT, called
from rackready.gates.bmc.inputs import FEED
from rackready.gates.bmc.interrupted import BOOT_S, BOOTED
from rackready.gates.bmc.parts_seen import RMA, BmcInventory, differences, look, read_inventory
from rackready.gates.engine.shipped_script import document
from rackready.gates.formats import printed
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Verdict
from rackready.model.place import Place

_MARK = "/run/rackready-before-cycle"
"""A file in memory: it is gone after a boot, and only after one."""
_BACK = f"test ! -e {_MARK} || exit 1; {BOOTED}"
_CYCLE_S = 1200.0
_SHOWN = 16


FIRST_LOOK = ErrorKind(
    "cycle-first-look",
    "inventory before the first power cycle",
    meaning="The node's parts could not be listed before the first power cycle, so nothing can be compared.",
    next_step="Fix the problem that it names; the node was not power-cycled.",
)
NOT_BACK = FailKind(
    "cycle-not-back",
    "not back after power cycle {number} ({cycle})",
    meaning="The node did not come back after a power cycle.",
    next_step="Check its console over the BMC, and bmc/log/sanity/events; do not put the node into use.",
)
LATER_LOOK = FailKind(
    "cycle-later-look",
    "inventory after power cycle {number} ({cycle})",
    meaning="The node's parts could no longer be listed after a power cycle.",
    next_step=RMA,
)
CYCLE_NOT_RUN = ErrorKind(
    "cycle-not-run",
    "{what} was not run",
    meaning="This power cycle was not done, because an earlier problem ended the series.",
    next_step="Check the finding that ended the series.",
)
CYCLE_NOT_BEGUN = ErrorKind(
    "cycle-not-begun",
    "{what} not begun",
    meaning="The node did not answer before this power cycle, so it was not done.",
    next_step="Check the node, then run the gate again.",
)
CYCLE_NOT_DONE = ErrorKind(
    "cycle-not-done",
    "{what} not done",
    meaning="The power did not go off and on, or the result is unknown.",
    next_step="Check the node's power state in its BMC; bring it to On, then run the gate again.",
)
CYCLE_UNREADABLE = ErrorKind(
    "cycle-unreadable",
    "{what} unreadable",
    meaning="The record of a power cycle cannot be read.",
    next_step="Run the gate again; if it happens again, report a bug.",
)
NO_INPUT_AGAIN = FailKind(
    "cycle-no-input-again",
    "no input again after power cycle {cycle}",
    meaning="A power supply has no input after its outlet was switched off and on.",
    next_step=FEED,
)
CYCLE_DID_NOT_HAPPEN = ErrorKind(
    "cycle-did-not-happen",
    "power cycle {cycle} did not happen",
    meaning="The BMC reported a power cycle, but the node did not reboot.",
    next_step="The BMC reported a power cycle that did not happen: update its firmware.",
)
FURTHER_DIFFERENCES = FailKind(
    "cycle-further-differences",
    "further differences after power cycle {cycle}",
    meaning="More parts differ after the power cycle than the findings name.",
    next_step="Read them in the raw outputs.",
)

FINDINGS = (
    FIRST_LOOK,
    NOT_BACK,
    LATER_LOOK,
    CYCLE_NOT_RUN,
    CYCLE_NOT_BEGUN,
    CYCLE_NOT_DONE,
    CYCLE_UNREADABLE,
    NO_INPUT_AGAIN,
    CYCLE_DID_NOT_HAPPEN,
    FURTHER_DIFFERENCES,
)


class PowerCycles(Gate):
    """Every part of the node is back after each of its power cycles, with the same link widths."""

    id = "bmc/power/stress/cycles"
    findings = (
        *parts_seen.FINDINGS,
        *FINDINGS,
    )
    retry = False
    in_no_set = (
        "it reboots the node ten times, which takes hours and voids everything measured since the last "
        "boot: run it by itself, before all other gates"
    )

    class Inputs(base.Inputs):
        """Number and kind of the cycles, and the time limit of a boot."""

        cycles: int = Field(10, ge=1, le=200, description="power cycles")
        kind: Literal["auto", "ac", "cold", "warm"] = Field(
            "auto", description="auto: AC where PDU or BMC can, or else cold and warm in turn"
        )
        boot_s: int = Field(
            BOOT_S,
            ge=30,
            le=7200,
            description="longest time from power-on to a booted system, s; servers with 2 TB check their "
            "memory for many minutes",
        )

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002
        """Plan an inventory, then as often as the inputs say: cycle, wait, inventory. A problem ends the series."""
        return [Run.of_node(node, *self._commands(node), claims=frozenset({node}), chained=True) for node in nodes]

    def _commands(self, node: str) -> list[Command]:
        found = [*look(node, 0, 0)]
        for number in range(1, self.inputs.cycles + 1):
            stage = 4 * number
            found += [
                Command(f"mark-{number}", node, ("touch", _MARK), 30, stage=stage),
                Command(
                    f"cycle-{number}",
                    node,
                    ("CYCLE", self.inputs.kind, str(number)),
                    _CYCLE_S,
                    stage=stage + 1,
                    via="bmc",
                ),
                Command(f"boot-{number}", node, ("sh", "-c", _BACK), self.inputs.boot_s, stage=stage + 2, role="wait"),
                *look(node, number, stage + 3),
            ]
        return found

    def ended(self, run: Run, outputs: Outputs) -> bool:  # noqa: ARG002 - the outputs say it
        """Return whether a problem has ended the series, so that the node is not cycled again.

        A problem is an inventory that is incomplete or differs from the first, or a supply that stays without input.
        """
        number = max((int(key.removeprefix("bmc-")) for key in outputs if key.startswith("bmc-")), default=None)
        if number is None:
            return False
        try:
            first, last = read_inventory(outputs, 0), read_inventory(outputs, number)
            unfed = number > 0 and _unfed(document(outputs[f"cycle-{number}"], FORMAT, printed.PowerCycle))
        except FormatError:
            return True
        return number > 0 and (bool(unfed) or bool(differences(first, last)) or last.boot_id == first.boot_id)

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:  # noqa: ARG002
        """Compare every inventory with the first, and report how far the series came."""
        node = run.nodes[0]
        judge = Judge()
        try:
            first = read_inventory(outputs, 0)
        except FormatError as error:
            judge.error(node, FIRST_LOOK, "a complete one", error)
            return judge.verdict(node)
        done = 0
        told: list[dict[str, Any]] = []
        while done < self.inputs.cycles and self._judge_cycle(judge, node, done + 1, first, outputs, told):
            done += 1
        judge.metric("power_cycles", node, done, "1")
        kinds = ", ".join(dict.fromkeys(map(called, told))) or "none"
        judge.note = "; ".join(
            [
                f"{done} of {self.inputs.cycles} power cycles ({kinds}), {len(first.parts)} parts compared after each",
                *_proofs(told),
                *(f"drives by the kernel alone: the BMC's {address} lists no members" for address in first.bare),
            ]
        )
        if done == self.inputs.cycles and not judge.fails:
            judge.measured.add(node + "/power-cycles")
        return judge.verdict(node)

    def _judge_cycle(
        self, judge: Judge, node: str, number: int, first: BmcInventory, outputs: Outputs, told: list[dict[str, Any]]
    ) -> bool:
        """Judge one cycle; return False when the series ends here."""
        done = _cycle(judge, node, number, outputs.get(f"cycle-{number}"), outputs.get(f"mark-{number}"))
        if done is None:
            return False
        told.append(done)
        cycle = called(done)
        boot = outputs.get(f"boot-{number}")
        if boot is None or boot.exit_code != 0:
            seconds = f"{boot.seconds:.0f} s" if boot is not None else "no time"
            why = (boot.failure or boot.stderr.strip()) if boot is not None else "not asked"
            actual = f"not after {seconds}" + (f" ({why})" if why else "")
            judge.judged += 1
            judge.fail(node, NOT_BACK, "a booted system that answers on SSH", actual, number=number, cycle=cycle)
            return False
        try:
            later = read_inventory(outputs, number)
        except FormatError as error:
            judge.judged += 1
            judge.fail(node, LATER_LOOK, "the same parts as before", error, number=number, cycle=cycle)
            return False
        judge.metric("boot_time", f"{node}/cycle{number}", boot.seconds, "s")
        fed = _fed(judge, node, f"{number} ({cycle})", done)
        return _compare(judge, node, f"{number} ({cycle})", first, later) and fed


def _cycle(judge: Judge, node: str, number: int, output: Output | None, mark: Output | None) -> dict[str, Any] | None:
    """Return the record of a cycle that was done, or None when the series ends here."""
    where, what = Place(node, "BMC"), f"power cycle {number}"
    if mark is None or output is None:
        judge.error(where, CYCLE_NOT_RUN, "a power cycle, after a mark on the node", "none", what=what)
        return None
    if mark.exit_code != 0 or mark.failure or mark.timed_out:
        judge.error(node, CYCLE_NOT_BEGUN, "SSH answers before it", mark.failure or f"exit {mark.exit_code}", what=what)
        return None
    if output.failure or output.timed_out or output.exit_code != 0:
        actual = output.failure.rstrip(".") or f"no end after {output.seconds:.0f} s"
        judge.error(where, CYCLE_NOT_DONE, "power off and on again", actual, what=what)
        return None
    try:
        found = document(output, FORMAT)
        printed.require_shape(found, printed.PowerCycle)
    except FormatError as error:
        judge.error(where, CYCLE_UNREADABLE, f"a document of format {FORMAT}", error, what=what)
        return None
    return found


def _proofs(told: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield once each how the outlets were shown to be the node's own."""
    for by, why in dict.fromkeys((proof["by"], proof.get("why")) for item in told if (proof := item.get("proof"))):
        if by == "inputs":
            yield "each outlet but the last was seen to feed a power supply of the node before the next went off"
        else:
            yield f"only the silence of its BMC showed that the outlets are the node's own: {why}"


def _unfed(told: Mapping[str, Any]) -> dict[str, bool | None]:
    """Return the supplies that have no input again after a cycle, or whose input is not reported."""
    proof = told.get("proof") or {}
    return {supply: has for supply, has in proof.get("back", {}).items() if has is not True}


def _fed(judge: Judge, node: str, cycle: str, told: Mapping[str, Any]) -> bool:
    unfed = _unfed(told)
    for supply, has in unfed.items():
        judge.fail(
            Place(node, f"psu {supply}"),
            NO_INPUT_AGAIN,
            "Normal input",
            "not reported" if has is None else "no input",
            cycle=cycle,
        )
    return not unfed


def _compare(judge: Judge, node: str, cycle: str, first: BmcInventory, later: BmcInventory) -> bool:
    judge.judged += 1
    if later.boot_id == first.boot_id:
        judge.error(node, CYCLE_DID_NOT_HAPPEN, "another boot id", later.boot_id, cycle=cycle)
        return False
    found = differences(first, later)
    for item in found[:_SHOWN]:
        judge.fail(Place(node, item.part), item.kind, item.before, item.after, cycle=cycle)
    if len(found) > _SHOWN:
        judge.fail(node, FURTHER_DIFFERENCES, "none", len(found) - _SHOWN, cycle=cycle)
    return not found
