"""Number of GPUs of an inference benchmark, from the sizes in its command and in its output."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rackready.format_error import FormatError

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
"""Size -> its pattern in the command and in the output.

Options of vLLM (--tensor-parallel-size, -tp) and trtllm-bench (--tp); the engine configuration that vLLM logs, and the
report of trtllm-bench. A model uses the product of both sizes of GPUs. Copies of it (data parallel) are not counted:
the tools do not report them in one way.
"""
_KNOWN = re.compile(r"(?:^|[\s/])(?:vllm|trtllm-bench)(?!\S)")
"""Both default a size to 1 (vllm/config/parallel.py, tensorrt_llm/bench/benchmark/throughput.py)."""


def gpus(command: Sequence[str], printed: str) -> int | None:
    """Return the number of GPUs that the model ran on; None if neither command nor output shows it.

    Raise FormatError if the two differ, or if a size is 0.
    """
    words = " ".join(command)
    found = {
        what: sorted(
            {
                int(size)
                for text, pattern in zip((words, printed), patterns, strict=True)
                for size in pattern.findall(text)
            }
        )
        for what, patterns in _SIZES.items()
    }
    for what, sizes in found.items():
        if len(sizes) > 1 or 0 in sizes:
            message = f"{what} {' and '.join(map(str, sizes))}"
            raise FormatError(message)
    if not any(found.values()) and not _KNOWN.search(words):
        return None
    tensor, pipeline = (sizes[0] if sizes else 1 for sizes in found.values())
    return tensor * pipeline
