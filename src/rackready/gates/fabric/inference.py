"""An inference benchmark from a container image: vLLM or TensorRT-LLM."""

from __future__ import annotations

import re

from pydantic import Field

from rackready.format_error import FormatError
from rackready.gates.base import FleetMetric, GateFacts, Output
from rackready.gates.engine import container
from rackready.gates.fabric.programs import PROGRAM_FAILED, READ, OneProgram
from rackready.gates.formats import inference
from rackready.gates.gpu import parts
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge

_FIGURE = re.compile(r"^(?:Throughput:|\s*(?:Total )?Token Throughput \(tokens/sec\):).*$", re.MULTILINE)
_VLLM = re.compile(r"Throughput:\s+[\d.]+ requests/s, (?P<tokens>\d+(?:\.\d+)?) total tokens/s\b.*")
_TRTLLM = re.compile(r"\s*(?:Total )?Token Throughput \(tokens/sec\):\s+(?P<tokens>\d+(?:\.\d+)?)\s*")
"""`vllm bench throughput` (vllm/benchmarks/throughput.py), `trtllm-bench throughput` of TensorRT-LLM, and its first
releases, which print "Token Throughput"."""
_CHOSEN = "CUDA_VISIBLE_DEVICES"
"""With this in its command, a model may run on any GPUs."""
_SIZES_STEP = (
    "Correct the sizes in the gate's input `command` (--tensor-parallel-size, --pipeline-parallel-size; "
    "--tp, --pp), then run the gate again."
)
INFERENCE_SIZES = ErrorKind(
    "inference-contradicts",
    "inference benchmark contradicts itself",
    meaning="Command and output name different numbers of GPUs, so it is unknown which were measured.",
    next_step=_SIZES_STEP,
)
INFERENCE_GPUS = ErrorKind(
    "inference-other-gpus",
    "inference ran on other GPUs",
    meaning="The benchmark reports more GPUs than the node has.",
    next_step=_SIZES_STEP,
)
INFERENCE_UNREADABLE = ErrorKind(
    "inference-unreadable",
    "inference benchmark unreadable",
    meaning="The output has no single figure of tokens per second.",
    next_step=READ,
)
INFERENCE_NOTHING = FailKind(
    "inference-no-tokens",
    "inference",
    meaning="The benchmark exited with 0 and made no tokens.",
    next_step=READ,
)


class Inference(OneProgram):
    """A model answers on all GPUs of a node that it uses, and the benchmark reports its tokens per second."""

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
        """The image of vLLM or TensorRT-LLM, and its command."""

        command: tuple[str, ...] = Field(
            (),
            description="command inside the image, e.g. [vllm, bench, throughput, --model, /model, "
            "--tensor-parallel-size, '8']; it must print tokens/s; its sizes show which GPUs "
            "it measures",
        )

    inputs: Inputs

    def argv(self, facts: GateFacts, node: str) -> tuple[str, ...]:  # noqa: ARG002
        """Return the command of the gate set."""
        return tuple(self.inputs.command)

    def proven(self, gathered: Judge, facts: GateFacts, node: str, output: Output) -> range:
        """Return the first GPUs, as many as the model uses.

        Both tools take them in CUDA's order, which is set to that of the addresses.
        """
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
                "which GPUs it used is unknown: none counts as measured (set --tensor-parallel-size or "
                "--tp in `command`)"
            )
            return range(0)
        elif used < every:
            gathered.remark(f"the model ran on {used} of {every} GPUs: it does not measure the others")
        return range(used)

    def judge_text(self, gathered: Judge, facts: GateFacts, node: str, output: Output) -> None:  # noqa: ARG002
        """Judge the figure of vLLM's or TensorRT-LLM's benchmark: it must exist and be above zero."""
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
