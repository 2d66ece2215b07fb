"""What the exporters of a node answer: every GPU, every rail, and every counter that alerts read.

Text format: prometheus/docs, exposition_formats.md. dcgm-exporter leaves out what a GPU does not report
(NVIDIA/dcgm-exporter @d5e5f51, internal/pkg/collector/gpu_collector.go, skipDCGMValue), and names a GPU by the label
``gpu`` (internal/pkg/rendermetrics/render_metrics.go).
"""

from __future__ import annotations

import http.client
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ANSWER_S = 10.0
"""Prometheus gives a scrape 10 s by default (its configuration, scrape_timeout)."""
_AGAIN_S = 2.0
_MOST_BYTES = 32 << 20

Fetch = Callable[[str], str]
"""Returns the text at an address. Raises OSError where nothing answers."""
Samples = dict[str, list[dict[str, str]]]
"""Metric to the labels of its samples."""


@dataclass(frozen=True)
class ExportersWanted:
    """What must be there. A port of 0 is an exporter that is not asked.

    ``per_gpu`` and ``per_device``: metrics that must come for each of ``gpus`` GPUs and each of ``devices``.
    """

    address: str
    node_port: int = 0
    dcgm_port: int = 0
    gpus: int = 0
    per_gpu: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    per_device: list[str] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)


def fetch(url: str) -> str:
    """Return what an exporter answers, asked without a proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=_ANSWER_S) as answer:
        return str(answer.read(_MOST_BYTES).decode("utf-8", "replace"))


def samples(text: str) -> Samples:
    """Return the samples of an answer. Raises ValueError with the first line that is none."""
    found: Samples = {}
    for line in text.split("\n"):
        if not line.strip() or line.startswith("#"):
            continue
        match = _SAMPLE.match(line)
        if match is None:
            raise ValueError(line[:80])
        float(match[3])
        found.setdefault(match[1], []).append(dict(_LABEL.findall(match[2] or "")))
    return found


def findings(wanted: ExportersWanted, get: Fetch = fetch) -> list[str]:
    """Return what is missing, in words, a text for each exporter; none if both answer all that is wanted."""
    found = []
    if wanted.node_port:
        found += _of(wanted, "node_exporter", wanted.node_port, get, _node)
    if wanted.dcgm_port:
        found += _of(wanted, "dcgm-exporter", wanted.dcgm_port, get, _gpus)
    return found


def settled(
    wanted: ExportersWanted, wait_s: float, get: Fetch = fetch, pause: Callable[[float], None] = time.sleep
) -> list[str]:
    """Return the findings, asked again until there are none or ``wait_s`` are over: exporters begin empty."""
    last = time.monotonic() + wait_s
    while (found := findings(wanted, get)) and time.monotonic() < last:
        pause(_AGAIN_S)
    return found


def _of(
    wanted: ExportersWanted, name: str, port: int, get: Fetch, judge: Callable[[ExportersWanted, Samples], list[str]]
) -> list[str]:
    url = f"http://{wanted.address}:{port}/metrics"
    try:
        found = judge(wanted, samples(get(url)))
    except (OSError, urllib.error.URLError) as error:
        return [f"{name} at {url}: no answer ({getattr(error, 'reason', error)})"]
    except http.client.HTTPException as error:
        said = " ".join(str(error).split())[:80]
        return [f"{name} at {url}: not the text of an exporter: {type(error).__name__}: {said}"]
    except ValueError as error:
        return [f"{name} at {url}: not the text of an exporter: {error}"]
    return [f"{name} at {url}: {'; '.join(found)}"] if found else []


def _node(wanted: ExportersWanted, seen: Samples) -> list[str]:
    found = [f"no {name}" for name in wanted.metrics if name not in seen]
    for name in wanted.per_device:
        there = {labels.get("device", "") for labels in seen.get(name, [])}
        lacks = [device for device in wanted.devices if device not in there]
        if lacks:
            found.append(f"no {name} of {_all(lacks, wanted.devices)}")
    return found


def _gpus(wanted: ExportersWanted, seen: Samples) -> list[str]:
    every = {labels["gpu"] for rows in seen.values() for labels in rows if labels.get("gpu")}
    found = []
    if len(every) != wanted.gpus:
        names = f": {', '.join(_sorted(every))}" if every else ""
        found.append(f"{len(every)} GPUs{names}, not {wanted.gpus}")
    for name in wanted.per_gpu:
        lacks = _sorted(every - {labels.get("gpu", "") for labels in seen.get(name, [])})
        if name not in seen:
            found.append(f"no {name}")
        elif lacks:
            found.append(f"no {name} of GPU {', '.join(lacks)}")
    return found


def _sorted(gpus: set[str]) -> list[str]:
    return sorted(gpus, key=lambda name: (len(name), name))


def _all(some: list[str], every: list[str]) -> str:
    return f"all {len(every)} devices" if len(some) == len(every) > 1 else ", ".join(some)
