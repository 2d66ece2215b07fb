"""The HTTPS server of a simulated UFM: logins, resources, jobs, and what goes wrong with a real one.

Paths: /ufmRest with a user and a password, /ufmRestV3 with a token in the same header (NVIDIA UFM Enterprise REST API
Guide 6.19.0, page "REST API Complementary Information"; Mellanox/ufm_sdk_3.0 @3e96418e
plugins/SLURM-Integration/ufm_slurm_utils.py: getServerSession). A job: 202 with its path in Location, then its status
under jobs/<id> (scripts/batch_isolate_devices/batch_isolate_devices.py; page "Jobs REST API").
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from rackready_sim.ufm.fabric import Fabric

USER, PASSWORD, TOKEN = "admin", "ufm-sim", "ufm-sim-token"
_GONE = {"error": "Not Found"}


@dataclass(slots=True)
class Ufm:
    """A UFM and its state. The fields after ``fabric`` are what a test or a fault sets."""

    fabric: Fabric
    version: str = "6.22.1-7"
    busy: int = 0
    """Answers of 503 that come first: UFM starts, or its standby takes over."""
    absent: set[str] = field(default_factory=set)
    """Resources that this version does not have: 404."""
    cut: str = ""
    """Resource whose answer ends early."""
    page: bool = False
    """Whether the web page of the login comes in place of an answer, as without a session."""
    jobs: bool = False
    """Whether changes of partitions are jobs."""
    job_status: str = "Completed"
    job_polls: int = 1
    """Requests until a job has this status."""
    ignored: bool = False
    """Whether changes of partitions are accepted and do nothing."""
    forced: str = ""
    """Membership that new members get, whatever was asked."""
    polled: dict[str, int] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Method and path of every request, in order."""
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def serving(ufm: Ufm, certificate: Path, address: str = "127.0.0.1") -> Iterator[str]:
    """Serve over HTTPS while the block runs; return the URL. ``certificate``: PEM with certificate and key."""
    server = ThreadingHTTPServer((address, 0), type("Bound", (_Handler,), {"ufm": ufm}))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"https://{address}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    """Answers requests for one UFM."""

    ufm: Ufm
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        pass

    def do_GET(self) -> None:
        self._go("GET")

    def do_POST(self) -> None:
        self._go("POST")

    def do_DELETE(self) -> None:
        self._go("DELETE")

    def _go(self, method: str) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        parts = urlsplit(self.path)
        base, _, path = parts.path.lstrip("/").partition("/")
        with self.ufm.lock:
            self.ufm.requests.append((method, path))
            if not self._allowed(base):
                self._say(401, {"error": "Unauthorized"})
            elif self.ufm.busy:
                self.ufm.busy -= 1
                self._say(503, None)
            elif self.ufm.page:
                self._say(200, None, text="<html><title>UFM login</title></html>")
            else:
                answer = _answer(self.ufm, method, path.rstrip("/"), parse_qs(parts.query), body)
                self._say(*answer[:2], location=answer[2], cut=self.ufm.cut == path.rstrip("/"))

    def _allowed(self, base: str) -> bool:
        plain = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        wanted = {"ufmRest": f"Basic {plain}", "ufmRestV3": f"Basic {TOKEN}"}
        return self.headers.get("Authorization", "") == wanted.get(base)

    def _say(self, code: int, document: Any, *, text: str = "", location: str = "", cut: bool = False) -> None:  # noqa: ANN401
        data = (text or ("" if document is None else json.dumps(document))).encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/html" if text else "application/json")
        self.send_header("Content-Length", str(len(data)))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if cut else data)
        self.close_connection = self.close_connection or cut


Answer = tuple[int, Any, str]
"""Status code, document, Location."""


def _answer(ufm: Ufm, method: str, path: str, query: dict[str, list[str]], body: dict[str, Any]) -> Answer:
    if any(path.startswith(name) for name in ufm.absent):
        return 404, _GONE, ""
    if method == "GET":
        return _read(ufm, path, guids=query.get("guids_data") == ["true"])
    if path.startswith("resources/pkeys"):
        return _change(ufm, method, path.removeprefix("resources/pkeys").strip("/"), body)
    return 404, _GONE, ""


def _read(ufm: Ufm, path: str, *, guids: bool) -> Answer:
    fabric = ufm.fabric
    if path.startswith("jobs/"):
        return _job(ufm, path.removeprefix("jobs/"))
    if path == "resources/pkeys":
        keys = sorted(fabric.partitions)
        # Without any query argument, the structure is another one: a list of keys.
        every = {f"0x{key:x}": fabric.partition(key, guids=guids) for key in keys}
        return 200, every if guids else [f"0x{key:x}" for key in keys], ""
    if path.startswith("resources/pkeys/"):
        return 200, fabric.partition(int(path.rpartition("/")[2], 16), guids=guids), ""
    documents = {
        "app/ufm_version": {"ufm_release_version": ufm.version, "opensm": "5.20.0_ef1f438", "plugins": {}},
        "resources/ports": fabric.ports(),
        "resources/links": fabric.links(),
        "app/alarms": fabric.alarms,
    }
    return (200, documents[path], "") if path in documents else (404, _GONE, "")


def _job(ufm: Ufm, number: str) -> Answer:
    if number not in ufm.polled:
        return 404, _GONE, ""
    ufm.polled[number] += 1
    done = ufm.polled[number] >= ufm.job_polls
    return (
        200,
        {
            "ID": number,
            "Status": ufm.job_status if done else "Running",
            "Progress": 100 if done else 50,
            "Summary": "" if ufm.job_status == "Completed" else "opensm did not take the partition",
            "Operation": "pkey",
            "CreatedBy": USER,
        },
        "",
    )


def _change(ufm: Ufm, method: str, rest: str, body: dict[str, Any]) -> Answer:
    fabric = ufm.fabric
    if method == "POST" and rest == "add":
        if not ufm.ignored:
            fabric.add(int(body["pkey"], 16), ip_over_ib=body.get("ip_over_ib", True))
    elif method == "POST" and not rest:
        # The guide's default for membership is full.
        membership = ufm.forced or body.get("membership", "full")
        if not ufm.ignored:
            members = dict.fromkeys(body["guids"], membership)
            fabric.join(int(body["pkey"], 16), members, index0=body.get("index0", False))
    elif method == "DELETE" and "/guids/" in rest:
        key, _, guids = rest.partition("/guids/")
        if not ufm.ignored:
            fabric.leave(int(key, 16), guids.split(","))
    else:
        return 404, _GONE, ""
    if not ufm.jobs:
        return 200, {}, ""
    number = str(len(ufm.polled) + 1)
    ufm.polled[number] = 0
    return 202, {}, f"/ufmRest/jobs/{number}"
