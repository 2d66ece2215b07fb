"""The IMEX channel of a node in an NVLink domain: without one, no process imports memory of another node."""

from __future__ import annotations

from rackready.gates.base import Command, GateFacts, Outputs, trouble
from rackready.gates.judging.finding_kinds import FailKind
from rackready.gates.judging.judge import Judge

CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"
"""docs.nvidia.com/multi-node-nvlink-systems/imex-guide/imexchannels.html: nobody makes it by default."""

CHANNEL_ABSENT = FailKind(
    "imex-channel-absent",
    "IMEX channel",
    meaning="The node has no IMEX channel: CUDA and NCCL cannot share memory with other nodes over NVLink.",
    next_step="Run install again. Where Slurm makes the channels (SwitchType=switch/nvidia_imex), set "
    "handover.imex_channels to per_job.",
)


def commands(facts: GateFacts, nodes: list[str]) -> tuple[Command, ...]:
    """Return the commands that look for the channel; none where rackready makes no channel."""
    asked = nodes if facts.imex_channel else []
    return tuple(
        Command(key=f"channel-{node}", node=node, argv=("test", "-c", CHANNEL), timeout_s=60) for node in asked
    )


def judge_channel(judge: Judge, facts: GateFacts, node: str, outputs: Outputs) -> None:
    """Judge whether the node has the channel."""
    if not facts.imex_channel:
        return
    output = outputs.get(f"channel-{node}")
    if judge.trouble(trouble(output, node, f"test -c {CHANNEL}")) or output is None:
        return
    judge.judged += 1
    if output.exit_code != 0:
        judge.fail(node, CHANNEL_ABSENT, f"device {CHANNEL}", "not there")
