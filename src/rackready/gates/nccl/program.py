"""Command line of nccl-tests and reader of its launches, for all NCCL gates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rackready.format_error import FormatError, TwoReportsError
from rackready.gates.base import Output, Outputs, trouble
from rackready.gates.formats import nccl_log, nccl_tests
from rackready.gates.judging import gpu_models
from rackready.gates.judging.judge import Judge
from rackready.gates.nccl import findings as kinds
from rackready.gates.nccl import rows as nccl_rows
from rackready.model.place import Place

WARMUP = 10
ITERATIONS = 50
CHECKS = 1
LARGEST = "16G"
"""Message size of the published healthy figures; larger messages are not faster.

NVIDIA/cluster-readiness-engine docs, validation-results.
"""
_SHOWN = 4
"""Number of processes that a message names."""
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True)
class Launch:
    """Required properties of a launch: largest size, ranks, hosts, GPU models as the profiles name them."""

    size: str
    ranks: int
    hosts: tuple[str, ...]
    models: frozenset[str]
    program: str = "all_reduce_perf"


def size_bytes(text: str) -> int:
    """Return a size such as ``16G`` in bytes."""
    return int(text[:-1]) * _UNITS[text[-1]]


def sizes(text: str) -> tuple[int, int]:
    """Return the two message sizes of a launch, bytes: half of the largest, and the largest."""
    return size_bytes(text) // 2, size_bytes(text)


def fitting(memory_mib: float) -> str:
    """Return the largest message, such as ``16G``, that nccl-tests can check in this memory; at most LARGEST.

    Derived from src/common.cu of nccl-tests 2.19: three buffers of the message, 1 GiB for the rest, and 1 GiB in
    reserve per 16 GiB or part of it, at most 4. nccl-tests skips larger sizes without an error. The memory is NVML's;
    CUDA's is a little less, but 3 % move no profile to another power of two.
    """
    memory, gib = int(memory_mib) << 20, 1 << 30
    room = (memory - min(-(-memory // (16 * gib)), 4) * gib - gib) // 3
    exponent = min(max(room, 1024).bit_length() - 1, size_bytes(LARGEST).bit_length() - 1)
    return next(f"{(1 << exponent) // unit}{name}" for name, unit in reversed(_UNITS.items()) if 1 << exponent >= unit)


def argv(binary: str, size: str, *, gpus_per_process: int) -> tuple[str, ...]:
    """Return nccl-tests' command line: two large sizes, with checked results.

    The gate reads the text table: the -J document contains the whole environment, including secrets.
    """
    small, large = sizes(size)
    return (
        binary,
        "-b",
        str(small),
        "-e",
        str(large),
        "-f",
        "2",
        "-g",
        str(gpus_per_process),
        "-w",
        str(WARMUP),
        "-n",
        str(ITERATIONS),
        "-c",
        str(CHECKS),
    )


def collectives_run(size: str) -> int:
    """Return the bytes (sum of message sizes) that one launch moves through all its collectives.

    nccl-tests' TimeTest: w warm-ups at the largest and w at the smallest size; then for each size, out of place and in
    place, one to synchronize, n timed ones, and one per check (NVIDIA/nccl-tests src/common.cu).
    """
    small, large = sizes(size)
    return WARMUP * (small + large) + 2 * (1 + ITERATIONS + CHECKS) * (small + large)


_VERSIONS = re.compile(r"nccl-tests version (?P<tests>\S+)(?:.*?nccl-library=(?P<library>\d+))?")


def tool_versions(outputs: Outputs) -> dict[str, str]:
    """Return the versions that nccl-tests prints: its own, and NCCL's (22809 is 2.28.9)."""
    found = next((match for output in outputs.values() if (match := _VERSIONS.search(output.stdout))), None)
    if found is None:
        return {}
    code = int(found["library"] or 0)
    return {"nccl-tests": found["tests"]} | (
        {"nccl": f"{code // 10000}.{code // 100 % 100}.{code % 100}"} if code else {}
    )


