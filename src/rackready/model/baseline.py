"""What firmware and BIOS of a server are wanted to be: by its platform profile, or by the site for its own servers."""

from __future__ import annotations

from pydantic import Field

from rackready.model.base import Model

Setting = str | int | bool


class Baseline(Model):
    """Versions and settings of one server model. What is absent is not wanted in any particular way."""

    bmc: str | None = Field(
        None, min_length=1, description="firmware version of the host's BMC as Redfish gives it; null: any"
    )
    bios: str | None = Field(None, min_length=1, description="BIOS version as Redfish gives it; null: any")
    firmware: dict[str, str] = Field(
        default_factory=dict, description="further firmware: id in Redfish's firmware inventory to its version"
    )
    bios_settings: dict[str, Setting] = Field(
        default_factory=dict,
        description="BIOS attribute to its value. Supermicro's names carry a suffix of "
        "the BIOS build (PCIeACSCTL_1E3C): "
        "give what stands before it",
    )
    source: str = Field("the site file", min_length=5, description="document that gives it")
