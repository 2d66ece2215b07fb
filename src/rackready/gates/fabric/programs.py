"""HPL and inference out of container images: optional, and an error where the gate set lists them and names no image."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from rackready.gates.base import Command, FleetMetric, GateFacts, Output, Outputs, Run, trouble
from rackready.gates.engine import container
from rackready.gates.engine.container import Containered, exit_text
from rackready.gates.formats import inference
from rackready.gates.formats.error import FormatError
from rackready.gates.gpu import parts
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Criterion, Op, Verdict
from rackready.model.profile import GpuProfile

_RESULT = re.compile(
    r"^\s*W[RC]\w+\s+(?P<n>\d+)\s+\d+\s+(?P<p>\d+)\s+(?P<q>\d+)\s+(?P<time>\d+\.\d+)\s+(?P<gflops>\d+\.\d+e[+-]\d+|\d+\.\d+)"
    r"(?:[ \t]*\([ \t]*(?P<each>\d+\.\d+e[+-]\d+|\d+\.\d+)\))?",
    re.MULTILINE,
)
_CHECK = re.compile(r"\|\|Ax-b\|\|_oo/.*?\.\.\.\s*(?P<word>PASSED|FAILED)", re.DOTALL)
"""HPL's own table and residual check. NVIDIA's HPL (23.10 to 25) adds the rate per GPU in brackets, and no HPL for CPUs does: that is how it is told."""
_HPL_SHARE = 0.75
"""Of the HPL of a healthy node: as much as DCGM leaves beneath its own measurements (nvvs/diag-skus.yaml.in)."""
_HPL_OF_PEAK = 0.5
"""Of the FP64 tensor rate, where no HPL is published. Judgement: H100 reaches 0.68 of it."""
_ROUNDED = 1e-3
"""How far the rate per GPU times the GPUs may be from the whole, as a share: both are printed with four digits."""
_FINISHED = re.compile(
    r"^Finished +(?P<all>\d+) tests with the following results:\s+(?P<passed>\d+) tests completed and passed "
    r"residual checks,"
    r"\s+(?P<failed>\d+) tests completed and failed residual checks,\s+(?P<skipped>\d+) tests skipped because of "
    r"illegal input values\.$",
    re.MULTILINE,
)
"""How HPL ends (Netlib's testing/ptest/HPL_pddriver.c; NVIDIA's ends the same way): what was cut off before it is not the whole."""
_FIGURE = re.compile(r"^(?:Throughput:|\s*(?:Total )?Token Throughput \(tokens/sec\):).*$", re.MULTILINE)
_VLLM = re.compile(r"Throughput:\s+[\d.]+ requests/s, (?P<tokens>\d+(?:\.\d+)?) total tokens/s\b.*")
_TRTLLM = re.compile(r"\s*(?:Total )?Token Throughput \(tokens/sec\):\s+(?P<tokens>\d+(?:\.\d+)?)\s*")
"""`vllm bench throughput` (vllm/benchmarks/throughput.py), `trtllm-bench throughput` of TensorRT-LLM, and its first releases, which say "Token Throughput"."""
_CHOSEN = "CUDA_VISIBLE_DEVICES"
"""With it in its command a model may run on any GPUs."""
_SIZES_STEP = (
    "Correct the sizes in the gate's input `command` (--tensor-parallel-size, --pipeline-parallel-size; "
    "--tp, --pp), then run the gate again."
)
_READ = (
    "Read its raw output in the report; check the image, and that the node's container toolkit offers the GPUs (CDI)."
)


PROGRAM_FAILED = ErrorKind(
    "program-failed",
    "{program} failed",
    meaning="The program in the container ended with an error.",
    next_step=_READ,
)
HPL_UNREADABLE = ErrorKind(
    "hpl-unreadable",
    "HPL unreadable",
    meaning="HPL left no whole result with its checks.",
    next_step=_READ,
)
HPL_RESIDUAL = FailKind(
    "hpl-residual",
    "HPL residual",
    meaning="HPL's check of its own result failed: the node computes wrong.",
    next_step="The node computes wrong: take it out of service and run DCGM's level 4: "
    "docs/runbooks/silent-data-corruption.md",
)
HPL_NO_GPUS = ErrorKind(
    "hpl-no-gpus",
    "HPL did not run on GPUs",
    meaning="HPL ran on the processors and not on the GPUs.",
    next_step="Run the HPL of NVIDIA's HPC benchmarks (input image): HPL for CPUs says nothing of GPUs.",
)
HPL_PER_GPU = ErrorKind(
    "hpl-rate-per-gpu",
    "HPL contradicts itself",
    meaning="HPL's rate per GPU does not fit its rate as a whole.",
    next_step=_READ,
)
HPL_TIME = ErrorKind(
    "hpl-rate-and-time",
    "HPL contradicts itself",
    meaning="HPL's rate does not fit its size and time.",
    next_step=_READ,
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
    meaning="The node computes HPL slower than its GPUs must.",
    next_step="Look for throttling (`nvidia-smi -q -d PERFORMANCE`) and jobs on the node; "
    "give HPL.dat a size that fills the GPUs' memory.",
)
INFERENCE_SIZES = ErrorKind(
    "inference-contradicts",
    "inference benchmark contradicts itself",
    meaning="Command and output name different numbers of GPUs, so nobody knows which were measured.",
    next_step=_SIZES_STEP,
)
INFERENCE_GPUS = ErrorKind(
    "inference-other-gpus",
    "inference ran on other GPUs",
    meaning="The benchmark says that it used more GPUs than the node has.",
    next_step=_SIZES_STEP,
)
INFERENCE_UNREADABLE = ErrorKind(
    "inference-unreadable",
    "inference benchmark unreadable",
    meaning="The output has no single figure of tokens per second.",
    next_step=_READ,
)
INFERENCE_NOTHING = FailKind(
    "inference-no-tokens",
    "inference",
    meaning="The benchmark ended well and made no tokens.",
    next_step=_READ,
)

FINDINGS = (
    PROGRAM_FAILED,
    HPL_UNREADABLE,
    HPL_RESIDUAL,
    HPL_NO_GPUS,
    HPL_PER_GPU,
    HPL_TIME,
    HPL_GRID,
    HPL_IMPLAUSIBLE,
    HPL_SLOW,
    INFERENCE_SIZES,
    INFERENCE_GPUS,
    INFERENCE_UNREADABLE,
    INFERENCE_NOTHING,
)


class OneProgram(Containered):
    """One program on every node for itself."""

    covers = frozenset({"gpu"})
    program: ClassVar[str]
    environment: ClassVar[tuple[str, ...]] = ()
    """Environment of the container, NAME=value."""

    @abstractmethod
    def argv(self, facts: GateFacts, node: str) -> tuple[str, ...]:
        """Return what is run inside the container."""

    @abstractmethod
    def judge_text(self, gathered: Judge, facts: GateFacts, node: str, output: Output) -> None:
        """Judge what it printed."""

    def proven(self, gathered: Judge, facts: GateFacts, node: str, output: Output) -> range:  # noqa: ARG002 - all of them, unless the program can leave some out
        """Return the GPUs of the node that the program has shown to have used."""
        return range(facts.nodes[node].platform.gpus)

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """One run a node; none without an image."""
        return [Run.of_node(node, self._command(facts, node)) for node in nodes] if self.inputs.image else []

    def _command(self, facts: GateFacts, node: str) -> Command:
        argv = self.contained(*self.argv(facts, node), environment=self.environment)
        return Command(key="program", node=node, argv=argv, timeout_s=self.inputs.timeout_s)

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge that it ran to its end and what it says of its result. Its speed can only a fleet judge: no figure of this platform is published."""
        gathered = Judge()
        node, output = run.nodes[0], outputs.get("program")
        if gathered.trouble(trouble(output, node, self.program)) or output is None:
            return gathered.verdict(node)
        if output.exit_code != 0:
            gathered.error(node, PROGRAM_FAILED, "exit code 0", exit_text(output), program=self.program)
        else:
            self.judge_text(gathered, facts, node, output)
        if gathered.fails or gathered.errors:
            return gathered.verdict(node)
        used = self.proven(gathered, facts, node, output)
        if not gathered.errors:
            gathered.measured.update(f"{node}/gpu{index}" for index in used)
            gathered.fleet_pending = True
        return gathered.verdict(node)


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
        """Which image of NVIDIA's HPC benchmarks, and the size."""

        data: str = Field(
            "hpl-linux-x86_64/sample-dat/HPL-8GPUs.dat",
            description="HPL.dat inside the image, from its working directory; it fixes size and grid",
        )

    inputs: Inputs

    def argv(self, facts: GateFacts, node: str) -> tuple[str, ...]:
        """Return NVIDIA's launcher, which lies in the image's working directory and on no PATH (NVIDIA HPC benchmarks, HPL): one process a GPU."""
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
        """The residual check must be passed, by as many processes as there are GPUs. Of several sizes the best counts."""
        found, checks = (
            list(_RESULT.finditer(output.stdout)),
            [match["word"] for match in _CHECK.finditer(output.stdout)],
        )
        ends = [tuple(map(int, match.groups())) for match in _FINISHED.finditer(output.stdout)]
        told = (len(found), checks.count("PASSED"), checks.count("FAILED"), 0)
        if not found or len(checks) != len(found) or ends != [told]:
            said = f"{len(found)} results, {len(checks)} checks, " + (
                f"and it says {ends[0][0]} tests" if len(ends) == 1 else f"{len(ends)} summaries"
            )
            gathered.error(
                node, HPL_UNREADABLE, "results with their residual checks, and one summary that counts the same", said
            )
            return
        gathered.judged += 1
        gpus = facts.nodes[node].platform.gpus
        best = max(float(result["gflops"]) for result in found) / 1000
        gathered.metric("hpl", node, best, "TFLOPS")
        for result in found:
            _adds_up(gathered, node, result, gpus)
        gathered.criterion(
            Criterion(
                metric="hpl_failed", op=Op.EQ, bound=0, unit="1", label="identity", source="HPL's own residual check"
            )
        )
        if "FAILED" in checks:
            gathered.fail(node, HPL_RESIDUAL, "PASSED", "FAILED")
        if not gathered.errors:
            _hold_hpl(gathered, facts.nodes[node].gpu, node, best, gpus)


