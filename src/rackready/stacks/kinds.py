"""The two kinds of stacks that the provision phase runs for a rack, and what differs between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from rackready.drivers import pulumi as engine
from rackready.ledger.store import Ledger
from rackready.model.site import Site
from rackready.paths import EnvPaths
from rackready.stacks import metal, virtual
from rackready.stacks.args import ImagingArgs, NodeArgs, rack_args
from rackready.stacks.domain import StackDomain
from rackready.stacks.installations import installations
from rackready.stacks.machine import StackMachine, made_by_us
from rackready.stacks.virtual_args import DomainArgs, virtual_args

T = TypeVar("T", NodeArgs, DomainArgs)
Jobs = dict[str, ImagingArgs]
"""Node -> its installation, of the nodes that are imaged."""


@dataclass(frozen=True)
class StackKind(Generic[T]):
    """A kind of stack: which nodes it has, its program, and the types of its resources."""

    kind: Literal["metal", "virtual"]
    project: str
    component: str
    resource: str
    nodes: Callable[[Site, str, str, Jobs], Sequence[T]]
    """Arguments of every node of a rack, from the site, the environment, the rack's name and what is to be imaged."""
    declare: Callable[[Site, str, str, Jobs], None]
    removed: Callable[[T, Ledger, EnvPaths, Callable[[str], None]], str]
    """Removes what a killed run made of a node before the engine recorded it; returns words, empty if nothing was."""

    def node_of(self, urn: str) -> str:
        """Return the node of a resource's URN, "" when the resource is no node's of this kind."""
        parts = urn.split("::")
        types = {self.component, f"{self.component}${self.resource}"}
        return parts[-1] if len(parts) == 4 and parts[2] in types else ""  # noqa: PLR2004 - urn:pulumi:stack::project::type::name

    def urns(self, stack: str, nodes: list[str]) -> list[str]:
        """Return the URNs of nodes' resources and components: the engine refuses a child without its parent."""
        prefix = f"urn:pulumi:{stack}::{self.project}::{self.component}"
        return [urn for node in nodes for urn in (f"{prefix}::{node}", f"{prefix}${self.resource}::{node}")]


def _forgotten_machine(args: NodeArgs, ledger: Ledger, paths: EnvPaths, say: Callable[[str], None]) -> str:
    made = made_by_us(ledger, args.node)
    if not made and not installations(ledger, args.node, "intent"):
        return ""
    StackMachine(args, ledger, paths.state, proceed=lambda: None, say=say).remove(made=made)
    return "powered off" if made else "its installation ended before power-on"


def _forgotten_domain(args: DomainArgs, ledger: Ledger, paths: EnvPaths, say: Callable[[str], None]) -> str:
    if not made_by_us(ledger, args.node):
        return ""
    StackDomain(args, ledger, paths.known_hosts, proceed=lambda: None, say=say).remove()
    return "removed, its disk stays"


METAL: StackKind[NodeArgs] = StackKind(
    "metal",
    engine.PROJECT,
    metal.COMPONENT_TYPE,
    metal.NODE_TYPE,
    lambda site, env, rack, jobs: rack_args(site, env, rack, jobs).nodes,
    lambda site, env, rack, jobs: metal.declare(rack_args(site, env, rack, jobs)),
    _forgotten_machine,
)
VIRTUAL: StackKind[DomainArgs] = StackKind(
    "virtual",
    virtual.PROJECT,
    virtual.COMPONENT_TYPE,
    virtual.DOMAIN_TYPE,
    lambda site, env, rack, _jobs: virtual_args(site, env, rack).domains,
    lambda site, env, rack, _jobs: virtual.declare(virtual_args(site, env, rack)),
    _forgotten_domain,
)
KINDS: tuple[StackKind[Any], ...] = (METAL, VIRTUAL)
"""Metal first: a hypervisor is on before its virtual nodes are made."""
