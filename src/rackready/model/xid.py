"""The vendor's error numbers with their actions: Xids of GPUs, SXids of NVSwitches."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rackready.model.base import Model, ProfileId


class Xid(Model):
    """One Xid of the vendor's catalogue."""

    name: str
    action: str = Field(
        description="immediate action, in the catalogue's words, e.g. RESET_GPU; 'none': the catalogue has no action"
    )
    next: str = Field(description="action when the error returns, in the catalogue's words; 'none': not given")
    convenient: str | None = Field(
        None, description="further action that the catalogue recommends when convenient; null: none"
    )


class NvLink5Rule(Model):
    """One row of the decode table of Xids 144 to 150 (NVLink 5)."""

    xid: int
    unit: str = Field(description="unit of the GPU's NVLink block, first word of the message")
    v1: str = Field(
        pattern=r"^[01-]{32}$", description="interrupt information before driver R575, bit 31 first; '-' is any"
    )
    v2: str = Field(pattern=r"^[01-]{32}$", description="the same from R575 on")
    status: int = Field(description="error status")
    action: str


class SXid(Model):
    """One SXid of the vendor's guide."""

    name: str
    kind: Literal["non_fatal", "fatal", "always_fatal", "notable"]


class XidCatalogue(Model):
    """The vendor's tables."""

    id: ProfileId
    source: str
    xids: dict[int, Xid]
    nvlink5: list[NvLink5Rule]
    sxids: dict[int, SXid]
