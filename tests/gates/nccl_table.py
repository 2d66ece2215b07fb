"""Rows and settings as nccl-tests 2.19.6 prints them (src/util.cu).

time, algbw and busbw of a row agree with each other, rounded as nccl-tests rounds.
"""

from __future__ import annotations

import re

COLUMNS = (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw "
    "#wrong"
)
_ROW = re.compile(r"^\s*(\d+)\s+\d+\s+\w+\s+\w+\s+-?\d+(?:\s+\S+){8}\s*$", re.MULTILINE)
_AVERAGE = re.compile(r"^(# Avg bus bandwidth    : )[\d.]+ *$", re.MULTILINE)
_REDOP = {"all_reduce": "sum", "reduce_scatter": "sum"}


def settings(gpus: int = 1, **changed: int) -> str:
    """The line with the program's call; ``changed``: settings that the gates do not use."""
    said = {"warmup": 10, "iters": 50, "agg": 1, "validation": 1, "graph": 0, "unalign": 0} | changed
    head = (
        f"# nThread 1 nGpus {gpus} minBytes 8589934592 maxBytes 17179869184 step: 2(factor) warmup iters: "
        f"{said['warmup']} iters: {said['iters']} "
    )
    return (
        f"{head}agg iters: {said['agg']} validation: {said['validation']} graph: {said['graph']} unalign: "
        f"{said['unalign']}"
    )


def number(value: float, width: int) -> str:
    """A figure in so many characters (getFloatStr)."""
    return next(text for digits in (2, 1, 0) if len(text := f"{value:{width}.{digits}f}") <= width)


def row(collective: str, ranks: int, size: int, busbw: float, in_place: float | None = None) -> str:
    """One row; ``in_place``: busbw there, the same when not given. alltoall checks nothing in place."""
    factor = (2 if collective == "all_reduce" else 1) * (ranks - 1) / ranks
    cells = ""
    for place, wanted in enumerate((busbw, busbw if in_place is None else in_place)):
        algbw = wanted / factor
        wrong = "N/A" if place and collective == "alltoall" else "0"
        cells += f"  {number(size / algbw / 1e3, 7)}  {number(algbw, 6)}  {number(wanted, 6)}  {wrong:>6}"
    count = size // 4 // (1 if collective == "all_reduce" else ranks)
    return f"{size:12d}  {count:12d}  {'float':>8}  {_REDOP.get(collective, 'none'):>6}  {'-1':>6}{cells}"


def at(text: str, busbw: float, *, in_place: float | None = None, only: int = 0) -> str:
    """An all-reduce's output with rows of another busbw: all, or that of one size."""
    ranks = len(re.findall(r"^#\s+Rank", text, re.MULTILINE))

    def changed(found: re.Match[str]) -> str:
        size = int(found[1])
        return row("all_reduce", ranks, size, busbw, in_place) if only in {0, size} else found[0]

    return averaged(_ROW.sub(changed, text))


def averaged(text: str) -> str:
    """The same with the footer's average of its rows: all busbw, out of place and in place."""
    found = [float(row.split()[at]) for row in (match[0] for match in _ROW.finditer(text)) for at in (7, 11)]
    return _AVERAGE.sub(lambda match: f"{match[1]}{sum(found) / len(found):.6g} ", text)
