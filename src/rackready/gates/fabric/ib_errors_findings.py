"""Findings of the gate on error rates of InfiniBand links."""

from __future__ import annotations

from rackready.gates.base import AGAIN
from rackready.gates.fabric.port_errors import STEP
from rackready.gates.host.pairing import ONE_READING, OTHER_BOOT
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind

UNREADABLE = ErrorKind(
    "ib-error-counters-unreadable",
    "counters not readable",
    meaning="The counters of an InfiniBand port, or of the switch port at its cable, cannot be read.",
    next_step="Run `perfquery` as the message shows it. A subnet manager with M_Key protection refuses such requests.",
)
READING_UNREADABLE = ErrorKind(
    "ib-error-reading-unreadable",
    "reading unreadable",
    meaning="The document of readings is not complete.",
    next_step=AGAIN,
)
NOT_WAITED = ErrorKind(
    "ib-error-wait-ended-early",
    "the wait ended early",
    meaning="The wait between the readings was ended by something.",
    next_step=AGAIN,
)
BACK = ErrorKind(
    "ib-error-counter-went-back",
    "{name} went back",
    meaning="A counter is lower than before: somebody cleared it, or the port was reset. Its growth is unknown.",
    next_step="Stop whatever clears counters (ibqueryerrors -k, perfquery -R), then run the gate again.",
)
FULL = ErrorKind(
    "ib-error-counter-full",
    "{name} is full",
    meaning="The counter has reached its highest value and stays there, so further errors are not counted.",
    next_step="Write down the counters of the port, clear them with `perfquery -R`, then run the gate again.",
)
OTHER_PEER = ErrorKind(
    "ib-error-other-peer",
    "other switch port than before",
    meaning="The cable leads to another switch port than at the first reading.",
    next_step="Finish the work on the cables, then run the gate again.",
)
TOO_SHORT = ErrorKind(
    "ib-error-window-too-short",
    "time between the readings",
    meaning="In that time the link cannot carry enough bits to prove the bit error rate, even without an error.",
    next_step="Raise the gate's input window_s to at least the expected time.",
)
BIT_ERRORS = FailKind(
    "ib-bit-error-rate",
    "symbol errors",
    meaning="The port counts more symbol errors than the bit error rate allows: cable, module or a port is bad.",
    next_step=STEP,
)
DOWNED = FailKind(
    "ib-link-downed-at-both-ends",
    "link went down",
    meaning="LinkDowned grew at both ends of the cable while nothing was to be changed: the link flaps.",
    next_step=STEP,
)
DROPPED = FailKind(
    "ib-packet-error-rate",
    "received packets with errors",
    meaning="The port received more damaged packets than the limit allows.",
    next_step=STEP,
)

FINDINGS = (
    *(UNREADABLE, READING_UNREADABLE, NOT_WAITED, BACK, FULL, OTHER_PEER, TOO_SHORT, BIT_ERRORS, DOWNED, DROPPED),
    *(ONE_READING, OTHER_BOOT),
)
