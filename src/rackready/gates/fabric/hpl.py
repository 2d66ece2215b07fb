"""HPL from a container image: all GPUs of a node solve one dense system."""

from __future__ import annotations

import re

from pydantic import Field

from rackready.gates.base import FleetMetric, GateFacts, Output
from rackready.gates.engine import container
from rackready.gates.fabric.programs import PROGRAM_FAILED, READ, OneProgram
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Criterion, Op
from rackready.model.profile import GpuProfile

_RESULT = re.compile(
    r"^\s*W[RC]\w+\s+(?P<n>\d+)\s+\d+\s+(?P<p>\d+)\s+(?P<q>\d+)\s+(?P<time>\d+\.\d+)\s+(?P<gflops>\d+\.\d+e[+-]\d+|\d+\.\d+)"
    r"(?:[ \t]*\([ \t]*(?P<each>\d+\.\d+e[+-]\d+|\d+\.\d+)\))?",
    re.MULTILINE,
)
_CHECK = re.compile(r"\|\|Ax-b\|\|_oo/.*?\.\.\.\s*(?P<word>PASSED|FAILED)", re.DOTALL)
"""HPL's own table and residual check. NVIDIA's HPL (23.10 to 25) adds the rate per GPU in brackets; no HPL for CPUs
does, which tells them apart."""
_HPL_SHARE = 0.75
"""Share of a healthy node's HPL: the same margin that DCGM leaves below its own measurements
(nvvs/diag-skus.yaml.in)."""
_HPL_OF_PEAK = 0.5
"""Share of the FP64 tensor rate, where no HPL is published. Judgement: H100 reaches 0.68 of it."""
_ROUNDED = 1e-3
"""How far the rate per GPU times the GPUs may be from the total, as a share: both are printed with four digits."""
_FINISHED = re.compile(
    r"^Finished +(?P<all>\d+) tests with the following results:\s+(?P<passed>\d+) tests completed and passed "
    r"residual checks,"
    r"\s+(?P<failed>\d+) tests completed and failed residual checks,\s+(?P<skipped>\d+) tests skipped because of "
    r"illegal input values\.$",
    re.MULTILINE,
)
"""The end of HPL's output (Netlib's testing/ptest/HPL_pddriver.c; NVIDIA's ends the same way): an output without it
is incomplete."""
HPL_UNREADABLE = ErrorKind(
    "hpl-unreadable",
    "HPL unreadable",
    meaning="HPL left no complete result with its checks.",
    next_step=READ,
)
HPL_RESIDUAL = FailKind(
    "hpl-residual",
    "HPL residual",
    meaning="HPL's check of its own result failed: the node computes wrong results.",
    next_step="The node computes wrong results: drain it and run DCGM's level 4: "
    "docs/runbooks/silent-data-corruption.md",
    runbook="docs/runbooks/silent-data-corruption.md",
)
HPL_NO_GPUS = ErrorKind(
    "hpl-no-gpus",
    "HPL did not run on GPUs",
    meaning="HPL ran on the processors and not on the GPUs.",
    next_step="Run the HPL of NVIDIA's HPC benchmarks (input image): HPL for CPUs shows nothing about GPUs.",
)
HPL_PER_GPU = ErrorKind(
    "hpl-rate-per-gpu",
    "HPL contradicts itself",
    meaning="HPL's rate per GPU does not match its total rate.",
    next_step=READ,
)
HPL_TIME = ErrorKind(
    "hpl-rate-and-time",
    "HPL contradicts itself",
    meaning="HPL's rate does not match its size and time.",
    next_step=READ,
)
HPL_GRID = ErrorKind(
    "hpl-other-gpus",
    "HPL ran on other GPUs",
    meaning="HPL ran on another number of GPUs than the node has.",
    next_step="Give the gate an HPL.dat for all GPUs of the node (input data).",
)
HPL_IMPLAUSIBLE = ErrorKind(
    "hpl-implausible",
    "HPL is implausible",
    meaning="The rate is more than the node's GPUs can compute.",
    next_step="Check the node's GPU profile, and that the output is this node's.",
)
HPL_SLOW = FailKind(
    "hpl-slow",
    "HPL is slow",
    meaning="The node runs HPL slower than its GPUs should.",
    next_step="Check for throttling (`nvidia-smi -q -d PERFORMANCE`) and jobs on the node; give HPL.dat "
    "a size that fills the GPUs' memory.",
)


