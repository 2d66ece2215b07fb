"""Multiply random matrices on every GPU at once with PyTorch, and print each one's rate by second as JSON.

Sent on standard input to a python3 that has PyTorch, on the node or in a container. Arguments: seconds per precision,
matrix dimension, precisions. Every product is compared bit by bit with the first one of the same GPU: the same inputs
must always give the same result.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

FORMAT = "rackready/gemm/v1"
_BATCH_S = 0.5
_SEED = 20261122


def main(seconds: str, dimension: str, *precisions: str) -> int:
    """Print the document; exit 1 without PyTorch or CUDA (the document then carries "error")."""
    # CUDA's own order starts with the GPU that it takes for the fastest; it is read once, with the import
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        return give_up(f"PyTorch is not installed: {error}")
    if not torch.cuda.is_available():
        return give_up("PyTorch finds no CUDA device")
    torch.backends.cuda.matmul.allow_tf32 = True
    names = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    try:
        document = measure(torch, names, float(seconds), int(dimension), precisions)
    except (
        RuntimeError,
        AttributeError,
        TypeError,
    ) as error:  # out of memory, no such kernel, or a PyTorch older than the number format
        return give_up(f"PyTorch {torch.__version__}: {type(error).__name__}: {str(error).partition(chr(10))[0]}")
    sys.stdout.write(json.dumps(document, sort_keys=True) + "\n")
    return 0


def give_up(reason: str) -> int:
    """Print why there is no measurement."""
    sys.stdout.write(json.dumps({"format": FORMAT, "error": reason}) + "\n")
    return 1


def measure(torch: Any, names: list[str], seconds: float, dimension: int, precisions: Sequence[str]) -> dict[str, Any]:  # noqa: ANN401 - a module
    """Load all devices with one precision after the other and return the document."""
    loads = {kind: load(torch, names, kind, seconds, dimension) for kind in precisions}
    return {
        "format": FORMAT,
        "torch": str(torch.__version__),
        "cuda": str(torch.version.cuda),
        "gpus": len(names),
        "loads": loads,
        "complete": True,
    }


def load(torch: Any, names: list[str], kind: str, seconds: float, dimension: int) -> list[dict[str, Any]]:  # noqa: ANN401 - a module
    """Return per GPU: readings in GFLOPS, products that differed from the first, and a digest of the first."""
    products = [product(torch, name, kind, dimension) for name in names]
    first = [one().clone() for one in products]
    rows: list[dict[str, Any]] = [{"readings": [], "differ": 0, "digest": digest(torch, result)} for result in first]
    count = batch(torch, names, products)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for row, taken in zip(rows, round_of(torch, names, products, count)):  # noqa: B905 - old interpreters know no strict
            row["readings"].append(2e-9 * dimension**3 * count / taken)
        for row, one, wanted in zip(rows, products, first):  # noqa: B905 - the same
            row["differ"] += int(not torch.equal(one(), wanted))
    return rows


def product(torch: Any, name: str, kind: str, dimension: int) -> Any:  # noqa: ANN401 - tensors
    """Return a function that multiplies two random matrices, the same on every GPU, in the given precision."""
    generator = torch.Generator().manual_seed(_SEED)
    one, two = (torch.randn(dimension, dimension, generator=generator) for _ in range(2))
    if kind == "fp8":
        return fp8(torch, one.to(name), two.to(name))
    target = torch.bfloat16 if kind == "bf16" else torch.float32
    left, right = one.to(name).to(target), two.to(name).to(target)
    return lambda: left @ right


def fp8(torch: Any, one: Any, two: Any) -> Any:  # noqa: ANN401 - tensors
    """Return a function that multiplies in FP8 (E4M3, one scale a matrix, result in BF16).

    cuBLASLt wants the left matrix by rows, the right one by columns, and both scales as single float32 on the device
    (pytorch/pytorch aten/src/ATen/native/cuda/ScaledBlas.cpp). PyTorch 2.1 to 2.4 return the largest value beside the
    result (pull request 128683).
    """
    scale = torch.ones(1, device=one.device)
    left, right = one.to(torch.float8_e4m3fn), two.to(torch.float8_e4m3fn).t()

    def multiply() -> Any:  # noqa: ANN401 - a tensor
        result = torch._scaled_mm(left, right, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)  # noqa: SLF001 - PyTorch has no public name for it
        return result[0] if isinstance(result, tuple) else result

    return multiply


def digest(torch: Any, result: Any) -> int:  # noqa: ANN401 - tensors
    """Return the sum of a result's bit patterns, which GPUs of one model have in common."""
    bits = result.contiguous().view(torch.int16 if result.element_size() == 2 else torch.int32)  # noqa: PLR2004 - bytes of a 16-bit number
    return int(bits.to(torch.int64).sum().item())


def batch(torch: Any, names: list[str], products: list[Any]) -> int:  # noqa: ANN401 - a module
    """Return how many products take about half a second."""
    round_of(torch, names, products, 2)
    slowest = max(round_of(torch, names, products, 4)) / 4
    return max(1, int(_BATCH_S / slowest))


def round_of(torch: Any, names: list[str], products: list[Any], count: int) -> list[float]:  # noqa: ANN401 - a module
    """Start ``count`` products on every GPU at once; return the seconds that each took, by its own events."""
    marks = []
    for name, one in zip(names, products):  # noqa: B905 - the same
        with torch.cuda.device(name):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(count):
                one()
            end.record()
        marks.append((begin, end))
    for name in names:
        torch.cuda.synchronize(name)
    return [begin.elapsed_time(end) / 1000 for begin, end in marks]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
