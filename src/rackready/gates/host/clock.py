"""The gate on the node's clock: time source, offset and largest possible error."""

from __future__ import annotations

from pydantic import Field

from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates import base
from rackready.gates.formats import chrony
from rackready.gates.host import reading
from rackready.gates.host.reading import AGAIN, Answers, HostGate, Limit, Tool, WantedValues
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Op

TRACKING = Tool("chronyc", ("chronyc", "-n", "-c", "tracking"), "chrony")
_SILENT = "506 Cannot talk to daemon"
_DISTANCE = "chrony.conf(5), maxdistance: a source that may be wrong by more than 3 s is rejected by default"
_SOURCE = "Prometheus node mixin, alert NodeClockSkewDetected: offset above 0.05 s"


NO_CLOCK_DAEMON = FailKind(
    "clock-daemon",
    "clock daemon",
    meaning="The node's clock daemon does not answer, so nothing keeps its time.",
    next_step="Run `systemctl status chrony` on the node: it shows why chrony does not run.",
)
CHRONY_UNREADABLE = ErrorKind(
    "clock-unreadable",
    "chronyc's output is not understood",
    meaning="chronyc printed something other than its state.",
    next_step=AGAIN,
)
NOT_SYNCHRONISED = FailKind(
    "clock-not-synchronised",
    "clock is not synchronised",
    meaning="The node follows no time source: its clock drifts, and the times in the nodes' logs do not match.",
    next_step="Check that the node reaches its time servers (`chronyc -n sources`), and that UDP port 123 is open.",
)
CLOCK_ERROR = FailKind(
    "clock-error",
    "largest clock error",
    meaning="The clock may be wrong by more than the gate set allows.",
    next_step="Check that the node reaches its time servers now (`chronyc -n sources -v`), and over which path: the "
    "possible error grows while none answers.",
)
CLOCK_OFFSET = FailKind(
    "clock-offset",
    "clock offset",
    meaning="The clock differs from its source by more than the gate set allows.",
    next_step="Wait until chrony has slewed the clock, or step it once with `chronyc makestep` while no job runs; "
    "then run the gate again.",
)

FINDINGS = (NO_CLOCK_DAEMON, CHRONY_UNREADABLE, NOT_SYNCHRONISED, CLOCK_ERROR, CLOCK_OFFSET)


class Clock(HostGate):
    """The clock follows a time source, and its offset and possible error are small."""

    id = "node/host/sanity/clock"
    findings = (*reading.FINDINGS, *FINDINGS)
    looks = True
    what = "clock"

    class Inputs(base.Inputs):
        """Limits on the clock's error."""

        max_offset_s: float = Field(
            0.05,
            gt=0,
            le=60,
            description=f"largest offset from the source, s, at most 60 (judgement); source of the default: {_SOURCE}",
        )
        max_error_s: float = Field(
            3.0,
            gt=0,
            le=60,
            description="largest possible error, s: offset, root dispersion and half the root delay (chronyc(1)); "
            f"lower it if jobs or PTP need less; at most 60 (judgement); source of the default: {_DISTANCE}",
        )

    inputs: Inputs

    def wanted(self, facts: NodeFacts) -> WantedValues:  # noqa: ARG002 - the same on every node
        """Return the question to the clock daemon."""
        return WantedValues((TRACKING,))

    def judge_node(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Compare state, possible error and offset with their bounds."""
        node = facts.node.name
        answer = found.commands.get("chronyc")
        if answer is not None and answer["stdout"].strip() == _SILENT:
            judge.judged += 1
            judge.fail(node, NO_CLOCK_DAEMON, "an answer of chronyd", _SILENT)
            return
        text = found.text("chronyc")
        if text is None:
            return
        try:
            state = chrony.parse(text)
        except FormatError as error:
            judge.error(node, CHRONY_UNREADABLE, "one line of 14 fields", error)
            return
        judge.judged += 1
        if not state.synchronised:
            own = ", its own clock (reference 7F7F0101, chrony's local mode)" if state.local else ""
            actual = f"leap status {state.leap}, stratum {state.stratum}{own}"
            judge.fail(node, NOT_SYNCHRONISED, "a time source that it follows", actual)
            return
        most = Limit("clock_max_error", Op.LE, self.inputs.max_error_s, "s", _DISTANCE)
        if not most.holds(judge, node, state.max_error):
            parts = (
                f"offset {abs(state.offset):.6f} s, root dispersion {state.root_dispersion:.6f} s, root delay "
                f"{state.root_delay:.6f} s"
            )
            judge.fail(
                node, CLOCK_ERROR, f"at most {self.inputs.max_error_s:g} s", f"{state.max_error:.6f} s ({parts})"
            )
        limit = Limit("clock_offset", Op.LE, self.inputs.max_offset_s, "s", _SOURCE)
        if not limit.holds(judge, node, abs(state.offset)):
            judge.fail(
                node,
                CLOCK_OFFSET,
                f"at most {self.inputs.max_offset_s:g} s",
                f"{state.offset:+.6f} s from {state.source}",
            )
