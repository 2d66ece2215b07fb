"""Builds the releases of nodes: code and wheels once, then a small document and sealed variables for each node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rackready.design.pull import node_processor, node_python
from rackready.drivers.release import code, sealing
from rackready.drivers.release.document import Parts, canonical, document
from rackready.drivers.release.error import ReleaseError
from rackready.drivers.release.objects import Blob, Objects, objects_of
from rackready.drivers.release.variables import Variables
from rackready.drivers.release.wheels import Wheel, Wheels
from rackready.drivers.ssh.errors import not_pinned
from rackready.drivers.ssh.pins import all_pinned, fingerprint
from rackready.drivers.ssh.target import node_target
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.paths import EnvPaths

Say = Callable[[str], None]


def _silent(_text: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class NodeRelease:
    """The release of one node, all of whose objects are stored. ``machine``: fingerprint of its pinned host key."""

    node: str
    machine: str
    blob: Blob
    document: Mapping[str, Any]


@dataclass
class Built:
    """What a build made. ``refused``: node -> why it has no release."""

    objects: Objects
    releases: dict[str, NodeRelease] = field(default_factory=dict)
    refused: dict[str, RackreadyError] = field(default_factory=dict)


def build(site: Site, paths: EnvPaths, nodes: Iterable[str], say: Say = _silent) -> Built:
    """Store the releases of nodes of a site that has `pull`. A second build of the same state makes no new object.

    A node that cannot have one is in ``refused``. Raises ReleaseError for what concerns all nodes, and OSError.
    """
    return Builder(site, paths, say).build(nodes)


class Builder:
    """Builds releases of one site: what nodes share is made at the first build and used by later ones."""

    def __init__(self, site: Site, paths: EnvPaths, say: Say = _silent) -> None:
        self.site, self.paths, self.say = site, paths, say
        self.objects = objects_of(paths)
        self._variables = Variables(site, paths, self.objects)
        self._wheels = Wheels(paths, self.objects, say)
        self._shared: dict[tuple[str, str], list[Wheel]] = {}
        self._pins: dict[str, str] = {}

    def build(self, nodes: Iterable[str]) -> Built:
        """Store the releases of nodes. Raises ReleaseError, OSError."""
        if self.site.pull is None:
            raise ReleaseError(
                "release build",
                expected="pull in the site file",
                actual="none",
                next_step="Add it (docs/howto/pull.md): without it, the controller pushes.",
            )
        self._pins = all_pinned(self.paths.known_hosts)
        built = Built(self.objects)
        for node in nodes:
            try:
                built.releases[node] = self._one(node)
            except _NodeError as error:
                built.refused[node] = error.error
        return built

    def node_key(self, node: str) -> bytes:
        """Return the key with which variables of a node are sealed. Raises RackreadyError, OSError."""
        return sealing.node_key(self._master, node, self.machine(node))

    def machine(self, node: str) -> str:
        """Return the fingerprint of a node's pinned SSH host key: SHA256:... Raises HostKeyNotPinnedError."""
        target = node_target(self.site, node, self.paths.known_hosts)
        self._pins = self._pins or all_pinned(self.paths.known_hosts)
        key = self._pins.get(target.host, "")
        _, _, found = fingerprint(key).partition(" ")
        if not key or not found.startswith("SHA256:"):
            raise not_pinned(target.where, target.known_hosts, target.accept_name, "damaged" if key else "none")
        return found

    def sealed(self, node: str, content: Mapping[str, Any]) -> Blob:
        """Store data that only this node can read, such as the variables of one order. Raises RackreadyError."""
        return self.objects.put(sealing.sealed(self.node_key(node), node, canonical(content)))

    def _one(self, node: str) -> NodeRelease:
        python = node_python(self.site, node)
        shared = self._wheels_for(python, node_processor(self.site, node))
        try:
            found = self.machine(node)
            variables, files = self._variables.of(node)
        except RackreadyError as error:
            raise _NodeError(error) from error
        parts = Parts(node, python, self._code, shared, files, self.sealed(node, variables))
        text = document(parts)
        return NodeRelease(node, found, self.objects.put(canonical(text)), text)

    def _wheels_for(self, python: str, processor: str) -> list[Wheel]:
        target = (python, processor)
        if target not in self._shared:
            self._shared[target] = self._wheels.of(python, processor)
        return self._shared[target]

    @cached_property
    def _code(self) -> Blob:
        self.say("packing roles, playbooks, plugins and rackready's code")
        return self.objects.put(code.archive())

    @cached_property
    def _master(self) -> bytes:
        return sealing.master_key(self.paths)


class _NodeError(Exception):
    """What concerns one node alone."""

    def __init__(self, error: RackreadyError) -> None:
        super().__init__(str(error))
        self.error = error
