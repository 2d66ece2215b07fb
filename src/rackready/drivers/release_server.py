"""The HTTP server of releases: nodes fetch orders and objects, and put their signed reports.

Everything that is served is signed or sealed, and every report is verified before it is stored, so the way between
needs no trust. One request for each connection, bounded in size, time and number: no node holds another back.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rackready import files
from rackready.drivers.release_report import LARGEST, PullReport, ReportError, ReportUncheckedError, read_report
from rackready.model.problems import RackreadyError
from rackready.paths import private_dir

_GET = re.compile(r"/(objects/sha256/[0-9a-f]{64}|orders/[a-z][a-z0-9-]{0,62}\.json|releases/[0-9a-f]{64}\.json)\Z")
_PUT = re.compile(r"/reports/([a-z][a-z0-9-]{0,62})/([0-9]{1,19}-(?:apply|check))\Z")
_FOREVER = "public, max-age=31536000, immutable"
_READ_S, _WHOLE_S = 20.0, 900.0
"""Longest silence of a client, and longest connection, in seconds."""
_BODY_S = 120.0
_MOST, _MOST_OF_ONE = 512, 128
"""Connections at a time, and of one address, which may be that of many nodes (NAT)."""
_CHUNK = 1 << 20
_WORDS = 500

HostKey = Callable[[str], str]
"""Takes a node, returns its pinned host key ("ssh-ed25519 AAAA..."), "" for a node that is unknown or not pinned."""


@dataclass(frozen=True)
class ReleaseFolders:
    """What the server serves (``release``), and where reports go (``reports``)."""

    release: Path
    reports: Path
    host_key: HostKey


class ReleaseServer(ThreadingHTTPServer):
    """A server for one environment. Use it as a context: it closes its socket at the end."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], folders: ReleaseFolders) -> None:
        """Listen. Raises RackreadyError when the address cannot be used."""
        self.folders = folders
        self.storing = threading.Lock()
        self._open: Counter[str] = Counter()
        self._counting = threading.Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        try:
            super().__init__(address, _Handler)
        except OSError as error:
            where = f"{address[0]}:{address[1]}"
            step = "Name an address of this machine and a free port: `ss -ltnp` lists those in use."
            raise RackreadyError(
                where, expected="a free port to listen on", actual=error.strerror or error, next_step=step
            ) from error

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's signature
        """Serve a client in a thread of its own, unless there are too many."""
        host = str(client_address[0])
        with self._counting:
            busy = self._open[host] >= _MOST_OF_ONE or self._open.total() >= _MOST
            if not busy:
                self._open[host] += 1
        if busy:
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Serve one connection, and end it at the latest after its time."""
        watch = threading.Timer(_WHOLE_S, _cut, (request,))
        watch.daemon = True
        watch.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            watch.cancel()
            with self._counting:
                self._open[str(client_address[0])] -= 1
                self._open += Counter()  # forget those without a connection

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002 - socketserver's
        """Say in one line that a client left or was cut off."""
        error = sys.exception()
        _say(f"{client_address[0]} {type(error).__name__} {error}")


def _cut(request: socket.socket) -> None:
    try:
        request.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


class _Handler(BaseHTTPRequestHandler):
    """One request of one node. HTTP/1.0: the connection ends with the answer."""

    server: ReleaseServer
    server_version, sys_version = "rackready", ""
    timeout = _READ_S

    def do_GET(self) -> None:
        """Serve a file of the release folder, or /health."""
        if self.path == "/health":
            self._answer(HTTPStatus.OK, "ok")
            return
        match = _GET.match(self.path)
        path = self.server.folders.release / match[1] if match else None
        if path is None or path.is_symlink() or not path.is_file():
            self._answer(HTTPStatus.NOT_FOUND, "not found")
            return
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(size))
            self.send_header("Cache-Control", _FOREVER if self.path.startswith("/objects/") else "no-store")
            self.end_headers()
            shutil.copyfileobj(stream, self.wfile, _CHUNK)

    def do_PUT(self) -> None:
        """Verify a report and store it."""
        match = _PUT.match(self.path)
        if match is None:
            self._answer(HTTPStatus.NOT_FOUND, "not found")
            return
        node, name = match[1], match[2]
        key = self.server.folders.host_key(node)
        if not key:
            self._answer(HTTPStatus.FORBIDDEN, f"{node}: no node of this site with a pinned host key")
            return
        body = self._body()
        if body is not None:
            self._take(node, name, key, body)

    def _take(self, node: str, name: str, key: str, body: bytes) -> None:
        """Verify a report, store it and answer."""
        try:
            report = read_report(body, node, key)
        except ReportError as error:
            self._answer(HTTPStatus.FORBIDDEN, str(error))
            return
        except (ReportUncheckedError, OSError) as error:  # the controller's fault: the node sends it again
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            return
        if report.name != name:
            self._answer(HTTPStatus.BAD_REQUEST, f"{node}: report {name}: it is {report.name}")
            return
        self._store(node, report, body, key)

    def _store(self, node: str, report: PullReport, body: bytes, key: str) -> None:
        file = self.server.folders.reports / node / f"{report.name}.json"
        try:
            with self.server.storing:
                stored = _is_news(file, report, key)
                if stored:
                    private_dir(self.server.folders.reports)
                    private_dir(file.parent)
                    files.replace(file, body)
        except OSError as error:
            self._answer(HTTPStatus.INSUFFICIENT_STORAGE, f"{node}: report {report.name}: {error.strerror}")
            return
        self._answer(HTTPStatus.CREATED if stored else HTTPStatus.OK, "stored" if stored else "known already")

    def _length(self) -> int | None:
        """Return the length of the body; None after an answer to a request without a usable one."""
        given = self.headers.get("Content-Length", "")
        if self.headers.get("Transfer-Encoding") or not re.fullmatch(r"[0-9]{1,12}", given):
            self._answer(HTTPStatus.LENGTH_REQUIRED, "a report needs Content-Length")
            return None
        if int(given) > LARGEST:
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a report has at most {LARGEST} bytes")
            return None
        return int(given)

    def _body(self) -> bytes | None:
        """Return the whole body; None after an answer to a request without one, or whose body does not come."""
        length = self._length()
        if length is None:
            return None
        data, deadline = bytearray(), time.monotonic() + _BODY_S
        with suppress(TimeoutError):  # of one read
            while len(data) < length and time.monotonic() < deadline:
                part = self.rfile.read1(min(_CHUNK, length - len(data)))
                if not part:
                    break
                data += part
        if len(data) < length:
            self._answer(HTTPStatus.REQUEST_TIMEOUT, f"{len(data)} of {length} bytes came")
            return None
        return bytes(data)

    def _answer(self, status: HTTPStatus, words: str) -> None:
        data = f"{words}\n".encode()[:_WORDS]
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(data)
        if status >= HTTPStatus.BAD_REQUEST:
            _say(f"{self.address_string()} {status.value} {words}")

    def address_string(self) -> str:
        """Return the client's address, without asking for its name."""
        return str(self.client_address[0])

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's signature
        """Write one line to standard error."""
        _say(f"{self.address_string()} {format % args}")


def _is_news(file: Path, report: PullReport, key: str) -> bool:
    """Whether a report says more than the stored one: what a play did is never replaced by an older report.

    Nor by a refusal that came later, as of the same order after it had expired.
    """
    try:
        known = read_report(file, report.node, key)
    except (OSError, ReportError):
        return True
    if known.is_final and not report.is_final:
        return False
    return report.ended > known.ended or (report.is_final and not known.is_final)


def _say(line: str) -> None:
    """Write a line to standard error; what a client sent is no control sequence there."""
    clean = line.encode("ascii", "backslashreplace").decode()
    sys.stderr.write("".join(char if char.isprintable() else "?" for char in clean) + "\n")
    sys.stderr.flush()
