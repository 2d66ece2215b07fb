"""Findings about what opensm did, from its log: the reader is the one that role opensm runs on the node."""

from __future__ import annotations

from rackready.drivers.ib import findings as kinds
from rackready.drivers.ib.text import unknown
from rackready.model.outcome import Finding
from rackready.ondevice import opensm_log
from rackready.ondevice.opensm_log import OpensmState

__all__ = ["OpensmState", "judge_opensm", "read_opensm_log"]


def read_opensm_log(text: str) -> OpensmState:
    """Return what opensm did since its last start. Raises IbTextError for a text without a start of opensm."""
    found = opensm_log.read(text)
    if not found.started:
        raise unknown("opensm (log)", 0, text[:200], "a start of opensm: '-> OpenSM' and its version")
    return found


def judge_opensm(where: str, state: OpensmState, engine: str) -> list[Finding]:
    """Return findings if opensm routes with another engine than declared, is not up, or discarded the partitions."""
    out = []
    if state.swept != "up":
        actual = "errors in the last sweep" if state.swept else "not reported since the last start"
        out.append(kinds.NOT_UP.found(where, "SUBNET UP", actual))
    if state.engine != engine:
        out.append(kinds.ENGINE.found(where, engine, state.engine or "no tables configured"))
    if state.partitions_discarded:
        words = "; ".join(state.partition_words) or "the file has an error"
        out.append(kinds.PARTITIONS_LOST.found(where, "the partition file in use", f"discarded: {words}"))
    return out
