"""Ansible's way through a jump host: its arguments with the real ssh, and one shared connection to the jump host."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rackready.design.hostvars import connection_vars
from rackready.design.ssh_words import JUMP_SOCKET, common_args, jump_argv
from rackready.drivers import ansible
from rackready.drivers.ansible_events import Events, collect
from rackready.drivers.ansible_ssh import connections
from rackready.drivers.marked_processes import masters
from rackready.drivers.ssh import session
from rackready.drivers.ssh.pins import pin
from rackready.model.outcome import Outcome
from rackready.model.phase import PhaseContext
from rackready.model.site import Site
from tests.gates.sshserver import Server, serve
from tests.unit.drivers.jump_server import USER, JumpServer, serve_jump
from tests.unit.drivers.site_access import site_with
from tests.unit.drivers.test_ansible import event, stats

HOP = {"host": "bastion.example.com", "user": "hop"}
PINS = Path("/state/known_hosts")


@pytest.fixture
def jump(tmp_path: Path) -> Iterator[JumpServer]:
    with serve_jump(tmp_path / "jump host's") as server:
        yield server
    session.close_jumps()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serve(tmp_path) as found:
        yield found


@pytest.fixture
def state() -> Iterator[Path]:
    """A folder with a short name: a socket's path has 104 characters at most."""
    with tempfile.TemporaryDirectory(prefix="rr-") as folder:
        yield Path(folder)


def site_through(jump: JumpServer) -> Site:
    hop = {"host": "127.0.0.1", "port": jump.port, "user": USER, "private_key": str(jump.client_key)}
    return site_with(proxy_jump=hop)


def ssh(args: str, server: Server, word: str) -> subprocess.CompletedProcess[str]:
    """Run a command as Ansible does: `ssh <common args> -o Port=... -o IdentityFile=... user host command`."""
    key, port = f'IdentityFile="{server.client_key}"', str(server.port)
    argv = ["ssh", "-F", "none", "-C", *shlex.split(args), "-o", key, "-p", port, "-l", "tester", "127.0.0.1"]
    return subprocess.run([*argv, f"echo {word}"], capture_output=True, text=True, timeout=120, check=False)


def test_without_a_jump_host_nothing_is_added() -> None:
    site = site_with()
    assert jump_argv(site, PINS) == []
    assert "ProxyCommand" not in common_args(site, PINS, "/run/socket")


def test_the_jump_host_is_a_proxy_command_with_pinned_keys_alone() -> None:
    site = site_with(proxy_jump={**HOP, "port": 2222, "private_key": "keys/hop"})
    args = shlex.split(common_args(site, PINS))
    assert args[:10] == shlex.split(common_args(site_with(), PINS))
    option, command = args[10:]
    assert option == "-o"
    assert command == (
        "ProxyCommand=ssh -W %h:%p -o StrictHostKeyChecking=yes -o 'UserKnownHostsFile=\"/state/known_hosts\"' "
        "-o GlobalKnownHostsFile=/dev/null -o IdentitiesOnly=yes -o IdentityAgent=none -o BatchMode=yes "
        "-o ConnectTimeout=15 -o ServerAliveInterval=15 -i /checkout/keys/hop -p 2222 -l hop bastion.example.com"
    )


def test_the_nodes_key_is_used_for_a_jump_host_without_its_own() -> None:
    site = site_with(proxy_jump=HOP)
    assert str(site.access.private_key) in jump_argv(site, PINS)
    given = connection_vars(site, site.node("node01"), PINS, "/run/socket")["ansible_ssh_common_args"]
    assert "ProxyCommand=ssh -W %h:%p -S /run/socket -o " in given


def test_the_real_ssh_goes_through_it(server: Server, jump: JumpServer) -> None:
    pin(server.known_hosts, f"[127.0.0.1]:{jump.port}", jump.key)
    done = ssh(common_args(site_through(jump), server.known_hosts), server, "through")
    assert (done.stdout, done.returncode) == ("through\n", 0), done.stderr
    assert (jump.opened, jump.logins) == ([("127.0.0.1", server.port)], 1)


def test_the_real_ssh_refuses_a_jump_host_without_a_pin(server: Server, jump: JumpServer) -> None:
    done = ssh(common_args(site_through(jump), server.known_hosts), server, "through")
    assert (done.stdout, done.returncode, jump.logins) == ("", 255, 0)
    assert "Host key verification failed" in done.stderr


