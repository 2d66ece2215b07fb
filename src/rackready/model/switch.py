"""A switch that the site file lists by hand."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from rackready.model.base import Line, Model, Name, ProfileId, SecretRef
from rackready.model.network import PortGroup


class Switch(Model):
    """One switch written by hand: of a site without ``topology``, or more facts about one that the topology names."""

    name: Name
    os: ProfileId | Literal[""] = Field(
        "",
        description="network operating system: name of a switch driver, e.g. cumulus_nvue; "
        "none: an InfiniBand switch that needs no configuration",
    )
    model: ProfileId = Field(description="switch model: id of a switch profile")
    guid: Annotated[str, StringConstraints(pattern=r"^0x[0-9a-f]{16}$")] | None = Field(
        None,
        description="node GUID of an InfiniBand switch, e.g. 0xb83fd20300f00001, as ibswitches prints it; needed for "
        "switches without a name of their own (unmanaged ones), which it names, and for the roots of updn in a large "
        "fabric",
    )
    address: IPv4Address | None = Field(
        None, description="management address, used for SSH; none: an InfiniBand switch without a login"
    )
    port: int = Field(22, ge=1, le=65535, description="TCP port of SSH")
    username: Line | None = Field(
        None, min_length=1, description="user of the login; default: the first user of the operating system"
    )
    password: SecretRef | None = None
    role: Literal["compute", "in_band", "storage", "oob"] = Field("compute", description="network of the switch")
    rack: Name | None = Field(None, description="rack that holds it")
    unit: int | None = Field(None, ge=1, le=60, description="lowest rack unit that it occupies")
    ports: list[PortGroup] = Field(default_factory=list, description="ports whose set-up differs from the profile")

    @model_validator(mode="after")
    def _whole_login(self) -> Switch:
        if len({not self.os, self.address is None, self.password is None}) > 1:
            message = "os, address and password go together: give all, or none for an InfiniBand switch without a login"
            raise ValueError(message)
        return self
