"""Real Prometheus, Alertmanager and node_exporter on loopback, and what stands in for dcgm-exporter.

dcgm-exporter needs a GPU. Its text is made here in the form of its own templates (NVIDIA/dcgm-exporter @d5e5f51,
internal/pkg/rendermetrics/render_metrics.go, xid_collector.go, gpu_health_collector.go), with the names, types and help
texts of the counters file that rackready wrote. InfiniBand ports are a made sysfs tree in the form of the kernel's
(node_exporter's own fixtures, @a7dcc3a0, collector/fixtures/sys.ttar); node_exporter reads it.
"""

from __future__ import annotations

import csv
import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PROGRAMS = ("prometheus", "prometheus-alertmanager", "prometheus-node-exporter")
GPUS = 8
_WAIT_S = 180
_VALUES = {
    "DCGM_FI_DEV_GPU_TEMP": 61,
    "DCGM_FI_DEV_MEMORY_TEMP": 70,
    "DCGM_FI_DEV_POWER_USAGE": 690.5,
    "DCGM_FI_DEV_SM_CLOCK": 1755,
    "DCGM_FI_DEV_GPU_UTIL": 98,
    "DCGM_FI_DEV_FB_USED": 70000,
}


def missing_programs() -> str:
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"missing (apt): {', '.join(absent)}" if absent else ""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def dcgm_text(counters: Path, host: str) -> str:
    """Return what dcgm-exporter says on a node with eight healthy GPUs, for the counters of that file."""
    lines = [line for line in counters.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    out = []
    for name, kind, words in csv.reader(lines):
        out += [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
        for gpu in range(GPUS):
            labels = (
                f'gpu="{gpu}",UUID="GPU-{host}-{gpu}",pci_bus_id="00000000:{gpu:02X}:00.0",device="nvidia{gpu}",'
                f'modelName="NVIDIA H100 80GB HBM3",hostname="{host}"'
            )
            extra = {
                "DCGM_EXP_XID_ERRORS_COUNT": ',window_size_in_ms="300000"',
                "DCGM_EXP_GPU_HEALTH_STATUS": ',health_error_code="DCGM_FR_OK",health_watch="MEM"',
            }.get(name, "")
            out.append(f"{name}{{{labels}{extra}}} {_VALUES.get(name, 0)}")
    return "\n".join(out) + "\n"


@contextmanager
def serving(address: str, port: int, text: Callable[[], str]) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer((address, port), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def sysfs(folder: Path, devices: list[str]) -> Path:
    """Make /sys with one active 400 Gb/s InfiniBand port for each device."""
    for device in devices:
        port = folder / "class/infiniband" / device / "ports/1"
        (port / "counters").mkdir(parents=True)
        (port / "hw_counters").mkdir()
        for name, value in (("board_id", "MT_0000000838"), ("fw_ver", "28.39.1002"), ("hca_type", "MT4129")):
            (port.parents[1] / name).write_text(f"{value}\n", encoding="utf-8")
        for name, value in (("state", "4: ACTIVE"), ("phys_state", "5: LinkUp"), ("rate", "400 Gb/sec (4X NDR)")):
            (port / name).write_text(f"{value}\n", encoding="utf-8")
        for name in ("link_downed", "symbol_error", "port_rcv_data", "port_xmit_data", "port_xmit_wait"):
            (port / "counters" / name).write_text("1\n", encoding="utf-8")
    return folder


@contextmanager
def running(log: Path, *argv: str) -> Iterator[None]:
    """Run a program until the block ends; its output is shown when it died."""
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            yield
            assert process.poll() is None, log.read_text(encoding="utf-8")
        finally:
            process.terminate()
            process.wait(timeout=60)


def node_exporter(folder: Path, address: str, port: int, sys: Path, texts: Path) -> Any:  # noqa: ANN401 - a context
    return running(
        folder / f"node-{address}.log",
        "prometheus-node-exporter",
        f"--web.listen-address={address}:{port}",
        f"--path.sysfs={sys}",
        f"--collector.textfile.directory={texts}",
        "--collector.disable-defaults",
        *(f"--collector.{name}" for name in ("infiniband", "loadavg", "meminfo", "stat", "textfile", "timex")),
    )


def get(url: str, **query: str) -> Any:  # noqa: ANN401 - JSON
    where = f"{url}?{urllib.parse.urlencode(query)}" if query else url
    with urllib.request.urlopen(where, timeout=30) as answer:  # noqa: S310 - a program of this test, on loopback
        return json.load(answer)


def post(url: str, document: object) -> None:
    request = urllib.request.Request(  # noqa: S310 - as above
        url, json.dumps(document).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=30):  # noqa: S310 - as above
        pass


def until(found: Callable[[], Any]) -> Any:  # noqa: ANN401 - what is found
    """Return what is found as soon as it is something; the last answer when it never is."""
    last = time.monotonic() + _WAIT_S
    while True:
        try:
            answer = found()
        except OSError:
            answer = None
        if answer or time.monotonic() > last:
            return answer
        time.sleep(0.5)
