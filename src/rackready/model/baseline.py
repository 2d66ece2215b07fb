"""Firmware and BIOS baselines: from the platform profile, or from the site for its own servers."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pydantic import Field

from rackready.model.base import Line, Model, PathLine, Word

Setting = str | int | bool


_SUFFIX = r"_+[0-9A-F]{4}$"
"""What Supermicro appends to a name for each BIOS build (PCIeACSCTL_1E3C)."""
_SAME = {"enable": "enabled", "true": "enabled", "disable": "disabled", "false": "disabled"}


def matching(name: str, attributes: Iterable[str]) -> list[str]:
    """Return the attributes that a wanted name means: the exact name, or else that name with a BIOS build's suffix."""
    known = list(attributes)
    return [name] if name in known else sorted(item for item in known if re.fullmatch(re.escape(name) + _SUFFIX, item))


def same(wanted: object, found: object) -> bool:
    """Return whether two values mean the same. Vocabularies differ: Enable, Enabled and true are one word."""
    return _word(wanted) == _word(found)


def in_words_of(wanted: Setting, now: object) -> Setting:
    """Return a wanted value in the type and vocabulary of the attribute's present value."""
    word = _word(wanted)
    if isinstance(now, bool):
        return word == "enabled"
    if isinstance(now, int) and str(wanted).lstrip("-").isdigit():
        return int(wanted)
    if str(now).strip().lower() in {"enable", "disable"} and word in {"enabled", "disabled"}:
        return word.removesuffix("d").capitalize()
    return str(wanted)


def _word(value: object) -> str:
    text = str(value).strip().lower()
    return _SAME.get(text, text)


class FirmwareFile(Model):
    """A file of firmware, and the part that it updates to the version of the baseline."""

    part: Word = Field(description="bmc, bios, or an id of Redfish's firmware inventory that `firmware` lists")
    file: PathLine = Field(description="the vendor's file, on the controller")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the file; another one is refused")
    url: Line | None = Field(
        None,
        pattern=r"^https?://[^ ]+$",
        description="address of the same file that BMCs reach; used where a BMC takes no file (SimpleUpdate)",
    )
    targets: list[Word] = Field(
        default_factory=list, description="ids of the firmware inventory that it is for; empty: the BMC finds them"
    )


class Baseline(Model):
    """Versions and settings of one server model. Absent keys allow any value."""

    bmc: str | None = Field(
        None, min_length=1, description="firmware version of the host's BMC as Redfish reports it; null: any"
    )
    bios: str | None = Field(None, min_length=1, description="BIOS version as Redfish reports it; null: any")
    firmware: dict[str, str] = Field(
        default_factory=dict, description="other firmware: id in Redfish's firmware inventory to its version"
    )
    bios_settings: dict[str, Setting] = Field(
        default_factory=dict,
        description="BIOS attribute to its value. Supermicro's names have a suffix of "
        "the BIOS build (PCIeACSCTL_1E3C): "
        "omit the suffix",
    )
    files: list[FirmwareFile] = Field(
        default_factory=list, description="files that bring parts to these versions, updated in this order"
    )
    apply: bool = Field(
        default=False,
        description="deploy sets BIOS settings and updates firmware that differ before it provisions a node, with "
        "restarts; false: only `baseline --apply` does",
    )
    source: str = Field("the site file", min_length=5, description="document that states them")
