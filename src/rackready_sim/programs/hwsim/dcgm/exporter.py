"""dcgm-exporter: GPU metrics as text over HTTP, from the host engine's GPUs.

Source: NVIDIA/dcgm-exporter @d5e5f51 (4.5.3-4.8.2): pkg/cmd/app.go (options), internal/pkg/counters (the counters
file; an unknown name ends the program), internal/pkg/rendermetrics (text), internal/pkg/collector (a value that a GPU
does not report is left out; a lost host engine ends the program; health is that of whole GPUs, whatever --devices
says), internal/pkg/devicemonitoring (instances of MIG). Numbers of recovery actions: nvml.h,
nvmlDeviceGpuRecoveryAction_t. NVIDIA/DCGM @72fa3fe, dcgmlib/src/DcgmCacheManager.cpp: a field of GPUs, asked of an
instance, has the value of its GPU (SetPracticalEntityInfo); an Xid is the instance's or the GPU's, not both
(RecordXidForGpuInstance, RecordXidForGpu).
"""

from __future__ import annotations

import csv
import os
import sys
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from .. import store
from ..machine import Gpu
from ..smi import mig
from . import engine, main

_OPTIONS = {
    "-f": "collectors", "--collectors": "collectors", "-a": "address", "--address": "address",
    "-c": "interval", "--collect-interval": "interval", "-r": "engine", "--remote-hostengine-info": "engine",
    "-d": "devices", "--devices": "devices",
}  # fmt: skip
_VERSION = "4.5.3-4.8.2"
"""Printed as urfave/cli v2.27.7 does (DefaultVersionPrinter)."""
_RECOVERY = {"None": 0, "GPU Reset": 1, "Reset": 1, "Node Reboot": 2, "Reboot": 2, "Drain P2P": 3, "Drain and Reset": 4}
_NVLINK_5_MBS = 50000
_WINDOW_S = 300.0
_WATCHES = ("PCIE", "NVLINK", "PMU", "MCU", "MEM", "SM", "INFOROM", "THERMAL", "POWER", "DRIVER", "ALL")
_SYSTEMS = {"Memory system": "MEM", "PCIe system": "PCIE", "Driver": "DRIVER", "InfoROM system": "INFOROM"}
_FAILURE = 20
_CONTAINED = 94
"""The Xid that belongs to an instance where its GPU has some, as in the kernel log (``firmware.xid_line``)."""
_TYPES = ("gauge", "counter", "histogram", "summary", "label")
Value = Callable[[Gpu], float | int | None]


def _rows(kind: str) -> Value:
    return lambda gpu: int(gpu.part["remapped_rows"][kind])


def _ecc(kind: str) -> Value:
    return lambda gpu: int(gpu.part["ecc"]["volatile"][kind]) if gpu.part["ecc_mode"] == "Enabled" else None


def _nvlink(key: str, *, five: bool) -> Value:
    def value(gpu: Gpu) -> int | None:
        links = gpu.part["nvlink"]["links"]
        if not links or (links[0]["speed_mb_s"] >= _NVLINK_5_MBS) != five:
            return None
        return sum(int(link.get(key, 0)) for link in links)

    return value


_FIELDS: dict[str, Value] = {
    "DCGM_FI_DEV_SM_CLOCK": lambda gpu: gpu.sm_clock,
    "DCGM_FI_DEV_MEMORY_TEMP": lambda gpu: gpu.temperature + 8,
    "DCGM_FI_DEV_GPU_TEMP": lambda gpu: gpu.temperature,
    "DCGM_FI_DEV_POWER_USAGE": lambda gpu: gpu.power_draw,
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": lambda gpu: int(gpu.part["pcie"]["replay"]),
    "DCGM_FI_DEV_GPU_UTIL": lambda gpu: 100 if gpu.loaded else 0,
    "DCGM_FI_DEV_POWER_VIOLATION": lambda _gpu: 0,
    "DCGM_FI_DEV_THERMAL_VIOLATION": lambda _gpu: 0,
    "DCGM_FI_DEV_FB_USED": lambda _gpu: 0,
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": _ecc("corrected"),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": _ecc("uncorrected"),
    "DCGM_FI_DEV_THRESHOLD_SRM": lambda _gpu: 0,
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": _rows("uncorrectable"),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": _rows("failure"),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": _rows("pending"),
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": _nvlink("crc", five=False),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": _nvlink("recovery", five=False),
    "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS": _nvlink("recovery_failed", five=True),
    "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION": lambda gpu: _RECOVERY.get(str(gpu.part["recovery_action"])),
}
"""Some fields of dcgm_fields.h (NVIDIA/DCGM @72fa3fe); a real exporter knows all."""
_OWN = ("DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_GPU_HEALTH_STATUS")


