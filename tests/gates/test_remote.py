"""The command runner over SSH, against a server that really runs commands."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko
import pytest

from rackready.drivers.launch_key import launch_key
from rackready.drivers.process import STOP, Interrupted
from rackready.drivers.remote import Job, Remote, UnreachableError
from rackready.drivers.ssh.pins import fingerprint
from rackready.drivers.ssh.target import KeyLogin, SshTarget
from tests.gates.sshserver import Server, serve


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serve(tmp_path) as found:
        yield found


@pytest.fixture
def remote(server: Server) -> Iterator[Remote]:
    found = connect(server)
    yield found
    found.close()


def connect(
    server: Server, *, known_hosts: Path | None = None, key: Path | None = None, port: int | None = None
) -> Remote:
    login = KeyLogin(key or server.client_key)
    pins = known_hosts or server.known_hosts
    return Remote({"node01": SshTarget("node01", "127.0.0.1", port or server.port, "tester", login, pins)})


def gone(pid: int) -> bool:
    for _ in range(50):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.1)
    return False


def test_output_exit_code_input_and_environment(remote: Remote) -> None:
    answer = remote.run(
        "node01",
        ("sh", "-c", 'cat; echo "$GREETING" >&2; exit 7'),
        stdin="a 'quoted' line\n",
        env={"GREETING": "hello world"},
        timeout_s=20,
    )
    assert (answer.exit_code, answer.stdout, answer.stderr, answer.timed_out, answer.failure) == (
        7,
        "a 'quoted' line\n",
        "hello world\n",
        False,
        "",
    )


def test_large_output_comes_whole(remote: Remote) -> None:
    answer = remote.run("node01", ("sh", "-c", "seq 1 200000"), timeout_s=60)
    assert answer.stdout.splitlines()[-1] == "200000"
    assert len(answer.stdout.splitlines()) == 200000


def test_at_the_time_limit_everything_it_started_is_ended(remote: Remote) -> None:
    begun = time.monotonic()
    answer = remote.run("node01", ("sh", "-c", "sleep 60 & echo $!; trap '' TERM; sleep 61; sleep 62"), timeout_s=1)
    assert answer.timed_out
    assert answer.exit_code is None
    assert time.monotonic() - begun < 45
    assert gone(int(answer.stdout.split()[0]))


def test_a_server_is_ended_with_its_job(remote: Remote) -> None:
    job = remote.start("node01", ("sh", "-c", "echo $$; exec sleep 60"), timeout_s=60)
    for _ in range(100):
        if job.so_far().stdout:
            break
        time.sleep(0.05)
    assert job.alive()
    pid = int(job.so_far().stdout)
    job.end()
    assert gone(pid)


def test_stop_ends_the_command_too(remote: Remote) -> None:
    timer = threading.Timer(1.0, STOP.set)
    timer.start()
    try:
        with pytest.raises(Interrupted):
            remote.run("node01", ("sleep", "60"), timeout_s=60)
    finally:
        timer.cancel()
        STOP.clear()


def test_more_sessions_than_one_connection_may_carry(remote: Remote, server: Server) -> None:
    with ThreadPoolExecutor(20) as pool:
        answers = list(
            pool.map(
                lambda number: remote.run("node01", ("sh", "-c", f"sleep 1; echo {number}"), timeout_s=60), range(20)
            )
        )
    assert [answer.stdout.strip() for answer in answers] == [str(number) for number in range(20)]
    assert 3 <= server.connections <= 20


def test_a_session_that_a_busy_server_refuses_is_asked_for_again(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = [paramiko.ChannelException(2, "Connect failed")] * 3
    really = paramiko.Transport.open_session

    def open_session(transport: paramiko.Transport, **options: float) -> paramiko.Channel:
        if refusals:
            raise refusals.pop()
        return really(transport, **options)

    monkeypatch.setattr(paramiko.Transport, "open_session", open_session)
    assert remote.run("node01", ("echo", "here"), timeout_s=20).stdout == "here\n"
    assert refusals == []


def test_a_server_that_opens_no_session_any_more_is_said(
    remote: Remote, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise paramiko.ChannelException(2, "Connect failed")

    monkeypatch.setattr(paramiko.Transport, "open_session", refuse)
    monkeypatch.setattr("rackready.drivers.remote._CONNECT_S", 1.0)
    answer = remote.run("node01", ("true",), timeout_s=20)
    assert answer.failure == (
        f"node01 127.0.0.1:{server.port}: SSH - Expected: another session on the open connection "
        "Actual: ChannelException(2, 'Connect failed'). "
        "Check MaxSessions in its sshd_config and the load of the host, then run again"
    )


def test_a_host_key_that_was_not_pinned_is_refused(server: Server, tmp_path: Path) -> None:
    other = paramiko.RSAKey.generate(2048)
    wrong = tmp_path / "wrong"
    wrong.write_text(f"[127.0.0.1]:{server.port} {other.get_name()} {other.get_base64()}\n", encoding="ascii")
    answer = connect(server, known_hosts=wrong).run("node01", ("true",), timeout_s=10)
    assert answer.exit_code is None
    step = (
        "If the host was reinstalled or its pin was lost, `rackready hostkey accept node01` shows both keys "
        "and pins the new one. If not, find out who answers at its address"
    )
    where = f"node01 127.0.0.1:{server.port}"
    pinned, shown = fingerprint(other), fingerprint(server.host_key)
    text = f"{where}: SSH host key changed, no login was tried - Expected: {pinned} Actual: {shown}. {step}"
    assert answer.failure == text
    unknown = connect(server, known_hosts=tmp_path / "none").run("node01", ("true",), timeout_s=10)
    text = (
        f"{where}: SSH host key not pinned, no login was tried - Expected: its key in {tmp_path / 'none'} "
        "Actual: none. If rackready never logged in there, or its pin was lost, `rackready hostkey accept node01` "
        "shows its key and pins it: compare the key with the host's own"
    )
    assert unknown.failure == text


def test_a_key_that_is_refused_is_said(server: Server, tmp_path: Path) -> None:
    paramiko.RSAKey.generate(2048).write_private_key_file(str(tmp_path / "other"))
    assert (
        connect(server, key=tmp_path / "other").run("node01", ("true",), timeout_s=10).failure
        == f"node01 127.0.0.1:{server.port}: SSH login refused - Expected: user tester accepted with key "
        f"{tmp_path / 'other'} Actual: key refused. Put its public key into the authorized_keys of tester on the host, "
        "or correct access in the site file"
    )


def test_a_node_that_does_not_answer_is_said(server: Server) -> None:
    answer = connect(server, port=1).run("node01", ("true",), timeout_s=10)
    refused = "node01 127.0.0.1:1: SSH - Expected: a TCP connection within 15 s Actual: [Errno 111] "
    assert answer.failure.startswith(refused)
    assert (answer.reached, connect(server).run("node01", ("false",), timeout_s=10).reached) == (False, True)
    with pytest.raises(UnreachableError):
        connect(server, port=1).start("node01", ("true",), timeout_s=10)


def test_nothing_is_left_on_the_node(remote: Remote) -> None:
    before = set(Path("/tmp").glob(".rackready-*"))  # noqa: S108 - what the driver uses
    remote.run("node01", ("true",), timeout_s=10)
    remote.run("node01", ("sleep", "30"), timeout_s=0.5)
    assert set(Path("/tmp").glob(".rackready-*")) <= before  # noqa: S108


def test_a_launch_key_lives_as_long_as_the_launch(
    remote: Remote, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    admitted = home / ".ssh/authorized_keys"
    admitted.write_text("ssh-ed25519 AAAA somebody else's\n", encoding="ascii")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with launch_key(remote, "node01", "192.0.2.11", ["node01"], server.known_hosts) as key:
        assert oct((Path(key.folder) / "id").stat().st_mode)[-3:] == "600"
        assert (Path(key.folder) / "known_hosts").read_text(encoding="ascii") == server.known_hosts.read_text(
            encoding="ascii"
        )
        assert 'restrict,from="192.0.2.11" ssh-ed25519' in admitted.read_text(encoding="ascii")
        assert "StrictHostKeyChecking=yes" in key.ssh_options
    assert admitted.read_text(encoding="ascii") == "ssh-ed25519 AAAA somebody else's\n"
    assert not Path(key.folder).exists()


def started(remote: Remote) -> tuple[Job, int]:
    job = remote.start("node01", ("sh", "-c", "echo $$; exec sleep 60"), timeout_s=60)
    for _ in range(200):
        if job.so_far().stdout:
            return job, int(job.so_far().stdout)
        time.sleep(0.05)
    raise AssertionError(job.so_far())


def test_what_a_killed_run_left_is_swept_and_our_own_work_is_not(
    remote: Remote, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    admitted = home / ".ssh/authorized_keys"
    admitted.write_text("ssh-ed25519 AAAA somebody else's\n", encoding="ascii")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("rackready.drivers.remote.RUN_ID", "killed00")
    _, orphan = started(remote)
    left = launch_key(remote, "node01", "192.0.2.11", ["node01"], server.known_hosts)
    folder = left.__enter__().folder
    monkeypatch.setattr("rackready.drivers.remote.RUN_ID", "alive000")
    mine, own = started(remote)
    answer = remote.sweep("node01")
    assert (answer.exit_code, answer.stderr) == (0, "")
    assert gone(orphan)
    os.kill(own, 0)
    mine.end()
    assert not Path(folder).exists()
    assert admitted.read_text(encoding="ascii") == "ssh-ed25519 AAAA somebody else's\n"


def test_stop_takes_the_launch_key_back(
    remote: Remote, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    held = launch_key(remote, "node01", "192.0.2.11", ["node01"], server.known_hosts)
    held.__enter__()
    STOP.set()
    held.__exit__(None, None, None)
    STOP.clear()
    assert (tmp_path / "home/.ssh/authorized_keys").read_text(encoding="ascii") == ""
