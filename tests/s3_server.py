"""S3 servers for tests: a real one (versitygw), and one in this process that answers as the real one did.

``RecordedServer`` checks no signature. Its answers are those of versitygw 1.8.0, which ``make test-object-store`` asks
for real: both run the same tests.
"""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rackready.drivers import object_store
from rackready.model.object_store import ObjectStore

ACCESS, SECRET = "AKIDTESTONLY", "a-secret-key-that-is-shown-nowhere"
BUCKET, PREFIX = "outputs", "lab/raw"
PROGRAM = Path(__file__).resolve().parents[1] / ".rackready/tools/versitygw/versitygw"

SKEWED = (
    "<Code>RequestTimeTooSkewed</Code><Message>The difference between the request time and the current time is too "
    "large.</Message><RequestTime>20261128T174438Z</RequestTime><ServerTime>2026-11-28T19:44:38Z</ServerTime>"
    "<MaxAllowedSkewMilliseconds>900000</MaxAllowedSkewMilliseconds>"
)
NO_KEY = "<Code>NoSuchKey</Code><Message>The specified key does not exist.</Message>"
NO_BUCKET = (
    "<Code>NoSuchBucket</Code><Message>The specified bucket does not exist.</Message><BucketName>{}</BucketName>"
)
NOT_HELD = (
    "<Code>PreconditionFailed</Code><Message>At least one of the pre-conditions you specified did not hold.</Message>"
    "<Condition>{}</Condition>"
)


class RecordedServer:
    """Keeps objects in memory.

    ``delay``: of each answer, s; ``refusal``: status and error of every request; ``silent``: how many answers come
    after 5 s; ``most``: requests that were at work at once.
    """

    def __init__(self, certificate: Path | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.delay, self.silent = 0.0, 0
        self.at_once, self.most = 0, 0
        self.refusal: tuple[int, str] | None = None
        self._lock = threading.Lock()
        self._http = _Http(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            # handshakes in the threads of connections: one that fails must not hold up the next
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
        self.endpoint = f"{'http' if certificate is None else 'https'}://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def found(self, key: str) -> bytes | None:
        return self.objects.get(key)

    def plant(self, key: str, data: bytes) -> None:
        self.objects[key] = data

    def lose(self, key: str) -> None:
        del self.objects[key]

    def keys(self) -> list[str]:
        return sorted(self.objects)

    def answer(self, verb: str, path: str, headers: Any, body: bytes) -> tuple[int, bytes]:  # noqa: ANN401 - of http
        """Return status and body."""
        with self._lock:
            self.requests.append((verb, path))
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        time.sleep(self.delay)
        with self._lock:
            self.at_once -= 1
        bucket, _, key = path.removeprefix("/").partition("/")
        if self.refusal is not None:
            return self.refusal[0], _error(self.refusal[1])
        if bucket != BUCKET:
            return 404, _error(NO_BUCKET.format(bucket))
        with self._lock:
            return self._done(verb, key, headers, body)

    def _done(self, verb: str, key: str, headers: Any, body: bytes) -> tuple[int, bytes]:  # noqa: ANN401 - of http
        there = self.objects.get(key)
        if verb == "PUT" and (source := headers.get("x-amz-copy-source")):
            self.objects[key] = self.objects[source.strip("/").partition("/")[2]]
            return 200, b"<CopyObjectResult><ETag>&#34;0&#34;</ETag></CopyObjectResult>"
        if verb == "PUT" and headers.get("If-None-Match") and there is not None:
            return 412, _error(NOT_HELD.format("If-None-Match"))
        if verb == "PUT" and headers.get("If-Match"):
            return (404, _error(NO_KEY)) if there is None else (412, _error(NOT_HELD.format("If-Match")))
        if verb == "PUT":
            self.objects[key] = body
            return 200, b""
        if verb == "DELETE":
            self.objects.pop(key, None)
            return 204, b""
        return (404, _error(NO_KEY)) if there is None else (200, there)


class _Http(ThreadingHTTPServer):
    """Prints no traceback for a client that goes away."""

    def handle_error(self, *_: object) -> None:
        """Say nothing."""


def _error(inside: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>{inside}<RequestId>0</RequestId></Error>'.encode()


def _handler(server: RecordedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"  # a connection for each request: none is left when the server is closed

        def _all(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.command == "PUT" and len(body) < int(self.headers.get("Content-Length") or 0):
                self.close_connection = True  # the client is gone in the middle: nothing is stored
                return
            status, data = server.answer(self.command, self.path, self.headers, body)
            if server.silent:
                server.silent -= 1
                time.sleep(5)
            self.send_response(status)
            for name, value in (("Content-Length", str(len(data))), ("ETag", '"0"')):
                self.send_header(name, value)
            self.send_header("Last-Modified", "Sat, 28 Nov 2026 19:43:57 GMT")
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_DELETE = _all  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


class RealServer:
    """versitygw on a folder."""

    def __init__(self, folder: Path, *certificate: Path) -> None:
        self.folder = folder
        (folder / "data" / BUCKET).mkdir(parents=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.endpoint = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"
        tls = ["--cert", str(certificate[0]), "--key", str(certificate[1])] if certificate else []
        self._argv = [str(PROGRAM), "--quiet", "--port", f"127.0.0.1:{self.port}", *tls, "posix", str(folder / "data")]
        self.start()

    def start(self) -> None:
        environment = {**os.environ, "ROOT_ACCESS_KEY": ACCESS, "ROOT_SECRET_KEY": SECRET}
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._argv, env=environment, stdout=log, stderr=log)
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError((self.folder / "log").read_text(encoding="utf-8"))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _path(self, key: str) -> Path:
        return self.folder / "data" / BUCKET / key

    def found(self, key: str) -> bytes | None:
        path = self._path(key)
        return path.read_bytes() if path.is_file() else None

    def plant(self, key: str, data: bytes) -> None:
        self._path(key).parent.mkdir(parents=True, exist_ok=True)
        self._path(key).write_bytes(data)

    def lose(self, key: str) -> None:
        self._path(key).unlink()

    def keys(self) -> list[str]:
        top = self.folder / "data" / BUCKET
        files = [path for path in top.rglob("*") if path.is_file()]
        return sorted(
            str(path.relative_to(top)) for path in files if not path.relative_to(top).parts[0].startswith(".")
        )


@contextmanager
def serving(kind: str, folder: Path) -> Iterator[RecordedServer | RealServer]:
    """Serve S3 in the context: ``recorded`` or ``versitygw``, which is skipped when it was not built."""
    if kind == "versitygw" and not PROGRAM.exists():
        pytest.skip("no versitygw: `make setup-object-store` builds it")
    server = RecordedServer() if kind == "recorded" else RealServer(folder / "versitygw")
    try:
        yield server
    finally:
        server.close()
        object_store._buckets.clear()


def settings(endpoint: str, folder: Path, **others: Any) -> ObjectStore:
    """Return settings for a server, with the keys in files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, secret in (("access", ACCESS), ("secret", SECRET)):
        file = folder / f"s3-{name}"
        file.touch(mode=0o600)
        file.write_text(others.pop(name, secret), encoding="utf-8")
    document = {
        "endpoint": endpoint,
        "bucket": BUCKET,
        "prefix": PREFIX,
        "access_key": {"file": str(folder / "s3-access")},
        "secret_key": {"file": str(folder / "s3-secret")},
    }
    return ObjectStore.model_validate(document | others)
