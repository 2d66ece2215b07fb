"""Reader of the result of ib_write_lat and ib_read_lat (perftest): one message size, microseconds."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rackready.format_error import FormatError
from rackready.gates.formats.perftest import Call, Memory, addresses, call_of, client_memory


@dataclass(frozen=True, slots=True)
class Latency:
    """One message size. Times in microseconds: half of the round trip for writes, the whole for reads."""

    verb: str
    device: str
    link_type: str
    mtu: int
    memory: Memory
    size: int
    iterations: int
    typical: float
    average: float
    p99: float
    call: Call
    local: frozenset[str] = frozenset()
    """Addresses of its own GIDs, as in `WriteBandwidth`."""
    remote: frozenset[str] = frozenset()


_TITLE = re.compile(r"^\s*RDMA_(?P<verb>Write|Read) Latency Test\s*$", re.MULTILINE)
_COLUMNS = re.compile(
    r"^\s*#bytes\s+#iterations\s+t_min\[usec\]\s+t_max\[usec\]\s+t_typical\[usec\]\s+t_avg\[usec\]"
    r"\s+t_stdev\[usec\]\s+99% percentile\[usec\]\s+99\.9% percentile\[usec\]\s*$",
    re.MULTILINE,
)
_ROW = re.compile(r"^\s*(\d+)\s+(\d+)" + r"\s+(\d+\.\d+)" * 7 + r"\s*$", re.MULTILINE)
_FIELD = re.compile(r"(?P<name>Device|Mtu|Link type)\s*:\s*(?P<value>[^\s\[]+)")


def parse(text: str) -> Latency:
    """Return a client's result. Raise FormatError: empty, cut off, cycles, or times that are not in order."""
    if not text.strip():
        message = "empty output"
        raise FormatError(message)
    title, columns = _TITLE.search(text), _COLUMNS.search(text)
    if title is None or columns is None:
        message = "no latency result block in microseconds: not ib_write_lat's or ib_read_lat's output, or cut off"
        raise FormatError(message)
    rows = _ROW.findall(text[columns.end() :])
    if len(rows) != 1:
        message = f"{len(rows)} result rows instead of one"
        raise FormatError(message)
    fields = {match["name"]: match["value"] for match in _FIELD.finditer(text)}
    missing = [name for name in ("Device", "Mtu", "Link type") if name not in fields]
    if missing or not fields["Mtu"].isdigit():
        message = f"no {', '.join(missing) or 'number of bytes in Mtu'} in the head of the result"
        raise FormatError(message)
    least, most, typical, average, _, p99, p999 = (float(value) for value in rows[0][2:])
    if not least <= typical <= most or not least <= average <= most or not typical <= p99 <= p999 * 1.001 or least <= 0:
        message = f"times {least} to {most}, typical {typical}, 99 % {p99}: columns are not what they seem"
        raise FormatError(message)
    return Latency(
        verb=title["verb"].lower(),
        device=fields["Device"],
        link_type=fields["Link type"],
        mtu=int(fields["Mtu"]),
        memory=client_memory(text),
        size=int(rows[0][0]),
        iterations=int(rows[0][1]),
        typical=typical,
        average=average,
        p99=p99,
        call=call_of(text),
        local=addresses(text, "local"),
        remote=addresses(text, "remote"),
    )
