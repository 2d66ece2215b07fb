"""What opensm did since its last start, from its log: `opensm_log.py FILE ENGINE`.

opensm fails open: with an unknown routing engine, or with any error in its partitions, it goes on with minhop or with
one partition for all, and says SUBNET UP. So its own words decide. Texts: linux-rdma/opensm 3.3.23,
opensm/osm_opensm.c (setup_routing_engines), osm_ucast_mgr.c (tables configured), osm_prtn.c, osm_sm_state_mgr.c;
seen with Debian 12's package on ibsim.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

FORMAT = "rackready/opensm-log/1"
_START = re.compile(r"-> OpenSM \d")
_STATE = re.compile(r"-> Entering (MASTER|STANDBY|DISCOVERING|NOT-ACTIVE) state")
_TABLES = re.compile(r": (\S+) tables configured on all switches")
_UP = "-> SUBNET UP"
_PARSE = re.compile(r"PARSE (?:ERROR|WARN): (.*)")
_DISCARDED = "Partition configuration in error"
_BAD = (
    _DISCARDED,
    "Failed to setup routing engine",
    "cannot find or setup routing engine",
    "Failed to configure routing engine",
    "bind failed",
    "Unable to find requested CA guid",
    "ERRORS DURING INITIALIZATION",
)


class OpensmState(NamedTuple):
    """What opensm did since its last start. ``state``: MASTER, STANDBY, DISCOVERING, NOT-ACTIVE, or none."""

    started: bool
    state: str
    engine: str
    """The last engine that configured tables; empty if none did."""
    up: bool
    partitions_discarded: bool
    partition_words: tuple[str, ...]
    """What it said about lines of the partition file."""
    complaints: tuple[str, ...]
    """Lines that say that something failed."""


def read(text: str) -> OpensmState:
    """Return what a log tells since the last start of opensm."""
    lines = text.splitlines()
    # The version is printed twice at each start.
    begins = [at for at, line in enumerate(lines) if _START.search(line)]
    mine = lines[begins[-1] :] if begins else []
    states = [match[1] for line in mine if (match := _STATE.search(line))]
    tables = [match[1] for line in mine if (match := _TABLES.search(line))]
    return OpensmState(
        started=bool(begins),
        state=states[-1] if states else "none",
        engine=tables[-1] if tables else "",
        up=any(_UP in line for line in mine),
        partitions_discarded=any(_DISCARDED in line for line in mine),
        partition_words=tuple(match[1] for line in mine if (match := _PARSE.search(line))),
        complaints=tuple(line.split("-> ", 1)[-1].strip()[:200] for line in mine if any(word in line for word in _BAD)),
    )


def judge(text: str, engine: str) -> tuple[str, list[str]]:
    """Return opensm's state and its problems. A master must have routed by ``engine`` and brought the subnet up."""
    found = read(text)
    problems = list(found.complaints)
    if found.state == "MASTER":
        if found.engine != engine:
            problems.append(f"routing tables of {found.engine or 'no engine'}")
        if not found.up:
            problems.append("no SUBNET UP")
    elif found.state != "STANDBY":
        problems.append(f"state {found.state}")
    return found.state, problems


def main(argv: list[str]) -> int:
    """Print one document; exit with 1 when there are problems."""
    try:
        text = Path(argv[1]).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        state, problems = "none", [f"log not readable: {error.strerror}"]
    else:
        state, problems = judge(text, argv[2])
    print(json.dumps({"format": FORMAT, "state": state, "problems": problems}))  # noqa: T201 - a program's output
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
