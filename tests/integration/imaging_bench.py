"""A boot service of a few lines, and a machine in QEMU with UEFI firmware, for tests of the imaging ramdisk."""

from __future__ import annotations

import hashlib
import http.server
import json
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOST = "10.0.2.2"
"""The machine's name for this host, in QEMU's own network (QEMU documentation, user mode networking)."""
TOKEN = "a-token-of-this-test"
FIRMWARE = Path("/usr/share/OVMF/OVMF_CODE_4M.fd")
VARIABLES = Path("/usr/share/OVMF/OVMF_VARS_4M.fd")
MAC = "52:54:00:00:00:01"


class Bench:
    """Files that the service gives, and the reports that it got."""

    def __init__(self, folder: Path, host: str) -> None:
        self.folder = folder
        self.host = host
        self.files: dict[str, Path | bytes] = {}
        self.reports: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.cut_at: int | None = None
        """Byte at which the next transfer of an image breaks off."""
        self.busy = 0
        """Number of requests that the service answers with 503 from now on."""
        self.port = self.plain_port = 0
        self.ca = b""

    def steps(self) -> list[str]:
        """Return the steps of all reports, each once in a row."""
        steps = [str(report["step"]) for report in self.reports]
        return [step for place, step in enumerate(steps) if place == 0 or steps[place - 1] != step]

    def options(self, node: str) -> str:
        """Return the kernel command line of a node."""
        der = ssl.PEM_cert_to_DER_cert(self.ca.decode())
        words = [
            f"rackready.plan=https://{self.host}:{self.port}/nodes/{node}/plan.json",
            f"rackready.token={TOKEN}",
            f"rackready.ca=http://{self.host}:{self.plain_port}/boot/ca.pem",
            f"rackready.ca_sha256={hashlib.sha256(der).hexdigest()}",
            f"BOOTIF=01-{MAC.replace(':', '-')}",
            "console=ttyS0",
        ]
        return " ".join(words)


@contextmanager
def serving(folder: Path, host: str = HOST) -> Iterator[Bench]:
    """Run the service while in the context. ``host``: address in its certificate."""
    bench = Bench(folder, host)
    bench.ca, certificate, key = _certificates(folder, host)
    bench.files["/boot/ca.pem"] = bench.ca
    handler = _handler(bench)
    secure = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    secure.socket = context.wrap_socket(secure.socket, server_side=True)
    plain = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    bench.port, bench.plain_port = secure.server_port, plain.server_port
    for server in (secure, plain):
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield bench
    finally:
        for server in (secure, plain):
            server.shutdown()
            server.server_close()


def _handler(bench: Bench) -> type[http.server.BaseHTTPRequestHandler]:  # noqa: C901 - one server, its methods inside
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = bench.files.get(self.path)
            if not self.path.startswith("/boot/") and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self._answer(401, b"")
            elif bench.busy:
                bench.busy -= 1
                self._answer(503, b"")
            elif found is None:
                self._answer(404, b"")
            elif isinstance(found, bytes):
                self._answer(200, found)
            else:
                self._file(found)

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            bench.reports.append(json.loads(body))
            bench.paths.append(self.path)
            self._answer(201, b"")

        def _file(self, path: Path) -> None:
            start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").rstrip("-"))
            size = path.stat().st_size - start
            cut, bench.cut_at = bench.cut_at, None
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(size))
            self.end_headers()
            with path.open("rb") as source:
                source.seek(start)
                left = size if cut is None else cut
                while left > 0 and (piece := source.read(min(left, 1 << 20))):
                    self.wfile.write(piece)
                    left -= len(piece)
            self.close_connection = cut is not None

        def _answer(self, code: int, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

    return Handler


def _certificates(folder: Path, host: str) -> tuple[bytes, Path, Path]:
    """Make an authority and the server's certificate; return the authority, and the files of the server."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of a test")])
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "boot service of a test")])
    now = datetime.now(UTC)

    def builder(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder().subject_name(subject).issuer_name(ca_name).public_key(public)
        # Valid from tomorrow: a node without a clock must trust the pinned authority all the same.
        made = made.not_valid_before(now + timedelta(days=1)).not_valid_after(now + timedelta(days=9))
        return made.serial_number(x509.random_serial_number())

    authority = builder(ca_name, ca_key.public_key()).add_extension(x509.BasicConstraints(True, None), critical=True)  # noqa: FBT003
    ca = authority.sign(ca_key, hashes.SHA256())
    names = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(host))])
    server = builder(name, key.public_key()).add_extension(names, critical=False).sign(ca_key, hashes.SHA256())
    certificate, secret = folder / "server.pem", folder / "server.key"
    certificate.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    pem, pkcs8, plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    secret.write_bytes(key.private_bytes(pem, pkcs8, plain))
    return ca.public_bytes(pem), certificate, secret


class Machine:
    """A machine: its disks and its firmware's memory outlast each of its runs."""

    def __init__(self, folder: Path, serial: str, disks: dict[str, Path]) -> None:
        self.folder = folder
        self.serial = serial
        self.disks = disks
        self.variables = folder / "variables.fd"
        shutil.copyfile(VARIABLES, self.variables)
        self.runs = 0

    def run(self, *more: str, until: str = "", limit_s: float = 900.0) -> str:
        """Run it until it ends or its console has a text, and return the console's output."""
        self.runs += 1
        log = self.folder / f"console-{self.runs}.log"
        with subprocess.Popen([*self._argv(log), *more], stdin=subprocess.DEVNULL) as child:
            try:
                ends = time.monotonic() + limit_s
                while child.poll() is None and time.monotonic() < ends:
                    time.sleep(0.5)
                    if until and log.is_file() and until in log.read_text(errors="replace"):
                        break
            finally:
                child.kill()
        return log.read_text(errors="replace")

    def _argv(self, log: Path) -> list[str]:
        argv = ["qemu-system-x86_64", "-machine", "q35", "-accel", "tcg", "-cpu", "max", "-m", "1280", "-no-reboot"]
        argv += ["-display", "none", "-serial", f"file:{log}", "-smbios", f"type=1,serial={self.serial}"]
        argv += ["-drive", f"if=pflash,format=raw,readonly=on,file={FIRMWARE}"]
        argv += ["-drive", f"if=pflash,format=raw,file={self.variables}"]
        argv += ["-netdev", "user,id=net", "-device", f"virtio-net-pci,netdev=net,mac={MAC},romfile="]
        for number, (serial, path) in enumerate(self.disks.items()):
            argv += ["-drive", f"id=d{number},if=none,format=raw,file={path},cache=unsafe,discard=unmap"]
            argv += ["-device", f"virtio-blk-pci,drive=d{number},serial={serial}"]
        return argv
