"""Reader of Xids and SXids in a kernel log: `journalctl --dmesg` (short and ISO dates), `dmesg`, `dmesg -T`.

Other lines than the driver's are noise, in any number. A text without a single line of a kernel log is not a log.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import datetime

from rackready.format_error import TWICE, FormatError

_STAMPS = (
    re.compile(r"^(?P<when>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[^\s]*) \S+ kernel: (?P<text>.*)$"),
    re.compile(r"^(?P<when>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) \S+ kernel: (?P<text>.*)$"),
    re.compile(r"^\[(?P<when>[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\] (?P<text>.*)$"),
    re.compile(r"^\[\s*(?P<when>\d+\.\d+)\] (?P<text>.*)$"),
    re.compile(r"^(?:kern\s*:\w+\s*: )?(?P<when>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[^\s]*) (?P<text>.*)$"),
)
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.\d)?"
    r"(?: GPU-I:(?P<instance>\d+)(?: GPU-CI:(?P<compute>\d+))?)?\): (?P<code>\d+), ?(?P<text>.*)$"
)
"""With MIG on, the driver adds the GPU instance, or that and the compute instance, where it knows them.

NVIDIA/open-gpu-kernel-modules, src/nvidia/src/kernel/gpu/rc/kernel_rc.c, krcReportXid_IMPL: the three forms.
"""
_SXID = re.compile(
    r"nvidia-nvswitch(?P<switch>\d+): SXid \(PCI:(?P<pci>[0-9a-fA-F:.]+)\): (?P<code>\d+), ?(?P<text>.*)$"
)
_FABRIC_MANAGER = re.compile(
    r"detected NVSwitch (?P<kind>non-fatal|fatal) error (?P<code>\d+) on .*NVSwitch pci bus id (?P<pci>\S+)"
)
_COLOUR = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""Control sequences that `dmesg --color=always` and `grep --color=always` insert (ECMA-48)."""
_MENTIONS = re.compile(
    r"nvrm\b.*(?<![a-z0-9_])s?xid(?![a-z])|(?<![a-z0-9_])sxid(?![a-z])|(?<![a-z0-9_])xid\W*pci\b", re.IGNORECASE
)
"""An Xid in any form (`NVRM: GPU0 Xid`, two blanks), but not function names (`_kgspLogXid119`).

The driver prints function names in addition to the Xid itself.
"""
_DRIVER = "NVRM: loading NVIDIA UNIX"
_BOOT = re.compile(r"Linux version \d")
"""A kernel's first line, once per boot (init/main.c, start_kernel)."""
_FALLEN = re.compile(r"NVRM: .*fallen off the bus", re.IGNORECASE)
_OF_GPU = re.compile(
    r"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})"
)
"""The driver names the GPU in the line itself, or two lines before it.

arch/nvalloc/unix/src/osinit.c: 'The NVIDIA GPU', 'installed in this system has'.
"""
FALLEN = 79
"""The Xid of a GPU that fell off the bus."""
_RULE_WORDS = re.compile(
    r"^(?P<unit>\w+)\s+(?P<severity>Fatal|Nonfatal|Non-fatal|Link Fatal)\s+XC\d+\s+i\d+\s+"
    r"Link\s+(?P<link>-?\d+)\s+\((?P<info>0x[0-9a-fA-F]+) (?P<status>0x[0-9a-fA-F]+)"
)
_RECOVERY = re.compile(r"GPU recovery action changed from 0x[0-9a-fA-F]+ \([^)]*\) to 0x[0-9a-fA-F]+ \((?P<to>[^)]+)\)")


@dataclass(frozen=True)
class Event:
    """One Xid or SXid. ``when``: the log's timestamp; ``pci``: as in sysfs, without function (0000:9b:00)."""

    when: str
    pci: str
    code: int
    text: str
    switch: int | None = None
    """Number of the NVSwitch; None for a GPU's Xid."""
    instance: int | None = None
    compute: int | None = None
    """MIG: the ids of the GPU instance and the compute instance; None where the driver names none."""

    @property
    def said(self) -> str:
        """Return the message, behind the MIG instance that it is about."""
        if self.instance is None:
            return self.text
        inside = "" if self.compute is None else f", compute instance {self.compute}"
        return f"GPU instance {self.instance}{inside}: {self.text}"


@dataclass(frozen=True)
class NvLink5:
    """Message of an Xid 144 to 150."""

    unit: str
    severity: str
    link: int
    info: int
    status: int


