"""Reader of ib_write_bw's result (perftest, --report_gbits), and of memory and addresses of any perftest program."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from rackready.format_error import FormatError

Reach = Literal["dmabuf", "peermem", "none"]
"""How a NIC reaches a GPU's memory; none: it uses the host's memory."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory that a perftest program uses, by its output."""

    reach: Reach
    gpu: int | None
    """GPU by CUDA's number; None if the output has none."""
    model: str = ""
    """That GPU's model as CUDA names it; empty if the output has none."""


@dataclass(frozen=True, slots=True)
class Call:
    """Settings in a program's header, from version 4.1 on (ctx_print_test_info of src/perftest_parameters.c)."""

    connection: str
    qps: str
    dual_port: str
    rdma_cm: str


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
    """0 if not measured: with --noPeak, with a duration (-D), and with more than NO_PEAK iterations."""
    average: float
    call: Call
    local: frozenset[str] = frozenset()
    """Addresses of its own GIDs: IPv4 if mapped, otherwise as perftest prints them; empty if not printed."""
    remote: frozenset[str] = frozenset()


_TITLE = re.compile(r"^\s*RDMA_Write BW Test\s*$", re.MULTILINE)
_HEAD = re.compile(r"^[ \t]*(?:RDMA_\w+|Send|Send_imm|Atomic) (?:.* )?(?:BW|Latency) (?:.* )?Test[ \t]*$", re.MULTILINE)
_COLUMNS = re.compile(
    r"^\s*#bytes\s+#iterations\s+BW peak\[(?P<peak>[^\]]+)\]\s+BW average\[(?P<average>[^\]]+)\]\s+MsgRate\[Mpps\]\s*$",
    re.MULTILINE,
)
_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\d+\.\d+)\s+(\d+\.\d+)\s+(\d+\.\d+)\s*$", re.MULTILINE)
_FIELD = re.compile(r"(?P<name>Device|Transport type|Mtu|Link type|GID index)\s*:\s*(?P<value>[^\s\[]+)")
_WAITING = re.compile(r"^\*+\n\* Waiting for client to connect\.\.\. \*\n\*+$", re.MULTILINE)
"""A server's output before its client connects (perftest_communication.c)."""
_GID = re.compile(r"^\s*(?P<end>local|remote) address:.*\n\s*GID:\s*(?P<gid>[\d:]+)\s*$", re.MULTILINE)
_MAPPED = [0] * 10 + [255, 255]
_DMABUF = re.compile(r"using DMA-BUF for GPU buffer", re.IGNORECASE)
_GPU = re.compile(r"\[pid = \d+, dev = (?P<gpu>\d+)\](?: device name = \[(?P<model>[^\]\n]*)\])?")
_CALL = re.compile(r"(?P<name>Dual-port|Number of qps|Connection type|rdma_cm QPs)[ \t]*:[ \t]*(?P<value>\w+)")
_CALL_NAMES = {
    "Connection type": "connection",
    "Number of qps": "qps",
    "Dual-port": "dual_port",
    "rdma_cm QPs": "rdma_cm",
}
NO_PEAK = 20000
"""With more iterations perftest measures no peak (force_dependecies of src/perftest_parameters.c)."""
_GPU_NAMED = re.compile(r"\bpid =|device name =")
_CUDA = re.compile(r"cuMemAlloc\(\) of a \d+ bytes GPU buffer|allocated GPU buffer|creating CUDA Ctx", re.IGNORECASE)
_FAILED = re.compile(
    r"Completion with error at (?:client|server)|Failed status[- ].*|Problems with warm up|Couldn't post "
    r"(?:send|recv).*|poll CQ failed.*|"
    r"Failed to complete run_iter_\w+ function successfully|Failed to sync between server and client.*"
)


def failure(*texts: str) -> str:
    """Return perftest's first message about lost messages; empty if there is none.

    src/perftest_resources.c, write_bw.c. Messages about the cleanup (Failed to deregister MR) and about the CPU clock
    do not count.
    """
    return next((found[0].strip() for text in texts if (found := _FAILED.search(text))), "")