def run(argv: list[str]) -> int:
    """Tell the version, or serve until stopped; return 1 for what the real program does not start with."""
    if "--version" not in argv:
        return _serve(argv)
    sys.stdout.write(f"DCGM Exporter version {_VERSION}\n")
    return 0


def _serve(argv: list[str]) -> int:
    chosen = {"collectors": "/etc/dcgm-exporter/default-counters.csv", "address": ":9400", "devices": "f"}
    words = iter(argv)
    for word in words:
        name, _, value = word.partition("=")
        if name not in _OPTIONS:
            sys.stderr.write(f"Incorrect Usage: flag provided but not defined: {name}\n")
            return 1
        chosen[_OPTIONS[name]] = value or next(words, "")
    if chosen["devices"] not in {"f", "g", "i"}:  # lists of devices (g:0,1) are not simulated
        return _end(f"the only valid options preceding ':<range>' are 'g' or 'i', but found '{chosen['devices']}'")
    try:
        counters = read_counters(Path(chosen["collectors"]))
    except (OSError, ValueError) as error:
        return _end(f"Failed to create registry: {error}")
    if not engine.reachable():
        return _end("error connecting to nv-hostengine; err: Host engine connection invalid/disconnected")
    host, _, port = chosen["address"].rpartition(":")
    scrape = Scrape(counters, chosen["devices"])

    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = scrape.text().encode() if self.path == "/metrics" else b"KO"
            self.send_response(200 if self.path in {"/metrics", "/health"} else 404)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    try:
        server = ThreadingHTTPServer((host, int(port)), Metrics)
    except OSError as error:
        return _end(f"Failed to Listen and Server HTTP server: listen tcp {host}:{port}: {error.strerror}")
    server.serve_forever()
    return 0


def _end(words: str) -> int:
    sys.stderr.write(f'level=ERROR msg="{words}"\n')
    return 1


