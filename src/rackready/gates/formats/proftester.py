"""Reader of the matrix multiplications of dcgmproftester12/13.

NVIDIA/DCGM dcgmproftester/PhysicalGpu.cpp, RunSubtestGemmUtil.

``Worker 3:0 [1004]: TensorEngineActive:  generated ???, dcgm 0.000 (6.83e+05 gflops).`` - one line per GPU and second,
three significant digits.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from rackready.format_error import TWICE, FormatError

_WORKER = re.compile(
    r"^Worker (?P<gpu>\d+):(?P<worker>\d+) ?\[(?P<field>\d+)\]: (?P<name>\w+): .*\((?P<value>[0-9.e+-]+) gflops\)\.?$"
)
_RESULT = re.compile(r"^GPU (?P<gpu>\d+), TestField (?P<field>\d+) (?P<when>test|testing) (?P<word>\w+)\.$")


@dataclass(frozen=True, slots=True)
class Loads:
    """(GPU, field) -> readings in GFLOPS in order of time, and the tool's own result."""

    readings: dict[tuple[int, int], tuple[float, ...]]
    results: dict[tuple[int, int], str]


def parse(text: str) -> Loads:
    """Return the readings of every GPU. Raise FormatError if there are none, or one is not a number."""
    readings: dict[tuple[int, int], list[float]] = {}
    results: dict[tuple[int, int], str] = {}
    ended: set[tuple[int, int]] = set()
    for raw in text.splitlines():
        line = raw.strip()
        if worker := _WORKER.match(line):
            gpu, field, value = worker.group("gpu", "field", "value")
            readings.setdefault((int(gpu), int(field)), []).append(_number(value))
        elif result := _RESULT.match(line):
            if result["word"] not in {"PASSED", "FAILED"}:
                raise FormatError(f"result {result['word']!r} of GPU {result['gpu']} is unknown")
            key = (int(result["gpu"]), int(result["field"]))
            if key in ended:
                raise FormatError(f"GPU {key[0]} ends twice: {TWICE}")
            ended |= {key} if result["when"] == "test" else set()
            results[key] = "FAILED" if "FAILED" in {result["word"], results.get(key)} else "PASSED"
    if not readings:
        first = text.strip().splitlines()[0][:100] if text.strip() else ""
        raise FormatError("empty output" if not first else f"no readings of dcgmproftester, but {first!r}")
    return Loads({key: tuple(values) for key, values in readings.items()}, results)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise FormatError(f"a reading of {text!r} gflops") from error
    if not math.isfinite(value) or value < 0:
        raise FormatError(f"a reading of {text!r} gflops")
    return value
