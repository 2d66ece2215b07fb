"""On how many GPUs a model ran: the sizes that the command of an inference benchmark names, and those that the benchmark itself tells."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rackready.gates.formats.error import FormatError

_SIZES = {
    "tensor parallel size": (
        re.compile(r"(?:^|\s)(?:--tensor[-_]parallel[-_]size|--tp|-tp)[\s=]+(\d+)(?!\S)"),
        re.compile(r"(?:\btensor_parallel_size=|^TP Size:\s+)(\d+)\b", re.MULTILINE),
    ),
    "pipeline parallel size": (
        re.compile(r"(?:^|\s)(?:--pipeline[-_]parallel[-_]size|--pp|-pp)[\s=]+(\d+)(?!\S)"),
        re.compile(r"(?:\bpipeline_parallel_size=|^PP Size:\s+)(\d+)\b", re.MULTILINE),
    ),
}
"""Options of vLLM (--tensor-parallel-size, -tp) and trtllm-bench (--tp); the engine configuration that vLLM logs and the report of trtllm-bench.
A model that is spread over both sizes uses their product of GPUs. Copies of it (data parallel) are not counted: neither
tool tells them in one way.
"""
_KNOWN = re.compile(r"(?:^|[\s/])(?:vllm|trtllm-bench)(?!\S)")
"""Both take 1 for a size that is not named (vllm/config/parallel.py, tensorrt_llm/bench/benchmark/throughput.py)."""


def gpus(command: Sequence[str], printed: str) -> int | None:
    """Return on how many GPUs the model ran; None where neither command nor output tells. Raises FormatError where what they tell differs, or is no size."""
    words = " ".join(command)
    told = {
        what: sorted(
            {
                int(size)
                for text, pattern in zip((words, printed), patterns, strict=True)
                for size in pattern.findall(text)
            }
        )
        for what, patterns in _SIZES.items()
    }
    for what, sizes in told.items():
        if len(sizes) > 1 or 0 in sizes:
            message = f"{what} {' and '.join(map(str, sizes))}"
            raise FormatError(message)
    if not any(told.values()) and not _KNOWN.search(words):
        return None
    tensor, pipeline = (sizes[0] if sizes else 1 for sizes in told.values())
    return tensor * pipeline
