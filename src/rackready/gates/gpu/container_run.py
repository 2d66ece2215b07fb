"""GPUs as a started container sees them, compared with those of the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rackready.format_error import FormatError
from rackready.gates.base import Command, GateFacts, Output, Outputs, Run, trouble
from rackready.gates.engine import container
from rackready.gates.engine.container import Containered, container_argv, exit_text
from rackready.gates.formats import smi_gpus
from rackready.gates.gpu import containers
from rackready.gates.gpu.containers import REFRESH, compare_count
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Verdict
from rackready.model.place import Place
from rackready.ondevice.containers import GPUS

_HOST, _RUNTIME, _INSIDE = "host", "runtime", "container"
_ASK_S = 60
_UTILITY = ("--env", "NVIDIA_DRIVER_CAPABILITIES=compute,utility")
"""Without `utility` the toolkit leaves nvidia-smi out of docker's containers, and an image may leave `utility` out.

Source: Container Toolkit, Driver Capabilities.
"""
_REFUSED = (
    "unresolvable CDI devices",
    "could not select device driver",
    "failed to inject devices",
    "stat nvidia.com/gpu=all: no such file",
)
"""Messages of podman and docker for GPUs that they cannot provide.

In this order: no GPUs in CDI (podman, docker 25 and newer), docker without the toolkit's runtime, a device that CDI
names and that does not exist, podman before 4.1, which has no CDI.
"""
_ABSENT = ("executable file not found", "executable file `nvidia-smi` not found")
"""Messages of runc and crun for a program that is not in the image."""
_BY_HAND = "Run its command line by hand on the node (`rackready gate show node/gpu/validation/container-run`)."
_DOCKER = (
    "Configure docker (`nvidia-ctk runtime configure --runtime=docker`), restart it, and see gate "
    "node/gpu/sanity/containers."
)
_OTHER = f"See gate node/gpu/sanity/containers. {REFRESH}"


HOST_LIST_UNREADABLE = ErrorKind(
    "container-host-gpus-unreadable",
    "nvidia-smi on the host unreadable",
    meaning="The host's own list of GPUs cannot be read, so there is nothing to compare the container's list with.",
    next_step="Run gate node/gpu/sanity/inventory: it reports what is wrong with the driver or a GPU.",
)
HOST_LIST_CONTRADICTS = ErrorKind(
    "container-host-gpus-exit-code",
    "nvidia-smi on the host contradicts itself",
    meaning="nvidia-smi on the host listed GPUs and still ended with an error.",
    next_step="Run nvidia-smi by hand on the node.",
)
NO_RUNTIME = ErrorKind(
    "container-runtime-missing",
    "no {name} on the node",
    meaning="The node has no such container runtime, so no container can be started.",
    next_step="Install {name}, or name the runtime that the nodes have (input `runtime`). "
    "If they have none, skip the gate (site.yml gates.skip).",
)
LIST_UNREADABLE = ErrorKind(
    "container-gpus-unreadable",
    "nvidia-smi in the container unreadable",
    meaning="The container printed something other than its list of GPUs.",
    next_step=_BY_HAND,
)
NO_GPUS = FailKind(
    "container-no-gpus",
    "no GPUs in the container",
    meaning="The container was started, but it sees no GPU: no job in a container can use one.",
    next_step=REFRESH,
)
RUNTIME_GIVES_NO_GPUS = FailKind(
    "container-runtime-gives-no-gpus",
    "{runtime} gives a container no GPUs",
    meaning="The runtime refuses to give GPUs to a container, because it is not set up for them.",
    next_step="{step}",
    steps=(_DOCKER, _OTHER),
)
NO_SMI = ErrorKind(
    "container-no-nvidia-smi",
    "no nvidia-smi in the container",
    meaning="The image has no nvidia-smi and the toolkit added none, so the GPUs in the container are unknown.",
    next_step="The toolkit adds nvidia-smi to images with glibc: name such an image, and see gate "
    "node/gpu/sanity/containers for the contents of the CDI specification.",
)
NOT_STARTED = ErrorKind(
    "container-not-started",
    "the container did not start, or ended with an error",
    meaning="The container did not run to its end, and not because of the GPUs: often its image is the reason.",
    next_step=f"Check that the node reaches the registry of image {{image}}, or has the image. {_BY_HAND}",
)
GPU_NOT_SEEN = FailKind(
    "container-gpu-not-seen",
    "not seen in a container",
    meaning="A GPU of the host is not visible in a container: jobs in containers lack it.",
    next_step=REFRESH,
)
OTHER_GPUS = FailKind(
    "container-other-gpus",
    "a container sees other GPUs than the driver has",
    meaning="A container sees GPUs that the driver does not have: the CDI specification is out of date.",
    next_step=REFRESH,
)

FINDINGS = (
    HOST_LIST_UNREADABLE,
    HOST_LIST_CONTRADICTS,
    NO_RUNTIME,
    LIST_UNREADABLE,
    NO_GPUS,
    RUNTIME_GIVES_NO_GPUS,
    NO_SMI,
    NOT_STARTED,
    GPU_NOT_SEEN,
    OTHER_GPUS,
)


class ContainerRun(Containered):
    """A container that is started on the node sees every GPU that the host's driver has, and no other."""

    id = "node/gpu/validation/container-run"
    findings = (*container.FINDINGS, containers.DRIVER_GPUS_MISSING, containers.DRIVER_GPUS_MORE, *FINDINGS)
    covers = frozenset({"gpu"})

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002 - the same for all
        """Return per node the commands for the host's GPUs, the runtime's version and the container's GPUs.

        There is no run without an image.
        """
        return [Run.of_node(node, *self._commands(node), chained=True) for node in nodes if self.inputs.image]

    def _commands(self, node: str) -> tuple[Command, ...]:
        return (
            Command(key=_HOST, node=node, argv=GPUS, timeout_s=_ASK_S),
            Command(key=_RUNTIME, node=node, argv=(self.inputs.runtime, "--version"), timeout_s=_ASK_S, stage=1),
            Command(
                key=_INSIDE,
                node=node,
                argv=container_argv(self.inputs, *GPUS, options=_UTILITY),
                timeout_s=self.inputs.timeout_s,
                stage=2,
            ),
        )

    def tools(self, outputs: Outputs) -> dict[str, str]:
        """Return the runtime's version: "podman version 4.3.1", "Docker version 27.5.1, build 9f9e405"."""
        words = outputs[_RUNTIME].stdout.replace(",", " ").split() if _RUNTIME in outputs else []
        return {self.inputs.runtime: words[words.index("version") + 1]} if "version" in words[:-1] else {}

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Compare the UUIDs inside the container with those of the host, one by one."""
        node = run.nodes[0]
        judge = Judge()
        count = facts.nodes[node].platform.gpus
        host = self._host(judge, node, outputs.get(_HOST))
        if host is None or not self._runtime(judge, node, outputs.get(_RUNTIME)):
            return judge.verdict(node)
        inside = self._inside(judge, node, outputs.get(_INSIDE))
        if inside is not None:
            judge.judged += 1
            compare_count(judge, node, count, host)
            judge.measured.update(_compare_gpus(judge, node, host, inside))
        return judge.verdict(node)

    @staticmethod
    def _host(judge: Judge, node: str, output: Output | None) -> dict[str, str] | None:
        """Return the GPUs that the driver has, index -> UUID; None, with a finding, if they cannot be read."""
        if judge.trouble(trouble(output, node, "nvidia-smi")) or output is None:
            return None
        try:
            found = smi_gpus.parse(output.stdout)
        except FormatError as error:
            judge.error(node, HOST_LIST_UNREADABLE, "index and UUID of every GPU", f"{error} ({exit_text(output)})")
            return None
        if output.exit_code != 0:
            judge.error(node, HOST_LIST_CONTRADICTS, "exit code 0 with a list", exit_text(output))
            return None
        return found

    def _runtime(self, judge: Judge, node: str, output: Output | None) -> bool:
        name = self.inputs.runtime
        if judge.trouble(trouble(output, node, name)) or output is None:
            return False
        if output.exit_code != 0 or not output.stdout.strip():
            judge.error(node, NO_RUNTIME, f"`{name} --version` answers", exit_text(output), name=name)
            return False
        return True

    def _inside(self, judge: Judge, node: str, output: Output | None) -> dict[str, str] | None:
        """Return the GPUs that the container sees; None, with a finding, if they cannot be read."""
        if judge.trouble(trouble(output, node, "container")) or output is None:
            return None
        if output.exit_code != 0:
            self._container_failed(judge, node, output)
            return None
        try:
            return smi_gpus.parse(output.stdout)
        except FormatError as error:
            judge.error(node, LIST_UNREADABLE, "index and UUID of every GPU", error)
            return None

    def _container_failed(self, judge: Judge, node: str, output: Output) -> None:
        """Fail for GPUs that the container was refused; add an error if it failed for another reason."""
        said, how = f"{output.stdout}\n{output.stderr}", exit_text(output)
        refusal = smi_gpus.refusal(output.stdout)
        if refusal is not None:
            judge.fail(node, NO_GPUS, "those of the host", f"exit code {output.exit_code}: {refusal}")
        elif any(words in said for words in _REFUSED):
            judge.fail(
                node,
                RUNTIME_GIVES_NO_GPUS,
                "a container with all GPUs",
                how,
                runtime=self.inputs.runtime,
                step=_DOCKER if self.inputs.runtime == "docker" else _OTHER,
            )
        elif any(words in said for words in _ABSENT):
            judge.error(node, NO_SMI, "nvidia-smi, put there by the Container Toolkit", how)
        else:
            judge.error(node, NOT_STARTED, "exit code 0", how, image=self.inputs.image)


def _compare_gpus(judge: Judge, node: str, host: Mapping[str, str], inside: Mapping[str, str]) -> set[str]:
    """Fail every GPU of the host (index -> UUID) that the container lacks, and every one that only the container has.

    Returns the host's GPUs that the container sees.
    """
    seen = set(inside.values())
    for index, uuid in host.items():
        if uuid not in seen:
            judge.fail(Place(node, f"gpu{index}"), GPU_NOT_SEEN, uuid, f"{len(seen)} GPUs without it")
    if strange := sorted(seen - set(host.values())):
        judge.fail(node, OTHER_GPUS, "those of the host", f"also {', '.join(strange)}")
    return {f"{node}/gpu{index}" for index, uuid in host.items() if uuid in seen}
