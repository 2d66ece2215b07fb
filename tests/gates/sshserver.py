"""An SSH server on loopback that really runs commands, for tests of the remote driver: no root, no configuration."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import paramiko

_MOST_SESSIONS = 10
"""As sshd's MaxSessions."""


@dataclass
class Server:
    """Where it answers, how many connections it took, and the commands that it ran."""

    port: int
    host_key: paramiko.RSAKey
    client_key: Path
    known_hosts: Path
    connections: int = 0
    commands: list[str] = field(default_factory=list)


class _Session(paramiko.ServerInterface):
    def __init__(self, allowed: paramiko.PKey, environment: dict[str, str], commands: list[str]) -> None:
        self.allowed = allowed
        self.environment = environment
        self.commands = commands
        self.open = 0
        self.lock = threading.Lock()

    def check_channel_request(self, kind: str, chanid: int) -> int:
        del kind, chanid
        with self.lock:
            if self.open >= _MOST_SESSIONS:
                return paramiko.OPEN_FAILED_CONNECT_FAILED
            self.open += 1
        return paramiko.OPEN_SUCCEEDED

    def get_allowed_auths(self, username: str) -> str:
        del username
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return paramiko.AUTH_SUCCESSFUL if username == "tester" and key == self.allowed else paramiko.AUTH_FAILED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._run, args=(channel, command.decode()), daemon=True).start()
        return True

    def _run(self, channel: paramiko.Channel, command: str) -> None:
        self.commands.append(command)
        child = subprocess.Popen(
            ["sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )
        threads = [
            threading.Thread(target=_pump, args=(source, send), daemon=True)
            for source, send in ((child.stdout, channel.sendall), (child.stderr, channel.sendall_stderr))
        ]
        for thread in threads:
            thread.start()
        assert child.stdin is not None
        with suppress(BrokenPipeError), child.stdin as stdin:
            while chunk := channel.recv(65536):
                stdin.write(chunk)
                stdin.flush()
        code = child.wait()
        for thread in threads:
            thread.join(timeout=2)
        with self.lock:
            self.open -= 1
        if not channel.closed:
            channel.send_exit_status(code if code >= 0 else 128 - code)
            channel.close()


def _pump(source: object, send: object) -> None:
    while chunk := source.read1(65536):  # type: ignore[attr-defined]
        try:
            send(chunk)  # type: ignore[operator]
        except OSError:
            return


@contextmanager
def serve(folder: Path, **environment: str) -> Iterator[Server]:
    """Serve until the context ends. ``environment``: variables of the commands, beside those of the tests."""
    host_key, client_key = paramiko.RSAKey.generate(2048), paramiko.RSAKey.generate(2048)
    client_key.write_private_key_file(str(folder / "id"))
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.2)
    server = Server(listener.getsockname()[1], host_key, folder / "id", folder / "known_hosts")
    server.known_hosts.write_text(
        f"[127.0.0.1]:{server.port} {host_key.get_name()} {host_key.get_base64()}\n", encoding="ascii"
    )
    stop = threading.Event()
    transports: list[paramiko.Transport] = []

    def accept() -> None:
        while not stop.is_set():
            try:
                client, _ = listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            transport = paramiko.Transport(client)
            transport.add_server_key(host_key)
            transport.start_server(
                server=_Session(client_key, {**os.environ, **environment}, server.commands), event=threading.Event()
            )
            transports.append(transport)
            server.connections += 1

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        stop.set()
        thread.join()
        for transport in transports:
            transport.close()
        listener.close()