class Hpl(OneProgram):
    """All GPUs of a node solve one dense system (HPL), and the result is right."""

    id = "node/gpu/stress/hpl"
    findings = (
        *container.FINDINGS,
        PROGRAM_FAILED,
        HPL_UNREADABLE,
        HPL_RESIDUAL,
        HPL_NO_GPUS,
        HPL_PER_GPU,
        HPL_TIME,
        HPL_GRID,
        HPL_IMPLAUSIBLE,
        HPL_SLOW,
    )
    fleet = (FleetMetric("hpl", effect=0.03),)
    program = "HPL"

    class Inputs(OneProgram.Inputs):
        """The image of NVIDIA's HPC benchmarks, and the size."""

        data: str = Field(
            "hpl-linux-x86_64/sample-dat/HPL-8GPUs.dat",
            description="HPL.dat inside the image, from its working directory; it fixes size and grid",
        )

    inputs: Inputs

    def argv(self, facts: GateFacts, node: str) -> tuple[str, ...]:
        """Return the command with NVIDIA's launcher, one process per GPU.

        The launcher is in the image's working directory, and not on the PATH (NVIDIA HPC benchmarks, HPL).
        """
        return (
            "mpirun",
            "--allow-run-as-root",
            "-np",
            str(facts.nodes[node].platform.gpus),
            "--bind-to",
            "none",
            "./hpl.sh",
            "--dat",
            self.inputs.data,
        )

    def judge_text(self, gathered: Judge, facts: GateFacts, node: str, output: Output) -> None:
        """Judge the residual check, with as many processes as GPUs; of several sizes the best counts."""
        found, checks = (
            list(_RESULT.finditer(output.stdout)),
            [match["word"] for match in _CHECK.finditer(output.stdout)],
        )
        ends = [tuple(map(int, match.groups())) for match in _FINISHED.finditer(output.stdout)]
        told = (len(found), checks.count("PASSED"), checks.count("FAILED"), 0)
        if not found or len(checks) != len(found) or ends != [told]:
            said = f"{len(found)} results, {len(checks)} checks, " + (
                f"and it reports {ends[0][0]} tests" if len(ends) == 1 else f"{len(ends)} summaries"
            )
            gathered.error(
                node, HPL_UNREADABLE, "results with their residual checks, and one summary with the same counts", said
            )
            return
        gathered.judged += 1
        gpus = facts.nodes[node].platform.gpus
        best = max(float(result["gflops"]) for result in found) / 1000
        gathered.metric("hpl", node, best, "TFLOPS")
        for result in found:
            _judge_row(gathered, node, result, gpus)
        gathered.criterion(
            Criterion(
                metric="hpl_failed", op=Op.EQ, bound=0, unit="1", label="identity", source="HPL's own residual check"
            )
        )
        if "FAILED" in checks:
            gathered.fail(node, HPL_RESIDUAL, "PASSED", "FAILED")
        if not gathered.errors:
            _judge_rate(gathered, facts.nodes[node].gpu, node, best, gpus)


def _judge_row(gathered: Judge, node: str, result: re.Match[str], gpus: int) -> None:
    """Report an error where a row of HPL's table is not of all GPUs, or contradicts itself.

    The rate is (2/3 N^3 + 3/2 N^2) / time (Netlib's HPL_pdtest.c).
    """
    gflops, each = result["gflops"], result["each"]
    if not each:
        gathered.error(node, HPL_NO_GPUS, "a rate per GPU in brackets, as NVIDIA's HPL prints it", f"{gflops} alone")
    elif abs(float(each) * gpus - float(gflops)) > _ROUNDED * float(gflops):
        gathered.error(node, HPL_PER_GPU, f"{gflops} Gflops over {gpus} GPUs", f"{each} Gflops a GPU")
    size, time = int(result["n"]), float(result["time"])
    work = (2 / 3 * size**3 + 3 / 2 * size**2) / 1e9
    least, most = (
        work / (time + sign * _half(result["time"])) if time > _half(result["time"]) else work for sign in (1, -1)
    )
    if not least - _half(gflops) <= float(gflops) <= most + _half(gflops):
        expected = f"{work / time:.3e} Gflops (2/3 N^3 + 3/2 N^2 over time)" if time > 0 else "a time above 0 s"
        gathered.error(node, HPL_TIME, expected, f"{gflops} Gflops of N {size} in {result['time']} s")
    if int(result["p"]) * int(result["q"]) != gpus:
        gathered.error(node, HPL_GRID, f"a grid of {gpus}", f"{result['p']} x {result['q']}")


def _half(printed: str) -> float:
    """Return half of the unit of a printed number's last digit."""
    mantissa, _, exponent = printed.partition("e")
    return float(0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])))


def _tflops(value: float) -> str:
    """Return a rate with enough digits not to be 0."""
    return f"{value:.1f} TFLOPS" if value >= 1 else f"{value:.3g} TFLOPS"


def _judge_rate(gathered: Judge, gpu: GpuProfile, node: str, best: float, gpus: int) -> None:
    """Compare a node's TFLOPS with the peak of its GPUs and with a floor, where they are published."""
    peak, known = gpu.fp64_tensor, gpu.hpl
    if peak is not None:
        top = peak.value * gpus
        gathered.criterion(
            Criterion(metric="hpl", op=Op.LE, bound=top, unit="TFLOPS", label="ceiling", source=peak.source)
        )
        if best > top:
            gathered.error(node, HPL_IMPLAUSIBLE, f"at most {_tflops(top)} ({peak.source})", _tflops(best))
    if known is None and peak is None:
        return
    share, figure = (_HPL_SHARE, known) if known is not None else (_HPL_OF_PEAK, peak)
    if figure is None:  # one of the two exists
        return
    least = share * figure.value * gpus
    source = f"derived: {share} x {figure.value:g} TFLOPS x {gpus} GPUs; {figure.source}"
    gathered.criterion(
        Criterion(metric="hpl", op=Op.GE, bound=least, unit="TFLOPS", label="floor", source=source, derived=True)
    )
    if best < least:
        gathered.fail(node, HPL_SLOW, f"at least {_tflops(least)} ({source})", _tflops(best))
