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

FORMAT = "rackready/opensm-log/1"
_START = re.compile(r"-> OpenSM \d")
_STATE = re.compile(r"-> Entering (MASTER|STANDBY|DISCOVERING|NOT-ACTIVE) state")
_TABLES = re.compile(r"(\S+) tables configured on all switches")
_BAD = (
    "Partition configuration in error",
    "Failed to setup routing engine",
    "cannot find or setup routing engine",
    "Failed to configure routing engine",
    "bind failed",
    "Unable to find requested CA guid",
    "ERRORS DURING INITIALIZATION",
)


def judge(text: str, engine: str) -> tuple[str, list[str]]:
    """Return opensm's state and its problems. A master must have routed by ``engine`` and brought the subnet up."""
    lines = text.splitlines()
    begins = [at for at, line in enumerate(lines) if _START.search(line)]
    mine = lines[begins[-1] :] if begins else []
    states = [match[1] for line in mine if (match := _STATE.search(line))]
    state = states[-1] if states else "none"
    problems = [line.split("-> ", 1)[-1].strip()[:200] for line in mine if any(word in line for word in _BAD)]
    if state == "MASTER":
        tables = [match[1] for line in mine if (match := _TABLES.search(line))]
        if not tables or tables[-1] != engine:
            problems.append(f"routing tables of {tables[-1] if tables else 'no engine'}")
        if not any("SUBNET UP" in line for line in mine):
            problems.append("no SUBNET UP")
    elif state != "STANDBY":
        problems.append(f"state {state}")
    return state, problems


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
