"""The metal stack: one component per node over our provider's resource ``rackready:metal:Node``."""

from __future__ import annotations

from pathlib import Path

import pulumi

from rackready import __version__
from rackready.design.site import load_site
from rackready.stacks.args import NodeArgs, RackArgs, rack_args

NODE_TYPE = "rackready:metal:Node"
COMPONENT_TYPE = "rackready:stacks:MetalNode"
OUTPUTS = ("power", "host_key", "boot_id", "made", "problem")


class Node(pulumi.CustomResource):
    """One machine, as our provider records it."""

    power: pulumi.Output[str]
    host_key: pulumi.Output[str]
    boot_id: pulumi.Output[str]
    made: pulumi.Output[bool]

    def __init__(self, name: str, args: NodeArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        inputs = args.model_dump(mode="json", exclude_none=True)
        options = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(version=__version__))
        super().__init__(NODE_TYPE, name, {**inputs, **dict.fromkeys(OUTPUTS)}, options)


class MetalNode(pulumi.ComponentResource):
    """One node of a rack, from powered off until SSH answers with a pinned host key."""

    def __init__(self, args: NodeArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(COMPONENT_TYPE, args.node, {}, opts)
        self.machine = Node(args.node, args, pulumi.ResourceOptions(parent=self))
        self.power = self.machine.power
        self.made = self.machine.made
        self.register_outputs({"power": self.power, "made": self.made})


def declare(args: RackArgs) -> None:
    """Declare every node of a rack: the engine deletes a node that the program leaves out."""
    nodes = [MetalNode(node) for node in args.nodes]
    pulumi.export("rack", args.rack)
    pulumi.export(
        "nodes", {args.nodes[i].node: {"power": node.power, "made": node.made} for i, node in enumerate(nodes)}
    )


def declare_from_site(env: str, rack: str, root: Path) -> None:
    """Read the site file of an environment and declare one of its racks."""
    declare(rack_args(load_site(env, root=root), env, rack))


def node_of(urn: str) -> str:
    """Return the node of a resource's URN, "" when the resource is no node's."""
    parts = urn.split("::")
    kinds = {COMPONENT_TYPE, f"{COMPONENT_TYPE}${NODE_TYPE}"}
    return parts[-1] if len(parts) == 4 and parts[2] in kinds else ""  # noqa: PLR2004 - urn:pulumi:stack::project::type::name


def urns(stack: str, project: str, nodes: list[str]) -> list[str]:
    """Return the URNs of the nodes' resources and their components: the engine refuses a child without its parent."""
    prefix = f"urn:pulumi:{stack}::{project}::{COMPONENT_TYPE}"
    return [urn for node in nodes for urn in (f"{prefix}::{node}", f"{prefix}${NODE_TYPE}::{node}")]
