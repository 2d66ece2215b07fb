"""Tickets: from a drained fault to a file, a webhook, and their end; a kill in any step repeats nothing."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from jsonschema import validate

from rackready.drivers.remote import Answer
from rackready.evidence.raw_outputs import RawOutputs
from rackready.model.base import SecretRef
from rackready.model.problems import RackreadyError
from rackready.model.state import NodeState
from rackready.model.ticket import Ticket
from rackready.model.watch import TicketWebhook
from rackready.watch.fault_evidence import COMMANDS, Prover
from rackready.watch.follow_up import FollowUp
from rackready.watch.store import Seen, Step
from rackready.watch.tickets import TicketDesk, folder
from rackready.watch.webhook import SIGNATURE, Outbox, Refusal, post
from tests.unit.watch.world import World


def answer(node: str, argv: tuple[str, ...]) -> Answer:
    if argv[0] == "nvidia-smi" and argv[1] == "nvlink":
        return Answer(None, "", "", 0.0, failure=f"{node}: no answer")
    return Answer(0, f"output of {' '.join(argv)}", "", 0.0)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def desk(world: World, webhook: TicketWebhook | None = None, clock: Clock | None = None) -> FollowUp:
    tickets = TicketDesk(world.site, world.paths, world.store, world.evidence)
    outbox = Outbox(webhook, world.store, tickets, world.tell, clock or Clock())
    return FollowUp(world.store, Prover(world.site, world.paths, world.evidence, answer), tickets, outbox, world.tell)


def only(world: World) -> Ticket:
    (path,) = folder(world.paths).glob("*.json")
    return Ticket.model_validate_json(path.read_text(encoding="utf-8"))


def test_a_drained_fault_gets_a_ticket_with_part_slot_drain_and_evidence(world: World) -> None:
    world.see("node03")
    world.actor().act()
    desk(world).work()
    ticket = only(world)
    assert (ticket.id, ticket.status, ticket.node.name, ticket.node.rack) == (
        "T00001-node03",
        "open",
        "node03",
        "rack01",
    )
    assert (ticket.part.name, ticket.part.slot, ticket.part.model) == ("gpu4", "0000:9d:00", "h100_sxm")
    assert (ticket.finding.condition, ticket.finding.action) == ("GpuXidRestartBm", "RESTART_BM")
    assert "`rackready validate --limit node03`" in ticket.finding.next_step
    assert (ticket.drain.by, ticket.drain.reason) == ("watch", "rackready: GpuXidRestartBm: node03 gpu4: Xid 79")
    assert [one.command for one in ticket.evidence] == [" ".join(argv) for argv in COMMANDS]
    assert RawOutputs(world.ledger, world.paths.raw).get(ticket.evidence[0].sha256).startswith("output of journalctl")
    assert (ticket.evidence[2].sha256, ticket.evidence[2].problem) == ("", "node03: no answer")
    assert ("ticket", "node03", "ticket T00001-node03: GpuXidRestartBm on gpu4") in world.events


def test_a_program_that_hangs_is_asked_once_for_evidence(world: World) -> None:
    asked: list[str] = []

    def hangs(_node: str, argv: tuple[str, ...]) -> Answer:
        asked.append(" ".join(argv))
        return Answer(0, "x", "", 0.0) if argv[0] == "journalctl" else Answer(None, "", "", 60.0, failure="late")

    found = Prover(world.site, world.paths, world.evidence, hangs).collect("node03")
    assert asked == [" ".join(argv) for argv in COMMANDS[:2]]
    assert [one["problem"] for one in found] == ["", "late", "not run: `nvidia-smi -q -x` gave no answer"]


def test_a_ticket_follows_its_schema(world: World) -> None:
    world.see("node03")
    world.actor().act()
    desk(world).work()
    (path,) = folder(world.paths).glob("*.json")
    validate(json.loads(path.read_text(encoding="utf-8")), Ticket.model_json_schema(by_alias=True))
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_only_recorded_gets_no_ticket(world: World) -> None:
    world.see("node03", "GpuXidRestartApp", act="record")
    world.actor().act()
    desk(world).work()
    assert not folder(world.paths).exists()


def test_a_ticket_says_whose_drain_it_is(world: World) -> None:
    world.scheduler.reasons["node03"] = "bob: disk swap"
    world.see("node03")
    world.actor().act()
    desk(world).work()
    assert (only(world).drain.by, only(world).drain.reason) == ("other", "drained by root: bob: disk swap")


@pytest.mark.parametrize("step", [Step.DRAINED, Step.PROVEN])
def test_a_kill_between_two_steps_repeats_no_ticket(world: World, step: Step) -> None:
    world.see("node03")
    world.actor().act()
    first = desk(world)
    if step is Step.PROVEN:
        world.store.put(1, step=step.value, detail={**world.store.faults()[0].detail, "evidence": []})
    first.work()
    world.store.put(1, step=step.value, ticket="")  # killed after the file, before the record
    desk(world).work()
    only(world)
    assert world.steps() == {"node03 gpu4": "ticketed"}


# the end ---------------------------------------------------------------------------------------------------------


def opened(world: World) -> FollowUp:
    world.see("node03")
    world.actor().act()
    made = desk(world)
    made.work()
    return made


def repaired(world: World, reason: str = "repaired: GPU swapped") -> None:
    world.ledger.raise_epoch("node03", reason)
    world.ledger.set_state("node03", NodeState.REACHABLE, reason)


def test_a_repaired_and_measured_node_closes_its_ticket(world: World) -> None:
    made = opened(world)
    made.follow()
    assert only(world).status == "open", "nothing was repaired yet"
    repaired(world)
    made.follow()
    assert only(world).status == "repaired"
    assert only(world).history[0].endswith(" reachable: repaired: GPU swapped")
    made.follow()
    assert len(only(world).history) == 1, "each state once"
    world.ledger.set_state("node03", NodeState.READY)
    made.follow()
    ticket = only(world)
    assert ticket.status == "closed"
    assert ticket.closed is not None
    assert (ticket.closed.by, ticket.closed.reason) == (
        "validation",
        "the node passed its gates and is in production",
    )


def test_a_repair_that_did_not_help_opens_the_ticket_again_with_the_finding(world: World) -> None:
    made = opened(world)
    repaired(world)
    made.follow()
    world.ledger.set_state("node03", NodeState.QUARANTINED, "node03 gpu4: Xid 79 again")
    made.follow()
    assert only(world).status == "open"
    assert only(world).history[-1].endswith(" quarantined: node03 gpu4: Xid 79 again")


def test_after_a_repair_the_same_fault_is_a_new_one(world: World) -> None:
    made = opened(world)
    repaired(world)
    world.ready("node03")
    made.follow()
    world.scheduler.reasons.clear()
    world.store.put(1, drained_at=world.now - 7200)
    world.store.record([], {})
    world.store.record([Seen("node03", "GpuXidRestartBm", "gpu4", "Xid 79", "drain", at=world.now)], {"node03": 2})
    world.actor().act()
    made.work()
    assert [one.ticket for one in world.store.faults()] == ["closed", "open"]
    assert len(list(folder(world.paths).glob("*.json"))) == 2


def test_a_kill_before_the_record_of_a_change_loses_no_change(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = opened(world)
    repaired(world)
    world.ledger.set_state("node03", NodeState.READY)

    def killed(*_args: object, **_values: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(world.store, "put", killed)
    with pytest.raises(KeyboardInterrupt):
        made.follow()
    monkeypatch.undo()
    assert world.store.faults()[0].ticket == "open"
    made.follow()
    assert (only(world).status, world.store.faults()[0].ticket) == ("closed", "closed")


def test_a_ticket_that_cannot_be_written_is_no_closed_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = opened(world)

    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rackready.watch.tickets.files.replace", full)
    with pytest.raises(RackreadyError) as refused:
        made.tickets.close(world.store.faults()[0], "nothing to repair", world.now)
    assert "a ticket cannot be written - Expected: a writable folder with room Actual: No space left" in str(
        refused.value
    )
    assert world.store.faults()[0].ticket == "open"


def test_a_ticket_outlives_its_node(world: World) -> None:
    world.store.record([Seen("node99", "GpuXidRestartBm", "gpu4", "Xid 79", "ticket", at=world.now)], {"node99": 1})
    world.see("node03")
    world.actor().act()
    desk(world).work()
    tickets = [Ticket.model_validate_json(path.read_text()) for path in sorted(folder(world.paths).glob("*.json"))]
    assert [(one.node.name, one.node.rack, one.part.model) for one in tickets] == [
        ("node99", "", ""),
        ("node03", "rack01", "h100_sxm"),
    ]


# webhook ---------------------------------------------------------------------------------------------------------


@dataclass
class Receiver:
    url: str = ""
    status: int = 200
    of: dict[str, int] = field(default_factory=dict)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    signatures: list[tuple[str, bytes]] = field(default_factory=list)


@contextmanager
def receiver() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.bodies.append(json.loads(body))
            found.signatures.append((self.headers.get(SIGNATURE, ""), body))
            self.send_response(found.of.get(found.bodies[-1].get("id", ""), found.status))
            if found.status == 302:
                self.send_header("Location", "http://192.0.2.1/")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}/tickets"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()


def test_a_ticket_is_posted_once_signed_and_again_when_it_changes(world: World, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("s3cret\n", encoding="utf-8")
    with receiver() as hook:
        webhook = TicketWebhook(url=hook.url, secret=SecretRef(file=key))
        world.see("node03")
        world.actor().act()
        made = desk(world, webhook)
        made.work()
        made.work()
        assert [body["id"] for body in hook.bodies] == ["T00001-node03"]
        signature, body = hook.signatures[0]
        assert signature == hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()
        assert b"s3cret" not in body
        repaired(world)
        made.follow()
        made.work()
        assert [body["status"] for body in hook.bodies] == ["open", "repaired"]


def test_a_webhook_that_refuses_keeps_the_ticket_waiting_visibly(world: World) -> None:
    clock = Clock(100.0)
    with receiver() as hook:
        hook.status = 503
        world.see("node03")
        world.actor().act()
        made = desk(world, TicketWebhook(url=hook.url), clock)
        made.work()
        made.work()
        assert len(hook.bodies) == 1, "it waits before the next try"
        assert world.store.mark("outbox") == {"waiting": 1}
        waits = ("waits", "", "1 tickets wait for the webhook - Expected: HTTP 2xx Actual: HTTP 503")
        assert world.events.count(waits) == 1
        hook.status = 200
        clock.now += 11
        made.work()
        assert world.store.mark("outbox") == {"waiting": 0}
        assert hook.signatures[0][0] == "", "no secret, no signature"


def two(world: World) -> None:
    """Drain two nodes for faults."""
    for node in ("node03", "node04"):
        world.see(node)
    world.actor().act()


@pytest.mark.parametrize("code", [400, 404, 413, 422])
def test_a_ticket_that_is_refused_holds_no_other_one_up(tmp_path: Path, code: int) -> None:
    world = World(tmp_path, {"storm_share": 1})
    world.ready()
    clock = Clock(100.0)
    with receiver() as hook:
        hook.of["T00001-node03"] = code
        two(world)
        made = desk(world, TicketWebhook(url=hook.url), clock)
        made.work()
        made.work()
        assert [body["id"] for body in hook.bodies] == ["T00001-node03", "T00002-node04"]
        assert world.store.mark("outbox") == {"waiting": 1}
        (text,) = [text for kind, node, text in world.events if (kind, node) == ("waits", "node03")]
        assert text == (
            f"ticket T00001-node03 waits - Expected: HTTP 2xx of the webhook Actual: HTTP {code}. "
            "Find out why it refuses this ticket; the others are posted."
        )
        hook.of.clear()
        clock.now += 11
        made.work()
        assert [body["id"] for body in hook.bodies[2:]] == ["T00001-node03"]
        assert world.store.mark("outbox") == {"waiting": 0}


@pytest.mark.parametrize("code", [401, 403, 408, 429, 500])
def test_a_webhook_that_refuses_the_sender_gets_no_further_ticket(tmp_path: Path, code: int) -> None:
    world = World(tmp_path, {"storm_share": 1})
    world.ready()
    with receiver() as hook:
        hook.status = code
        two(world)
        made = desk(world, TicketWebhook(url=hook.url), Clock(100.0))
        made.work()
        made.work()
        assert [body["id"] for body in hook.bodies] == ["T00001-node03"]
        assert world.store.mark("outbox") == {"waiting": 2}


def test_an_answer_that_is_no_http_is_a_refusal() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as found:
                found.recv(65536)
                found.sendall(b"SSH-2.0-x\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        assert post(TicketWebhook(url=url), b"{}") == Refusal("no answer in HTTP (BadStatusLine)")
        thread.join(60)


def test_tickets_that_wait_are_counted_though_the_delivery_breaks_off(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise RackreadyError("tickets", expected="written", actual="no space left")

    made = opened(world)
    made.outbox.webhook = TicketWebhook(url="http://192.0.2.1/")
    monkeypatch.setattr("rackready.watch.webhook.post", breaks)
    with pytest.raises(RackreadyError):
        made.work()
    assert world.store.mark("outbox") == {"waiting": 1}


def test_a_closed_ticket_that_was_posted_is_not_read_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as hook:
        made = opened(world)
        made.outbox.webhook = TicketWebhook(url=hook.url)
        made.work()
        made.tickets.close(world.store.faults()[0], "nothing to repair", world.now)
        made.work()
        made.work()
        assert [body["status"] for body in hook.bodies] == ["open", "closed"]
        read: list[object] = []
        monkeypatch.setattr(TicketDesk, "read", lambda _self, fault: read.append(fault) or b"")
        made.work()
        assert read == []


def test_a_webhook_that_leads_elsewhere_is_not_followed() -> None:
    with receiver() as hook:
        hook.status = 302
        assert post(TicketWebhook(url=hook.url), b"{}") == Refusal("HTTP 302", 302)


def test_a_secret_that_cannot_be_read_is_named_and_nothing_is_sent(tmp_path: Path) -> None:
    with receiver() as hook:
        webhook = TicketWebhook(url=hook.url, secret=SecretRef(file=tmp_path / "absent"))
        found = post(webhook, b"{}")
        assert found is not None
        assert found.why.startswith(f"secret in file {tmp_path}/absent: no such file")
        assert hook.bodies == []
