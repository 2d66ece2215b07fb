"""Nodes that carry out orders: the agent's own verification, host keys of OpenSSH, and a play of the test's choice."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from rackready import files
from rackready.campaign.drained_phase import Results
from rackready.campaign.proof import Played
from rackready.campaign.pull.run import pulled
from rackready.campaign.pull.service_interfaces import BuiltRelease, OrderingError, PullServices, Triggered
from rackready.design.pinned import site_of
from rackready.drivers.release import sealing
from rackready.drivers.release_report import PullReport, read_report
from rackready.drivers.ssh.pins import pin
from rackready.drivers.ssh.target import node_target
from rackready.handover.dsse import public_pem
from rackready.handover.keys import keys_of
from rackready.ledger.store import Ledger, LedgerEntry
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.pull import Pull
from rackready.ondevice.pull.order import checked, guess, opened
from rackready.ondevice.pull.places import Config, Places, read_state, write_state
from rackready.ondevice.pull.problem import PullProblem
from rackready.ondevice.pull.report import agent_digest, store
from rackready.paths import EnvPaths

ROOT = Path(__file__).resolve().parents[3]
OPERATION = "install:install.yml"
AGENT = agent_digest()
NODES = ["node01", "node02"]
PULL = Pull(url="http://192.0.2.1:8480")

Lines = Callable[[str, str], list[dict[str, Any]]]
"""Node and mode -> the events of its play."""


class Killed(BaseException):
    """The controller is gone: no clean-up of it runs."""


def played(node: str, *, changed: int = 0, failed: int = 0) -> list[dict[str, Any]]:
    """Return the events of a play."""
    counts = {"ok": {node: 5}, "changed": {node: changed}, "failures": {node: failed}, "processed": {node: 1}}
    events: list[dict[str, Any]] = [{"event": "runner_on_start", "host": node, "role": "base", "task": "limits"}]
    if changed:
        events.append(
            {"event": "runner_on_ok", "host": node, "role": "base", "task": "limits", "res": {"changed": True}}
        )
    if failed:
        res = {"msg": "no room for the driver"}
        events.append({"event": "runner_on_failed", "host": node, "role": "driver", "task": "install", "res": res})
    return [*events, {"event": "playbook_on_stats", **counts}]


@dataclass
class Node:
    """One node. ``spoil``: what it does to its report before it is signed; ``sent``: after that."""

    name: str
    places: Places
    rack: Rack
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    spoil: Callable[[dict[str, Any]], None] = lambda _report: None
    sent: Callable[[bytes], bytes] = lambda body: body
    carried_out: list[tuple[int, str]] = field(default_factory=list)
    told: int = 0
    host_key: str = ""

    def __post_init__(self) -> None:
        self.places.make()
        self.places.host_keys.mkdir()
        argv = [
            "ssh-keygen",
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-f",
            str(self.places.host_keys / "ssh_host_ed25519_key"),
        ]
        subprocess.run(argv, check=True)
        text = (self.places.host_keys / "ssh_host_ed25519_key.pub").read_text()
        self.host_key = " ".join(text.split()[:2])
        """As the controller pinned it."""

    @property
    def machine(self) -> str:
        digest = hashlib.sha256(base64.b64decode(self.host_key.split()[1])).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    def config(self) -> Config:
        return Config(PULL.url, self.name, self.rack.identity, self.machine)

    def wake(self) -> None:
        """Look for an order and carry it out, as the agent does."""
        self.told += 1
        if not self.rack.deaf:
            thread = threading.Thread(target=self._work)
            self.rack.threads.append(thread)
            thread.start()

    def _work(self) -> None:
        envelope = (self.rack.paths.state / "release/orders" / f"{self.name}.json").read_bytes()
        config, began = self.config(), time.time()
        state = read_state(self.places, config.site)
        claimed = guess(envelope)
        sequence, mode = claimed.sequence, claimed.mode
        mode = "check" if state.get("sequence") == sequence and state.get("state") == "done" else mode
        report = {"version": 1, "site": config.site, "node": self.name, "sequence": sequence, "release": ""}
        report |= {
            "mode": mode,
            "phase": claimed.phase,
            "agent": AGENT,
            "began": began,
            "exit_code": -1,
            "timed_out": False,
        }
        report |= {"sealed": "", "failure": None}
        try:
            order = checked(opened(envelope, self.places, config), config, state, began)
            report["release"] = order.release
            kept = {"site": config.site, "sequence": order.sequence, "mode": order.mode, "release": order.release}
            write_state(self.places, **kept, state="done")
            self.carried_out.append((sequence, mode))
            report |= {"exit_code": 0, "sealed": self._sealed(sequence, mode)}
        except PullProblem as problem:
            report["failure"] = problem.document()
        self.send(report)

    def compare(self, sequence: int) -> None:
        """Report a check of an order that stands, as the timer does."""
        now, site = time.time(), self.rack.identity
        report = {"version": 1, "site": site, "node": self.name, "sequence": sequence, "release": self.rack.release}
        report |= {"mode": "check", "phase": "install", "agent": AGENT, "began": now, "exit_code": 0}
        self.send(report | {"timed_out": False, "sealed": self._sealed(sequence, "check"), "failure": None})

    def _sealed(self, sequence: int, mode: str) -> str:
        lines = [json.dumps(event) for event in self.rack.lines(self.name, mode)]
        packed = gzip.compress(json.dumps({"lines": lines, "steps": ["canary-of-an-argument"]}).encode())
        nonce, about = secrets.token_bytes(12), f"rackready-report|{self.name}|{sequence}|{mode}".encode()
        return base64.b64encode(nonce + AESGCM(self.key).encrypt(nonce, packed, about)).decode()

    def send(self, report: dict[str, Any]) -> None:
        """Sign a report, and put it where `rackready release serve` does."""
        name = f"{report['sequence']}-{report['mode']}.json"
        report["ended"] = time.time()
        self.spoil(report)
        store(self.places, self.places.host_keys / "ssh_host_ed25519_key", report, final=True)
        (written,) = self.places.outbox.glob("*.json")
        body = json.dumps(json.loads(written.read_bytes())["body"]).encode()
        written.unlink()
        folder = self.rack.paths.node_reports / self.name
        folder.mkdir(parents=True, exist_ok=True)
        files.replace(folder / name, self.sent(body))


@dataclass
class Rack:
    """Two nodes, and the parts that the controller uses for them."""

    ctx: PhaseContext
    folder: Path
    lines: Lines = lambda node, _mode: played(node)
    release: str = "a" * 64
    deaf: bool = False
    """Nodes that are told to work and do not."""
    digest: str = AGENT
    pushed: list[str] = field(default_factory=list)
    unbuilt: dict[str, str] = field(default_factory=dict)
    away: dict[str, str] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    unserved: str = ""
    at_trigger: Callable[[str], None] = lambda _node: None
    threads: list[threading.Thread] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    identity: str = ""

    def __post_init__(self) -> None:
        site = site_of(self.ctx)
        with Ledger.open(self.paths.database) as ledger:
            self.identity = ledger.identity()
        self.signer = keys_of(site, self.paths).signer()
        for name in NODES:
            top = self.folder / name
            places = Places(top / "etc", top / "state", top / "run", top / "ssh")
            places.etc.mkdir(parents=True)
            places.trusted.write_bytes(public_pem(self.signer.public))
            self.nodes[name] = Node(name, places, self)

    @property
    def paths(self) -> EnvPaths:
        return EnvPaths(self.ctx.root, self.ctx.env)

    # the parts ---------------------------------------------------------------------------------------------------

    def built(self, nodes: Sequence[str], playbook: str) -> Mapping[str, BuiltRelease | str]:
        assert playbook == "install.yml"
        return {node: self.unbuilt.get(node) or BuiltRelease(self.release, 100) for node in nodes}

    def served(self, release: str) -> None:
        assert release == self.release
        if self.unserved:
            raise OrderingError(self.unserved)

    def sealed(self, node: str, variables: Mapping[str, Any]) -> Mapping[str, str | int]:
        text = json.dumps({"node": node, **variables}, sort_keys=True).encode()
        return {"sha256": hashlib.sha256(text).hexdigest(), "size": len(text)}

    def wanted(self, node: str) -> str:
        return f"agent of {node}"

    def push(self, ctx: PhaseContext, nodes: Sequence[str]) -> Results:
        assert not ctx.check
        self.pushed += nodes
        self.absent -= set(nodes)
        return {node: NodeResult(Outcome.PASS) for node in nodes}

    def trigger(self, node: str) -> Triggered:
        self.at_trigger(node)
        if node in self.absent:
            return Triggered("no such unit", absent=True)
        if node in self.away:
            return Triggered(self.away[node])
        self.nodes[node].wake()
        return Triggered()

    def open_report(self, node: str, data: bytes) -> PullReport:
        return read_report(data, node, self.nodes[node].host_key, self.nodes[node].key)

    def parts(self) -> PullServices:
        return PullServices(
            self, self, self.trigger, self.open_report, self.signer, lambda node: self.nodes[node].machine
        )

    # a run -------------------------------------------------------------------------------------------------------

    def run(self, nodes: list[str] | None = None, *, check: bool = False, drained_dry: bool = False) -> Results:
        """Run the phase. ``drained_dry``: the dry run before a drain, which nobody asked for."""
        ctx = replace(self.ctx, check=check)
        own = replace(ctx, check=check or drained_dry)
        work = Played("install.yml", lambda nodes: {"rackready_tuned": nodes})
        try:
            return pulled(ctx, PULL, "install", work, self.parts())(own, nodes or ["node01"])
        finally:
            for thread in self.threads:
                thread.join()

    def entries(self, node: str = "node01") -> list[LedgerEntry]:
        with Ledger.open(self.paths.database) as ledger:
            return ledger.entries(node)

    def installs(self, node: str = "node01") -> list[str]:
        """Return the status of every install on record."""
        return [entry.status for entry in self.entries(node) if entry.operation == OPERATION]

    def events(self) -> list[str]:
        with Ledger.open(self.paths.database) as ledger:
            return [f"{row.node}: {row.text}" for row in ledger.events("c1")]


def with_keys(root: Path) -> Rack:
    """Return two nodes of the simulated rack's site below ``root``, with keys as the controller makes them."""
    (root / "inventories/sim").mkdir(parents=True)
    (root / "inventories/sim/site.yml").write_bytes((ROOT / "inventories/sim/site.yml").read_bytes())
    made = Rack(PhaseContext("sim", root, "c1"), root / "nodes")
    for name, node in made.nodes.items():
        host = node_target(site_of(made.ctx), name, made.paths.known_hosts).host
        pin(made.paths.known_hosts, host, node.host_key)
        node.key = sealing.node_key(sealing.master_key(made.paths), name, node.machine)
    return made
