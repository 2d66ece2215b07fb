"""Programs from container images, one on each node: optional, and an error where a gate set names no image."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from rackready.gates.base import Command, GateFacts, Output, Outputs, Run, trouble
from rackready.gates.engine.container import Containered, exit_text
from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Verdict

READ = (
    "Read its raw output in the report; check the image, and that the node's container toolkit offers the GPUs (CDI)."
)


PROGRAM_FAILED = ErrorKind(
    "program-failed",
    "{program} failed",
    meaning="The program in the container ended with an error.",
    next_step=READ,
)


class OneProgram(Containered):
    """One program on each node alone."""

    covers = frozenset({"gpu"})
    program: ClassVar[str]
    environment: ClassVar[tuple[str, ...]] = ()
    """Environment of the container, NAME=value."""

    @abstractmethod
    def argv(self, facts: GateFacts, node: str) -> tuple[str, ...]:
        """Return the command inside the container."""

    @abstractmethod
    def judge_text(self, gathered: Judge, facts: GateFacts, node: str, output: Output) -> None:
        """Judge its output."""

    def proven(self, gathered: Judge, facts: GateFacts, node: str, output: Output) -> range:  # noqa: ARG002 - all of them, unless the program can leave some out
        """Return the GPUs of the node that the program has shown to have used."""
        return range(facts.nodes[node].platform.gpus)

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Plan one run per node; none without an image."""
        return [Run.of_node(node, self._command(facts, node)) for node in nodes] if self.inputs.image else []

    def _command(self, facts: GateFacts, node: str) -> Command:
        argv = self.contained(*self.argv(facts, node), environment=self.environment)
        return Command(key="program", node=node, argv=argv, timeout_s=self.inputs.timeout_s)

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge that it ran to its end, and its result.

        Only a fleet can judge its speed: no figure of this platform is published.
        """
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
