"""Programs out of a container image that the site names: how their containers are started. A gate that has no other way to run errs without an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from rackready.gates import base
from rackready.gates.base import Done, Gate, GateFacts, Output
from rackready.gates.formats import complaint
from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.model.outcome import Outcome, Verdict

NO_IMAGE = ErrorKind(
    "no-container-image",
    "{gate} has no container image",
    meaning="The gate runs in a container, and the gate set names no image for it.",
    next_step="Name one in the gate set (inputs: {{image: ...}}), or declare the gate's skip with its reason (site.yml "
    "gates.skip).",
)

FINDINGS = (NO_IMAGE,)


class ImageInputs(base.Inputs):
    """Which image, and what runs it."""

    image: str = Field(
        "",
        description="container image with the program; without one nothing runs, which "
        "is an error: declare the skip of the "
        "gate where it is not wanted",
    )
    runtime: str = Field("podman", pattern=r"^(podman|docker)$", description="what runs containers on the nodes")


def started(inputs: ImageInputs, *argv: str, options: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the command line that starts a program in a container with all GPUs of the node, and removes the container afterwards.

    podman takes them from CDI (nvidia-container-toolkit), docker from the toolkit's runtime.
    """
    gpus = ("--device", "nvidia.com/gpu=all") if inputs.runtime == "podman" else ("--gpus", "all")
    return (inputs.runtime, "run", "--rm", *gpus, *options, inputs.image, *argv)


def ended(output: Output) -> str:
    """Return how a command that starts a container ended: its exit code and, where that is not 0, in what words it says why."""
    return f"exit code {output.exit_code}" + (
        f": {complaint.container(output.exit_code, output.stdout, output.stderr)}" if output.exit_code else ""
    )


class Containered(Gate):
    """A program out of a container image."""

    in_no_set: ClassVar[str] = (
        "it runs in a container whose image the site has to name; such a site adds it (gates.also)"
    )

    class Inputs(ImageInputs):
        """Which image, what runs it, and how long."""

        timeout_s: int = Field(
            1800,
            ge=60,
            le=259200,
            description="longest time that it may take, with fetching the image, s; at most three days (judgement)",
        )

    inputs: Inputs

    def attribute(self, facts: GateFacts, done: Sequence[Done]) -> dict[str, list[Verdict]]:
        """Where no image is named, every node has an error: only the site can say, with a reason, that a gate which it lists is to be left out."""
        if self.inputs.image:
            return super().attribute(facts, done)
        return {node: [_without(node, self.id)] for node in facts.nodes}

    def contained(self, *argv: str, environment: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the command line that runs a program with all GPUs and NICs of the node."""
        limits = (
            "--network=host",
            "--ipc=host",
            "--ulimit",
            "memlock=-1",
            "--ulimit",
            "stack=67108864",
            "--device",
            "/dev/infiniband",
        )
        variables = [word for item in environment for word in ("--env", item)]
        return started(self.inputs, *argv, options=(*limits, *variables))


def _without(node: str, gate_id: str) -> Verdict:
    finding = NO_IMAGE.found(node, "an image in its input image", "none", gate=gate_id)
    return Verdict(outcome=Outcome.ERROR, findings=[finding])
