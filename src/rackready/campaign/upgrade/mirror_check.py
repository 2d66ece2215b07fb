"""Whether the nodes' repositories offer both sets, the new one and the way back, before a wave begins."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from functools import cache

from rackready.campaign.upgrade.changes import NodeChanges
from rackready.drivers.remote import Remote
from rackready.drivers.ssh.target import node_target
from rackready.model.problems import Message, quoted
from rackready.model.site import Site
from rackready.ondevice import offered
from rackready.paths import EnvPaths

_TIMEOUT_S = 300.0
_SHOWN = 3


class Repositories:
    """What nodes are offered. One node is asked for all nodes with the same changes: they have the same sources."""

    def __init__(self, site: Site, paths: EnvPaths) -> None:
        self._site, self._paths = site, paths

    def problems(self, wave: Sequence[str], changes: Mapping[str, NodeChanges]) -> list[Message]:
        """Return what no repository offers, of the new set and of the former one."""
        out: list[Message] = []
        seen: list[NodeChanges] = []
        for node in wave:
            if changes[node] in seen:
                continue
            seen.append(changes[node])
            out += self._of(node, changes[node])
        return out

    def _of(self, node: str, change: NodeChanges) -> list[Message]:
        names = sorted({spec.partition("=")[0] for spec in (*change.wanted, *change.former)})
        remote = Remote({node: node_target(self._site, node, self._paths.known_hosts)})
        try:
            answer = remote.run(node, ("python3", "-", *names), stdin=_script(), timeout_s=_TIMEOUT_S)
        finally:
            remote.close()
        if answer.failure or answer.timed_out or answer.exit_code != 0:
            actual = answer.failure or answer.stderr.strip() or f"no answer within {_TIMEOUT_S:.0f} s"
            return [_unread(node, actual)]
        return judged(node, answer.stdout, change)


def judged(node: str, text: str, change: NodeChanges) -> list[Message]:
    """Return what a node's answer lacks."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("format") != offered.FORMAT:
        return [_unread(node, "no document about its repositories")]
    if found["problem"]:
        return [_unread(node, found["problem"])]
    have = set(found["offered"])
    out = []
    for what, specs in (("packages of the new set", change.wanted), ("packages of the way back", change.former)):
        lacking = [spec for spec in specs if spec not in have]
        if lacking:
            more = f" and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
            step = "Put both sets into the mirror (`rackready mirror`), then run again. Nothing was changed."
            actual = f"no {', '.join(lacking[:_SHOWN])}{more}"
            out.append(Message(node, what, "offered by its repositories", actual, step))
    return out


def _unread(node: str, actual: str) -> Message:
    step = "Correct that, or leave the node out with --limit. Nothing was changed."
    return Message(node, "packages that its repositories offer", "read from the node", quoted(actual), step)


@cache
def _script() -> str:
    return inspect.getsource(offered)
