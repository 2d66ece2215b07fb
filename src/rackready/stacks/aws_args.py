"""Arguments of the AWS stack: GPU instances of one placement group, with EFA, as a stack's configuration gives them."""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv4Address, IPv4Network
from typing import Annotated

from pydantic import Field, StringConstraints, ValidationInfo, field_validator

from rackready.model.base import Line, Model, Name

Id = Annotated[str, StringConstraints(pattern=r"^[a-z]+-[0-9a-f]+$")]
"""Id of an AWS resource, as in subnet-0a1b2c."""


class AwsNodeArgs(Model):
    """One instance."""

    node: Name
    address: IPv4Address = Field(description="private address in the subnet, used for SSH")


class AwsRackArgs(Model):
    """Instances that talk to each other by EFA: one placement group, one stack."""

    env: str = Field(min_length=1)
    rack: Name
    instance_type: Line = Field(min_length=1, description="instance type with GPUs and EFA, e.g. p5.48xlarge")
    network_cards: int = Field(
        ge=1,
        le=64,
        description="network cards of the type: `aws ec2 describe-instance-types`, NetworkInfo.MaximumNetworkCards",
    )
    efa_cards: int | None = Field(
        None,
        ge=1,
        le=64,
        description="network cards with EFA, all or all but the first: NetworkInfo.EfaInfo.MaximumEfaInterfaces; "
        "absent: all",
    )
    capacity_reservation: Id | None = Field(None, description="capacity reservation of the instances, cr-...")
    capacity_block: bool = Field(default=False, description="the reservation is a capacity block for ML")
    ami: Id = Field(description="machine image")
    vpc: Id = Field(description="VPC of the subnet")
    subnet: Id = Field(description="subnet: one, because a cluster placement group is in one availability zone")
    key_name: Line = Field(min_length=1, description="EC2 key pair of rackready's own SSH key")
    admin_networks: list[IPv4Network] = Field(min_length=1, description="networks from which SSH is let in")
    disk_gib: int = Field(512, ge=8, description="size of the root disk in GiB; it is encrypted")
    kms_key: Line | None = Field(None, description="KMS key of the root disk; absent: the account's own for EBS")
    nodes: list[AwsNodeArgs] = Field(min_length=1)

    @property
    def first_has_efa(self) -> bool:
        """Whether the first network card has EFA."""
        return self.efa_cards in {None, self.network_cards}

    @field_validator("efa_cards")
    @classmethod
    def _all_or_but_the_first(cls, cards: int | None, info: ValidationInfo) -> int | None:
        known = info.data.get("network_cards")
        if cards is not None and known is not None and cards not in {known, known - 1}:
            message = f"{cards} of {known} network cards. Give all, or all but the first."
            raise ValueError(message)
        return cards

    @field_validator("capacity_block")
    @classmethod
    def _of_a_reservation(cls, block: bool, info: ValidationInfo) -> bool:  # noqa: FBT001 - pydantic's signature
        if block and info.data.get("capacity_reservation") is None:
            message = "a capacity block is a reservation. Give its id as capacity_reservation."
            raise ValueError(message)
        return block

    @field_validator("admin_networks")
    @classmethod
    def _somebody(cls, networks: list[IPv4Network]) -> list[IPv4Network]:
        if any(network.prefixlen == 0 for network in networks):
            message = "0.0.0.0/0 lets everybody in. Name the networks of those who administer the nodes."
            raise ValueError(message)
        return networks

    @field_validator("nodes")
    @classmethod
    def _apart(cls, nodes: list[AwsNodeArgs]) -> list[AwsNodeArgs]:
        for what in ("node", "address"):
            counts = Counter(str(getattr(item, what)) for item in nodes)
            twice = sorted(value for value, count in counts.items() if count > 1)
            if twice:
                message = f"{what} {', '.join(twice)} is given twice. Give each node its own."
                raise ValueError(message)
        return nodes
