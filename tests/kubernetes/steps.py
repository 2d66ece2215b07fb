"""Offers or takes back one node as the product does, and dies at one of its requests: `steps ROOT VERB REQUEST WHEN`.

REQUEST counts the requests to the API server from 1, 0 is none; WHEN is `before` or `after` it was carried out. Verb
`offer-both` also offers node02, which has another scheduler. Verb `join` lets the node join before it is offered; there
the node's own part counts as a request, too, and WHEN may be `during`: kubeadm runs then.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rackready.design.pinned import site_of
from rackready.drivers.scheduler.kube_api import Answer, KubeApi
from rackready.handover import kube_join
from rackready.handover.production import take_out
from rackready.handover.run import offer_nodes
from rackready.model.phase import PhaseContext
from rackready.paths import EnvPaths
from tests.kubernetes.machine import Machine

NODE, SHA, REASON = "node01", "0123456789abcdef" * 4, "repair"


def dying(once: Callable[..., Any], count: Iterator[int], at: int, when: str) -> Callable[..., Any]:
    """Return how a request is sent: the one of that number kills this process, before or after it."""

    def send(api: KubeApi, request: Callable[[dict[str, Any]], Any]) -> tuple[Answer | None, str]:
        number = next(count)
        if number == at and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        found: tuple[Answer | None, str] = once(api, request)
        if number == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    return send


def joined(ctx: PhaseContext, paths: EnvPaths, count: Iterator[int], at: int, when: str) -> None:
    """Let the node join, on a machine that is a folder."""
    numbers: list[int] = []

    def around(moment: str) -> None:
        if moment == "before":
            numbers.append(next(count))
        if numbers[-1] == at and moment == when:
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(kube_join, "Remote", lambda _targets: Machine(ctx.root / "machine", around))  # noqa: B010 - another type
    found = kube_join.bring_in(ctx, site_of(ctx), paths, [NODE])
    assert found[NODE].outcome.value == "pass", found


def main(root: Path, verb: str, at: int, when: str) -> None:
    count = itertools.count(1)
    KubeApi._once = dying(KubeApi._once, count, at, when)  # type: ignore[method-assign]
    ctx, paths = PhaseContext("sim", root, "c1"), EnvPaths(root, "sim")
    if verb == "join":
        joined(ctx, paths, count, at, when)
    if verb in {"offer", "join", "offer-both"}:
        nodes = [NODE, "node02"] if verb == "offer-both" else [NODE]
        found = offer_nodes(ctx, paths, nodes, dict.fromkeys(nodes, SHA))
        assert {one.outcome.value for one in found.values()} == {"pass"}, found
    else:
        left = take_out(ctx, {NODE: REASON})
        assert left == {}, left


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])
