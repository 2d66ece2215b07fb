"""Reader of `smartctl --json` (smartmontools 7): the list of drives, and the health of one NVMe or ATA drive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rackready import printed_json
from rackready.format_error import FormatError

_MOVED, _LOST = (5, 197), (187, 198)
"""ATA attributes: reallocated and pending sectors; uncorrectable errors and sectors. Vendors omit some."""
_REPLACED = 5
"""On flash, attribute 5 counts blocks that the reserve replaced, which is no reason to replace the drive.

The drive's own threshold is on the remaining reserve (Micron TN-FD-34: attribute 5 does not trip, 170 does). 30 to 80 %
of drives have such a block in their first four years (Schroeder et al., USENIX FAST 2016).
"""


@dataclass(frozen=True, slots=True)
class Drive:
    """One drive. Values that its kind does not report are None. ``used``: percent of its rated endurance."""

    name: str
    model: str
    serial: str
    firmware: str
    size: int
    """Bytes."""
    passed: bool
    """The drive's own verdict."""
    warning: int | None
    """NVMe critical warning, a bit mask."""
    used: int | None
    media_errors: int | None
    spare: int | None
    """Available spare, percent."""
    spare_least: int | None
    """Available spare threshold, percent."""
    reallocated: int | None
    """ATA: reallocated and pending sectors."""
    uncorrectable: int | None = None
    """ATA: reported uncorrectable errors, and uncorrectable sectors (attributes 187 and 198)."""
    critical_minutes: int | None = None
    """NVMe: minutes above the critical temperature in the drive's life; None: the drive has no such limit."""
    replaced: int | None = None
    """ATA flash that also reports lost data: blocks that its reserve replaced (attribute 5), not in ``reallocated``."""
    exit_code: int = 0
    """Exit code of smartctl, a bit mask: smartctl(8), exit status."""


def document(text: str) -> dict[str, Any]:
    """Return smartctl's document. Raise FormatError."""
    found = printed_json.load(text)
    if not isinstance(found, dict) or not isinstance(found.get("smartctl"), dict):
        raise FormatError("no document of smartctl")
    messages = [
        str(item.get("string")) for item in found["smartctl"].get("messages", []) if item.get("severity") == "error"
    ]
    if messages:
        raise FormatError("; ".join(messages))
    return found


def scan(text: str) -> list[str]:
    """Return the device names of `smartctl --scan-open --json`. Raise FormatError."""
    try:
        names = [str(item["name"]) for item in document(text).get("devices", [])]
    except (KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"a device without {error}") from error
    if twice := [name for place, name in enumerate(names) if name in names[:place]]:
        raise FormatError(f"{twice[0]} stands twice in the list: as many names are not as many drives")
    return names


def drive(text: str) -> Drive:
    """Return one drive of `smartctl --all --json`. Raise FormatError."""
    found = document(text)
    try:
        log = found.get("nvme_smart_health_information_log")
        ata = found.get("ata_smart_attributes")
        if (log is None) == (ata is None):
            raise FormatError("neither an NVMe health log nor ATA attributes")
        ata = None if ata is None else _raw(ata)
        flash = (
            ata is not None
            and _is_flash(found.get("rotation_rate"))
            and bool(ata.keys() & {*_MOVED, *_LOST} - {_REPLACED})
        )
        return Drive(
            name=str(found["device"]["name"]),
            model=_word(found, "model_name"),
            serial=_word(found, "serial_number"),
            firmware=_word(found, "firmware_version"),
            size=_size(found),
            passed=_truth(found["smart_status"]["passed"]),
            warning=_count(log, "critical_warning"),
            used=_count(log, "percentage_used"),
            media_errors=_count(log, "media_errors"),
            spare=_count(log, "available_spare"),
            spare_least=_count(log, "available_spare_threshold"),
            reallocated=None
            if ata is None
            else sum(ata.get(number, 0) for number in _MOVED if not (flash and number == _REPLACED)),
            uncorrectable=None if ata is None else sum(ata.get(number, 0) for number in _LOST),
            critical_minutes=None
            if log is None or "critical_comp_time" not in log
            else _count(log, "critical_comp_time"),
            replaced=ata.get(_REPLACED) if ata is not None and flash else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"a drive without {error}") from error


def _word(found: dict[str, Any], key: str) -> str:
    """Return a text of the document. Raise FormatError for anything else."""
    if not isinstance(found[key], str):
        message = f"{key} is {found[key]!r}, which is no word"
        raise FormatError(message)
    return str(found[key])


def _raw(attributes: dict[str, Any]) -> dict[int, int]:
    """Return the raw values of ATA attributes by number. Raise FormatError if none of them shows damage."""
    out = {int(item["id"]): int(item["raw"]["value"]) for item in attributes["table"]}
    if below := sorted(number for number, value in out.items() if value < 0):
        raise FormatError(f"attribute {below[0]} is {out[below[0]]}, which is not a count")
    if not out.keys() & {*_MOVED, *_LOST}:
        raise FormatError("none of the attributes 5, 187, 197 and 198, which tell of damage")
    return out


def _size(found: dict[str, Any]) -> int:
    """Return the capacity in bytes. Raise FormatError if it is 0 or less, or contradicts the number of blocks.

    For an NVMe controller, smartctl reports the namespace's capacity only if there can be just one (nvmeprint.cpp, from
    6.5 to today). Most data centre drives can have several: there it is the total less the unallocated capacity (NVM
    Express base specification, identify controller: TNVMCAP, UNVMCAP).
    """
    if "user_capacity" not in found and "nvme_total_capacity" in found:
        total, free = _count(found, "nvme_total_capacity"), _count(found, "nvme_unallocated_capacity")
        if total is None or free is None or total <= free:
            raise FormatError(f"no namespace: of {total} bytes {free} are in none")
        return total - free
    size, blocks, each = (
        int(found["user_capacity"]["bytes"]),
        found["user_capacity"].get("blocks"),
        found.get("logical_block_size"),
    )
    if size <= 0 or (blocks is not None and each is not None and size != int(blocks) * int(each)):
        raise FormatError(f"a capacity of {size} bytes where it counts {blocks} blocks of {each}")
    return size


def _is_flash(value: object) -> bool:
    """Return whether a rotation rate is flash's: smartctl reports 0 (ataprint.cpp). Without a rate it may rotate."""
    return isinstance(value, int) and not isinstance(value, bool) and value == 0


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise FormatError(f"smart_status.passed {value!r} is not true or false")
    return value


def _count(log: dict[str, Any] | None, name: str) -> int | None:
    if log is None:
        return None
    value = log[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise FormatError(f"{name} {value!r} is not a count")
    return value