@dataclass(frozen=True, slots=True)
class Launched:
    """One launch that can be judged. The last three fields distinguish it from other launches.

    ``busbw``: GB/s of the largest size, out of place. ``others``: name -> busbw of the other sizes and of all in place.
    """

    busbw: float
    others: Mapping[str, float]
    text: str
    processes: frozenset[tuple[str, int]]
    communicators: frozenset[str]

    def shared(self, other: Launched) -> str:
        """Return why both are the same launch; empty if they are not.

        Process ids may repeat: each container numbers its processes from 1. NCCL's communicators never repeat.
        """
        if self.text == other.text:
            return "the same output"
        if self.communicators and other.communicators:
            both = sorted(self.communicators & other.communicators)
            return f"the same communicator (commId {both[0]})" if both else ""
        if self.processes != other.processes:
            return ""
        named = [f"{host} {pid}" for host, pid in sorted(self.processes)]
        return f"the same processes ({', '.join(named[:_SHOWN])}{' ...' if len(named) > _SHOWN else ''})"


def read_launches(judge: Judge, outputs: Sequence[Output | None], node: str, wanted: Launch) -> list[Launched]:
    """Return every launch that can be judged; report the others to the judge."""
    found: list[tuple[int, Launched]] = []
    for number, output in enumerate(outputs, 1):
        where = Place(node, f"launch {number}")
        one = _read(judge, output, where, wanted)
        twin = next(
            ((before, words) for before, other in found if one is not None and (words := one.shared(other))), None
        )
        if twin is not None:
            expected = "a launch of its own: other processes (host, process id), another communicator"
            judge.error(where, kinds.SAME_LAUNCH, expected, twin[1], program=wanted.program, twin=twin[0])
        if one is not None:
            found.append((number, one))
    return [one for _, one in found]


_BEHIND = 0.1
"""Share by which the busbw of other sizes and placements may be below that of the largest message, out of place.

Judgement: in healthy logs, sizes of 2 GiB and more and both placements are within 3 % of each other (A100: all-reduce
and alltoall logs of microsoft/superbenchmark's tests/data).
"""


def require_even(judge: Judge, where: str, what: str, found: Sequence[Launched]) -> None:
    """Report a fail if another size or placement is much slower than the judged one."""
    main = median(one.busbw for one in found)
    for name in found[0].others:
        value = median(one.others[name] for one in found)
        if value < (1 - _BEHIND) * main:
            expected = f"at least {1 - _BEHIND:g} x {main:.1f} GB/s, the busbw of the largest message out of place"
            judge.fail(
                where, kinds.SLOW_AT, expected, f"{value:.1f} GB/s (median of {len(found)})", what=what, name=name
            )


def _read(judge: Judge, output: Output | None, where: str, wanted: Launch) -> Launched | None:
    """Return one launch; None, with a finding for the judge, if it cannot be judged."""
    if judge.trouble(trouble(output, where, wanted.program)) or output is None:
        return None
    try:
        result = nccl_tests.parse(output.stdout)
    except FormatError as error:
        _unreadable(judge, where, output, error, wanted.program)
        return None
    asked = sizes(wanted.size)
    row = result.at(max(asked))
    if (
        result.ranks != wanted.ranks
        or row is None
        or None in map(result.at, asked)
        or _another(result.test, wanted.program)
    ):
        _something_else(judge, where, result, wanted)
        return None
    if (
        not _as_asked(judge, where, result, wanted)
        or not _spread(judge, where, result, wanted)
        or not gpu_models.require_model(judge, where, f"{wanted.program} ran on", result.devices, wanted.models)
        or not _checked(judge, where, result, wanted.program)
        or not nccl_rows.judge_rows(judge, where, result, wanted.program)
        or not _own_log(judge, where, result, output.stdout)
        or not _no_failure(judge, where, output, wanted.program)
    ):
        return None
    others = {
        f"{item.size} bytes out of place": item.out_of_place.busbw.value
        for item in map(result.at, asked)
        if item is not None and item is not row
    }
    others |= {
        f"{item.size} bytes in place": item.in_place.busbw.value for item in map(result.at, asked) if item is not None
    }
    return Launched(
        row.out_of_place.busbw.value,
        others,
        output.stdout.strip(),
        result.processes,
        nccl_log.communicators(output.stdout),
    )


