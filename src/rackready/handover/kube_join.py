"""Nodes that a Kubernetes cluster does not know join it, held by our taint from their registration.

The order is fixed by what a kill may leave. The ledger has the intent first; a Node object means that the join
happened; and the intent ends only when the node was seen held. So a node that was joined and never looked at is looked
at by the next run.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from rackready import printed_json
from rackready.design.secrets import reveal
from rackready.drivers.process import STOP, check_stop
from rackready.drivers.remote import Remote
from rackready.drivers.scheduler.base import SchedulerAdapter, SchedulerError, SchedulerNode, UnknownNodeError
from rackready.drivers.scheduler.kube_authority import discovery, pins_of, pins_of_kubeconfig
from rackready.drivers.scheduler.registry import adapter_for
from rackready.drivers.ssh.target import node_target
from rackready.format_error import FormatError
from rackready.ledger.effect import Observation, run_effect
from rackready.ledger.store import Ledger
from rackready.model.kube_join import KubeadmJoin, KubernetesJoin
from rackready.model.kubernetes import KubernetesHandover
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.ondevice import kube_join
from rackready.paths import EnvPaths
from rackready.render.kube_join import join_configuration

JOIN = "kubernetes-join"
"""Operation in the ledger."""
_CONFIGURATION, _DISCOVERY = "join.yaml", "discovery.conf"
_KUBEADM = ("kubeadm", "join", "--config", f"{{folder}}/{_CONFIGURATION}")
_TOKEN = re.compile(r"[a-z0-9]{6}\.[a-z0-9]{16}")
"""BootstrapTokenPattern of k8s.io/cluster-bootstrap/token/api 0.35.0."""
_AT_ONCE = 32
_MORE_S = 30.0
"""Seconds that a join takes on a node beside its command: login, Python. Our judgement."""
_POLL_S = 1.0
_LINES = 6
"""Last lines of a failed join that a message quotes: kubeadm tells its errors last."""


@dataclass(frozen=True, slots=True)
class JoinWay:
    """How nodes join. ``token`` is secret, also within ``discovery``; ``pins``: CAs of the cluster."""

    handover: KubernetesHandover
    join: KubernetesJoin
    pins: frozenset[str]
    token: str = field(default="", repr=False)
    discovery: str = field(default="", repr=False)

    def request(self, node: str) -> dict[str, Any]:
        """Return what the node's part is to do. It holds the token."""
        name = self.handover.node_name(node)
        wanted: dict[str, Any] = {"files": {}, "argv": self.join.words(name, self.handover.taint), "mark": ""}
        if self.join.kubeadm is None:
            wanted["mark"] = hashlib.sha256(json.dumps(wanted["argv"]).encode()).hexdigest()
        else:
            place = f"{kube_join.FOLDER}/{_DISCOVERY}"
            text = join_configuration(
                self.join.kubeadm, name, self.handover.held, self.token, place, self.join.timeout_s
            )
            wanted["argv"], wanted["files"] = list(_KUBEADM), {_CONFIGURATION: text}
            if self.discovery:
                wanted["files"][_DISCOVERY] = self.discovery
        return {**wanted, "timeout_s": self.join.timeout_s}

    def shown(self, text: str) -> str:
        """Return the end of a command's output on one line, without the token."""
        lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
        end = "; ".join(lines[-_LINES:]) or "it printed nothing"
        secret = self.token.rpartition(".")[2]
        return end.replace(self.token, "<token>").replace(secret, "<token>") if secret else end


def way_of(handover: KubernetesHandover, join: KubernetesJoin, *, secret: bool = True) -> JoinWay:
    """Return how nodes join; without ``secret``, what only looks. Raises SchedulerError, SecretUnreadableError."""
    if join.kubeadm is None:
        return JoinWay(handover, join, pins_of_kubeconfig(handover.kubeconfig, handover.context))
    token = _token(join.kubeadm) if secret else ""
    if join.kubeadm.discovery_file is None:
        return JoinWay(handover, join, frozenset(join.kubeadm.ca_hashes), token)
    text, pins = discovery(join.kubeadm.discovery_file)
    return JoinWay(handover, join, pins, token, text)