def test_one_connection_is_shared_by_a_run_and_closed_after_it(server: Server, jump: JumpServer, state: Path) -> None:
    pins, site = server.known_hosts, site_through(jump)
    pin(pins, f"[127.0.0.1]:{jump.port}", jump.key)
    with connections(state, jump_argv(site, pins)) as variables:
        shared = variables[JUMP_SOCKET]
        for k in range(3):
            assert ssh(common_args(site, pins, shared), server, str(k)).stdout == f"{k}\n"
        assert len(masters(state)) == 1  # what ends the connections of a killed run finds it
    assert (jump.logins, len(jump.opened)) == (1, 3)
    assert (masters(state), Path(shared).exists()) == ([], False)


def test_without_the_shared_connection_each_node_opens_its_own(
    server: Server, jump: JumpServer, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pins, site = server.known_hosts, site_through(jump)
    with connections(state, jump_argv(site, pins)) as variables:
        assert JUMP_SOCKET not in variables
    assert "jump host: ssh -M ended with exit code 255: each node opens a connection of its own" in caplog.text
    pin(pins, f"[127.0.0.1]:{jump.port}", jump.key)
    gone = str(state / "gone")
    assert ssh(common_args(site, pins, gone), server, "direct").stdout == "direct\n"


def test_an_unreachable_node_is_explained_by_its_jump_host() -> None:
    told: list[str] = []
    why = "jump host 192.0.2.1:22: SSH forwarding - Expected: a connection Actual: administratively prohibited. Step."
    events = Events(
        "install",
        ["node01", "node02"],
        "/logs/install.log",
        lambda _node, text, _level: told.append(text),
        at_jump=lambda node: why if node == "node01" else "",
    )
    words = "Data could not be sent to remote host"
    lines = [event("runner_on_unreachable", node, msg=words) for node in ("node01", "node02")]
    dark = {"node01": 1, "node02": 1}
    collect([*lines, stats(dark=dark, processed=dark)], events)
    assert events.result("node01").message == told[0] == f"node01: install: {why}"
    assert events.result("node02").message.startswith("node02: install: cannot log in - Expected: SSH answers ")


@pytest.mark.parametrize(
    "words",
    [
        "Task failed: Incorrect sudo password",
        "Task failed: Missing sudo password",
        "Module result deserialization failed: No start of json char found",
    ],
)
def test_a_task_that_sudo_stopped_is_explained_by_sudo(words: str) -> None:
    """The words are Ansible's (2.20) for a wrong password, none, and a user who is not in sudoers."""
    told: list[str] = []
    why = "node01 192.0.2.1:22: sudo - Expected: ops becomes root by sudo without a password Actual: x. Step."
    events = Events(
        "install",
        ["node01", "node02"],
        "/logs/install.log",
        lambda _node, text, _level: told.append(text),
        at_sudo=lambda node: why if node == "node01" else "",
    )
    failed = {"node01": 1, "node02": 1}
    lines = [event("runner_on_failed", node, msg=words) for node in failed]
    collect([*lines, stats(failures=failed, processed=failed)], events)
    one, two = events.result("node01"), events.result("node02")
    assert (one.outcome, one.message) == (Outcome.ERROR, f"node01: install: {why}")
    assert told[0] == one.message
    assert two.outcome is Outcome.FAIL
    assert two.message.endswith(f"failed - Expected: the task succeeds Actual: {words}. See /logs/install.log.")


def test_a_jump_host_that_refuses_stops_the_run_before_ansible_starts(
    jump: JumpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_through(jump)
    jump.allowed = jump.host_key
    monkeypatch.setattr(ansible, "site_of", lambda _ctx: site)
    monkeypatch.setattr(ansible, "run_child", lambda *_, **__: pytest.fail("Ansible was started"))
    ctx = PhaseContext(root=tmp_path, env="lab", campaign="lab-1", check=True)
    results = ansible.run_playbook(ctx, "install.yml", ["node01", "node02"])
    assert {node: (result.outcome, result.message) for node, result in results.items()} == {
        node: (
            Outcome.ERROR,
            (
                f"{node}: install: {jump.where}: SSH login refused - Expected: user hop accepted with key "
                f"{jump.client_key} Actual: key refused. Put its public key into the authorized_keys of hop on the "
                "host, or correct access.proxy_jump in the site file."
            ),
        )
        for node in ("node01", "node02")
    }
