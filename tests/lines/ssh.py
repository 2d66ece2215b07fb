"""A simulated command line behind an SSH server on loopback: a terminal with echo, and files by SCP."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import paramiko

from rackready.drivers.ssh.target import PasswordLogin, SshTarget
from rackready.model.base import SecretRef

PASSWORD = "a test of ours"


class Terminal(Protocol):
    """A simulated command line with a prompt."""

    @property
    def prompt(self) -> str:
        """Return the prompt."""

    def type(self, command: str) -> str:
        """Answer one line. Raises ConnectionError where the login ends."""

    def write(self, path: str, text: str) -> str:
        """Take a file; return why not."""


class _Server(paramiko.ServerInterface):
    def __init__(self, line: Terminal) -> None:
        self.line = line

    def check_channel_request(self, kind: str, chanid: int) -> int:
        del kind, chanid
        return paramiko.OPEN_SUCCEEDED

    def get_allowed_auths(self, username: str) -> str:
        del username
        return "password"

    def check_auth_password(self, username: str, password: str) -> int:
        return paramiko.AUTH_SUCCESSFUL if (username, password) == ("admin", PASSWORD) else paramiko.AUTH_FAILED

    def check_channel_pty_request(self, *_request: object) -> bool:
        return True

    def check_channel_shell_request(self, channel: paramiko.Channel) -> bool:
        threading.Thread(target=self._terminal, args=(channel,), daemon=True).start()
        return True

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._scp, args=(channel, command.decode()), daemon=True).start()
        return True

    def _terminal(self, channel: paramiko.Channel) -> None:
        channel.send(f"\r\n{self.line.prompt}".encode())
        typed = b""
        with suppress(OSError, ConnectionError):
            while data := channel.recv(1024):
                typed += data
                while match := re.search(rb"\r\n|\r|\n", typed):
                    command, typed = typed[: match.start()].decode(), typed[match.end() :]
                    answer = self.line.type(command) if command.strip() else ""
                    shown = f"{command}\n{answer}{'' if answer.endswith(chr(10)) or not answer else chr(10)}"
                    channel.sendall((shown + self.line.prompt).replace("\n", "\r\n").encode())
        with suppress(EOFError):  # the client closed the whole connection
            channel.close()

    def _scp(self, channel: paramiko.Channel, command: str) -> None:
        path = command.rsplit(maxsplit=1)[-1].strip("'\"")
        files = channel.makefile("rb")
        channel.send(b"\0")
        head = files.readline().decode()
        channel.send(b"\0")
        text = files.read(int(head.split()[1])).decode()
        files.read(1)
        refused = self.line.write(path, text)
        channel.send(f"\1{refused}\n".encode() if refused else b"\0")
        channel.send_exit_status(1 if refused else 0)
        channel.close()


@contextmanager
def serve(line: Terminal, folder: Path) -> Iterator[SshTarget]:
    """Serve a line, and yield how to log in to it."""
    key = paramiko.RSAKey.generate(2048)
    known, secret = folder / "known_hosts", folder / "password"
    secret.write_text(PASSWORD, encoding="utf-8")
    secret.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        known.write_text(f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n", encoding="utf-8")
        transports: list[paramiko.Transport] = []

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    transport = paramiko.Transport(connection)
                    transport.add_server_key(key)
                    transport.start_server(server=_Server(line))
                    transports.append(transport)

        threading.Thread(target=accept, daemon=True).start()
        login = PasswordLogin(SecretRef(file=secret, env=None))
        yield SshTarget("leaf01", "127.0.0.1", port, "admin", login, known)
        for transport in transports:
            transport.close()