_ASKED = {
    "warmup": WARMUP,
    "iters": ITERATIONS,
    "agg": 1,
    "validation": CHECKS,
    "graph": 0,
    "unalign": 0,
    "blocking": 0,
}
_OLD = {"agg": 1, "graph": 0, "unalign": 0, "blocking": 0}
"""Defaults of settings that older versions lack and do not print."""


def _as_asked(judge: Judge, where: str, result: nccl_tests.CollectiveResult, wanted: Launch) -> bool:
    """Return whether the program ran with the gate's settings. Fewer iterations, graphs and barriers change figures."""
    settings = _OLD | dict(result.options)
    if not result.options or any(name not in settings for name in _ASKED):
        actual, expected = (
            "some are missing in its output",
            "the line '# nThread ... warmup iters: ... iters: ...'",
        )
        judge.error(where, kinds.NO_SETTINGS, expected, actual, program=wanted.program)
        return False
    other = {name: settings[name] for name, value in _ASKED.items() if settings[name] != value}
    if not other:
        return True
    expected = ", ".join(f"{name} {_ASKED[name]}" for name in other)
    actual = ", ".join(f"{name} {value}" for name, value in other.items())
    judge.error(where, kinds.OTHER_SETTINGS, expected, actual, program=wanted.program)
    return False


_NOT_IN_PLACE = frozenset({"alltoall_perf"})
"""Programs that check nothing in place (reportErrors of src/alltoall.cu)."""


def _no_failure(judge: Judge, where: str, output: Output, program: str) -> bool:
    """Return whether nothing else shows that the launch failed: launchers and captures may lose exit codes."""
    failed = next((match for text in (output.stderr, output.stdout) if (match := _FAILED.search(text))), None)
    if failed is not None:
        judge.error(
            where,
            kinds.SAYS_FAILURE,
            "a whole table and no error message",
            failed["text"].strip().rstrip("."),
            program=program,
        )
    elif output.exit_code != 0:
        judge.error(
            where,
            kinds.NCCL_EXIT_CODE,
            "exit code 0 with a whole table",
            f"exit code {output.exit_code}",
            program=program,
        )
    return failed is None and output.exit_code == 0


def _another(name: str, program: str) -> bool:
    """Return whether a program prints another name.

    MPI builds may have a suffix (nccl-tests' make NAME_SUFFIX=_mpi); older versions print no name.
    """
    return bool(name) and not name.startswith(program)


def _something_else(judge: Judge, where: str, result: nccl_tests.CollectiveResult, wanted: Launch) -> None:
    """Report other ranks or collectives, or sizes skipped as too large (src/common.cu, "Reducing maxBytes")."""
    other = f"{result.test}, " if _another(result.test, wanted.program) else ""
    actual = f"{other}{result.ranks} ranks, sizes {[item.size for item in result.rows]}"
    judge.error(
        where,
        kinds.OTHER_RUN if other or result.ranks != wanted.ranks else kinds.SIZES_LEFT_OUT,
        f"{wanted.ranks} ranks, sizes {list(sizes(wanted.size))}",
        actual,
        program=wanted.program,
    )


def _spread(judge: Judge, where: str, result: nccl_tests.CollectiveResult, wanted: Launch) -> bool:
    """Return whether as many hosts took part as nodes were requested, whatever their names."""
    if len(result.hosts) == len(wanted.hosts):
        return True
    actual = f"on {', '.join(result.hosts)}"
    judge.error(
        where,
        kinds.OTHER_HOSTS,
        f"{wanted.ranks} ranks on {len(wanted.hosts)} host{'s' if len(wanted.hosts) > 1 else ''}",
        actual,
        program=wanted.program,
    )
    return False


