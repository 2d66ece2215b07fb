"""Check of the rows of nccl-tests: requested type and operation, consistent with each other and the footer."""

from __future__ import annotations

from collections.abc import Callable

from rackready.gates.formats.nccl_tests import CollectiveResult
from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.gates.judging.judge import Judge

_KIND, _BYTES = "float", 4
"""nccl-tests' default type, and its bytes (src/common.cu)."""
_REDOP = {"all_reduce_perf": "sum", "reduce_scatter_perf": "sum"}
"""Default operation. The other programs have none: they print none, before 2.11 nothing."""
_OF_ALL = frozenset({"all_reduce_perf"})
"""Programs that print the elements of all ranks; the others print those of one (paramcount, GetCollByteCount)."""
_STEP = "Give the output as the program printed it, or run the gate again."
_FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce_perf": lambda ranks: 2 * (ranks - 1) / ranks,
    **dict.fromkeys(("all_gather_perf", "reduce_scatter_perf", "alltoall_perf"), lambda ranks: (ranks - 1) / ranks),
}
"""busbw over algbw (GetBw of src/all_reduce.cu, all_gather.cu, reduce_scatter.cu and alltoall.cu)."""


OTHER_DATA = ErrorKind(
    "nccl-other-data",
    "{program} ran with other data",
    meaning="The program ran with another data type or operation than the gate requires.",
    next_step="Run it with the command that `rackready gate show` prints.",
)
ROW_COUNT = ErrorKind(
    "nccl-row-count",
    "{program} contradicts itself at {size} bytes",
    meaning="A row's count does not fit its size, so the table was changed or damaged.",
    next_step=_STEP,
)
LAST_LINES = ErrorKind(
    "nccl-last-lines",
    "{program} contradicts itself in its last lines",
    meaning="The summary in the last lines does not fit the rows.",
    next_step=_STEP,
)
ROW_FIGURES = ErrorKind(
    "nccl-row-figures",
    "{program} contradicts itself at {size} bytes {name}",
    meaning="A row's time, rate and bandwidth do not fit each other, so the table was changed or damaged.",
    next_step=_STEP,
)

FINDINGS = (OTHER_DATA, ROW_COUNT, LAST_LINES, ROW_FIGURES)


def judge_rows(judge: Judge, where: str, result: CollectiveResult, program: str) -> bool:
    """Return whether all rows are as requested and consistent; report an error if not."""
    return (
        _data(judge, where, result, program)
        and _adds_up(judge, where, result, program)
        and _averaged(judge, where, result, program)
    )


def _data(judge: Judge, where: str, result: CollectiveResult, program: str) -> bool:
    """Return whether type and operation are as requested, and the elements make up the size."""
    redop, parts = _REDOP.get(program, "none"), 1 if program in _OF_ALL else result.ranks
    for row in result.rows:
        if (row.kind, row.redop or "none") != (_KIND, redop):
            actual = f"type {row.kind}, redop {row.redop or 'none'} at {row.size} bytes"
            judge.error(where, OTHER_DATA, f"type {_KIND}, redop {redop}", actual, program=program)
            return False
        if row.count * _BYTES * parts != row.size:
            expected = f"count {row.size // _BYTES // parts} of {_BYTES} bytes" + (
                f" for each of {parts} ranks" if parts > 1 else ""
            )
            judge.error(where, ROW_COUNT, expected, f"count {row.count}", program=program, size=row.size)
            return False
    return True


def _averaged(judge: Judge, where: str, result: CollectiveResult, program: str) -> bool:
    """Return whether the footer's average is that of all rows, within rounding."""
    found = [place.busbw for row in result.rows for place in (row.out_of_place, row.in_place)]
    mean, half = (sum(values) / len(found) for values in ([one.value for one in found], [one.half for one in found]))
    if abs(mean - result.average.value) <= half + result.average.half:
        return True
    expected, actual = f"an average busbw of {mean:.2f} GB/s, as its rows have", f"{result.average.value:g} GB/s"
    judge.error(where, LAST_LINES, expected, actual, program=program)
    return False


def _adds_up(judge: Judge, where: str, result: CollectiveResult, program: str) -> bool:
    """Return whether time, algbw and busbw of every row agree, within rounding.

    algbw is size over time, busbw a multiple of it.
    """
    factor = _FACTORS[program](result.ranks)
    for row in result.rows:
        for name, found in (("out of place", row.out_of_place), ("in place", row.in_place)):
            if not (row.size and found.time.value > found.time.half):
                continue  # too small to be timed; such sizes are never judged
            low, high = (row.size / (found.time.value + sign * found.time.half) / 1e3 for sign in (1, -1))
            alg, bus = found.algbw, found.busbw
            if (
                low - alg.half <= alg.value <= high + alg.half
                and abs(bus.value - factor * alg.value) <= bus.half + factor * alg.half
            ):
                continue
            expected = f"algbw {row.size / found.time.value / 1e3:.2f} (size / time) and busbw {factor:g} x algbw"
            actual = f"time {found.time.value:g} us, algbw {alg.value:g}, busbw {bus.value:g} GB/s"
            judge.error(where, ROW_FIGURES, expected, actual, program=program, size=row.size, name=name)
            return False
    return True
