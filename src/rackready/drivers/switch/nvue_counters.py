"""Reader of the port counters of Cumulus Linux, as NVUE prints them in JSON: a marked block per port and kind.

`nv show interface PORT counters qos -o json` (Cumulus Linux 5.5 and later): frames by traffic class, priority group and
priority. `nv show interface PORT link stats -o json`: errors and drops. The table of the same command prints discards
with a byte suffix although they are frames, so only the JSON is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rackready import printed_json
from rackready.drivers.switch.counters import PortCounters
from rackready.format_error import FormatError

_MARK = re.compile(r"^== (?P<port>\S+) (?P<kind>qos|stats)\s*$", re.MULTILINE)
_DROPPED_IN = ("rx-buffer-discards", "rx-shared-buffer-discards")
"""Discards at a port's ingress: out of the priority group's own buffer, and out of the shared one."""
_CLASSES = tuple(str(number) for number in range(8))


def script(ports: Sequence[str]) -> str:
    """Return the command line that prints the counters of these ports."""
    names = " ".join(ports)
    return (
        f'for p in {names}; do echo "== $p qos"; nv show interface $p counters qos -o json; echo "== $p stats"; '
        "nv show interface $p link stats -o json; done"
    )


def parse(text: str, exit_code: int | None = 0) -> dict[str, PortCounters]:
    """Return the counters by port.

    Raise FormatError for no block, damaged JSON, a missing counter, or an exit code other than 0.
    """
    if exit_code != 0:
        message = f"exit code {exit_code}: {' '.join(text.split())[-80:] or 'nothing said'}"
        raise FormatError(message)
    marks = list(_MARK.finditer(text))
    if not marks:
        message = "no counters: empty output, or `nv` is not there"
        raise FormatError(message)
    found: dict[str, dict[str, Mapping[str, object]]] = {}
    for place, mark in enumerate(marks):
        end = marks[place + 1].start() if place + 1 < len(marks) else len(text)
        found.setdefault(mark["port"], {})[mark["kind"]] = _document(
            text[mark.end() : end], f"{mark['port']} {mark['kind']}"
        )
    return {port: _port(port, kinds) for port, kinds in found.items()}


def _document(text: str, where: str) -> Mapping[str, object]:
    try:
        found = printed_json.load(text)
    except FormatError as error:
        message = f"{where}: {error}"
        raise FormatError(message) from error
    if not isinstance(found, dict):
        message = f"{where}: no JSON object"
        raise FormatError(message)
    return found


def _port(port: str, kinds: Mapping[str, Mapping[str, object]]) -> PortCounters:
    if set(kinds) != {"qos", "stats"}:
        message = f"{port}: only {', '.join(kinds)}"
        raise FormatError(message)
    qos, stats = kinds["qos"], kinds["stats"]
    into = [
        sum(_number(qos, port, "ingress-buffer-stats", number, name) for name in _DROPPED_IN) for number in _CLASSES
    ]
    out = [
        _number(qos, port, "egress-queue-stats", number, "tx-uc-buffer-discards")
        + _number(qos, port, "egress-queue-stats", number, "wred-discards")
        for number in _CLASSES
    ]
    marked = sum(_number(qos, port, "egress-queue-stats", number, "ecn-marked-frames") for number in _CLASSES)
    pauses = [
        _number(qos, port, "pfc-stats", number, "tx-pause-frames")
        + _number(qos, port, "pfc-stats", number, "rx-pause-frames")
        for number in _CLASSES
    ]
    errors = sum(_number(stats, port, name) for name in ("in-errors", "in-drops", "out-errors", "out-drops"))
    return PortCounters(tuple(into), tuple(out), marked, tuple(pauses), errors)


def _number(document: Mapping[str, object], port: str, *path: str) -> int:
    node: object = document
    for word in path:
        node = node.get(word) if isinstance(node, Mapping) else None
    if isinstance(node, str) and node.isdigit():
        node = int(node)
    if not isinstance(node, int) or isinstance(node, bool) or node < 0:
        message = f"{port}: {'/'.join(path)} is {node!r} instead of a number"
        raise FormatError(message)
    return node