def parse(text: str) -> WriteBandwidth:
    """Return a client's result. Raise FormatError: empty, cut off, MB/sec, or more than one result."""
    if not text.strip():
        message = "empty output"
        raise FormatError(message)
    columns = _COLUMNS.findall(text)
    if not _TITLE.search(text) or not columns:
        message = "no RDMA_Write result block: not ib_write_bw's output, or cut off"
        raise FormatError(message)
    if any(set(pair) != {"Gb/sec"} for pair in columns):
        message = f"bandwidth in {columns[0][1]} instead of Gb/sec (--report_gbits)"
        raise FormatError(message)
    header = _COLUMNS.search(text)
    rows = _ROW.findall(text[header.end() :]) if header else []
    if len(rows) != 1:
        message = f"{len(rows)} result rows instead of one"
        raise FormatError(message)
    return _result(text, rows[0])


def _result(text: str, row: tuple[str, ...]) -> WriteBandwidth:
    fields = {match["name"]: match["value"] for match in _FIELD.finditer(text)}
    missing = [name for name in ("Device", "Transport type", "Mtu", "Link type") if name not in fields]
    if missing or not fields["Mtu"].isdigit():
        message = f"no {', '.join(missing) or 'number of bytes in Mtu'} in the head of the result"
        raise FormatError(message)
    gid = fields.get("GID index", "")
    size, iterations, peak, average, rate = row
    if float(average) > float(peak) + half(peak) + half(average) and float(peak) > 0:
        message = f"average {average} above peak {peak}: columns are not what they seem"
        raise FormatError(message)
    scale = int(size) * 8 / 1e3  # Mpps to Gb/s
    if abs(float(rate) * scale - float(average)) > half(rate) * scale + half(average):
        message = (
            f"average {average} Gb/s, but {rate} million messages of {size} bytes a second are "
            f"{float(rate) * scale:.2f} Gb/s"
        )
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
        call=call_of(text),
        local=addresses(text, "local"),
        remote=addresses(text, "remote"),
    )


def half(printed: str) -> float:
    """Return half a unit of a printed number's last digit, plus a little for floating-point errors."""
    return 0.5000001 * 10.0 ** -len(printed.partition(".")[2])


def call_of(text: str) -> Call:
    """Return the settings in a program's header. Raise FormatError unless one header has each setting once."""
    heads = [" ".join(head.split()) for head in _HEAD.findall(text)]
    if len(heads) != 1:
        message = f"{len(heads)} heads of results ({', '.join(heads)}) instead of one"
        raise FormatError(message)
    settings = _CALL.findall(text)
    found = dict(settings)
    if len(settings) != len(_CALL_NAMES) or len(found) != len(_CALL_NAMES):
        message = (
            f"{', '.join(name for name, _ in settings) or 'nothing'} in the head of the result "
            f"instead of {', '.join(_CALL_NAMES)} once each"
        )
        raise FormatError(message)
    return Call(**{_CALL_NAMES[name]: value for name, value in found.items()})


def client_memory(text: str) -> Memory:
    """Return the memory that a client uses. Raise FormatError if it names a GPU in an unknown form: it may be any."""
    found = memory_of(text)
    if (
        found.gpu is None
        and (line := next((line for line in text.splitlines() if _GPU_NAMED.search(line)), None)) is not None
    ):
        message = f"the GPU that it used: {line.strip()[:80]!r}"
        raise FormatError(message)
    return found


def memory_of(text: str) -> Memory:
    """Return the memory that a perftest program uses: the host's if the output names no GPU."""
    reach: Reach = "dmabuf" if _DMABUF.search(text) else "peermem" if _CUDA.search(text) else "none"
    used = _GPU.search(text)
    return Memory(reach, int(used["gpu"]), used["model"] or "") if used else Memory(reach, None)


def served(text: str) -> Memory | None:
    """Return the memory that a server uses; None if unknown (it prints no row, and a stopped server may print nothing).

    It allocates its buffer before it prints the header of its result (write_bw.c, read_lat.c), so nothing about memory
    follows that header. Raise FormatError for an output that ends between the waiting and that header, and as for a
    client.
    """
    found = client_memory(text)
    if _HEAD.search(text) or found.reach != "none":
        return found
    if _WAITING.sub("", text).strip():
        raise FormatError("an output that is cut off")
    return None


def addresses(text: str, end: str) -> frozenset[str]:
    """Return the addresses of one end's GIDs.

    perftest prints their bytes as decimal numbers of at least two digits (src/perftest_communication.h).
    """
    gids = [match["gid"] for match in _GID.finditer(text) if match["end"] == end]
    numbers = {gid: [int(number) for number in gid.split(":") if number] for gid in gids}
    return frozenset(".".join(map(str, found[12:])) if found[:12] == _MAPPED else gid for gid, found in numbers.items())
