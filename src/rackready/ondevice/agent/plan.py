"""The plan: what is written to which disks. Nothing of it is believed before all of it is checked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .errors import ImagingError

SCHEMA = "rackready/imaging/v1"
_HEX = re.compile(r"^[0-9a-f]{64}$")
_HOST = re.compile(r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")
_LINK = re.compile(r"^/dev/disk/by-(path|id)/[A-Za-z0-9._:@+=-]{1,200}$")
_MOUNT = re.compile(r"^/[a-z0-9/_-]{1,100}$")
_SEEDS = ("user-data", "meta-data", "network-config")
"""Files of the seed; the last one may be absent."""
_MOST_SYSTEM_DISKS = 2


@dataclass(frozen=True)
class Ref:
    """One disk, by serial number or by a link below /dev/disk."""

    serial: str = ""
    path: str = ""

    def __str__(self) -> str:
        return f"serial {self.serial}" if self.serial else self.path


@dataclass(frozen=True)
class Image:
    """The archive. Sizes in bytes; ``unpacked``: what its files need."""

    name: str
    url: str
    sha256: str
    size: int
    unpacked: int


@dataclass(frozen=True)
class Plan:
    """A checked plan."""

    node: str
    digest: str
    serial: str
    image: Image
    system: tuple[Ref, ...]
    scratch: tuple[Ref, ...]
    scratch_filesystem: str
    scratch_mount: str
    erase: bool
    secure_boot: str
    kernel_options: tuple[str, ...]
    hostname: str
    seed: dict[str, str]

    @property
    def label(self) -> str:
        """Name of the partitions that this plan makes: they tell our half-written disk from others' data."""
        return f"rackready-{self.digest[:8]}"


class _Reader:
    """Takes values out of a document, and keeps what is wrong with them."""

    def __init__(self) -> None:
        self.wrong: list[str] = []

    def text(self, source: dict[str, Any], key: str, pattern: re.Pattern[str] | None = None, where: str = "") -> str:
        value = source.get(key)
        if not isinstance(value, str) or not value or (pattern is not None and not pattern.match(value)):
            self.wrong.append(f"{where}{key} is {value!r}")
            return ""
        return value

    def number(self, source: dict[str, Any], key: str, where: str) -> int:
        value = source.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            self.wrong.append(f"{where}{key} is {value!r}")
            return 0
        return value

    def group(self, source: dict[str, Any], key: str) -> dict[str, Any]:
        value = source.get(key)
        if not isinstance(value, dict):
            self.wrong.append(f"{key} is {value!r}")
            return {}
        return value

    def refs(self, source: dict[str, Any], key: str) -> tuple[Ref, ...]:
        value = source.get(key, [])
        items = value if isinstance(value, list) else [value]
        return tuple(ref for place, item in enumerate(items) if (ref := self._ref(item, f"disks.{key}[{place}]")))

    def _ref(self, item: object, where: str) -> Ref | None:
        if isinstance(item, dict) and {key for key, value in item.items() if value} in ({"serial"}, {"path"}):
            ref = Ref(str(item.get("serial") or ""), str(item.get("path") or ""))
            if ref.serial or _LINK.match(ref.path):
                return ref
        self.wrong.append(f"{where} is {item!r}")
        return None


def parse(document: object) -> Plan:
    """Return the plan of a document. Raises ImagingError with everything that is wrong with it."""
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        actual = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise ImagingError(
            "plan",
            "plan",
            expected=f"schema {SCHEMA}",
            actual=str(actual),
            next_step="Build the ramdisk and the plan again.",
        )
    read = _Reader()
    plan = _read(document, read)
    if read.wrong:
        raise ImagingError("plan", "plan", expected=f"{SCHEMA}", actual=f"{'; '.join(read.wrong)}")
    return plan


def _read(document: dict[str, Any], read: _Reader) -> Plan:
    disks, seed = read.group(document, "disks"), read.group(document, "seed")
    system = read.refs(disks, "system")
    if not 1 <= len(system) <= _MOST_SYSTEM_DISKS:
        read.wrong.append(f"disks.system has {len(system)} disks")
    scratch = read.refs(disks, "scratch")
    if len({*system, *scratch}) < len(system) + len(scratch):
        read.wrong.append("disks has one disk twice")
    erase = document.get("erase", False)
    if not isinstance(erase, bool):
        read.wrong.append(f"erase is {erase!r}")
    secure_boot = str(document.get("secure_boot", "any"))
    if secure_boot not in {"any", "on", "off"}:
        read.wrong.append(f"secure_boot is {secure_boot!r}")
    filesystem = disks.get("scratch_filesystem", "ext4")
    if filesystem not in {"ext4", "xfs"}:
        read.wrong.append(f"disks.scratch_filesystem is {filesystem!r}")
    options = document.get("kernel_options", [])
    if not isinstance(options, list) or not all(isinstance(word, str) and re.match(r"^\S+$", word) for word in options):
        read.wrong.append(f"kernel_options is {options!r}")
        options = []
    mount = {"scratch_mount": disks.get("scratch_mount", "/scratch")}
    return Plan(
        node=read.text(document, "node"),
        digest=read.text(document, "digest", _HEX),
        serial=read.text(document, "serial"),
        image=_image(read.group(document, "image"), read),
        system=system,
        scratch=scratch,
        scratch_filesystem=str(filesystem),
        scratch_mount=read.text(mount, "scratch_mount", _MOUNT, "disks."),
        erase=erase is True,
        secure_boot=secure_boot,
        kernel_options=tuple(options),
        hostname=read.text(document, "hostname", _HOST),
        seed={name: read.text(seed, name, None, "seed.") for name in _SEEDS if name in {*seed, *_SEEDS[:2]}},
    )


def _image(source: dict[str, Any], read: _Reader) -> Image:
    return Image(
        read.text(source, "name", None, "image."),
        read.text(source, "url", re.compile(r"^https://"), "image."),
        read.text(source, "sha256", _HEX, "image."),
        read.number(source, "size", "image."),
        read.number(source, "unpacked", "image."),
    )
