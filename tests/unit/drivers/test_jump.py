"""SSH to nodes through a jump host: one connection to it, its own pinned key, and an error for each way to fail."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest

from rackready.drivers.remote import Remote
from rackready.drivers.ssh import errors, first_contact, session
from rackready.drivers.ssh.first_contact import shown_key, wait_and_pin
from rackready.drivers.ssh.pins import fingerprint, pin, pinned, text_of
from rackready.drivers.ssh.target import JUMP, KeyLogin, SshTarget, jump_target, node_target
from tests.gates.sshserver import Server, serve
from tests.stacks.fake_rack import FakeRack
from tests.unit.drivers.jump_server import JumpServer, serve_jump
from tests.unit.drivers.site_access import site_with

WAY_OUT = (
    "If the host was reinstalled or its pin was lost, `rackready hostkey accept jump` shows both keys and pins the new "
    "one. If not, find out who answers at its address."
)
FIRST = (
    "If rackready never logged in there, or its pin was lost, `rackready hostkey accept jump` shows its key and pins "
    "it: compare the key with the host's own."
)
CHECK_JUMP = "Check its power, its network and access.proxy_jump in the site file, then run again."


@pytest.fixture
def jump(tmp_path: Path) -> Iterator[JumpServer]:
    with serve_jump(tmp_path / "jump") as server:
        yield server
    session.close_jumps()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serve(tmp_path) as found:
        yield found


@pytest.fixture
def target(server: Server, jump: JumpServer) -> SshTarget:
    pins, login = server.known_hosts, KeyLogin(server.client_key)
    return SshTarget("node01", "127.0.0.1", server.port, "tester", login, pins, jump=jump.target(pins))


@pytest.fixture
def remote(target: SshTarget) -> Iterator[Remote]:
    made = Remote({"node01": target})
    yield made
    made.close()


def failure(target: SshTarget) -> str:
    remote = Remote({"node01": target})
    try:
        answer = remote.run("node01", ("true",), timeout_s=20)
    finally:
        remote.close()
    assert (answer.exit_code, answer.reached) == (None, False)
    return answer.failure + "."


def test_a_command_goes_through_the_jump_host_whose_key_is_pinned_at_first_contact(
    remote: Remote, server: Server, jump: JumpServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    text = "x" * 300_000 + "\nno newline"
    assert remote.run("node01", ("cat",), stdin=text, timeout_s=30).stdout == text
    assert jump.opened == [("127.0.0.1", server.port)]
    assert pinned(server.known_hosts, f"[127.0.0.1]:{jump.port}") == jump.key
    note = f"{jump.where}: pinned the host key that it showed at first contact ({fingerprint(jump.key)})"
    assert caplog.messages.count(note) == 1


def test_one_connection_to_it_carries_many(target: SshTarget, jump: JumpServer) -> None:
    remote = Remote({f"node{k:02}": replace(target, name=f"node{k:02}") for k in range(24)})
    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda k: remote.run(f"node{k:02}", ("echo", str(k)), timeout_s=60), range(24)))
    remote.close()
    assert [answer.stdout for answer in answers] == [f"{k}\n" for k in range(24)]
    assert (jump.logins, len(jump.opened)) == (1, 24)


def test_a_connection_that_was_lost_is_opened_again(target: SshTarget, jump: JumpServer) -> None:
    first = Remote({"node01": target})
    assert first.run("node01", ("true",), timeout_s=20).exit_code == 0
    jump.drop()
    deadline = time.monotonic() + 60  # the loss is seen a moment later, as that of a direct connection
    while first.run("node01", ("true",), timeout_s=20).exit_code != 0:
        assert time.monotonic() < deadline
    first.close()
    assert jump.logins == 2


def test_a_jump_host_that_does_not_answer_is_not_the_node(target: SshTarget) -> None:
    assert target.jump is not None
    away = replace(target, jump=replace(target.jump, port=1))
    text = failure(away)
    assert text.startswith("jump host 127.0.0.1:1: SSH - Expected: an answer within 15 s Actual: [Errno 111] ")
    assert text.endswith(f". {CHECK_JUMP}")


def test_a_name_without_an_address_is_said(target: SshTarget) -> None:
    assert target.jump is not None
    text = failure(replace(target, jump=replace(target.jump, address="bastion.invalid")))
    assert text.startswith(
        f"jump host bastion.invalid:{target.jump.port}: SSH - Expected: an answer within 15 s Actual: "
    )
    assert text.endswith(CHECK_JUMP)


def test_a_refused_login_names_the_jump_host_and_its_user(target: SshTarget, jump: JumpServer, tmp_path: Path) -> None:
    paramiko.ECDSAKey.generate(bits=256).write_private_key_file(str(tmp_path / "other"))
    assert target.jump is not None
    stranger = replace(target, jump=replace(target.jump, login=KeyLogin(tmp_path / "other", "access.proxy_jump")))
    assert failure(stranger) == (
        f"{jump.where}: SSH login refused - Expected: user hop accepted with key {tmp_path / 'other'} "
        "Actual: key refused. Put its public key into the authorized_keys of hop on the host, "
        "or correct access.proxy_jump in the site file."
    )


def test_an_unreadable_key_names_its_setting(target: SshTarget, jump: JumpServer) -> None:
    assert target.jump is not None
    lost = replace(target, jump=replace(target.jump, login=KeyLogin(Path("/nowhere/key"), "access.proxy_jump")))
    assert failure(lost) == (
        f"{jump.where}: private key /nowhere/key - Expected: an OpenSSH private key without passphrase "
        "Actual: No such file or directory. Correct access.proxy_jump.private_key in the site file."
    )


def test_a_changed_key_stops_before_any_login(target: SshTarget, jump: JumpServer) -> None:
    other = text_of(paramiko.ECDSAKey.generate(bits=256))
    pin(target.known_hosts, f"[127.0.0.1]:{jump.port}", other)
    assert failure(target) == (
        f"{jump.where}: SSH host key changed, no login was tried - Expected: {fingerprint(other)} "
        f"Actual: {fingerprint(jump.key)}. {WAY_OUT}"
    )
    assert (jump.logins, jump.opened) == (0, [])
    assert pinned(target.known_hosts, f"[127.0.0.1]:{jump.port}") == other


def test_forwarding_that_is_prohibited_names_what_to_allow(target: SshTarget, server: Server, jump: JumpServer) -> None:
    jump.forbids = True
    assert failure(target) == (
        f"{jump.where}: SSH forwarding - Expected: a connection for hop to 127.0.0.1:{server.port} "
        "Actual: administratively prohibited. Set AllowTcpForwarding to yes or local in its sshd_config, with a "
        "PermitOpen (if any) that names the nodes, and see that no `restrict` or `no-port-forwarding` precedes the key "
        "in the authorized_keys of hop."
    )


def test_a_node_beyond_it_that_does_not_answer_is_the_nodes_error(target: SshTarget, jump: JumpServer) -> None:
    assert failure(replace(target, port=1)) == (
        f"node01 127.0.0.1:1: SSH - Expected: an answer within 15 s Actual: not reachable from {jump.where}. "
        "Check its power, its network and its address in the site file, and the way to it from the jump host; "
        "then run again."
    )


def test_those_who_wait_for_one_try_share_its_failure(target: SshTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []
    really = session.connect

    def slow(jump: SshTarget, **options: object) -> paramiko.SSHClient:
        tries.append(jump.name)
        time.sleep(0.5)
        return really(jump, **options)  # type: ignore[arg-type]

    assert target.jump is not None
    monkeypatch.setattr(session, "connect", slow)
    away = replace(target.jump, port=1)

    def meet(_: int) -> str:
        with pytest.raises(errors.JumpSilentError) as caught:
            session.meet(away, 1.0)
        return str(caught.value)

    with ThreadPoolExecutor(16) as pool:
        texts = set(pool.map(meet, range(16)))
    assert (len(texts), len(tries)) == (1, 1)


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[FakeRack]:
    made = FakeRack(tmp_path / "rack", 1, net=81)
    yield made
    made.stop()


@pytest.fixture
def machine(rack: FakeRack, jump: JumpServer, tmp_path: Path) -> SshTarget:
    """A node that provisioning waits for."""
    pins, login = tmp_path / "pins", KeyLogin(rack.folder / "id_ed25519")
    return SshTarget("node01", rack.nodes[0].address, rack.ssh_port, "root", login, pins, jump=jump.target(pins))


def test_first_contact_goes_through_it_and_pins_both_keys(rack: FakeRack, machine: SshTarget, jump: JumpServer) -> None:
    rack.set_power(rack.nodes[0], "On")
    facts = wait_and_pin(machine, timeout_s=15)
    assert pinned(machine.known_hosts, machine.host) == facts.host_key == text_of(rack.nodes[0].host_key)
    assert pinned(machine.known_hosts, f"[127.0.0.1]:{jump.port}") == jump.key
    assert jump.opened == [(machine.address, machine.port)]


def test_a_node_that_stays_silent_behind_it_is_waited_for(machine: SshTarget, jump: JumpServer) -> None:
    with pytest.raises(errors.SshTimeoutError) as caught:
        wait_and_pin(machine, timeout_s=1.5)
    assert str(caught.value) == (
        f"node01 {machine.address}:{machine.port}: SSH - Expected: an answer within 2 s "
        f"Actual: not reachable from {jump.where}. Look at the node's console through its BMC, and at its address in "
        "the site file; then run again."
    )


def test_a_jump_host_that_forbids_is_not_waited_for(machine: SshTarget, jump: JumpServer) -> None:
    jump.forbids = True
    with pytest.raises(errors.JumpForbidsError):
        wait_and_pin(machine, timeout_s=600)


def test_a_silent_jump_host_is_waited_for_a_while_only(machine: SshTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_contact, "_LOGIN_PATIENCE_S", 1.0)
    assert machine.jump is not None
    with pytest.raises(
        errors.JumpSilentError, match=r"^jump host 127\.0\.0\.1:1: SSH - Expected: an answer within 15 s"
    ):
        wait_and_pin(replace(machine, jump=replace(machine.jump, port=1)), timeout_s=600)


def test_a_key_is_read_through_it_and_a_new_jump_host_is_not_trusted_by_the_way(
    rack: FakeRack, machine: SshTarget, jump: JumpServer
) -> None:
    rack.set_power(rack.nodes[0], "On")
    with pytest.raises(errors.HostKeyNotPinnedError) as caught:
        shown_key(machine)
    assert str(caught.value) == (
        f"{jump.where}: SSH host key not pinned, no login was tried - Expected: its key in {machine.known_hosts} "
        f"Actual: none. {FIRST}"
    )
    pin(machine.known_hosts, f"[127.0.0.1]:{jump.port}", jump.key)
    assert shown_key(machine) == text_of(rack.nodes[0].host_key)
    assert not pinned(machine.known_hosts, machine.host)


def test_the_site_names_the_jump_host_of_nodes_alone(tmp_path: Path) -> None:
    pins, hop = tmp_path / "known_hosts", {"host": "bastion.example.com", "user": "hop"}
    site = site_with(proxy_jump=hop)
    made = node_target(site, "node01", pins).jump
    login = KeyLogin(site.access.private_key, "access.proxy_jump")
    assert made == SshTarget("jump host", "bastion.example.com", 22, "hop", login, pins, JUMP)
    own = jump_target(site_with(proxy_jump={**hop, "port": 2222, "private_key": "keys/hop"}), pins)
    assert own is not None
    assert (own.port, own.login) == (2222, KeyLogin(Path("/checkout/keys/hop"), "access.proxy_jump"))
    assert jump_target(site_with(), pins) is None
    assert node_target(site_with(), "node01", pins).jump is None
