"""Nodes that the cluster does not know: what joins them, what is refused, and what a kill leaves to the next run."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from rackready.design.pinned import site_of
from rackready.drivers.remote import Answer
from rackready.drivers.scheduler.base import SchedulerAdapter, SchedulerError, SchedulerNode, UnknownNodeError
from rackready.handover import kube_join as handover
from rackready.handover import run
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import UNTOUCHED, NodeResult, PhaseContext
from rackready.model.state import NodeState
from rackready.ondevice import kube_join as part
from rackready.paths import EnvPaths
from tests.unit.handover.evidence import fingerprint

ROOT = Path(__file__).resolve().parents[3]
TOKEN = "abcdef.0123456789abcdef"


def authority(name: str) -> tuple[bytes, str]:
    """Return a CA (PEM) and its pin."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder(who, who, key.public_key(), 1, now, now + timedelta(days=1))
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )
    spki = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return made, f"sha256:{hashlib.sha256(spki).hexdigest()}"


OURS, PIN = authority("ours")
THEIRS, THEIR_PIN = authority("theirs")
KUBEADM = {"endpoint": "192.0.2.6:6443", "ca_hashes": [PIN]}


@dataclass
class Cluster(SchedulerAdapter):
    """A cluster with the nodes whose files lie in a folder; each holds the taint or nothing."""

    folder: Path
    drains: list[str] = field(default_factory=list)
    refuses: bool = False
    beside_others = True

    def show(self, node: str) -> SchedulerNode:
        if not (self.folder / node).exists():
            raise UnknownNodeError(node, "unknown to Kubernetes", expected="a Node", actual="none")
        held = (self.folder / node).read_text().strip() != ""
        return SchedulerNode(node, "Ready", not held, held, down=False, reason="rackready: x" if held else "")

    def drain(self, node: str, reason: str) -> bool:
        if self.refuses:
            raise SchedulerError(node, "change taint and cordon", expected="done", actual="503")
        self.drains.append(f"{node}: {reason}")
        (self.folder / node).write_text("held")
        return True

    def release(self, node: str) -> bool:
        raise AssertionError(node)

    def jobs(self, node: str) -> list[Any]:
        raise AssertionError(node)

    def close(self) -> None:
        pass


@dataclass
class Site:
    """A checkout, its cluster, and the one machine behind every node; ``requests``: what was sent to the machine."""

    ctx: PhaseContext
    cluster: Cluster
    folder: Path
    requests: list[dict[str, Any]] = field(default_factory=list)

    def bring(self, *nodes: str) -> dict[str, NodeResult]:
        site = site_of(self.ctx)
        return handover.bring_in(self.ctx, site, EnvPaths(self.ctx.root, "sim"), list(nodes))

    def text(self) -> str:
        """Bring node01, and return the error's text."""
        found = self.bring("node01")["node01"]
        assert found.outcome is Outcome.ERROR
        return found.message

    def entries(self) -> list[str]:
        with Ledger.open(EnvPaths(self.ctx.root, "sim").database) as ledger:
            return [entry.status for entry in ledger.entries("node01") if entry.operation == handover.JOIN]

    def program(self, text: str) -> None:
        """Put the machine's kubeadm there."""
        path = self.folder / "bin/kubeadm"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "$@" >>{self.folder}/argv\n{text}\n')
        path.chmod(0o755)

    def joined_to(self, pem: bytes, server: str) -> None:
        data = base64.b64encode(pem).decode()
        text = f"clusters:\n- cluster:\n    certificate-authority-data: {data}\n    server: {server}\n"
        (self.folder / "kubelet.conf").write_text(text)


