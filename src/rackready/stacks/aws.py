"""The AWS stack: GPU instances with EFA in one placement group, with the outputs of the metal and virtual stacks.

Tested with Pulumi's mocks alone: it never met AWS. Needs the extra ``rackready[aws]`` (the package pulumi-aws) and the
engine's plugin ``pulumi-resource-aws``; nothing else of rackready imports this module, because pulumi-aws is large.

EFA: the security group lets everything pass between its members, both ways (AWS, EC2 User Guide: "Get started with EFA
and MPI"). Interfaces: "Maximize network bandwidth on Amazon EC2 instances with multiple network cards" there.

A change of a launch template makes a new version, which new instances alone get: AWS's provider would replace every
instance of the rack, and make the new one first, with the address and the capacity that the old one has.
"""

from __future__ import annotations

import json
from typing import Any

import pulumi
import pulumi_aws as aws
from pydantic import ValidationError

from rackready.model.problems import Message, RackreadyError
from rackready.model.wanted import path_text, steps, values
from rackready.stacks.aws_args import AwsNodeArgs, AwsRackArgs

COMPONENT_TYPE = "rackready:stacks:AwsNode"
GROUP_TYPE = "rackready:stacks:AwsRack"
_EXAMPLE = "docs/howto/aws.md shows an example."


class AwsArgsError(RackreadyError):
    """The configuration of the stack describes no rack of instances."""


