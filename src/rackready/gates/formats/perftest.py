"""Reads the result block of ib_write_bw (perftest), as it prints it with --report_gbits, and what any of its programs says of memory and addresses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from rackready.gates.formats.error import FormatError

Reach = Literal["dmabuf", "peermem", "none"]
"""How a NIC reaches a GPU's memory; none: it is the host's memory that it uses."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory that a program of perftest says it uses."""

    reach: Reach
    gpu: int | None
    """Whose, by CUDA's numbers; None where it says none."""


@dataclass(frozen=True, slots=True)
class WriteBandwidth:
    """One message size of one direction. Bandwidths in Gb/s."""

    device: str
    link_type: str
    transport: str
    mtu: int
    gid_index: int | None
    memory: Memory
    size: int
    iterations: int
    peak: float
    average: float
    local: frozenset[str] = frozenset()
    """Addresses of its own end's GIDs: IPv4 where they are mapped ones, else as perftest prints them; empty where it says none."""
    remote: frozenset[str] = frozenset()


_TITLE = re.compile(r"^\s*RDMA_Write BW Test\s*$", re.MULTILINE)
_HEAD = re.compile(r"^\s*RDMA_\w+ (?:BW|Latency) Test\s*$", re.MULTILINE)
_COLUMNS = re.compile(r"^\s*#bytes\s+#iterations\s+BW peak\[(?P<peak>[^\]]+)\]\s+BW average\[(?P<average>[^\]]+)\]\s+MsgRate\[Mpps\]\s*$", re.MULTILINE)
_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\d+\.\d+)\s+(\d+\.\d+)\s+(\d+\.\d+)\s*$", re.MULTILINE)
_ASKED = {"Connection type": "RC", "Number of qps": "1", "Dual-port": "OFF", "rdma_cm QPs": "OFF"}
_SETTING = re.compile(rf"(?P<name>{'|'.join(_ASKED)})\s*:\s*(?P<value>\S+)")
_FIELD = re.compile(r"(?P<name>Device|Transport type|Mtu|Link type|GID index)\s*:\s*(?P<value>[^\s\[]+)")
_WAITING = re.compile(r"^\*+\n\* Waiting for client to connect\.\.\. \*\n\*+$", re.MULTILINE)
"""What a server prints before its client is there (perftest_communication.c)."""
_GID = re.compile(r"^\s*(?P<end>local|remote) address:.*\n\s*GID:\s*(?P<gid>[\d:]+)\s*$", re.MULTILINE)
_MAPPED = [0] * 10 + [255, 255]
_DMABUF = re.compile(r"using DMA-BUF for GPU buffer", re.IGNORECASE)
_GPU = re.compile(r"\[pid = \d+, dev = (\d+)\]")
_GPU_SAID = re.compile(r"\bpid =|device name =")
_CUDA = re.compile(r"cuMemAlloc\(\) of a \d+ bytes GPU buffer|allocated GPU buffer|creating CUDA Ctx", re.IGNORECASE)
_FAILED = re.compile(
    r"Completion with error at (?:client|server)|Failed status[- ].*|Problems with warm up|Couldn't post (?:send|recv).*|poll CQ failed.*|"
    r"Failed to complete run_iter_\w+ function successfully|Failed to sync between server and client.*"
)


def failure(*texts: str) -> str:
    """Return the first words by which perftest says that its messages did not all arrive, empty where it says none (src/perftest_resources.c, write_bw.c).

    Words about tidying up afterwards (Failed to deregister MR) and about the processor's clock are none.
    """
    return next((found[0].strip() for text in texts if (found := _FAILED.search(text))), "")


