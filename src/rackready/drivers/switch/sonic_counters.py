"""Reader of SONiC's port counters: COUNTERS_DB of each port, its eight queues and its eight priority groups.

Sources: sonic-utilities @691b1bbc4 scripts/pfcstat, queuestat, wredstat, pg-drop and utilities_common/portstat.py: the
maps from names to objects and the names of the counters. Drops of priority groups and marks of queues are polled only
where an operator enabled it. With `create_only_config_db_buffers` (DEVICE_METADATA; NVIDIA's platforms ship it) the
maps name only queues and groups with a buffer: sonic-swss @e6b0c5b5d orchagent/flexcounterorch.cpp
(getQueueConfigurations, getPgConfigurations), portsorch.cpp (generatePriorityGroupMapPerPort). By default queues 0-6
and groups 0, 3 and 4 have one (sonic-buildimage files/build_templates/buffers_config.j2).
"""

from __future__ import annotations

import json
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
_UNMAPPED = {"unmapped": "yes"}
"""What the script prints for a name that its map lacks."""


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
        f"if [ -z \"$o\" ]; then echo '{json.dumps(_UNMAPPED)}'; return; fi; "
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
    if found[own] == _UNMAPPED:
        raise FormatError(f"{port}: COUNTERS_PORT_NAME_MAP has nothing of this port; SONiC has no such port")
    groups, queues = _counted(found, port, "PG", _GROUP_DROPS), _counted(found, port, "QUEUE", _QUEUE_DROPS)
    into = [_number(found, f"{port}:{one} PG", _GROUP_DROPS) if one in groups else 0 for one in _NUMBERS]
    out = [_number(found, f"{port}:{one} QUEUE", _QUEUE_DROPS) if one in queues else 0 for one in _NUMBERS]
    marked = sum(_number(found, f"{port}:{one} QUEUE", _MARKS) for one in queues)
    pauses = [
        sum(_number(found, own, f"SAI_PORT_STAT_PFC_{number}_{way}_PKTS") for way in ("RX", "TX"))
        for number in _NUMBERS
    ]
    errors = sum(_number(found, own, f"SAI_PORT_STAT_{name}") for name in _ERRORS)
    without = [frozenset(_NUMBERS) - counted for counted in (groups, queues)]
    return PortCounters(tuple(into), tuple(out), marked, tuple(pauses), errors, *without)


def _counted(found: Mapping[str, Mapping[str, str]], port: str, kind: str, name: str) -> frozenset[int]:
    """Return the queues or groups that their map names. Raises FormatError for none: nobody ever had them polled."""
    counted = frozenset(number for number in _NUMBERS if found.get(f"{port}:{number} {kind}") != _UNMAPPED)
    if not counted:
        map_, command = f"COUNTERS_{kind}_NAME_MAP", f"counterpoll {_POLL[name]} enable"
        raise FormatError(f"{port}: {map_} has nothing of this port; `sudo {command}` makes SONiC fill it")
    return counted


def _number(found: Mapping[str, Mapping[str, str]], where: str, name: str) -> int:
    value = found.get(where, {}).get(name, "none")
    if not value.isdigit():
        command = f"counterpoll {_POLL.get(name, 'port')} enable"
        raise FormatError(f"{where}: {name} is {value!r} instead of a number; `sudo {command}` makes SONiC poll it")
    return int(value)