@dataclass(frozen=True)
class KernelLog:
    """A log's events of GPUs. ``from_boot``: it reaches back to the boot, or to the load of the driver."""

    xids: tuple[Event, ...]
    sxids: tuple[Event, ...]
    lines: int
    from_boot: bool
    unreadable: tuple[str, ...]
    """Lines with an Xid or SXid of unknown form."""
    fallen: tuple[Event, ...] = ()
    """GPUs that fell off the bus, by lines without an Xid; ``pci`` is empty if no line names the GPU."""
    whole: bool = True
    """It has the driver's first line and at least one more: a single line is an excerpt."""


def parse(text: str) -> KernelLog:
    """Return the log's Xids and SXids. Raise FormatError if it is not a kernel log."""
    xids: list[Event] = []
    sxids: list[Event] = []
    unreadable: list[str] = []
    fallen: list[Event] = []
    lines, boots, loads, named = 0, 0, 0, ""
    for raw in _COLOUR.sub("", text).split("\n"):
        when, line = _stamp(raw.removesuffix("\r"))
        lines += when != ""
        loads += _DRIVER in line
        boots += _BOOT.match(line) is not None
        event = _event(when, line)
        if found := _OF_GPU.search(line):
            named = _short(found["pci"])
        if event is not None:
            (xids if event.switch is None else sxids).append(event)
        elif _MENTIONS.search(letters := _letters(line)):
            unreadable.append(raw.strip())
        elif _FALLEN.search(letters):
            fallen.append(Event(when, named, FALLEN, line.partition(":")[2].strip()))
    if not lines:
        message = (
            "empty output"
            if not text.strip()
            else f"no line of a kernel log, but {text.strip().splitlines()[0][:80]!r}"
        )
        raise FormatError(message)
    if boots > 1:
        raise FormatError(f"{boots} boots of a kernel: {TWICE}")
    return KernelLog(
        tuple(xids),
        tuple(sxids),
        lines,
        bool(boots or loads),
        tuple(unreadable),
        tuple(fallen),
        whole=bool(loads) and lines > 1,
    )


def by_boot(text: str) -> list[str]:
    """Return the logs of several boots (`journalctl` without --boot), each of which ``parse`` reads, the oldest first.

    The first one may lack its beginning: the journal drops old lines.
    """
    boots: list[list[str]] = [[]]
    for raw in text.split("\n"):
        _, line = _stamp(_COLOUR.sub("", raw).removesuffix("\r"))
        if _BOOT.match(line):
            boots.append([])
        boots[-1].append(raw)
    return [one for one in ("\n".join(lines) for lines in boots) if one.strip()]


def date(when: str) -> datetime | None:
    """Return a timestamp as a point in time; None if it has no year, date or zone."""
    try:
        found = datetime.fromisoformat(when.replace(",", "."))
    except ValueError:
        return None
    return found if found.tzinfo else None


def nvlink5(text: str) -> NvLink5 | None:
    """Return the fields of the message of an Xid 144 to 150; None if it is of another form."""
    found = _RULE_WORDS.match(text)
    if found is None:
        return None
    return NvLink5(
        found["unit"], found["severity"], int(found["link"]), int(found["info"], 16), int(found["status"], 16)
    )


def recovery(text: str) -> str | None:
    """Return the action that an Xid 154 requests, such as 'Node Reboot Required'; None for another form of message."""
    found = _RECOVERY.search(text)
    return found["to"] if found else None


def _stamp(raw: str) -> tuple[str, str]:
    for pattern in _STAMPS:
        found = pattern.match(raw)
        if found:
            return found["when"], found["text"]
    return "", raw


def _letters(line: str) -> str:
    """Return a line without invisible characters and with plain letters for look-alikes, for the search only."""
    if line.isascii() and line.isprintable():
        return line
    plain = unicodedata.normalize("NFKC", line)
    return "".join(letter for letter in plain if letter.isspace() or unicodedata.category(letter)[0] != "C")


def _event(when: str, line: str) -> Event | None:
    found = _XID.search(line)
    if found:
        instance, compute = (int(word) if word else None for word in found.group("instance", "compute"))
        text = found["text"].strip()
        return Event(when, _short(found["pci"]), int(found["code"]), text, instance=instance, compute=compute)
    found = _SXID.search(line)
    if found:
        return Event(when, _short(found["pci"]), int(found["code"]), found["text"].strip(), int(found["switch"]))
    found = _FABRIC_MANAGER.search(line)
    if found:
        return Event(when, _short(found["pci"]), int(found["code"]), found["kind"].capitalize(), -1)
    return None


def _short(pci: str) -> str:
    """Return domain (four digits), bus and device."""
    domain, bus, device = pci.lower().split(".", 1)[0].split(":")
    return f"{domain[-4:]}:{bus}:{device}"
