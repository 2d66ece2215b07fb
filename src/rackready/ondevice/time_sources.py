"""Which time server a node's clock follows, as the time service itself says.

chrony: `chronyc tracking` and `chronyc -c -N sources` (client.c of 4.0 and later: mode, state, name as in the settings,
stratum, poll, reach in octal, ...). systemd-timesyncd: `timedatectl show-timesync` (timedatectl.c of systemd 249 to
255: no line NTPMessage before the server has answered).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from .command import Run

_SOURCE_FIELDS = 10
_SERVER, _FOLLOWED = "^", "*+"
"""Mode of a server; states of a selected source and of one that is combined with it."""


def chrony(run: Run, servers: Sequence[str]) -> str:
    """Return what chrony says about a clock that follows none of the servers; empty when it follows one.

    Without servers, any source of chrony counts.
    """
    said = run(["chronyc", "-n", "tracking"]).out
    leap = re.search(r"^Leap status\s*: (.+)$", said, re.MULTILINE)
    if leap is None or leap[1] == "Not synchronised":
        return f"chronyc tracking: {leap[1] if leap else _last(said)}"
    if not servers:
        return ""
    said = run(["chronyc", "-c", "-N", "sources"]).out
    rows = [row for row in (line.split(",") for line in said.splitlines()) if len(row) == _SOURCE_FIELDS]
    wanted, seen = {_plain(server) for server in servers}, []
    for mode, state, name, _stratum, _poll, reach, *_ in rows:
        if mode == _SERVER and state in _FOLLOWED and reach != "0" and _plain(name) in wanted:
            return ""
        seen.append(f"{mode}{state} {name} reach {reach}")
    return f"chronyc sources: {', '.join(seen) or _last(said)}"


def timesyncd(run: Run, servers: Sequence[str]) -> str:
    """Return what systemd-timesyncd says about a clock that follows none of the servers; empty when it follows one.

    Without servers, any server of timesyncd counts.
    """
    answer = run(["timedatectl", "show", "--property=NTPSynchronized", "--value"]).out.strip()
    if answer != "yes":
        return f"timedatectl: NTPSynchronized={answer or 'no answer'}"
    if not servers:
        return ""
    said = run(["timedatectl", "show-timesync", "--property=ServerName", "--property=NTPMessage"]).out
    found = dict(line.partition("=")[::2] for line in said.splitlines())
    name = found.get("ServerName", "")
    if name and _plain(name) in {_plain(server) for server in servers}:
        return "" if "NTPMessage" in found else f"timedatectl: no answer of {name}"
    return f"timedatectl: ServerName={name or _last(said)}"


def _plain(server: str) -> str:
    """Return a server in the form in which equal ones are equal."""
    try:
        return str(ipaddress.ip_address(server))
    except ValueError:
        return server.casefold()


def _last(said: str) -> str:
    return (said.strip().splitlines() or ["no answer"])[-1]
