"""Gates whose program runs in a container image that the site names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from rackready.gates import base
from rackready.gates.base import FinishedRun, Gate, GateFacts, Output
from rackready.gates.formats import complaint
from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.model.outcome import Outcome, Verdict

NO_IMAGE = ErrorKind(
    "no-container-image",
    "{gate} has no container image",
    meaning="The gate runs in a container, and the gate set has no image for it.",
    next_step="Name an image in the gate set (inputs: {{image: ...}}), or skip the gate with a reason (site.yml "
    "gates.skip).",
)

FINDINGS = (NO_IMAGE,)


class ImageInputs(base.Inputs):
    """The image, and the runtime that starts it."""

    image: str = Field(
        "",
        description="container image with the program; without one nothing runs, which is an error: skip the gate "
        "where it is not wanted",
    )
    runtime: str = Field("podman", pattern=r"^(podman|docker)$", description="what runs containers on the nodes")


_CDI = ("--device", "nvidia.com/gpu=all", "--security-opt=label=disable")
"""How podman gets the GPUs. With SELinux, as on RHEL, a container with a label may not open them.

Source: NVIDIA/cloud-native-docs, container-toolkit/cdi-support.md, "Running a Workload with CDI".
"""


def container_argv(inputs: ImageInputs, *argv: str, options: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the command line that runs a program in a temporary container with all GPUs of the node.

    podman takes the GPUs from CDI (nvidia-container-toolkit), docker from the toolkit's runtime.
    """
    gpus = _CDI if inputs.runtime == "podman" else ("--gpus", "all")
    return (inputs.runtime, "run", "--rm", *gpus, *options, inputs.image, *argv)


def exit_text(output: Output) -> str:
    """Return the exit code of a command that starts a container and, if it is not 0, the reason it printed."""
    return f"exit code {output.exit_code}" + (
        f": {complaint.container(output.exit_code, output.stdout, output.stderr)}" if output.exit_code else ""
    )


class Containered(Gate):
    """A gate whose program runs in a container image."""

    in_no_set: ClassVar[str] = (
        "it runs in a container whose image the site has to name; a site that has one adds the gate (gates.also)"
    )

    class Inputs(ImageInputs):
        """The image, its runtime, and the time limit."""

        timeout_s: int = Field(
            1800,
            ge=60,
            le=259200,
            description="time limit, including the pull of the image, s; at most three days (judgement)",
        )

    inputs: Inputs

    def attribute(self, facts: GateFacts, done: Sequence[FinishedRun]) -> dict[str, list[Verdict]]:
        """Return each node's verdicts. Without an image, every node has an error: only the site can skip its gates."""
        if self.inputs.image:
            return super().attribute(facts, done)
        return {
            node: [
                Verdict(
                    outcome=Outcome.ERROR,
                    findings=[NO_IMAGE.found(node, "an image in its input image", "none", gate=self.id)],
                )
            ]
            for node in facts.nodes
        }

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
        return container_argv(self.inputs, *argv, options=(*limits, *variables))
