"""A switch's terminal gets its connection, pins and errors from the SSH layer; netmiko adds the command line."""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import paramiko
import pytest

from rackready.drivers.ssh.pins import fingerprint, known_name, pin, text_of
from rackready.drivers.ssh.target import PasswordLogin, SshTarget
from rackready.drivers.switch.session import BashSession, SwitchLoginError, SwitchSilentError, SwitchUnreachableError
from rackready.model.base import SecretRef

PASSWORD = "right"
PROMPT = b"cumulus@leaf01:~$ "


class Switch(paramiko.ServerInterface):
    """A login with a password, and a shell that answers `echo` lines as a Linux switch does."""

    tried: ClassVar[list[str]] = []

    def check_auth_password(self, username: str, password: str) -> int:
        self.tried.append(password)
        return paramiko.AUTH_SUCCESSFUL if (username, password) == ("cumulus", PASSWORD) else paramiko.AUTH_FAILED

    def get_allowed_auths(self, _username: str) -> str:
        return "password"

    def check_channel_request(self, _kind: str, _chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_pty_request(self, *_: object) -> bool:
        return True

    def check_channel_shell_request(self, channel: paramiko.Channel) -> bool:
        threading.Thread(target=shell, args=(channel,), daemon=True).start()
        return True

    def check_channel_exec_request(self, channel: paramiko.Channel, _command: bytes) -> bool:
        threading.Thread(target=cat, args=(channel,), daemon=True).start()
        return True


def shell(channel: paramiko.Channel) -> None:
    with suppress(OSError):
        channel.sendall(PROMPT)
        line = b""
        while chunk := channel.recv(1024):
            line += chunk
            while b"\n" in line or b"\r" in line:
                end = min(place for place in (line.find(b"\n"), line.find(b"\r")) if place >= 0)
                said, line = line[:end], line[end + 1 :]
                answer = b"__rb\r\nup 3 days\r\n__rc=7\r\n" if b"uptime" in said else b""
                channel.sendall(said + b"\r\n" + answer + PROMPT)


def cat(channel: paramiko.Channel) -> None:
    while chunk := channel.recv(1024):
        channel.sendall(chunk)
    channel.send_exit_status(0)
    channel.close()


@pytest.fixture
def key() -> paramiko.PKey:
    return paramiko.ECDSAKey.generate(bits=256)


@pytest.fixture
def target(key: paramiko.PKey, tmp_path: Path) -> Iterator[SshTarget]:
    (tmp_path / "password").write_text(PASSWORD, encoding="utf-8")
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    kept: list[paramiko.Transport] = []

    def accept() -> None:
        with suppress(OSError):
            while True:
                transport = paramiko.Transport(listener.accept()[0])
                kept.append(transport)
                transport.add_server_key(key)
                transport.start_server(server=Switch(), event=threading.Event())

    threading.Thread(target=accept, daemon=True).start()
    login = PasswordLogin(SecretRef(file=tmp_path / "password"))
    pin(tmp_path / "known_hosts", known_name("127.0.0.1", port), text_of(key))
    yield SshTarget("leaf01", "127.0.0.1", port, "cumulus", login, tmp_path / "known_hosts")
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for transport in kept:
        transport.close()


def open_session(target: SshTarget) -> BashSession:
    return BashSession(target, "cumulus_linux")


def test_commands_in_the_terminal_and_beside_it(target: SshTarget) -> None:
    made = open_session(target)
    try:
        assert made.run("uptime") == (7, "up 3 days\n")
        assert made.feed("cat", "- set: {}\n") == (0, "- set: {}\n")
    finally:
        made.close()


def test_the_log_has_commands_and_neither_input_nor_password(
    target: SshTarget, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "rackready"):
        made = open_session(target)
        made.run("uptime")
        made.feed("cat", "- set: {secret: x}\n")
        made.close()
    lines = [re.sub(r"\d+\.\d s", "N s", record.getMessage()) for record in caplog.records]
    where = f"leaf01 127.0.0.1:{target.port}"
    assert lines == [
        f"{where}: SSH connection opened as cumulus in N s",
        f"{where}: uptime: exit 7 in N s",
        f"{where}: cat: exit 0 in N s",
    ]


def test_a_damaged_line_of_another_host_does_not_matter(target: SshTarget) -> None:
    """Netmiko would hand the file to paramiko, which stops at a key that is no base64."""
    text = target.known_hosts.read_text(encoding="utf-8")
    target.known_hosts.write_text(f"192.0.2.1 ssh-ed25519 AAAA=B\n{text}", encoding="utf-8")
    open_session(target).close()


def test_a_changed_host_key_is_refused_with_both_fingerprints(target: SshTarget, key: paramiko.PKey) -> None:
    other = paramiko.ECDSAKey.generate(bits=256)
    pin(target.known_hosts, target.host, text_of(other))
    with pytest.raises(SwitchUnreachableError) as caught:
        open_session(target)
    assert not isinstance(caught.value, SwitchSilentError)
    assert str(caught.value) == (
        f"leaf01 127.0.0.1:{target.port}: SSH host key changed, no login was tried - Expected: {fingerprint(other)} "
        f"Actual: {fingerprint(key)}. "
        "If the host was reinstalled or its pin was lost, `rackready hostkey accept leaf01` shows both keys and "
        "pins the new one. If not, find out who answers at its address."
    )


def test_a_switch_without_a_pin_is_refused(target: SshTarget, tmp_path: Path) -> None:
    with pytest.raises(
        SwitchUnreachableError,
        match=r"SSH host key not pinned, no login was tried - Expected: its key in .*/none Actual",
    ):
        open_session(replace(target, known_hosts=tmp_path / "none"))


def test_a_refused_password_names_its_place(target: SshTarget, tmp_path: Path) -> None:
    """And is one attempt: switches lock accounts."""
    Switch.tried.clear()
    (tmp_path / "password").write_text("wrong", encoding="utf-8")
    with pytest.raises(SwitchLoginError) as caught:
        open_session(target)
    assert str(caught.value) == (
        f"leaf01 127.0.0.1:{target.port}: SSH login refused - Expected: user cumulus accepted with the password in "
        f"file {tmp_path / 'password'} Actual: password refused. "
        "Correct the password there, or the user cumulus in the site file, then run again."
    )
    assert len(Switch.tried) == 1


def test_a_switch_that_does_not_answer_may_be_booting(target: SshTarget) -> None:
    with pytest.raises(SwitchSilentError) as caught:
        open_session(replace(target, port=1))
    assert str(caught.value) == (
        "leaf01 127.0.0.1:1: SSH - Expected: a TCP connection within 10 s Actual: [Errno 111] Connection refused. "
        "Check its power, its network and its address in the site file, then run again."
    )


def test_a_command_without_an_end_is_not_known(target: SshTarget) -> None:
    made = open_session(target)
    try:
        with pytest.raises(
            SwitchUnreachableError,
            match=rf"^leaf01 127.0.0.1:{target.port}: `sleep 9` - Expected: an end within 1 s Actual: .* Run again: ",
        ):
            made.run("sleep 9", timeout_s=1)
    finally:
        made.close()
