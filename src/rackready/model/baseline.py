"""Firmware and BIOS baselines: from the platform profile, or from the site for its own servers."""

from __future__ import annotations

from pydantic import Field

from rackready.model.base import Model

Setting = str | int | bool


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
    source: str = Field("the site file", min_length=5, description="document that states them")