def _own_log(judge: Judge, where: str, result: nccl_tests.CollectiveResult, text: str) -> bool:
    """Return whether NCCL's log is from exactly the processes that measured: another run's log proves nothing.

    If NCCL logged nothing at all, the proof of the transport reports that.
    """
    speakers = nccl_log.speakers(text)
    if not speakers or speakers == result.processes:
        return True
    strange, silent = sorted(speakers - result.processes), sorted(result.processes - speakers)
    parts = []
    for words, found in (("also of", strange), ("none of", silent)):
        if found:
            names = ", ".join(f"{host} {pid}" for host, pid in found[:_SHOWN])
            parts.append(f"{words} {names}{' ...' if len(found) > _SHOWN else ''}")
    judge.error(
        where,
        kinds.LINES_OF_ANOTHER_RUN,
        "those of the processes in its list of ranks (host, process id), and of all",
        "; ".join(parts),
    )
    return False


def _checked(judge: Judge, where: str, result: nccl_tests.CollectiveResult, program: str) -> bool:
    """Return whether all values are right. Wrong ones are a fail, unchecked ones an error (some programs: in place)."""
    found = [
        item.wrong
        for row in result.rows
        for item in (row.out_of_place, *([row.in_place] if program not in _NOT_IN_PLACE else []))
    ]
    if None in found:
        judge.error(where, kinds.NOT_CHECKED, "#wrong 0", "#wrong N/A")
        return False
    wrong = sum(item.wrong or 0 for row in result.rows for item in (row.out_of_place, row.in_place))
    if wrong or result.out_of_bounds or not result.sane:
        judge.fail(where, kinds.WRONG_RESULTS, "0 wrong values", f"{max(wrong, result.out_of_bounds)} wrong values")
        return False
    return True


_FAILED = re.compile(
    r"(?P<text>Test (?:CUDA|NCCL) failure .*|Test failure \S+:\d+.*|Test timeout \(.*|"
    r"(?:mpirun|mpiexec|orterun|prterun) (?:noticed that process rank|detected that one or more "
    r"processes).*|MPI_ABORT was invoked.*|"
    r"srun: error: \S+: tasks? .*|"
    r"NCCL WARN (?:Call to ibv_(?:modify_qp|create_qp|create_cq|poll_cq|post_send|post_recv) failed.*|NET/IB ?: "
    r"(?:Got completion|.*async fatal event).*|"
    r"Cuda failure .*(?:launch failure|illegal|uncorrectable|hardware stack|assert).*))"
)
"""Messages of a failed launch: of nccl-tests (src/common.h), of launchers, and some of NCCL's warnings.

The warnings are those after which NCCL returns an error (src/misc/ibvwrap.cc; retries are logged as INFO), or that
poison a GPU's context. Other warnings are in healthy logs too: "Cuda failure 1 'invalid argument'" of NVLS, "Got
non-fatal async event", "NET/IB : No device found", kernel command line, NUMA balancing.
"""
_WARNING = re.compile(r"(NCCL WARN .*)")
_CAUSE = re.compile(
    r"(.*can not load PMIx library.*|srun: error: .*|Test NCCL failure .*|.*CUDA error.*|"
    r".*: command not found|.*No such file.*|(?!.*setpgid).*Permission denied.*|.*error while loading.*|.*invalid "
    r"option.*)"
)
"""Causes of a failure. Open MPI's warning about setpgid ("Permission denied") is harmless and does not count."""


def _unreadable(judge: Judge, where: str, output: Output, error: FormatError, program: str) -> None:
    found = (pattern.search(text) for pattern in (_WARNING, _CAUSE) for text in (output.stderr, output.stdout))
    message = next((match for match in found if match), None)
    cause = f"; it printed: {message[1].strip()}" if message else ""
    actual = f"{error} (exit code {output.exit_code}){cause}"
    judge.error(
        where,
        kinds.TWO_TABLES if isinstance(error, TwoReportsError) else kinds.NO_RESULT,
        "a whole table",
        actual,
        program=program,
    )
