"""The services of pulled phases on a site: the release folder, its server, the agent's role and SSH."""

from __future__ import annotations

import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from rackready.campaign.drained_phase import Results
from rackready.campaign.pull.service_interfaces import UNIT, BuiltRelease, OrderingError, PullServices, Triggered
from rackready.design.pull import node_python
from rackready.drivers.ansible import run_playbook
from rackready.drivers.release.build import Builder
from rackready.drivers.release.error import ReleaseError
from rackready.drivers.release_report import PullReport, read_report
from rackready.drivers.remote import Remote
from rackready.drivers.ssh.pins import pinned
from rackready.drivers.ssh.target import node_target
from rackready.handover.dsse import Signer, public_pem
from rackready.handover.keys import keys_of
from rackready.model.phase import PhaseContext
from rackready.model.pull import Pull
from rackready.model.site import Site
from rackready.ondevice.pull.report import agent_digest
from rackready.paths import EnvPaths

PLAYBOOK = "pull.yml"
_ANSWER_S, _TRIGGER_S = 10.0, 60.0
_TRIGGER = ("systemctl", "start", "--no-block", UNIT)
_NO_UNIT = 5
"""Exit code of systemctl for a unit that is not there (systemctl(1), LSB)."""


def services_of(site: Site, pull: Pull, paths: EnvPaths, identity: str) -> PullServices:
    """Return the services for a site. Raises SignatureError where its key cannot sign."""
    builder, signer = Builder(site, paths), keys_of(site, paths).signer()
    agents = _Agents(site, pull, builder, signer, identity)
    reach = _Reach(site, paths, builder)
    return PullServices(
        _Releases(pull, paths, builder), agents, reach.trigger, reach.open_report, signer, builder.machine
    )


class _Releases:
    """Releases as `rackready release build` makes them, and the server that nodes fetch them from."""

    def __init__(self, pull: Pull, paths: EnvPaths, builder: Builder) -> None:
        self._pull, self._paths, self._builder = pull, paths, builder

    def built(self, nodes: Sequence[str], playbook: str) -> Mapping[str, BuiltRelease | str]:
        """Return node -> its release, which serves every playbook, or why it has none."""
        del playbook
        try:
            made = self._builder.build(nodes)
        except ReleaseError as error:
            return dict.fromkeys(nodes, str(error))
        found = {node: BuiltRelease(one.blob.sha256, one.blob.size) for node, one in made.releases.items()}
        return {node: found.get(node) or str(made.refused[node]) for node in nodes}

    def served(self, release: str) -> None:
        """Check that the address which nodes have gives this folder's release. Raises OrderingError."""
        url = f"{self._pull.url}/objects/sha256/{release}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(url, timeout=_ANSWER_S) as answer:
                found = hashlib.sha256(answer.read(1 << 26)).hexdigest()
        except (urllib.error.URLError, OSError, ValueError) as error:
            raise self._unserved(str(getattr(error, "reason", error))) from error
        if found != release:
            raise self._unserved("another content")

    def _unserved(self, actual: str) -> OrderingError:
        listen = self._pull.url.rpartition("/")[2]
        return OrderingError(
            f"pull.url {self._pull.url}",
            expected="the server of this environment's releases",
            actual=actual,
            next_step=f"Run `rackready release serve --env {self._paths.env} --listen {listen}`, then run again: "
            "nothing was ordered.",
        )

    def sealed(self, node: str, variables: Mapping[str, Any]) -> Mapping[str, str | int]:
        """Store variables that only this node can read; return hash and size."""
        return self._builder.sealed(node, variables).document()


class _Agents:
    """The agent of this code, and the role that installs it."""

    def __init__(self, site: Site, pull: Pull, builder: Builder, signer: Signer, identity: str) -> None:
        self._site, self._pull, self._builder, self._signer, self._identity = site, pull, builder, signer, identity

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the agent's files."""
        return agent_digest()

    def wanted(self, node: str) -> str:
        """Return a digest of what the role puts on a node."""
        text = json.dumps([self.digest, self._shared(), self._own(node)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def push(self, ctx: PhaseContext, nodes: Sequence[str]) -> Results:
        """Play the role."""
        own = {node: self._own(node) for node in nodes}
        return run_playbook(ctx, PLAYBOOK, list(nodes), {**self._shared(), "pull_agent_nodes": own})

    def _shared(self) -> dict[str, Any]:
        return {
            "pull_agent_url": self._pull.url,
            "pull_agent_site": self._identity,
            "pull_agent_every_min": self._pull.every_min,
            "pull_agent_trusted": public_pem(self._signer.public).decode(),
        }

    def _own(self, node: str) -> dict[str, str]:
        key = self._builder.node_key(node).hex()
        return {"machine": self._builder.machine(node), "key": key, "python": node_python(self._site, node)}


class _Reach:
    """SSH to the nodes, and what they sign with."""

    def __init__(self, site: Site, paths: EnvPaths, builder: Builder) -> None:
        self._site, self._paths, self._builder = site, paths, builder

    def trigger(self, node: str) -> Triggered:
        """Start a node's agent. Raises Interrupted."""
        remote = Remote({node: node_target(self._site, node, self._paths.known_hosts)})
        try:
            answer = remote.run(node, _TRIGGER, timeout_s=_TRIGGER_S)
        finally:
            remote.close()
        if answer.exit_code == 0:
            return Triggered()
        why = answer.failure or answer.stderr.strip() or f"no answer within {_TRIGGER_S:.0f} s"
        return Triggered(why, absent=answer.exit_code == _NO_UNIT)

    def open_report(self, node: str, data: bytes) -> PullReport:
        """Return what a node sent as its report, verified. Raises RackreadyError."""
        key = pinned(self._paths.known_hosts, node_target(self._site, node, self._paths.known_hosts).host)
        return read_report(data, node, key, self._builder.node_key(node))
