"""Arguments of the AWS stack: GPU instances of one placement group, with EFA, as a stack's configuration gives them."""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv4Address, IPv4Network
from typing import Annotated

from pydantic import Field, StringConstraints, field_validator

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
        description="network cards that get an EFA interface; of the type: `aws ec2 describe-instance-types`, "
        "NetworkInfo.MaximumNetworkCards",
    )
    ami: Id = Field(description="machine image")
    vpc: Id = Field(description="VPC of the subnet")
    subnet: Id = Field(description="subnet: one, because a cluster placement group is in one availability zone")
    key_name: Line = Field(min_length=1, description="EC2 key pair of rackready's own SSH key")
    admin_networks: list[IPv4Network] = Field(min_length=1, description="networks from which SSH is let in")
    disk_gib: int = Field(512, ge=8, description="size of the root disk in GiB; it is encrypted")
    kms_key: Line | None = Field(None, description="KMS key of the root disk; absent: the account's own for EBS")
    nodes: list[AwsNodeArgs] = Field(min_length=1)

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
