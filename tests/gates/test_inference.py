"""The inference benchmark measures the GPUs that the model used, and no other."""

from __future__ import annotations

import pytest

from rackready.gates.engine.registry import gate
from rackready.model.outcome import Outcome, Verdict
from tests.gates.support import Said, outputs, rack

GATE = "node/gpu/performance/inference"
FIGURE = "Throughput: 41.22 requests/s, 21103.55 total tokens/s, 5275.89 output tokens/s\n"
ENGINE = (
    "INFO 11-01 10:00:00 [core.py:70] Initializing a V1 LLM engine: model='/m', tensor_parallel_size={}, "
    "pipeline_parallel_size={}, quantization=None\n"
)
REPORT = (
    "TP Size:                {}\nPP Size:                {}\nMax Runtime Batch Size: 4096\nTotal Token Throughput "
    "(tokens/sec):              36197.5808\n"
)
VLLM, TRTLLM = "vllm bench throughput --model /m", "trtllm-bench --model m throughput"
UNTOLD = "which GPUs it used is unknown: none counts as measured (set --tensor-parallel-size or --tp in `command`)"
STEP = (
    "Correct the sizes in the gate's input `command` (--tensor-parallel-size, --pipeline-parallel-size; "
    "--tp, --pp), then run the gate again."
)


def judge(command: str, said: str) -> Verdict:
    known = rack(1)
    found = gate(GATE, {"image": "registry.example/vllm:0.11", "command": command.split()})
    run = found.plan(known, list(known.nodes))[0]
    assert "--env CUDA_DEVICE_ORDER=PCI_BUS_ID" in " ".join(run.commands[0].argv), "its first GPUs are the node's"
    return found.evaluate(known, run, outputs(run, {"program": Said(said)}))


@pytest.mark.parametrize(
    ("command", "said", "gpus"),
    [
        (f"{VLLM} --tensor-parallel-size 8", FIGURE, 8),
        (f"{VLLM} --tensor_parallel_size=4 -pp 2", FIGURE, 8),
        (f"{VLLM} --tensor-parallel-size 1", FIGURE, 1),
        (f"{VLLM} -tp 4", FIGURE, 4),
        (VLLM, FIGURE, 1),
        (f"sh -c exec {VLLM} --tensor-parallel-size=2", FIGURE, 2),
        ("/bench.sh", ENGINE.format(8, 1) + FIGURE, 8),
        (f"{TRTLLM} --tp 4 --pp 2", REPORT.format(4, 2), 8),
        (TRTLLM, REPORT.format(2, 1), 2),
        (f"env CUDA_VISIBLE_DEVICES=3,4 {VLLM} -tp 2", FIGURE, 0),
        (f"env CUDA_VISIBLE_DEVICES=7,6,5,4,3,2,1,0 {VLLM} -tp 8", FIGURE, 8),
        ("/bench.sh", FIGURE, 0),
    ],
)
def test_gpus_that_the_model_was_spread_over_are_measured(command: str, said: str, gpus: int) -> None:
    verdict = judge(command, said)
    assert (verdict.outcome, verdict.findings, verdict.measured) == (
        Outcome.PASS,
        [],
        [f"node01/gpu{index}" for index in range(gpus)],
    )
    part = f"the model ran on {gpus} of 8 GPUs: it does not measure the others"
    assert (verdict.fleet_pending, verdict.note) == (True, None if gpus == 8 else part if gpus else UNTOLD)


@pytest.mark.parametrize(
    ("command", "said", "finding"),
    [
        (
            f"{VLLM} --tensor-parallel-size 8",
            ENGINE.format(1, 1) + FIGURE,
            (
                "inference benchmark contradicts itself - Expected: one size above 0 in its command and its output "
                "Actual: tensor parallel size 1 and 8."
            ),
        ),
        (
            f"{TRTLLM} --pp 0",
            REPORT.format(8, 0),
            (
                "inference benchmark contradicts itself - Expected: one size above 0 in its command and its output "
                "Actual: pipeline parallel size 0."
            ),
        ),
        (f"{VLLM} -tp 16", FIGURE, "inference ran on other GPUs - Expected: at most the 8 of the node Actual: 16."),
    ],
    ids=["another size", "no size", "more than there are"],
)
def test_sizes_that_cannot_be_are_an_error(command: str, said: str, finding: str) -> None:
    verdict = judge(command, said)
    assert [str(item) for item in verdict.findings] == [f"node01: {finding} {STEP}"]
    assert (verdict.outcome, verdict.measured, verdict.note) == (Outcome.ERROR, [], None)
