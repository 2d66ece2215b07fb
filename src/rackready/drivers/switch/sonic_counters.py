"""Reader of SONiC's port counters: COUNTERS_DB of each port, its eight queues and its eight priority groups.

Sources: sonic-utilities @691b1bbc4 scripts/pfcstat, queuestat, wredstat, pg-drop and utilities_common/portstat.py: the
maps from names to objects and the names of the counters. Drops of priority groups and marks of queues are polled only
where an operator enabled it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rackready.drivers.switch.counters import PortCounters
from rackready.drivers.switch.sonic_text import parse_hashes
from rackready.format_error import FormatError

_NUMBERS = range(8)
_ERRORS = ("IF_IN_ERRORS", "IF_IN_DISCARDS", "IF_OUT_ERRORS", "IF_OUT_DISCARDS")
_GROUP_DROPS = "SAI_INGRESS_PRIORITY_GROUP_STAT_DROPPED_PACKETS"
_QUEUE_DROPS, _MARKS = "SAI_QUEUE_STAT_DROPPED_PACKETS", "SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS"
_POLL = {
    _GROUP_DROPS: "pg-drop",
    _QUEUE_DROPS: "queue",
    _MARKS: "wredqueue",
}
"""Group of `counterpoll` that fills a counter (sonic-utilities @691b1bbc4 counterpoll/main.py); all others: port."""


def script(ports: Sequence[str]) -> str:
    """Return the command line that prints the counters of these ports.

    Each call of `sonic-db-cli` starts a program that connects: the maps from names to objects are read once.
    """
    names = (
        "m=$(sonic-db-cli COUNTERS_DB HGETALL COUNTERS_$1_NAME_MAP) || return 1; "
        """m=$(echo "$m" | tr -d "{}\\"' " | tr , '\\n')"""
    )
    one = (
        'o=$(echo "$m" | sed -n "s/^$2:oid:/oid:/p"); echo "== $2 $1"; '
        'sonic-db-cli $j COUNTERS_DB HGETALL "COUNTERS:$o"'
    )
    probe = "j=-j; sonic-db-cli -j CONFIG_DB HGETALL 'DEVICE_METADATA|localhost' >/dev/null 2>&1 || j="
    each = f"for p in {' '.join(ports)}; do"
    numbered = f"{each} for n in 0 1 2 3 4 5 6 7; do one $k $p:$n || exit 1; done; done"
    return (
        f"( {probe}; names() {{ {names}; }}; one() {{ {one}; }}; "
        f"names PORT || exit 1; {each} one PORT $p || exit 1; done; "
        f"for k in QUEUE PG; do names $k || exit 1; {numbered}; done; echo '== ' )"
    )


def parse(text: str, exit_code: int | None = 0) -> dict[str, PortCounters]:
    """Return the counters by port.

    Raise FormatError for no port, a damaged hash, a missing counter, or an exit code other than 0.
    """
    if exit_code != 0:
        message = f"exit code {exit_code}: {' '.join(text.split())[-80:] or 'nothing said'}"
        raise FormatError(message)
    found = parse_hashes(text)
    ports = [key.removesuffix(" PORT") for key in found if key.endswith(" PORT")]
    if not ports:
        raise FormatError("no counters: empty output, or `sonic-db-cli` is not there")
    return {port: _port(port, found) for port in ports}


def _port(port: str, found: Mapping[str, Mapping[str, str]]) -> PortCounters:
    own = f"{port} PORT"
    into = [_number(found, f"{port}:{number} PG", _GROUP_DROPS) for number in _NUMBERS]
    out = [_number(found, f"{port}:{number} QUEUE", _QUEUE_DROPS) for number in _NUMBERS]
    marked = sum(_number(found, f"{port}:{number} QUEUE", _MARKS) for number in _NUMBERS)
    pauses = [
        sum(_number(found, own, f"SAI_PORT_STAT_PFC_{number}_{way}_PKTS") for way in ("RX", "TX"))
        for number in _NUMBERS
    ]
    errors = sum(_number(found, own, f"SAI_PORT_STAT_{name}") for name in _ERRORS)
    return PortCounters(tuple(into), tuple(out), marked, tuple(pauses), errors)


def _number(found: Mapping[str, Mapping[str, str]], where: str, name: str) -> int:
    value = found.get(where, {}).get(name, "none")
    if not value.isdigit():
        command = f"counterpoll {_POLL.get(name, 'port')} enable"
        raise FormatError(f"{where}: {name} is {value!r} instead of a number; `sudo {command}` makes SONiC poll it")
    return int(value)