def read_counters(path: Path) -> list[tuple[str, str, str]]:
    """Return name, type and help of every line. Raises ValueError in the real program's words."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    found = []
    for number, row in enumerate(csv.reader(lines)):
        if len(row) != 3:  # noqa: PLR2004 - name, type, help
            message = f"malformed CSV record; err: failed to parse line {number} (`{row}`), expected 3 fields"
            raise ValueError(message)
        name, kind, words = (part.strip(" ") for part in row)
        if name not in _FIELDS and name not in _OWN:
            message = f"could not find DCGM field; err: unknown ExporterCounter field '{name}'"
            raise ValueError(message)
        if kind not in _TYPES:
            message = f"could not find Prometheus metric type '{kind}'"
            raise ValueError(message)
        found.append((name, kind, words))
    return found


class Scrape:
    """Makes the text of one scrape after the other; Xids count from the start on.

    ``devices``: f, instances in the place of a GPU that has some; g, GPUs; i, instances.
    """

    def __init__(self, counters: list[tuple[str, str, str]], devices: str = "f") -> None:
        self._counters, self._devices = counters, devices
        self._old = len(store.hardware()["xids"])
        self._seen: list[tuple[float, str, int]] = []
        self._recent: dict[int, list[int]] = {}

    def text(self) -> str:
        """Return the text of one scrape."""
        if not engine.reachable():
            _end("Could not retrieve metrics: Host engine connection invalid/disconnected")
            os._exit(1)
        xids = store.hardware()["xids"]
        self._seen += [(time.time(), str(xid["pci"]), int(xid["code"])) for xid in xids[self._old :]]
        self._old = max(self._old, len(xids))
        gpus = [gpu for gpu in main.seen() if not gpu.lost]
        self._recent = self._xids_by_entity(gpus)
        parts = []
        for name, kind, words in self._counters:
            rows = [row for gpu in gpus for row in self._samples(name, gpu)]
            if rows:
                parts += [f"# HELP {name} {words}", f"# TYPE {name} {kind}", *rows]
        return "\n".join(parts) + "\n"

    def _samples(self, name: str, gpu: Gpu) -> list[str]:
        if name == "DCGM_EXP_XID_ERRORS_COUNT":
            return self._xids(name, gpu)
        if name == "DCGM_EXP_GPU_HEALTH_STATUS":
            bad = {_SYSTEMS[system] for system in main.incidents(gpu)}
            return [
                _sample(
                    name,
                    gpu,
                    _FAILURE if watch in bad else 0,
                    health_error_code="DCGM_FR_UNKNOWN" if watch in bad else "DCGM_FR_OK",
                    health_watch=watch,
                )
                for watch in _WATCHES
            ]
        value = _FIELDS[name](gpu)
        return [] if value is None else [_sample(name, gpu, value, **of) for of in self._entities(gpu).values()]

    def _entities(self, gpu: Gpu) -> dict[tuple[str, int], dict[str, str]]:
        """Return what is monitored of a GPU, by kind and DCGM's number, each with its labels."""
        instances = mig.instances(gpu) if self._devices != "g" else []
        if not instances:
            return {} if self._devices == "i" else {("gpu", gpu.index): {}}
        first = gpu.index * max(gpu.part["mig_profiles"].values())  # DcgmCacheManager.cpp, InitializeGpuInstances
        return {
            ("instance", first + at): {"GPU_I_PROFILE": str(one["name"]), "GPU_I_ID": str(one["id"])}
            for at, one in enumerate(instances)
        }

    def _xids_by_entity(self, gpus: list[Gpu]) -> dict[int, list[int]]:
        """Return the Xids of what is monitored by DCGM's number, in which the kind is lost (expcollector.go)."""
        found: dict[int, list[int]] = {}
        for gpu in gpus:
            for at, pci, code in self._seen:
                if pci != gpu.part["pci"] or at <= time.time() - _WINDOW_S:
                    continue
                kind = "instance" if code == _CONTAINED and mig.instances(gpu) else "gpu"
                number = next((number for of, number in self._entities(gpu) if of == kind), None)
                if number is not None:
                    found.setdefault(number, []).append(code)
        return found

    def _xids(self, name: str, gpu: Gpu) -> list[str]:
        codes = self._recent.get(gpu.index, [])  # of an instance, too, the exporter looks up the GPU's number
        window = str(int(_WINDOW_S * 1000))
        counts = [(codes.count(code), {"xid": str(code)}) for code in sorted(set(codes))] or [(0, {})]
        return [
            _sample(name, gpu, count, **of, window_size_in_ms=window, **number)
            for of in self._entities(gpu).values()
            for count, number in counts
        ]


def _sample(name: str, gpu: Gpu, value: float, **more: str) -> str:
    instance: dict[str, object] = {name: more.pop(name) for name in ("GPU_I_PROFILE", "GPU_I_ID") if name in more}
    labels: dict[str, object] = {
        "gpu": gpu.index,
        "UUID": gpu.part["uuid"],
        "pci_bus_id": gpu.bus_id,
        "device": f"nvidia{gpu.index}",
        "modelName": gpu.part["name"],
        **instance,
        "hostname": os.uname().nodename,
        **more,
    }
    shown = str(int(value)) if isinstance(value, int) else f"{value:f}"
    shape = ",".join(f'{key}="{label}"' for key, label in labels.items())
    return f"{name}{{{shape}}} {shown}"
