"""Reader of `lscpu --json` (util-linux): flat up to 2.36, with children from 2.37 on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rackready import printed_json
from rackready.format_error import FormatError


@dataclass(frozen=True, slots=True)
class Processors:
    """Processors, as the kernel sees them. Numbers of CPUs are those of hardware threads."""

    model: str
    sockets: int
    cores: int
    """Cores of one socket."""
    threads: int
    cpus: int
    """CPUs that are present, online or not."""
    online: frozenset[int]
    offline: frozenset[int]
    numa_nodes: int


def parse(text: str) -> Processors:
    """Return the processors. Raise FormatError."""
    found = printed_json.load(text)
    try:
        fields: dict[str, Any] = {str(item["field"]).rstrip(":"): item.get("data") for item in _walk(found["lscpu"])}
        return Processors(
            model=str(fields["Model name"]),
            sockets=int(fields["Socket(s)"]),
            cores=int(fields["Core(s) per socket"]),
            threads=int(fields["Thread(s) per core"]),
            cpus=int(fields["CPU(s)"]),
            online=cpu_list(str(fields["On-line CPU(s) list"])),
            offline=cpu_list(str(fields.get("Off-line CPU(s) list") or "")),
            numa_nodes=int(fields["NUMA node(s)"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"lscpu without {error}") from error


def _walk(items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for item in items:
        yield item
        yield from _walk(item.get("children", []))


def cpu_list(text: str) -> frozenset[int]:
    """Return the CPUs of a list such as 0-3,8. Raise ValueError."""
    out: set[int] = set()
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        first, _, last = part.partition("-")
        out.update(range(int(first), int(last or first) + 1))
    return frozenset(out)