class AwsRack(pulumi.ComponentResource):
    """What the instances of a rack share: placement group and security group."""

    def __init__(self, args: AwsRackArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        name = f"{args.env}-{args.rack}"
        super().__init__(GROUP_TYPE, name, {}, opts)
        own, tags = pulumi.ResourceOptions(parent=self), tags_of(args)
        self.placement = aws.ec2.PlacementGroup(name, strategy="cluster", tags=tags, opts=own)
        ssh = [str(network) for network in args.admin_networks]
        everything = {"protocol": "-1", "from_port": 0, "to_port": 0}
        self.group = aws.ec2.SecurityGroup(
            name,
            description="rackready: SSH of administrators, everything between nodes",
            vpc_id=args.vpc,
            ingress=[
                aws.ec2.SecurityGroupIngressArgs(protocol="tcp", from_port=22, to_port=22, cidr_blocks=ssh),
                aws.ec2.SecurityGroupIngressArgs(**everything, self=True),
            ],
            egress=[
                aws.ec2.SecurityGroupEgressArgs(**everything, self=True),
                aws.ec2.SecurityGroupEgressArgs(**everything, cidr_blocks=["0.0.0.0/0"]),
            ],
            tags=tags,
            opts=own,
        )
        self.register_outputs({"placement": self.placement.name, "group": self.group.id})


class AwsNode(pulumi.ComponentResource):
    """One instance, with an EFA interface on each of its network cards that has EFA."""

    def __init__(
        self, args: AwsNodeArgs, rack: AwsRackArgs, shared: AwsRack, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(COMPONENT_TYPE, args.node, {}, opts)
        own, tags = pulumi.ResourceOptions(parent=self), {**tags_of(rack), "Name": args.node}
        template = aws.ec2.LaunchTemplate(
            args.node,
            image_id=rack.ami,
            instance_type=rack.instance_type,
            key_name=rack.key_name,
            metadata_options=aws.ec2.LaunchTemplateMetadataOptionsArgs(http_tokens="required"),
            network_interfaces=_interfaces(args, rack, shared),
            **_capacity(rack, shared),
            tags=tags,
            opts=own,
        )
        self.instance = aws.ec2.Instance(
            args.node,
            launch_template=aws.ec2.InstanceLaunchTemplateArgs(
                id=template.id,
                version="$Latest",  # a replacement gets today's version, whatever number was ignored
            ),
            root_block_device=aws.ec2.InstanceRootBlockDeviceArgs(
                encrypted=True, kms_key_id=rack.kms_key, volume_size=rack.disk_gib, volume_type="gp3"
            ),
            tags=tags,
            volume_tags=tags,
            opts=pulumi.ResourceOptions(
                parent=self, ignore_changes=["launchTemplate"], protect=True, delete_before_replace=True
            ),
        )
        self.power = self.instance.instance_state.apply(lambda state: "On" if state == "running" else "Off")
        self.made = pulumi.Output.from_input(True)  # noqa: FBT003 - it exists because of us
        self.register_outputs({"power": self.power, "made": self.made})


def _interfaces(
    args: AwsNodeArgs, rack: AwsRackArgs, shared: AwsRack
) -> list[aws.ec2.LaunchTemplateNetworkInterfaceArgs]:
    """Return the interfaces: ENA with the node's address on the first card, and EFA alone on each card that has EFA.

    EFA is device 1 of the first card, whose device 0 is ENA, and device 0 of every other one.
    """
    places = [(0, 1)] if rack.first_has_efa else []
    places += [(card, 0) for card in range(1, rack.network_cards)]
    ena = _interface(rack, shared, (0, 0), "interface", str(args.address))
    return [ena, *(_interface(rack, shared, place, "efa-only") for place in places)]


def _interface(
    rack: AwsRackArgs, shared: AwsRack, place: tuple[int, int], kind: str, address: str | None = None
) -> aws.ec2.LaunchTemplateNetworkInterfaceArgs:
    card, device = place
    return aws.ec2.LaunchTemplateNetworkInterfaceArgs(
        network_card_index=card,
        device_index=device,
        interface_type=kind,
        private_ip_address=address,
        subnet_id=rack.subnet,
        security_groups=[shared.group.id],
        delete_on_termination="true",
    )


def _capacity(rack: AwsRackArgs, shared: AwsRack) -> dict[str, Any]:
    """Return where the capacity comes from: our placement group, or a reservation alone.

    EC2 User Guide, "Launch instances using Capacity Blocks". A placement group outside a reservation leads to
    "insufficient capacity" although the reservation has some (aws/aws-parallelcluster, validators/ec2_validators.py,
    PlacementGroupCapacityTypeValidator and PlacementGroupCapacityReservationValidator).
    """
    if rack.capacity_reservation is None:
        return {"placement": aws.ec2.LaunchTemplatePlacementArgs(group_name=shared.placement.name)}
    target = aws.ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
        capacity_reservation_id=rack.capacity_reservation
    )
    out: dict[str, Any] = {
        "capacity_reservation_specification": aws.ec2.LaunchTemplateCapacityReservationSpecificationArgs(
            capacity_reservation_target=target
        )
    }
    if rack.capacity_block:
        out["instance_market_options"] = aws.ec2.LaunchTemplateInstanceMarketOptionsArgs(market_type="capacity-block")
    return out


def tags_of(args: AwsRackArgs) -> dict[str, str]:
    """Return the tags that every resource has: the policy pack asks for them."""
    return {"rackready:env": args.env, "rackready:rack": args.rack}


def declare(args: AwsRackArgs) -> None:
    """Declare every instance of a rack."""
    shared = AwsRack(args)
    nodes = {node.node: AwsNode(node, args, shared) for node in args.nodes}
    pulumi.export("rack", args.rack)
    pulumi.export("nodes", {name: {"power": node.power, "made": node.made} for name, node in nodes.items()})


def declare_from_config(env: str, rack: str) -> None:
    """Declare the rack that the stack's configuration describes, key ``rackready-aws:rack``. Raises AwsArgsError."""
    text = pulumi.Config("rackready-aws").get("rack")
    where = f"stack {env}-{rack}: rackready-aws:rack"
    given = _object(where, text)
    try:
        found = AwsRackArgs.model_validate({**given, "env": env, "rack": rack})
    except ValidationError as error:
        raise AwsArgsError.of(
            Message(
                where,
                path_text(steps(item)),
                **values(item),
                next_step=f"Correct it; {_EXAMPLE}",
            )
            for item in error.errors(include_input=False)
        ) from error
    declare(found)


def _object(where: str, text: str | None) -> dict[str, Any]:
    """Return the configuration as data. Raises AwsArgsError."""
    try:
        given = json.loads(text or "null")
    except ValueError:
        given = text
    if not isinstance(given, dict):
        actual = "not set" if text is None else "something else"
        step = f"Set it in the stack's settings file; {_EXAMPLE}"
        raise AwsArgsError(where, expected="a mapping that describes the rack", actual=actual, next_step=step)
    return given