Make = Callable[..., Site]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    folder = tmp_path / "machine"
    (folder / "nodes").mkdir(parents=True)
    for name, place in {"FOLDER": "run", "LOCK": "lock", "MARK": "mark", "KUBELET": "kubelet.conf"}.items():
        monkeypatch.setattr(part, name, folder / place)
    monkeypatch.setattr(part, "PLACES", f"{folder}/bin:{part.PLACES}")
    cluster = Cluster(folder / "nodes")
    (tmp_path / "token").write_text(f"{TOKEN}\n")

    def make(*, check: bool = False, **join: Any) -> Site:
        document = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
        document["handover"] = {
            "kind": "kubernetes",
            "kubeconfig": str(tmp_path / "kubeconfig"),
            "context": "prod",
            "join": {"timeout_s": 10, **join},
        }
        where = tmp_path / "inventories/sim"
        where.mkdir(parents=True, exist_ok=True)
        (where / "site.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
        made = Site(PhaseContext("sim", tmp_path, "c", check=check), cluster, folder)
        monkeypatch.setattr(handover, "Remote", lambda _targets: Machine(made))
        return made

    monkeypatch.setattr(handover, "adapter_for", lambda *_: cluster)
    monkeypatch.setattr(handover, "_POLL_S", 0.05)
    return make


@dataclass
class Machine:
    """The machine behind every node: runs its part as it is, in this process."""

    site: Site

    def run(self, _node: str, argv: Sequence[str], *, stdin: str, timeout_s: float, cleaning: bool) -> Answer:
        assert cleaning, "a stop must not cut a join"
        assert TOKEN not in " ".join(argv), "the token is in no command line"
        request = json.loads(stdin)
        assert timeout_s > 2 * request["timeout_s"]
        self.site.requests.append(request)
        return Answer(0, json.dumps({"complete": True, **part.joined(request)}), "", 0.1)

    def close(self) -> None:
        pass


def by_kubeadm(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {"kubeadm": {**KUBEADM, "token": {"file": str(tmp_path / "token")}, **more}}


def registers(folder: Path, node: str = "node01", taint: str = "held") -> str:
    return f"cp $3 {folder}/config; stat -c %a $3 >{folder}/mode; echo {taint} >{folder}/nodes/{node}"


def test_a_node_joins_by_kubeadm_once(site: Make, tmp_path: Path) -> None:
    made = site(**by_kubeadm(tmp_path))
    made.program(registers(made.folder))
    found = made.bring("node01")["node01"]
    assert (found.outcome, found.message, found.changed) == (Outcome.PASS, "node01: joined Kubernetes", True)
    config = yaml.safe_load((made.folder / "config").read_text())
    assert config["discovery"]["bootstrapToken"]["token"] == TOKEN
    assert config["nodeRegistration"] == {
        "name": "node01",
        "taints": [{"key": "rackready.io/held", "effect": "NoSchedule"}],
    }
    assert (made.folder / "mode").read_text() == "600\n"
    assert not (made.folder / "run").exists(), "the file with the token is gone"
    again = made.bring("node01")["node01"]
    assert (again.outcome, again.changed, len(made.requests)) == (Outcome.PASS, False, 1)
    assert made.entries() == ["done"]
    assert made.cluster.drains == []


def test_a_node_that_the_cluster_knows_is_not_asked(site: Make, tmp_path: Path) -> None:
    made = site(**by_kubeadm(tmp_path))
    (made.folder / "nodes/node01").write_text("")
    assert made.bring("node01")["node01"] == NodeResult(Outcome.PASS)
    assert (made.requests, made.entries(), made.cluster.drains) == ([], [], [])


def test_the_sites_own_command_gets_the_name_and_the_taint(site: Make) -> None:
    made = site(command=["site-join", "--name={node}", "{taint}"])
    (made.folder / "bin").mkdir()
    command = made.folder / "bin/site-join"
    command.write_text(f'#!/bin/sh\necho "$@" >{made.folder}/argv\necho held >{made.folder}/nodes/node01\n')
    command.chmod(0o755)
    assert made.bring("node01")["node01"].outcome is Outcome.PASS
    assert (made.folder / "argv").read_text() == "--name=node01 rackready.io/held:NoSchedule\n"


def test_a_file_of_the_site_finds_the_cluster(site: Make, tmp_path: Path) -> None:
    text = yaml.safe_dump(
        {"clusters": [{"name": "", "cluster": {"certificate-authority-data": base64.b64encode(OURS).decode()}}]}
    )
    (tmp_path / "info.conf").write_text(text)
    made = site(kubeadm={"discovery_file": str(tmp_path / "info.conf"), "token": {"file": str(tmp_path / "token")}})
    made.program(f"cp {made.folder}/run/discovery.conf {made.folder}/sent; {registers(made.folder)}")
    assert made.bring("node01")["node01"].outcome is Outcome.PASS
    assert (made.folder / "sent").read_text() == text
    config = yaml.safe_load((made.folder / "config").read_text())
    assert config["discovery"] == {
        "file": {"kubeConfigPath": f"{made.folder}/run/discovery.conf"},
        "tlsBootstrapToken": TOKEN,
    }


@pytest.mark.parametrize(
    ("text", "actual"),
    [
        ("clusters: []", "0 clusters, 0 of them with such a certificate"),
        ("clusters: [{cluster: {certificate-authority: /ca.crt}}]", "1 clusters, 0 of them with such a certificate"),
        (None, "No such file or directory"),
    ],
)
def test_a_file_that_names_no_ca_is_refused(site: Make, tmp_path: Path, text: str | None, actual: str) -> None:
    path = tmp_path / "info.conf"
    if text is not None:
        path.write_text(text)
    assert site(kubeadm={"discovery_file": str(path)}).text() == (
        f"discovery file {path} - Expected: a kubeconfig of one cluster with certificate-authority-data "
        f"Actual: {actual}. Correct handover.join.kubeadm.discovery_file."
    )


def test_a_token_that_is_not_there_or_not_one_is_refused_and_not_shown(site: Make, tmp_path: Path) -> None:
    made = site(**by_kubeadm(tmp_path))
    (tmp_path / "token").write_text("ABCDEF.secret")
    assert made.text() == (
        f"bootstrap token in file {tmp_path}/token - Expected: 6 and 16 lower-case letters or digits with a dot "
        "between, e.g. abcdef.0123456789abcdef Actual: 13 characters of another form. Run `kubeadm token create` on a "
        "control-plane node, and put there what it prints."
    )
    (tmp_path / "token").unlink()
    assert made.text() == (
        f"secret in file {tmp_path}/token - Expected: a readable file Actual: no such file. "
        "Put the secret there (mode 0600) and run again."
    )
    assert (made.requests, made.entries()) == ([], [])


@pytest.mark.parametrize("check", [False, True])
def test_a_kubelet_of_another_cluster_is_left_alone(site: Make, tmp_path: Path, *, check: bool) -> None:
    made = site(check=check, **by_kubeadm(tmp_path))
    made.joined_to(THEIRS, "https://10.0.0.9:6443")
    made.program(registers(made.folder))
    assert made.text() == (
        "node01: kubelet - Expected: joined to no cluster, or to that of context prod "
        f"Actual: joined to https://10.0.0.9:6443, CA {THEIR_PIN}. Nothing was changed. Take the node out of that "
        "cluster, run `kubeadm reset` on it, then run again."
    )
    assert not (made.folder / "argv").exists()


def test_a_kubelet_of_this_cluster_is_waited_for(site: Make, tmp_path: Path) -> None:
    made = site(**by_kubeadm(tmp_path), timeout_s=10)
    made.joined_to(OURS, "https://192.0.2.6:6443")
    late = subprocess.Popen(["sh", "-c", f"sleep 0.5; echo held >{made.folder}/nodes/node01"])
    assert made.bring("node01")["node01"].outcome is Outcome.PASS
    late.wait()
    assert not (made.folder / "argv").exists(), "kubeadm is not run twice"


def test_a_node_without_the_taint_is_held_at_once_and_not_offered_by_this_run(site: Make, tmp_path: Path) -> None:
    made = site(**by_kubeadm(tmp_path))
    made.program(registers(made.folder, taint=""))
    assert made.text() == (
        "node01: joined Kubernetes - Expected: taint rackready.io/held:NoSchedule from its registration Actual: none. "
        "It is tainted and cordoned now, and this run does not offer it: pods may have started on it. "
        "Correct handover.join.kubeadm, then run again."
    )
    assert made.cluster.drains == ["node01: joined without the taint"]
    assert made.bring("node01")["node01"].outcome is Outcome.PASS, "held, so it may be handed over"


def test_a_node_that_could_not_be_held_is_looked_at_by_the_next_run(site: Make, tmp_path: Path) -> None:
    """As after a kill between the join and the look: the intent is open, so the Node is not taken as held."""
    made = site(**by_kubeadm(tmp_path))
    made.program(registers(made.folder, taint=""))
    made.cluster.refuses = True
    assert made.text() == "node01: change taint and cordon - Expected: done Actual: 503."
    assert made.entries() == ["intent"]
    made.cluster.refuses = False
    assert made.text().startswith("node01: joined Kubernetes - Expected: taint")
    assert (made.cluster.drains, made.entries()) == (["node01: joined without the taint"], ["done"])
    assert len(made.requests) == 1, "it is not joined twice"


def test_a_failed_join_is_told_without_the_token_and_tried_again(site: Make, tmp_path: Path) -> None:
    made = site(**by_kubeadm(tmp_path))
    made.program(f"echo '[preflight] Running pre-flight checks'; echo 'error: token {TOKEN} expired' >&2; exit 1")
    assert made.text() == (
        "node01: join Kubernetes - Expected: `kubeadm join` joins it Actual: exit code 1: [preflight] Running "
        "pre-flight checks; error: token <token> expired. Correct that. If it left parts of a join on the node, "
        "`kubeadm reset` removes them: rackready does not run it. Then run again."
    )
    made.program(registers(made.folder))
    assert made.bring("node01")["node01"].outcome is Outcome.PASS
    assert made.entries() == ["failed", "done"]


def test_a_node_without_kubeadm_is_told(site: Make, tmp_path: Path) -> None:
    assert site(**by_kubeadm(tmp_path)).text() == (
        "node01: join Kubernetes - Expected: `kubeadm join` joins it Actual: kubeadm: not found. "
        "Install it: rackready installs nothing of Kubernetes."
    )


def test_a_command_after_which_no_node_registers_is_run_again(site: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made = site(command=["sh", "-c", "true {taint}"])
    steps = iter(range(0, 1000, 6))
    monkeypatch.setattr("rackready.handover.kube_join.time.monotonic", lambda: float(next(steps)))
    text = (
        "node01: joined Kubernetes - Expected: a Node node01 within 10 s Actual: none. Look at kubelet on the node: "
        "`journalctl -u kubelet`. If its Node object was deleted, restart kubelet. Then run again."
    )
    for _ in range(2):
        assert made.text() == text
    assert [request["argv"] != [] for request in made.requests] == [True, False, True, False]
    assert not (made.folder / "mark").exists()


def test_a_dry_run_joins_nothing(site: Make, tmp_path: Path) -> None:
    made = site(check=True, **by_kubeadm(tmp_path))
    made.program(registers(made.folder))
    assert made.bring("node01")["node01"] == NodeResult(Outcome.PASS, "node01: would join Kubernetes")
    assert made.requests[0]["argv"] == []
    assert (made.entries(), (made.folder / "argv").exists()) == ([], False)


def test_one_node_that_fails_stops_no_other(site: Make, tmp_path: Path) -> None:
    made = site(**by_kubeadm(tmp_path))
    made.program(f"grep -q 'name: node02' $3 && exit 1; {registers(made.folder)}")
    found = made.bring("node01", "node02")
    assert {node: result.outcome for node, result in found.items()} == {
        "node01": Outcome.PASS,
        "node02": Outcome.ERROR,
    }


def test_an_answer_that_is_none_leaves_the_intent(site: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = site(**by_kubeadm(tmp_path))
    monkeypatch.setattr(Machine, "run", lambda *_, **__: Answer(None, "", "", 1.0, failure="the connection was lost"))
    assert made.text() == (
        "node01: join Kubernetes - Expected: an answer of the node Actual: the connection was lost. Whether it joined "
        "is not known. Run again: it is looked at first."
    )
    assert made.entries() == ["intent"]


def test_a_node_outside_the_cluster_needs_no_drain(site: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = site(**by_kubeadm(tmp_path))
    monkeypatch.setattr(run, "adapter_for", lambda *_: made.cluster)
    found = run.drain_nodes(made.ctx, ["node01"], {"node01": "quarantined: x"})
    assert found["node01"] == NodeResult(Outcome.PASS, "node01: not in Kubernetes, so no pod can start on it")
    dry = site(check=True, **by_kubeadm(tmp_path))
    offered = run.offer_nodes(dry.ctx, EnvPaths(tmp_path, "sim"), ["node01"], {"node01": "d"})
    assert offered["node01"].message == "node01: would join Kubernetes and be released"


def test_a_node_in_production_stays_there_when_the_api_server_is_away_before_the_join(
    site: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = site(**by_kubeadm(tmp_path))
    (made.cluster.folder / "node01").write_text("")
    with Ledger.open(EnvPaths(made.ctx.root, "sim").database) as ledger:
        ledger.set_state("node01", NodeState.READY)

    def away(*_: object) -> SchedulerNode:
        raise SchedulerError("Kubernetes context prod", expected="an answer within 1 s", actual="none")

    monkeypatch.setattr(Cluster, "show", away)
    found = run._join(made.ctx, site_of(made.ctx), {"node01": fingerprint(), "node02": fingerprint()})
    text = "Kubernetes context prod - Expected: an answer within 1 s Actual: none."
    assert found == {
        "node01": NodeResult(Outcome.ERROR, text, data={UNTOUCHED: True}, touched=False),
        "node02": NodeResult(Outcome.ERROR, text, touched=False),
    }


def test_a_join_that_happened_before_a_kill_needs_no_token_any_more(site: Make, tmp_path: Path) -> None:
    made = site(**by_kubeadm(tmp_path))
    made.program(f"{registers(made.folder)}; exit 3")
    assert made.bring("node01")["node01"].outcome is Outcome.ERROR
    assert made.entries()[-1] == "intent"
    (tmp_path / "token").unlink()
    assert made.bring("node01")["node01"].outcome is Outcome.PASS


def test_kubeadm_gives_up_and_tells_why_before_its_limit(site: Make, tmp_path: Path) -> None:
    made = site(**by_kubeadm(tmp_path), timeout_s=100)
    made.program(registers(made.folder))
    made.bring("node01")
    config = yaml.safe_load((made.folder / "config").read_text())
    assert config["timeouts"] == {"discovery": "20s", "tlsBootstrap": "40s", "kubeletHealthCheck": "20s"}


def test_a_kubelet_that_cannot_be_compared_is_not_told_to_be_reset(site: Make) -> None:
    made = site(command=["join", "{taint}"])
    made.joined_to(THEIRS, "https://10.0.0.9:6443")
    assert made.text() == (
        "node01: kubelet - Expected: joined to no cluster, or to that of context prod Actual: joined to "
        "https://10.0.0.9:6443; the kubeconfig names no CA to compare. Nothing was changed. Name the cluster's own CA "
        "in the kubeconfig, then run again."
    )
