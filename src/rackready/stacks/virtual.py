"""The virtual stack: one component per virtual node over our provider's resource ``rackready:virtual:Domain``."""

from __future__ import annotations

from pathlib import Path

import pulumi

from rackready import __version__
from rackready.design.site import load_site
from rackready.stacks.virtual_args import DomainArgs, VirtualArgs, virtual_args

DOMAIN_TYPE = "rackready:virtual:Domain"
COMPONENT_TYPE = "rackready:stacks:VirtualNode"
PROJECT = "rackready-virtual"
"""Name of the Pulumi project, as in stacks/virtual/Pulumi.yaml."""
OUTPUTS = ("power", "made", "digest", "text", "written", "restart", "host_key", "boot_id", "problem")


class Domain(pulumi.CustomResource):
    """One domain, as our provider records it."""

    power: pulumi.Output[str]
    made: pulumi.Output[bool]
    restart: pulumi.Output[bool]

    def __init__(self, name: str, args: DomainArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        inputs = args.model_dump(mode="json", exclude_none=True)
        options = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(version=__version__))
        super().__init__(DOMAIN_TYPE, name, {**inputs, **dict.fromkeys(OUTPUTS)}, options)


class VirtualNode(pulumi.ComponentResource):
    """One virtual node, from nothing until SSH answers with a pinned host key."""

    def __init__(self, args: DomainArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(COMPONENT_TYPE, args.node, {}, opts)
        self.domain = Domain(args.node, args, pulumi.ResourceOptions(parent=self))
        self.power = self.domain.power
        self.made = self.domain.made
        self.restart = self.domain.restart
        self.register_outputs({"power": self.power, "made": self.made, "restart": self.restart})


def declare(args: VirtualArgs) -> None:
    """Declare every virtual node of a rack: the engine deletes a node that the program leaves out."""
    nodes = {domain.node: VirtualNode(domain) for domain in args.domains}
    pulumi.export("rack", args.rack)
    outputs = {name: {"power": node.power, "made": node.made, "restart": node.restart} for name, node in nodes.items()}
    pulumi.export("nodes", outputs)


def declare_from_site(env: str, rack: str, root: Path) -> None:
    """Read the site file of an environment and declare the virtual nodes of one of its racks."""
    declare(virtual_args(load_site(env, root=root), env, rack))
