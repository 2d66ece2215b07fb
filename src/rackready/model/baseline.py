"""Firmware and BIOS baselines: from the platform profile, or from the site for its own servers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from rackready.model.base import Line, Model, PathLine, Word

Setting = str | int | bool
Target = Annotated[Word, StringConstraints(pattern=r"^(/redfish/v1/.+|[^/]+)$")]
"""An id of the firmware inventory, or the path of another resource."""

UEFI = "UEFI"
"""Id in the firmware inventory of what a Grace host has for a BIOS version: its system has no BiosVersion
(NVIDIA/libredfish c094c9e6, tests/mockups/nvidia_gb200 and nvidia_gh200, Systems/System_0)."""
_SUFFIX = r"_+[0-9A-F]{4}$"
"""What Supermicro appends to a name for each BIOS build (PCIeACSCTL_1E3C)."""
_SAME = {"enable": "enabled", "true": "enabled", "disable": "disabled", "false": "disabled"}
_PAIRS = ({"enabled": "Enable", "disabled": "Disable"}, {"enabled": "Enabled", "disabled": "Disabled"})
"""The words of a BIOS for on and off, by what they mean."""
_NUMBERS = re.compile(r"[0-9]+(\.[0-9]+)+")
_INSTALLED = re.compile(r"Installed-.+?__(.+)")
"""An iDRAC's id of a part's present firmware: Installed-SOFTWAREID-VERSION__DEVICE (NVIDIA/libredfish c094c9e6,
tests/mockups/dell, UpdateService/FirmwareInventory)."""


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
    present = str(now).strip().capitalize()
    pair = next((words for words in _PAIRS if present in words.values()), _PAIRS[1])
    spoken = present in pair.values() or isinstance(wanted, bool)
    return pair[word] if spoken and word in pair else str(wanted)


def named_as(part: str, ids: Iterable[str]) -> list[str]:
    """Return the ids of the firmware inventory that a part means: its own, or else those of the device on an iDRAC."""
    known = list(ids)
    devices = ((ident, _INSTALLED.fullmatch(ident)) for ident in known)
    return [part] if part in known else [ident for ident, found in devices if found and found[1] == part]


def same_version(wanted: str, found: str) -> bool:
    """Return whether two versions are the same one: those of numbers and dots are compared by their numbers.

    A DGX H100 has three forms of one: 1.06.07 in its package, 01.06.07 in the inventory (HostBIOS_0), 1.6.7 in
    BiosVersion (NVIDIA/infra-controller a02fa34, docs/hcl.md and crates/bmc-mock/src/hw/nvidia_dgx_h100.rs;
    NVIDIA/libredfish c094c9e6, tests/mockups/nvidia_viking: BiosVersion 1.1.3, HostBIOS_0 01.01.03).
    """
    if _NUMBERS.fullmatch(wanted) and _NUMBERS.fullmatch(found):
        return [int(part) for part in wanted.split(".")] == [int(part) for part in found.split(".")]
    return wanted == found


def _word(value: object) -> str:
    text = str(value).strip().lower()
    return _SAME.get(text, text)


class FirmwareFile(Model):
    """A file of firmware, and the part that it updates to the version of the baseline."""

    part: Word = Field(description="bmc, bios, or a part that `firmware` lists")
    file: PathLine = Field(description="the vendor's file, on the controller")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the file; another one is refused")
    url: Line | None = Field(
        None,
        pattern=r"^https?://[^ ]+$",
        description="address of the same file that BMCs reach; used where a BMC takes no file (SimpleUpdate)",
    )
    targets: list[Target] = Field(
        default_factory=list,
        description="what it is for: ids of the firmware inventory, or paths that begin with /redfish/v1/; empty: the "
        "BMC finds it",
    )
    oem: dict[str, Any] = Field(
        default_factory=dict, description="the vendor's own parameters of the update (Oem of UpdateParameters)"
    )
    oem_parameters: dict[str, Any] = Field(
        default_factory=dict,
        description="the vendor's own part of the form (OemParameters), which BMCs with AMI's MegaRAC need: "
        "{ImageType: BMC}",
    )
    force: bool = Field(
        default=False, description="install it also where the present version is newer (ForceUpdate, NVIDIA)"
    )


class Baseline(Model):
    """Versions and settings of one server model. Absent keys allow any value."""

    bmc: str | None = Field(
        None, min_length=1, description="firmware version of the host's BMC as Redfish reports it; null: any"
    )
    bios: str | None = Field(None, min_length=1, description="BIOS version as Redfish reports it; null: any")
    firmware: dict[str, str] = Field(
        default_factory=dict,
        description="other firmware: id in Redfish's firmware inventory, on an iDRAC also the device in it "
        "(NIC.Slot.5-1), to its version",
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
