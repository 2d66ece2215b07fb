"""Gates that run a program out of a container image that the site names. Without an image they are left out, and say so."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from rackready.gates import base
from rackready.gates.base import Done, Gate, GateFacts
from rackready.model.outcome import Outcome, Verdict


class Containered(Gate):
    """A program out of a container image."""

    class Inputs(base.Inputs):
        """Which image, and what runs it."""

        image: str = Field("", description="container image with the program; empty: the gate is left out, and its verdict is a skip that says so")
        runtime: str = Field("podman", pattern=r"^(podman|docker)$", description="what runs containers on the nodes")
        timeout_s: int = Field(1800, ge=60, description="longest time that it may take, s")

    inputs: Inputs

    def attribute(self, facts: GateFacts, done: Sequence[Done]) -> dict[str, list[Verdict]]:
        """Where no image is named, every node has a skip with its reason."""
        if self.inputs.image:
            return super().attribute(facts, done)
        note = f"{self.id} is optional and the gate set names no container image for it (input image)"
        return {node: [Verdict(outcome=Outcome.SKIP, note=note)] for node in facts.nodes}

    def contained(self, *argv: str, environment: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the command line that runs a program with all GPUs and NICs of the node."""
        gpus = ("--device", "nvidia.com/gpu=all") if self.inputs.runtime == "podman" else ("--gpus", "all")
        limits = ("--network=host", "--ipc=host", "--ulimit", "memlock=-1", "--ulimit", "stack=67108864", "--device", "/dev/infiniband")
        variables = [word for item in environment for word in ("--env", item)]
        return (self.inputs.runtime, "run", "--rm", *gpus, *limits, *variables, self.inputs.image, *argv)
