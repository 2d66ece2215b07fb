"""Gates that run a program out of a container image that the site names. Without an image nothing is measured, and that is an error."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from rackready.gates import base
from rackready.gates.base import Done, Gate, GateFacts
from rackready.model.outcome import Finding, Outcome, Verdict


class Containered(Gate):
    """A program out of a container image."""

    class Inputs(base.Inputs):
        """Which image, and what runs it."""

        image: str = Field(
            "", description="container image with the program; without one nothing runs, which is an error: declare the skip of the gate where it is not wanted"
        )
        runtime: str = Field("podman", pattern=r"^(podman|docker)$", description="what runs containers on the nodes")
        timeout_s: int = Field(1800, ge=60, description="longest time that it may take, s")

    inputs: Inputs

    def attribute(self, facts: GateFacts, done: Sequence[Done]) -> dict[str, list[Verdict]]:
        """Where no image is named, every node has an error: only the site can say, with a reason, that a gate which it lists is to be left out."""
        if self.inputs.image:
            return super().attribute(facts, done)
        step = "Name one in the gate set (inputs: {image: ...}), or declare the gate's skip with its reason (site.yml gates.skip)."
        return {node: [_without(node, self.id, step)] for node in facts.nodes}

    def contained(self, *argv: str, environment: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the command line that runs a program with all GPUs and NICs of the node."""
        gpus = ("--device", "nvidia.com/gpu=all") if self.inputs.runtime == "podman" else ("--gpus", "all")
        limits = ("--network=host", "--ipc=host", "--ulimit", "memlock=-1", "--ulimit", "stack=67108864", "--device", "/dev/infiniband")
        variables = [word for item in environment for word in ("--env", item)]
        return (self.inputs.runtime, "run", "--rm", *gpus, *limits, *variables, self.inputs.image, *argv)


def _without(node: str, gate_id: str, step: str) -> Verdict:
    finding = Finding(where=node, what=f"{gate_id} has no container image", expected="an image in its input image", actual="none", next_step=step)
    return Verdict(outcome=Outcome.ERROR, findings=[finding])
