"""The metal stack: one component per node over our provider's resource ``rackready:metal:Node``."""

from __future__ import annotations

from pathlib import Path

import pulumi

from rackready import __version__
from rackready.design.site import load_site
from rackready.paths import EnvPaths
from rackready.stacks.args import NodeArgs, RackArgs, rack_args
from rackready.stacks.boot_jobs import write_jobs

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
    site = load_site(env, root=root)
    declare(rack_args(site, env, rack, write_jobs(site, EnvPaths(root, env), rack)))