def _token(kubeadm: KubeadmJoin) -> str:
    """Return the bootstrap token, "" for none. It is in no message."""
    if kubeadm.token is None:
        return ""
    token = reveal(kubeadm.token).strip()
    if _TOKEN.fullmatch(token) is None:
        raise SchedulerError(
            f"bootstrap token in {kubeadm.token}",
            expected="6 and 16 lower-case letters or digits with a dot between, e.g. abcdef.0123456789abcdef",
            actual=f"{len(token)} characters of another form",
            next_step="Run `kubeadm token create` on a control-plane node, and put there what it prints.",
        )
    return token


def bring_in(ctx: PhaseContext, site: Site, paths: EnvPaths, nodes: list[str]) -> dict[str, NodeResult]:
    """Let those of the nodes that the cluster does not know join it, and return a result per node.

    A dry run joins nothing: it only looks whether kubelet has joined another cluster.
    """
    handover = site.handover
    if not nodes or not isinstance(handover, KubernetesHandover) or handover.join is None:
        return {node: NodeResult(Outcome.PASS) for node in nodes}
    remote = Remote({node: node_target(site, node, paths.known_hosts) for node in nodes})
    try:
        with Ledger.open(paths.database) as ledger, adapter_for(site, paths) as adapter:
            joining = Joining(handover, handover.join, remote, adapter, ledger, check=ctx.check)
            with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(nodes)), thread_name_prefix="join") as pool:
                return dict(zip(nodes, pool.map(joining.guarded, nodes), strict=True))
    except RackreadyError as error:
        return dict.fromkeys(nodes, NodeResult(Outcome.ERROR, str(error), touched=False))
    finally:
        remote.close()


