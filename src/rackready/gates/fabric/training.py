"""A short data-parallel training step over all nodes: the purpose of the fabric, with its result checked."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pydantic import Field

from rackready import printed_json
from rackready.format_error import FormatError
from rackready.gates.base import Command, GateFacts, Output, Outputs, Run, trouble
from rackready.gates.engine import container
from rackready.gates.engine.container import Containered
from rackready.gates.fabric import domains, transport
from rackready.gates.fabric.collective import DEBUG
from rackready.gates.formats import complaint
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Criterion, Op, Verdict
from rackready.ondevice import ddp_step

_PORT = 29511
_BACKEND = "nccl"
_NEAR = 0.1
_VOCABULARY = 32000
SPEED = (
    "tokens per second are recorded, not judged: the whole cluster trains as one unit, and there is no "
    "other to compare with"
)
"""Note of a pass. It does not keep a required gate from being satisfied: everything that can be judged was judged."""
_WARMUP = 5
"""Steps before the timed ones."""
_MOVES = 0.5
"""Share of the steps whose loss must differ from all others: updated parameters give another loss every time.
Judgement.

There is no bound on how much the loss falls: the more ranks, the more random tokens one step averages over, and the
less there is to learn in so few steps."""
_CORRUPT = (
    "Gradients were corrupted on the way, or a GPU computes wrong results: run DCGM's level 4 on these "
    "nodes: docs/runbooks/silent-data-corruption.md"
)


TRAINING_UNREADABLE = ErrorKind(
    "training-unreadable",
    "training report unreadable",
    meaning="The training step left no complete report.",
    next_step="Read the raw output in the report; run the gate again.",
)
TRAINING_NO_GPUS = ErrorKind(
    "training-no-gpus",
    "training ran without GPUs",
    meaning="The step ran on processors and not on GPUs.",
    next_step="Run the gate as planned: a step on CPUs shows nothing about GPUs and fabric.",
)
TRAINING_RANKS = ErrorKind(
    "training-other-ranks",
    "training ran with other ranks",
    meaning="The step ran with another number of ranks than the nodes have GPUs.",
    next_step="Check that all GPUs are visible.",
)
TRAINING_STEPS = ErrorKind(
    "training-other-steps",
    "training ran another number of steps",
    meaning="The report has another number of losses than steps were asked for.",
    next_step="Read the raw output in the report; run the gate again.",
)
TRAINING_HOSTS = ErrorKind(
    "training-other-hosts",
    "training ran on other hosts",
    meaning="The ranks did not run on the nodes that should take part.",
    next_step="Check the nodes' host names (they must match the site file), and that every node started its own ranks.",
)
PARAMETERS_DIFFER = FailKind(
    "training-parameters-differ",
    "parameters after training",
    meaning="After the same steps some ranks have other parameters: data were corrupted on the way or in a GPU.",
    next_step=_CORRUPT,
    runbook="docs/runbooks/silent-data-corruption.md",
)
LOSS_NO_NUMBER = FailKind(
    "training-loss-not-a-number",
    "training loss",
    meaning="The loss is not a number: a GPU computes wrong results, or gradients were corrupted.",
    next_step=_CORRUPT,
    runbook="docs/runbooks/silent-data-corruption.md",
)
LOSS_FIRST = FailKind(
    "training-first-loss",
    "first training loss",
    meaning="The first loss is not the one that the model must start with: a GPU computes wrong results.",
    next_step=_CORRUPT,
    runbook="docs/runbooks/silent-data-corruption.md",
)
LOSS_NOT_FALLING = FailKind(
    "training-loss-not-falling",
    "training loss",
    meaning="The loss does not fall, although every step sees the same batch: gradients do not arrive.",
    next_step=_CORRUPT,
    runbook="docs/runbooks/silent-data-corruption.md",
)
LOSS_STANDS = FailKind(
    "training-loss-stands",
    "training loss",
    meaning="The loss is the same at several steps, so steps changed nothing.",
    next_step=_CORRUPT,
    runbook="docs/runbooks/silent-data-corruption.md",
)
TRAINING_FAILED = ErrorKind(
    "training-failed",
    "training step failed",
    meaning="The training step ended with an error.",
    next_step="Read its raw output; check that the image has PyTorch and torchrun, "
    "and that the nodes' container toolkit "
    "offers the GPUs (CDI).",
)

FINDINGS = (
    TRAINING_UNREADABLE,
    TRAINING_NO_GPUS,
    TRAINING_RANKS,
    TRAINING_STEPS,
    TRAINING_HOSTS,
    PARAMETERS_DIFFER,
    LOSS_NO_NUMBER,
    LOSS_FIRST,
    LOSS_NOT_FALLING,
    LOSS_STANDS,
    TRAINING_FAILED,
)


class DdpStep(Containered):
    """All GPUs of all nodes train one small model: its loss falls, and every rank ends with the same parameters."""

    id = "cluster/fabric/stress/ddp-step"
    findings = (
        *transport.FINDINGS,
        *container.FINDINGS,
        *FINDINGS,
    )
    covers = frozenset({"gpu"})
    min_nodes = 2

    class Inputs(Containered.Inputs):
        """The image with PyTorch, and the number of steps."""

        steps: int = Field(50, ge=10, le=1_000_000, description="timed steps; at most a million (judgement)")

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Plan one torchrun on every node, side by side; none without an image."""
        if not self.inputs.image or len(nodes) < self.min_nodes:
            return []
        master = str(facts.nodes[nodes[0]].node.address)
        commands = []
        for place, node in enumerate(nodes):
            # with underscores: torchrun knows its options with hyphens only since PyTorch 2.0 (pytorch/pytorch pull
            # request 94505)
            spread = (
                f"--nnodes={len(nodes)}",
                f"--nproc_per_node={facts.nodes[node].platform.gpus}",
                f"--node_rank={place}",
            )
            meet = (f"--master_addr={master}", f"--master_port={_PORT}", "--no_python")
            # ranks that wait for a lost one must give up in time to report it: torchrun itself then waits up to 300 s
            # more for the other nodes
            wait = ("--wait", str(self.inputs.timeout_s // 2))
            program = ("python3", "-c", inspect.getsource(ddp_step), *self._options(), *wait)
            line = self.contained(
                "torchrun", *spread, *meet, *program, environment=[f"{name}={value}" for name, value in DEBUG.items()]
            )
            commands.append(Command(key=f"train-{node}", node=node, argv=line, timeout_s=self.inputs.timeout_s))
        return [Run("cluster", "cluster", tuple(nodes), tuple(commands), frozenset(nodes))]

    def _options(self) -> tuple[str, ...]:
        return ("--warmup", str(_WARMUP), "--steps", str(self.inputs.steps), "--vocabulary", str(_VOCABULARY))

    def tools(self, outputs: Outputs) -> dict[str, str]:
        """Return the versions of PyTorch, CUDA and NCCL, and the network of the gradients."""
        for output in outputs.values():
            with suppress(FormatError):
                return {str(name): str(value) for name, value in read(output.stdout)["versions"].items()}
        return {}

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge that all ranks took part and agree, that the loss started and fell right, and the transport.

        The speed is recorded.
        """
        gathered = Judge()
        found = [outputs.get(f"train-{node}") for node in run.nodes]
        for node, output in zip(run.nodes, found, strict=True):
            if (
                not gathered.trouble(trouble(output, node, "training step"))
                and output is not None
                and output.exit_code != 0
            ):
                _failed(gathered, node, output)
        if gathered.errors or found[0] is None:
            return gathered.verdict("cluster")
        try:
            report = read(found[0].stdout)
        except FormatError as error:
            gathered.error(run.nodes[0], TRAINING_UNREADABLE, "one JSON document", error)
            return gathered.verdict("cluster")
        self._judge(gathered, facts, run, report)
        domain = domains.of_run(facts, run.nodes)
        text = "\n".join(output.stdout for output in found if output is not None)
        transport.prove(gathered, facts, transport.WantedTransport(run.nodes, "all_reduce", "default", domain), [text])
        if not gathered.fails and not gathered.errors:
            gathered.measured.update(
                f"{node}/gpu{index}" for node in run.nodes for index in range(facts.nodes[node].platform.gpus)
            )
            gathered.remark(SPEED)
        return gathered.verdict("cluster")

    def _judge(self, gathered: Judge, facts: GateFacts, run: Run, report: dict[str, Any]) -> None:
        ranks = domains.ranks(facts, run.nodes)
        losses, sums, hosts = report["losses"], report["checksums"], report["hosts"]
        if (backend := report["versions"].get("backend")) != _BACKEND:
            gathered.error("cluster", TRAINING_NO_GPUS, f"backend {_BACKEND}", f"backend {backend}")
            return
        if report["world"] != ranks or len(sums) != ranks or len(hosts) != ranks:
            gathered.error("cluster", TRAINING_RANKS, ranks, f"{report['world']} ({len(sums)} reported)")
            return
        if len(losses) != _WARMUP + self.inputs.steps:
            gathered.error("cluster", TRAINING_STEPS, f"{_WARMUP + self.inputs.steps} losses", f"{len(losses)}")
            return
        if not _everywhere(gathered, facts, run, hosts):
            return
        gathered.judged += 1
        gathered.metric("tokens_per_second", "cluster", float(report["tokens_per_second"]), "1/s")
        _losses(gathered, losses)
        _agree(gathered, hosts, sums)


def _everywhere(gathered: Judge, facts: GateFacts, run: Run, hosts: Sequence[str]) -> bool:
    """Return whether every node of the run had a rank for each of its GPUs.

    Nodes are known by the ranks' host names, with or without a domain.
    """
    found = Counter(host if host in run.nodes else host.split(".", 1)[0] for host in hosts)
    wanted = {node: facts.nodes[node].platform.gpus for node in run.nodes}
    wrong = [name for name in dict.fromkeys((*run.nodes, *found)) if found[name] != wanted.get(name, 0)]
    if wrong:
        expected = ", ".join(f"{wanted.get(name, 0)} on {name}" for name in wrong)
        gathered.error(
            "cluster", TRAINING_HOSTS, f"ranks: {expected}", ", ".join(f"{found[name]} on {name}" for name in wrong)
        )
    return not wrong


def _agree(gathered: Judge, hosts: Sequence[str], sums: Sequence[str]) -> None:
    """Judge that every rank ends with the same parameters.

    Hosts of ranks that differ from most are named; if no parameters are those of most ranks, all hosts are.
    """
    most, times = Counter(sums).most_common(1)[0]
    if times == len(sums):
        return
    known = times * 2 > len(sums)
    odd = sorted({host for host, found in zip(hosts, sums, strict=True) if not known or found != most})
    actual = f"{len(set(sums))} different" + ("" if known else ", none of them on most ranks")
    gathered.fail(", ".join(odd), PARAMETERS_DIFFER, "the same on every rank, bit for bit", actual)


def _losses(gathered: Judge, losses: Sequence[float | None]) -> None:
    values = [loss for loss in losses if loss is not None]
    if len(values) != len(losses) or not values:
        gathered.fail("cluster", LOSS_NO_NUMBER, "a number at every step", "not a number")
        return
    first = math.log(_VOCABULARY)
    gathered.metric("loss_first", "cluster", values[0], "1")
    gathered.metric("loss_last", "cluster", values[-1], "1")
    source = "derived: an untrained model gives ln(vocabulary), within 10 %"
    gathered.criterion(
        Criterion(metric="loss_first", op=Op.EQ, bound=first, unit="1", label="identity", source=source, derived=True)
    )
    if abs(values[0] - first) > _NEAR * first:
        gathered.fail("cluster", LOSS_FIRST, f"{first:.2f} within {_NEAR:.0%}", f"{values[0]:.2f}")
    elif values[-1] >= values[0]:
        gathered.fail(
            "cluster",
            LOSS_NOT_FALLING,
            f"below {values[0]:.2f} after {len(values)} steps on one batch",
            f"{values[-1]:.2f}",
        )
    elif len(set(values)) < _MOVES * len(values):
        gathered.fail(
            "cluster",
            LOSS_STANDS,
            f"a different one at every one of {len(values)} steps",
            f"{len(set(values))} different",
        )


def read(text: str) -> dict[str, Any]:
    """Return rank 0's report. Raises FormatError when there is none, or an incomplete one."""
    for line in reversed(text.splitlines()):
        if not line.startswith("{") or ddp_step.FORMAT not in line:
            continue
        found = printed_json.load(line)
        speed = found.get("tokens_per_second")
        lists = all(isinstance(found.get(name), list) for name in ("losses", "checksums", "hosts")) and isinstance(
            found.get("versions"), dict
        )
        numbers = lists and all(loss is None or isinstance(loss, (int, float)) for loss in found["losses"])
        told = lists and all(isinstance(word, str) and word for word in (*found["checksums"], *found["hosts"]))
        fast = isinstance(speed, (int, float)) and not isinstance(speed, bool) and speed > 0
        if not numbers or not told or not fast or found.get("complete") is not True:
            break
        whole: dict[str, Any] = found
        return whole
    message = "no complete report of the training step"
    raise FormatError(message)


def _failed(gathered: Judge, node: str, output: Output) -> None:
    said = complaint.torchrun(output.exit_code, output.stdout, output.stderr)
    gathered.error(node, TRAINING_FAILED, "exit code 0", f"exit code {output.exit_code}: {said}")