def _adds_up(gathered: Judge, node: str, result: re.Match[str], gpus: int) -> None:
    """Err where a row of HPL's table is not of all GPUs, or contradicts itself: the rate is (2/3 N^3 + 3/2 N^2) / time (Netlib's HPL_pdtest.c)."""
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
    """Return a rate with digits enough to be no 0."""
    return f"{value:.1f} TFLOPS" if value >= 1 else f"{value:.3g} TFLOPS"


def _hold_hpl(gathered: Judge, gpu: GpuProfile, node: str, best: float, gpus: int) -> None:
    """Compare a node's TFLOPS with the peak of its GPUs and with a floor, as far as either is published."""
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
    if figure is None:  # one of the two is there
        return
    least = share * figure.value * gpus
    source = f"derived: {share} x {figure.value:g} TFLOPS x {gpus} GPUs; {figure.source}"
    gathered.criterion(
        Criterion(metric="hpl", op=Op.GE, bound=least, unit="TFLOPS", label="floor", source=source, derived=True)
    )
    if best < least:
        gathered.fail(node, HPL_SLOW, f"at least {_tflops(least)} ({source})", _tflops(best))


class Inference(OneProgram):
    """A model answers on the GPUs of a node that it is spread over, and says how many tokens a second."""

    id = "node/gpu/performance/inference"
    findings = (
        *container.FINDINGS,
        PROGRAM_FAILED,
        INFERENCE_SIZES,
        INFERENCE_GPUS,
        INFERENCE_UNREADABLE,
        INFERENCE_NOTHING,
    )
    fleet = (FleetMetric("tokens_per_second", effect=0.03),)
    program = "inference benchmark"
    environment = tuple(f"{name}={value}" for name, value in parts.BY_ADDRESS.items())

    class Inputs(OneProgram.Inputs):
        """Which image of vLLM or TensorRT-LLM, and what it is to run."""

        command: tuple[str, ...] = Field(
            (),
            description="what runs in it, e.g. [vllm, bench, throughput, --model, "
            "/model, --tensor-parallel-size, '8']; "
            "it must print tokens/s; "
            "its sizes say which GPUs it measures",
        )

    inputs: Inputs

    def argv(self, facts: GateFacts, node: str) -> tuple[str, ...]:  # noqa: ARG002
        """Return the command of the gate set."""
        return tuple(self.inputs.command)

    def proven(self, gathered: Judge, facts: GateFacts, node: str, output: Output) -> range:
        """Return the first GPUs, as many as the model is spread over: both tools take them in CUDA's order, which is set to that of the addresses."""
        every = facts.nodes[node].platform.gpus
        try:
            used = inference.gpus(self.inputs.command, f"{output.stdout}\n{output.stderr}")
        except FormatError as error:
            gathered.error(node, INFERENCE_SIZES, "one size above 0 in its command and its output", error)
            return range(0)
        if used is not None and used > every:
            gathered.error(node, INFERENCE_GPUS, f"at most the {every} of the node", used)
        elif used is None or (used < every and _CHOSEN in " ".join(self.inputs.command)):
            gathered.remark(
                "which GPUs it used is not told: none counts as measured (name --tensor-parallel-size or --tp in "
                "`command`)"
            )
            return range(0)
        elif used < every:
            gathered.remark(f"the model ran on {used} of {every} GPUs: the others are not measured by it")
        return range(used)

    def judge_text(self, gathered: Judge, facts: GateFacts, node: str, output: Output) -> None:  # noqa: ARG002
        """A figure of vLLM's or TensorRT-LLM's benchmark must be there, and above zero."""
        lines = _FIGURE.findall(output.stdout)
        found = [match for line in lines if (match := _VLLM.fullmatch(line) or _TRTLLM.fullmatch(line))]
        if len(lines) != 1 or len(found) != 1:
            said = f"{len(found)}" if len(lines) == len(found) else " ".join(lines[0].split())[:80]
            gathered.error(node, INFERENCE_UNREADABLE, "one figure of tokens per second (vLLM or TensorRT-LLM)", said)
            return
        gathered.judged += 1
        rate = float(found[0]["tokens"])
        gathered.metric("tokens_per_second", node, rate, "1/s")
        if rate <= 0:
            gathered.fail(node, INFERENCE_NOTHING, "tokens", "0 tokens/s")