@dataclass(slots=True)
class Joining:
    """Joins nodes to one cluster."""

    handover: KubernetesHandover
    join: KubernetesJoin
    remote: Remote
    adapter: SchedulerAdapter
    ledger: Ledger
    check: bool = False

    def guarded(self, node: str) -> NodeResult:
        """Let one node join, and return its result; an error of one node stops no other."""
        check_stop()
        try:
            known = self._registered(node) is not None
        except RackreadyError as error:
            return NodeResult(Outcome.ERROR, str(error), touched=False)
        try:
            return self.one(node, known=known)
        except RackreadyError as error:
            return NodeResult(Outcome.ERROR, str(error))

    def one(self, node: str, *, known: bool) -> NodeResult:
        """Let one node join unless the cluster knows it. Raises RackreadyError."""
        desired = hashlib.sha256(f"{self.handover.context} {self.handover.node_name(node)}".encode()).hexdigest()
        last = self.ledger.latest(node, JOIN, desired)
        cut = last is not None and last.status == "intent"
        if known and (self.check or not cut):
            return NodeResult(Outcome.PASS)
        if self.check:
            way = way_of(self.handover, self.join, secret=False)
            self._joined(way, node, {**way.request(node), "argv": []})
            return NodeResult(Outcome.PASS, f"{node}: would join Kubernetes")
        # A join that was cut may have happened, and then its token is not needed any more.
        ready = None if cut else way_of(self.handover, self.join)
        bare: list[str] = []

        def observe(_stored: dict[str, Any]) -> Observation:
            if self._registered(node) is None:
                return Observation.NOT_HAPPENED
            bare.extend(self._held(node))
            return Observation.HAPPENED

        def act(_token: int) -> dict[str, Any]:
            way = ready or way_of(self.handover, self.join)
            self._joined(way, node, way.request(node))
            self._wait(way, node)
            bare.extend(self._held(node))
            return {"held": not bare}

        run_effect(self.ledger, node, JOIN, desired, before=dict, observe=observe, act=act)
        if bare:
            raise self._not_held(node)
        return NodeResult(Outcome.PASS, f"{node}: joined Kubernetes", changed=True, data=_changes(node))

    def _registered(self, node: str) -> SchedulerNode | None:
        """Return the node's state in the cluster, None where it has no Node object."""
        try:
            return self.adapter.show(node)
        except UnknownNodeError:
            return None

    def _held(self, node: str) -> list[str]:
        """Hold a node that joined without our taint, and return it."""
        now = self.adapter.show(node)
        if now.drained and now.ours:
            return []
        self.adapter.drain(node, "joined without the taint")
        return [node]

    def _not_held(self, node: str) -> SchedulerError:
        setting = "handover.join.kubeadm" if self.join.kubeadm is not None else "handover.join.command"
        return SchedulerError(
            node,
            "joined Kubernetes",
            expected=f"taint {self.handover.taint} from its registration",
            actual="none",
            next_step="It is tainted and cordoned now, and this run does not offer it: pods may have started on it. "
            f"Correct {setting}, then run again.",
        )

    def _joined(self, way: JoinWay, node: str, request: Mapping[str, Any]) -> None:
        """Let the node run its part, and return once the command ended well. Raises SchedulerError."""
        found = self._ask(node, request)
        state = found["state"]
        if state == "joined":
            self._same_cluster(way, node, found)
        elif state not in {"marked", "absent"} and (state, found.get("exit_code")) != ("ended", 0):
            raise self._failed(way, node, request, found)

    def _ask(self, node: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of the node's part. A stop waits for its end: a cut join leaves a node half joined."""
        argv = ["python3", "-c", inspect.getsource(kube_join)]
        limit_s = 2 * self.join.timeout_s + _MORE_S
        answer = self.remote.run(node, argv, stdin=json.dumps(request), timeout_s=limit_s, cleaning=True)
        actual = answer.failure or " ".join(answer.stderr.split())[-200:] or f"exit code {answer.exit_code}"
        try:
            found = printed_json.load(answer.stdout) if answer.exit_code == 0 else None
        except FormatError as error:
            found, actual = None, str(error)
        if not isinstance(found, dict) or found.get("complete") is not True:
            raise SchedulerError(
                node,
                "join Kubernetes",
                expected="an answer of the node",
                actual="the time limit" if answer.timed_out else actual,
                next_step="Whether it joined is not known. Run again: it is looked at first.",
            )
        return found

    def _same_cluster(self, way: JoinWay, node: str, found: Mapping[str, Any]) -> None:
        """Raise SchedulerError unless kubelet's CA is one of the cluster's."""
        theirs = pins_of(str(found.get("authority", "")).encode())
        if theirs & way.pins:
            return
        if not way.pins:
            raise SchedulerError(
                node,
                "kubelet",
                expected=f"joined to no cluster, or to that of context {self.handover.context}",
                actual=f"joined to {found.get('server') or 'a cluster without an address'}; the kubeconfig names no CA "
                "to compare",
                next_step="Nothing was changed. Name the cluster's own CA in the kubeconfig, then run again.",
            )
        proxied = "If the kubeconfig names the CA of a proxy of that very cluster, name the cluster's own CA there. "
        raise SchedulerError(
            node,
            "kubelet",
            expected=f"joined to no cluster, or to that of context {self.handover.context}",
            actual=f"joined to {found.get('server') or 'a cluster without an address'}, CA "
            f"{', '.join(sorted(theirs)) or 'unreadable'}",
            next_step=f"Nothing was changed. {proxied if self.join.kubeadm is None else ''}"
            "Take the node out of that cluster, run `kubeadm reset` on it, then run again.",
        )

    def _failed(self, way: JoinWay, node: str, request: Mapping[str, Any], found: Mapping[str, Any]) -> SchedulerError:
        command = " ".join(request["argv"][:2])
        actual, step = {
            "missing": (way.shown(str(found.get("said"))), "Install it: rackready installs nothing of Kubernetes."),
            "busy": ("another join still runs on it", "Wait for its end, then run again."),
            "timeout": (
                f"still running after {self.join.timeout_s} s, and ended: {way.shown(str(found.get('said')))}",
                _MEND,
            ),
        }.get(str(found["state"]), (f"exit code {found.get('exit_code')}: {way.shown(str(found.get('said')))}", _MEND))
        return SchedulerError(node, "join Kubernetes", expected=f"`{command}` joins it", actual=actual, next_step=step)

    def _wait(self, way: JoinWay, node: str) -> None:
        """Wait until the node has registered. Raises SchedulerError at the limit."""
        deadline = time.monotonic() + self.join.timeout_s
        while self._registered(node) is None:
            if time.monotonic() > deadline:
                self._ask(node, {**way.request(node), "argv": [], "forget": True})
                raise SchedulerError(
                    node,
                    "joined Kubernetes",
                    expected=f"a Node {self.handover.node_name(node)} within {self.join.timeout_s} s",
                    actual="none",
                    next_step="Look at kubelet on the node: `journalctl -u kubelet`. If its Node object was deleted, "
                    "restart kubelet. Then run again.",
                )
            STOP.wait(_POLL_S)
            check_stop()


_MEND = (
    "Correct that. If it left parts of a join on the node, `kubeadm reset` removes them: rackready does not run it. "
    "Then run again."
)


def _changes(node: str) -> dict[str, Any]:
    return {"changes": [f"{node} joined Kubernetes"]}
