"""What happens to a node between two tenants (`rackready hand-back`)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from rackready.model.base import Line, Model, ProfileId

Folder = Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9._-]+)+$")]
KeyLine = Annotated[str, StringConstraints(pattern=r"^(ssh|ecdsa|sk)-\S+ AAAA[A-Za-z0-9+/=]+( [^\r\n]*)?$")]


class HandBack(Model):
    """What is scrubbed of a node that leaves a tenant, and what stays."""

    scratch: list[Folder] = Field(
        default_factory=list,
        description="mount points of scratch file systems: their NVMe drives erase themselves, and array and file "
        "system are made anew",
    )
    empty: list[Folder] = Field(
        default_factory=list, description="folders on the node's own disks that are emptied, e.g. /home"
    )
    spare: list[Folder] = Field(
        default_factory=list,
        description="folders in which files of tenants may stay, e.g. of container images; elsewhere they are refused",
    )
    keep_users: list[Line] = Field(
        default_factory=list, description="users of the site with a number of UID_MIN or above that are no tenants"
    )
    keep_keys: list[KeyLine] = Field(
        default_factory=list,
        description="public keys that stay in authorized_keys, one line each; that of access.private_key stays anyway",
    )
    bmc_accounts: list[Line] = Field(
        default_factory=list, description="accounts of the BMCs that may be enabled, beside bmc.username"
    )
    gate_set: ProfileId = Field("maintenance", description="gate set that a node passes before it returns")
