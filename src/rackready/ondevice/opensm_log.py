"""What opensm did since its last start, from its log: `opensm_log.py FILE ENGINE UNIT`.

opensm fails open: with an unknown routing engine, or with any error in its partitions, it goes on with minhop or with
one partition for all, and says SUBNET UP. So its own words decide. Texts: linux-rdma/opensm 3.3.23,
opensm/osm_opensm.c (setup_routing_engines), osm_ucast_mgr.c (tables configured), osm_prtn.c, osm_sm_state_mgr.c;
seen with Debian 12's package on ibsim.

A request that one node does not answer, because it reboots, makes a whole sweep end with errors
(osm_sm_mad_ctrl.c, ERR 3119); opensm then sweeps again (osm_state_mgr.c, do_sweep). So only the last sweep counts.
opensm empties its log at log_max_size (libopensm/osm_log.c, truncate_log_file): then its start is not there any more.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

FORMAT = "rackready/opensm-log/1"
_START = re.compile(r"-> OpenSM \d")
_STATE = re.compile(r"-> Entering (MASTER|STANDBY|DISCOVERING|NOT-ACTIVE) state")
_TABLES = re.compile(r": (\S+) tables configured on all switches")
_UP = "-> SUBNET UP"
_FAILED = (
    "-> Errors during initialization",
    "ERRORS DURING INITIALIZATION",
    "No routing engine able to successfully configure",
)
"""Ends of a sweep that are not SUBNET UP (osm_state_mgr.c, do_sweep; osm_ucast_mgr.c, osm_ucast_mgr_process)."""
_PARSE = re.compile(r"PARSE (?:ERROR|WARN): (.*)")
_DISCARDED = "Partition configuration in error"
_BAD = (
    _DISCARDED,
    "Failed to setup routing engine",
    "cannot find or setup routing engine",
    "Failed to configure routing engine",
    "bind failed",
    "Unable to find requested CA guid",
)


class OpensmState(NamedTuple):
    """What opensm did since its last start. ``state``: MASTER, STANDBY, DISCOVERING, NOT-ACTIVE, or none."""

    started: bool
    """Whether the log has a start. Without one, the rest is what opensm did since it emptied its log."""
    state: str
    engine: str
    """The last engine that configured tables; empty if none did."""
    swept: str
    """How the last sweep since it entered its state ended: ``up``, ``failed``, or empty if none ended."""
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
    mine = lines[begins[-1] :] if begins else lines
    tables = [match[1] for line in mine if (match := _TABLES.search(line))]
    engine = tables[-1] if tables else ""
    state, swept = _sweeps(mine)
    if not begins and state == "none" and swept and engine:
        state = "MASTER"  # no other state sweeps to an end
    return OpensmState(
        started=bool(begins),
        state=state,
        engine=engine,
        swept=swept,
        partitions_discarded=any(_DISCARDED in line for line in mine),
        partition_words=tuple(match[1] for line in mine if (match := _PARSE.search(line))),
        complaints=tuple(line.split("-> ", 1)[-1].strip()[:200] for line in mine if any(word in line for word in _BAD)),
    )


def _sweeps(lines: list[str]) -> tuple[str, str]:
    """Return the last state, and how the last sweep in it ended."""
    state, swept = "none", ""
    for line in lines:
        if entered := _STATE.search(line):
            state, swept = entered[1], ""
        elif _UP in line:
            swept = "up"
        elif any(word in line for word in _FAILED):
            swept = "failed"
    return state, swept


def judge(text: str, engine: str) -> tuple[str, list[str]]:
    """Return opensm's state and its problems. A master must have routed by ``engine`` and brought the subnet up."""
    found = read(text)
    problems = list(found.complaints)
    if found.state == "MASTER":
        if found.engine != engine:
            problems.append(f"routing tables of {found.engine or 'no engine'}")
        if found.swept == "failed":
            problems.append("errors in its last sweep, and no SUBNET UP after them")
        elif not found.swept:
            problems.append("no SUBNET UP")
    elif found.state != "STANDBY":
        problems.append(f"state {found.state}")
    return found.state, problems


def unread(text: str, unit: str, active: Callable[[str], bool]) -> str:
    """Return why a log tells nothing about an opensm that runs; empty if it tells something."""
    found = read(text)
    if found.started or found.state != "none" or found.complaints or not active(unit):
        return ""
    return (
        f"{unit}: opensm emptied its log (log_max_size), and has not swept since. "
        f"Run `systemctl kill --signal=HUP {unit}` on the node: a master sweeps then. "
        f"If the log still tells nothing, run `systemctl restart {unit}`"
    )


def is_active(unit: str) -> bool:
    """Return whether systemd runs a unit."""
    argv = ["systemctl", "is-active", "--quiet", unit]
    try:
        return subprocess.run(argv, stdin=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False


def main(argv: list[str], active: Callable[[str], bool] = is_active) -> int:
    """Print one document; exit with 1 when there are problems, with 3 when the log tells nothing."""
    why = ""
    try:
        text = Path(argv[1]).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        state, problems = "none", [f"log not readable: {error.strerror}"]
    else:
        state, problems = judge(text, argv[2])
        why = unread(text, argv[3], active)
    document = {"format": FORMAT, "state": state, "problems": [] if why else problems, "unread": why}
    print(json.dumps(document))  # noqa: T201 - a program's output
    return 3 if why else int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
