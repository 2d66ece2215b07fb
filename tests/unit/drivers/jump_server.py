"""A jump host on loopback: an SSH server that opens connections for its client (direct-tcpip), and runs nothing.

Its refusals are OpenSSH's: 1 where AllowTcpForwarding, PermitOpen or an option of the key forbid the forwarding, 2
where the connection to the host behind it fails (serverloop.c and channels.c; RFC 4254, 5.1).
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import paramiko

from rackready.drivers.ssh.pins import text_of
from rackready.drivers.ssh.target import SshTarget, jump_at

USER = "hop"


@dataclass
class JumpServer:
    """Where it answers, its faults (``forbids``: it opens no connection), and what went through it."""

    port: int
    folder: Path
    client_key: Path
    allowed: paramiko.PKey
    host_key: paramiko.PKey
    forbids: bool = False
    logins: int = 0
    opened: list[tuple[str, int]] = field(default_factory=list)
    transports: list[paramiko.Transport] = field(default_factory=list)

    @property
    def where(self) -> str:
        return f"jump host 127.0.0.1:{self.port}"

    @property
    def key(self) -> str:
        return text_of(self.host_key)

    def target(self, known_hosts: Path) -> SshTarget:
        return jump_at("127.0.0.1", self.port, USER, self.client_key, known_hosts)

    def drop(self) -> None:
        """Close every connection to it, and with them those that go through it."""
        for transport in self.transports:
            transport.close()


class _Client(paramiko.ServerInterface):
    def __init__(self, server: JumpServer) -> None:
        self.server = server
        self.waiting: dict[int, socket.socket] = {}

    def get_allowed_auths(self, username: str) -> str:
        del username
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        good = username == USER and key == self.server.allowed
        self.server.logins += good
        return paramiko.AUTH_SUCCESSFUL if good else paramiko.AUTH_FAILED

    def check_channel_direct_tcpip_request(
        self, chanid: int, origin: tuple[str, int], destination: tuple[str, int]
    ) -> int:
        del origin
        if self.server.forbids:
            return paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
        try:
            self.waiting[chanid] = socket.create_connection(destination, timeout=5)
        except OSError:
            return paramiko.OPEN_FAILED_CONNECT_FAILED
        self.server.opened.append(destination)
        return paramiko.OPEN_SUCCEEDED

    def forward(self, transport: paramiko.Transport) -> None:
        while transport.is_active():
            channel = transport.accept(0.2)
            if channel is None:
                continue
            behind = self.waiting.pop(channel.get_id())
            behind.settimeout(None)
            for source, sink in ((channel, behind), (behind, channel)):
                threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket | paramiko.Channel, sink: socket.socket | paramiko.Channel) -> None:
    with suppress(OSError, EOFError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError, EOFError):
            end.close()


@contextmanager
def serve_jump(folder: Path) -> Iterator[JumpServer]:
    """Serve until the context ends."""
    folder.mkdir(exist_ok=True)
    host_key, client_key = paramiko.ECDSAKey.generate(bits=256), paramiko.ECDSAKey.generate(bits=256)
    client_key.write_private_key_file(str(folder / "jump-key"))
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    server = JumpServer(listener.getsockname()[1], folder, folder / "jump-key", client_key, host_key)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client = _Client(server)
                transport = paramiko.Transport(listener.accept()[0])
                transport.add_server_key(server.host_key)
                server.transports.append(transport)
                transport.start_server(server=client, event=threading.Event())
                threading.Thread(target=client.forward, args=(transport,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        server.drop()
        thread.join(timeout=5)
