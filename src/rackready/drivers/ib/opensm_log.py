"""Reads opensm's log from its last start: the engine that really routed, whether the subnet is up, what failed open.

Texts: linux-rdma/opensm osm_ucast_mgr.c, osm_opensm.c, osm_prtn.c, osm_state_mgr.c (3.3.23), and opensm on ibsim.
opensm exits 0 and says SUBNET UP with an unknown engine (it routes minhop) and with a partition file that it discarded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rackready.drivers.ib import findings as kinds
from rackready.drivers.ib.text import unknown
from rackready.model.outcome import Finding

_START = re.compile(r"-> OpenSM \d")
_ENGINE = re.compile(r": (\S+) tables configured on all switches")
_UP = re.compile(r"-> SUBNET UP")
_PARTITIONS = "Partition configuration in error"
_PARSE = re.compile(r"PARSE (?:ERROR|WARN): (.*)")


@dataclass(frozen=True, slots=True)
class OpensmState:
    """What opensm did since its last start. ``engine``: the last that configured tables; empty if none did."""

    engine: str
    up: bool
    partitions_discarded: bool
    partition_words: tuple[str, ...] = ()
    """What it said about lines of the partition file."""


def read_opensm_log(text: str) -> OpensmState:
    """Return what opensm did since its last start. Raises IbTextError for a text without a start of opensm."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if _START.search(line)]
    if not starts:
        raise unknown("opensm (log)", 0, text[:200], "a start of opensm: '-> OpenSM' and its version")
    # The version is printed twice at each start.
    own = lines[starts[-1] :]
    engines = [found[1] for line in own if (found := _ENGINE.search(line))]
    return OpensmState(
        engine=engines[-1] if engines else "",
        up=any(_UP.search(line) for line in own),
        partitions_discarded=any(_PARTITIONS in line for line in own),
        partition_words=tuple(found[1] for line in own if (found := _PARSE.search(line))),
    )


def judge_opensm(where: str, state: OpensmState, engine: str) -> list[Finding]:
    """Return findings if opensm routes with another engine than declared, is not up, or discarded the partitions."""
    out = []
    if not state.up:
        out.append(kinds.NOT_UP.found(where, "SUBNET UP", "not reported since the last start"))
    if state.engine != engine:
        out.append(kinds.ENGINE.found(where, engine, state.engine or "no tables configured"))
    if state.partitions_discarded:
        words = "; ".join(state.partition_words) or "the file has an error"
        out.append(kinds.PARTITIONS_LOST.found(where, "the partition file in use", f"discarded: {words}"))
    return out
