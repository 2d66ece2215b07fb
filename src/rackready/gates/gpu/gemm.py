"""Matrix multiplication in steady state by DCGM's load program; the GPUs are compared with each other."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal

from pydantic import Field

from rackready.format_error import FormatError
from rackready.gates import base
from rackready.gates.base import Command, FleetMetric, Gate, GateFacts, Output, Outputs, Run, trouble
from rackready.gates.formats import proftester
from rackready.gates.gpu import matmul, parts, siblings
from rackready.gates.gpu.siblings import Comparison, compare
from rackready.gates.judging.expectation import launches
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Verdict
from rackready.model.place import Place
from rackready.model.profile import Precision

_FIELDS: dict[str, int] = {"fp16": 1004, "fp32": 1007}
"""DCGM_FI_PROF_PIPE_TENSOR_ACTIVE (HGEMM on tensor cores) and _PIPE_FP32_ACTIVE (SGEMM), both of random numbers."""
_EFFECT, _SIGMA = 0.03, 0.01
_STEP = (
    "Compare clocks and temperatures under load (gate node/gpu/stress/burn), and look for a power cap. "
    "Replace a GPU that is still slow after a power cycle: docs/runbooks/gpu.md."
)
_START_S = 60
_LEAST_READINGS = 5


PROFTESTER_UNREADABLE = ErrorKind(
    "dcgmproftester-unreadable",
    "dcgmproftester unreadable",
    meaning="dcgmproftester left no readings, often because it is not installed or other work holds the GPUs.",
    next_step="Install package datacenter-gpu-manager-4-cuda{major} if it is missing, and check that no other work "
    "holds the GPUs; then run the gate again.",
)
PROFTESTER_FAILED = FailKind(
    "dcgmproftester-failed",
    "{kind} load failed",
    meaning="dcgmproftester reports that the load on this GPU failed.",
    next_step="Read the kernel log for Xids (gate node/gpu/sanity/xid), then run the gate again.",
)
PROFTESTER_EXIT_CODE = ErrorKind(
    "dcgmproftester-exit-code",
    "dcgmproftester contradicts itself",
    meaning="dcgmproftester printed readings and still ended with an error.",
    next_step="Run dcgmproftester by hand on the node.",
)
PROFTESTER_NO_RESULT = ErrorKind(
    "dcgmproftester-no-result",
    "dcgmproftester reports no result",
    meaning="dcgmproftester did not report whether the load on this GPU passed.",
    next_step="Run the gate again: the output is cut off.",
)
NO_STEADY_LOAD = ErrorKind(
    "dcgmproftester-no-steady-load",
    "no steady load",
    meaning="There are too few readings after the warm-up, so there is no rate to judge.",
    next_step="Run dcgmproftester by hand on the node.",
)
RATE_LOW = FailKind(
    "gemm-slow",
    "{metric} is slow",
    meaning="The GPU computes slower than its model should.",
    next_step=_STEP,
    runbook="docs/runbooks/gpu.md",
)

FINDINGS = (
    RATE_LOW,
    PROFTESTER_UNREADABLE,
    PROFTESTER_FAILED,
    PROFTESTER_EXIT_CODE,
    PROFTESTER_NO_RESULT,
    NO_STEADY_LOAD,
)


class Gemm(Gate):
    """Every GPU multiplies matrices in steady state as fast as its siblings; a GPU that is 3 % slower is found."""

    id = "node/gpu/performance/gemm"
    findings = (
        *matmul.FINDINGS,
        *siblings.FINDINGS,
        *FINDINGS,
    )
    covers = frozenset({"gpu"})
    fleet = tuple(FleetMetric(f"gemm_{kind}", _EFFECT, _SIGMA) for kind in _FIELDS)

    class Inputs(base.Inputs):
        """Program and length of the load."""

        binary: str | None = Field(
            None,
            description="DCGM's load program; null: dcgmproftester of the CUDA major that the version set installs",
        )
        precisions: tuple[Literal["fp16", "fp32"], ...] = Field(
            ("fp16", "fp32"), min_length=1, description="fp16 runs on the tensor cores"
        )
        duration_s: int = Field(
            20, ge=5, le=3600, description="length of one launch, s; all launches together are the steady state"
        )
        warm_up_s: int = Field(5, ge=0, le=600, description="first seconds of each launch whose readings are not used")
        launches: int | None = Field(
            None,
            ge=1,
            le=50,
            description="launches whose median counts; null: computed from the number of GPUs of the site and an "
            "effect of 3 %",
        )

    inputs: Inputs

    @property
    def needs(self) -> frozenset[base.Need]:
        """Return DCGM, which brings dcgmproftester; a program that an input names is the site's own."""
        return frozenset() if self.inputs.binary else frozenset({"dcgm"})

    def _launches(self, facts: GateFacts, node: str) -> int:
        return self.inputs.launches or launches(facts.fleet * parts.gpus(facts, node), sigma=_SIGMA, effect=_EFFECT)

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Return as many launches per node and precision as the site's size requires, each on all GPUs at once."""
        return [Run.of_node(node, *self._commands(facts, node)) for node in nodes]

    def _commands(self, facts: GateFacts, node: str) -> list[Command]:
        of_node = facts.nodes[node]
        binary = self.inputs.binary or f"dcgmproftester{of_node.software.cuda.split('.', 1)[0]}"
        gpus = ",".join(str(index) for index in range(of_node.platform.gpus))
        out: list[Command] = []
        for number in range(self._launches(facts, node)):
            for kind in self.inputs.precisions:
                load = (
                    "-t",
                    str(_FIELDS[kind]),
                    "-i",
                    gpus,
                    "-d",
                    str(self.inputs.duration_s),
                    "-r",
                    "1",
                    "--max-processes",
                    "0",
                )
                # without it 1007 only keeps the cores busy and prints no GFLOPS (DCGM, PhysicalGpu.cpp)
                library = ("--cublas",) if kind == "fp32" else ()
                argv = (binary, "--no-dcgm-validation", *library, *load)
                out.append(
                    Command(
                        key=f"{kind}-{number}",
                        node=node,
                        argv=argv,
                        timeout_s=self.inputs.duration_s + _START_S,
                        stage=len(out),
                    )
                )
        return out

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Compare the median of each GPU's launches with its siblings, its model's floor and its model's peak."""
        node = run.nodes[0]
        judge = Judge()
        slow: set[int] = set()
        for kind in self.inputs.precisions:
            found = [
                self._launch(judge, facts, node, kind, outputs.get(f"{kind}-{number}"))
                for number in range(self._launches(facts, node))
            ]
            if judge.errors or judge.fails or any(one is None for one in found):
                continue
            values = {
                gpu: median(one[gpu] for one in found if one is not None) for gpu in range(parts.gpus(facts, node))
            }
            slow |= self._judge(judge, facts, node, kind, values)
        if not judge.errors and not any(finding.code == PROFTESTER_FAILED.code for finding in judge.fails):
            judge.measured.update(f"{node}/gpu{gpu}" for gpu in range(parts.gpus(facts, node)) if gpu not in slow)
        if matmul.needs_fleet(facts.nodes[node].gpu, self.inputs.precisions, parts.gpus(facts, node)):
            judge.fleet_pending = True
        judge.remark("measured by dcgmproftester, which has no BF16 and FP8")
        return judge.verdict(node)

    def _launch(
        self, judge: Judge, facts: GateFacts, node: str, kind: str, output: Output | None
    ) -> dict[int, float] | None:
        """Return each GPU's steady GFLOPS of one launch; None, with a finding, if it is incomplete."""
        if judge.trouble(trouble(output, node, "dcgmproftester")) or output is None:
            return None
        try:
            loads = proftester.parse(output.stdout)
        except FormatError as error:
            major = facts.nodes[node].software.cuda.split(".", 1)[0]
            judge.error(
                node,
                PROFTESTER_UNREADABLE,
                "a reading per GPU and second",
                f"{error} (exit code {output.exit_code})",
                major=major,
            )
            return None
        field = _FIELDS[kind]
        for (gpu, of), word in loads.results.items():
            if word == "FAILED" and of == field:
                judge.fail(Place(node, f"gpu{gpu}"), PROFTESTER_FAILED, "PASSED", word, kind=kind)
        if output.exit_code != 0 and not judge.fails:
            judge.error(node, PROFTESTER_EXIT_CODE, "exit code 0 with readings", f"exit code {output.exit_code}")
        return self._steady(judge, facts, node, field, loads)

    def _steady(
        self, judge: Judge, facts: GateFacts, node: str, field: int, loads: proftester.Loads
    ) -> dict[int, float] | None:
        out: dict[int, float] = {}
        for gpu in range(parts.gpus(facts, node)):
            if (gpu, field) not in loads.results:
                judge.error(Place(node, f"gpu{gpu}"), PROFTESTER_NO_RESULT, "PASSED at the end", "nothing")
                continue
            readings = loads.readings.get((gpu, field), ())[self.inputs.warm_up_s :]
            least = min(_LEAST_READINGS, max(1, self.inputs.duration_s - self.inputs.warm_up_s - 1))
            if len(readings) < least or min(readings) <= 0:
                text = f"{len(readings)} readings" + (" and one of 0" if readings and min(readings) <= 0 else "")
                judge.error(
                    Place(node, f"gpu{gpu}"),
                    NO_STEADY_LOAD,
                    f"at least {least} readings above 0 after {self.inputs.warm_up_s} s",
                    text,
                )
            else:
                out[gpu] = median(readings)
        return out if len(out) == parts.gpus(facts, node) else None

    def _judge(self, judge: Judge, facts: GateFacts, node: str, kind: Precision, values: dict[int, float]) -> set[int]:
        judge.judged += 1
        for gpu, value in values.items():
            judge.metric(f"gemm_{kind}", f"{node}/gpu{gpu}", value, "GFLOPS")
        slow = matmul.judge_rates(judge, facts.nodes[node].gpu, node, kind, values, RATE_LOW)
        units = facts.fleet * parts.gpus(facts, node)
        return slow | compare(
            judge,
            node,
            values,
            Comparison(f"gemm_{kind}", "GFLOPS", _EFFECT, _SIGMA, self._launches(facts, node), units, _STEP),
        )