def parse(text: str) -> WriteBandwidth:
    """Return the one result of a client. Raises FormatError: empty, cut off, MB/sec, or more than one result."""
    if not text.strip():
        message = "empty output"
        raise FormatError(message)
    columns = _COLUMNS.findall(text)
    if not _TITLE.search(text) or not columns:
        message = "no RDMA_Write result block: not ib_write_bw's output, or cut off"
        raise FormatError(message)
    if any(set(pair) != {"Gb/sec"} for pair in columns):
        message = f"bandwidth in {columns[0][1]}, Expected: Gb/sec (--report_gbits)"
        raise FormatError(message)
    header = _COLUMNS.search(text)
    rows = _ROW.findall(text[header.end() :]) if header else []
    if len(rows) != 1:
        message = f"{len(rows)} result rows, Expected: one"
        raise FormatError(message)
    return _result(text, rows[0])


def asked(text: str) -> None:
    """Raise FormatError where the head of a result tells of a test that no gate asks for: settings as ctx_print_test_info prints them.

    An unreliable connection hides losses from its sender, and several queue pairs or ports are no measurement of one.
    """
    if (heads := len(_HEAD.findall(text))) != 1:
        message = f"{heads} heads of a result, Expected: one"
        raise FormatError(message)
    for found in _SETTING.finditer(text):
        wanted = _ASKED[found["name"]]
        if found["value"] != wanted:
            message = f"{found['name']} {found['value']}, Expected: {wanted}"
            raise FormatError(message)


def _result(text: str, row: tuple[str, ...]) -> WriteBandwidth:
    fields = {match["name"]: match["value"] for match in _FIELD.finditer(text)}
    missing = [name for name in ("Device", "Transport type", "Mtu", "Link type") if name not in fields]
    if missing or not fields["Mtu"].isdigit():
        message = f"no {', '.join(missing) or 'number of bytes in Mtu'} in the head of the result"
        raise FormatError(message)
    asked(text)
    gid = fields.get("GID index", "")
    size, iterations, peak, average, _rate = row
    if float(average) > float(peak) * 1.05 and float(peak) > 0:
        message = f"average {average} above peak {peak}: columns are not what they seem"
        raise FormatError(message)
    return WriteBandwidth(
        device=fields["Device"],
        link_type=fields["Link type"],
        transport=fields["Transport type"],
        mtu=int(fields["Mtu"]),
        gid_index=int(gid) if gid.isdigit() else None,
        memory=client_memory(text),
        size=int(size),
        iterations=int(iterations),
        peak=float(peak),
        average=float(average),
        local=addresses(text, "local"),
        remote=addresses(text, "remote"),
    )


def client_memory(text: str) -> Memory:
    """Return the memory that a client says it uses. Raises FormatError where it names a GPU that cannot be read: that may be any."""
    found = memory_of(text)
    if found.gpu is None and (line := next((line for line in text.splitlines() if _GPU_SAID.search(line)), None)) is not None:
        message = f"the GPU that it used: {line.strip()[:80]!r}"
        raise FormatError(message)
    return found


def memory_of(text: str) -> Memory:
    """Return the memory that a program of perftest says it uses: the host's where it says nothing of a GPU."""
    reach: Reach = "dmabuf" if _DMABUF.search(text) else "peermem" if _CUDA.search(text) else "none"
    return Memory(reach, int(used[1]) if (used := _GPU.search(text)) else None)


def served(text: str) -> Memory | None:
    """Return the memory that a server says it uses; None for one of which nothing is known: it prints no row, and one that is ended may print nothing.

    It makes its buffer before it prints the head of its result (write_bw.c, read_lat.c): behind that head there is no more to come of memory.
    Raises FormatError for an output that ends between the waiting and that head, and as of a client.
    """
    found = client_memory(text)
    if _HEAD.search(text) or found.reach != "none":
        return found
    if _WAITING.sub("", text).strip():
        raise FormatError("an output that is cut off")
    return None


def addresses(text: str, end: str) -> frozenset[str]:
    """Return the addresses of one end's GIDs. perftest prints their bytes as decimal numbers of at least two digits (src/perftest_communication.h)."""
    gids = [match["gid"] for match in _GID.finditer(text) if match["end"] == end]
    numbers = {gid: [int(number) for number in gid.split(":") if number] for gid in gids}
    return frozenset(".".join(map(str, found[12:])) if found[:12] == _MAPPED else gid for gid, found in numbers.items())
