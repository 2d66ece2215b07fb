"""GPUs as the Container Toolkit and CDI offer them to containers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rackready.format_error import FormatError
from rackready.gates.base import Gate, GateFacts, Outputs, Run, trouble
from rackready.gates.engine.shipped_script import command, document
from rackready.gates.formats import smi_gpus, smi_mig
from rackready.gates.formats.smi_mig import MigDevice
from rackready.gates.gpu import parts
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Verdict
from rackready.model.place import Place
from rackready.ondevice import containers as script

_KEY = "containers"
_PREFIX = "nvidia.com/gpu="
_DEVICE = re.compile(r"^(?:(?:management\.|runtime\.)?nvidia\.com/[a-z-]+=\S+|(?!nvid)[a-z0-9.-]+/[a-z0-9_-]+=\S+)$")
REFRESH = (
    "Recreate the CDI specification (`systemctl restart nvidia-cdi-refresh.service`); "
    "this does not happen by itself after a driver was removed or MIG was changed."
)


CHECK_UNREADABLE = ErrorKind(
    "container-check-unreadable",
    "container check unreadable",
    meaning="The check of the container setup left no complete document.",
    next_step="Run the gate again.",
)
TOOL_MISSING = ErrorKind(
    "container-tool-missing",
    "{program} {missing}",
    meaning="A program that containers with GPUs need is not on the node.",
    next_step="Install package {package}: run install again.",
)
TOOL_FAILS = FailKind(
    "container-tool-fails",
    "{what} fails",
    meaning="A program of the container setup ended with an error.",
    next_step="Run it by hand on the node; then run install again.",
)
NOT_OFFERED = FailKind(
    "cdi-gpu-not-offered",
    "not offered to containers",
    meaning="The CDI specification does not name this GPU, so no container can ask for it.",
    next_step=REFRESH,
)
MIG_EMPTY = FailKind(
    "container-mig-empty",
    "MIG mode without an instance",
    meaning="MIG mode is on and the GPU has no instance: CDI offers nothing of this GPU, and no program can use it.",
    next_step="Make instances (role mig, docs/howto/mig.md), or turn MIG off (`nvidia-smi -mig 0`). Then run the gate "
    "again.",
)
CDI_STALE = FailKind(
    "cdi-stale",
    "CDI specification is stale",
    meaning="The CDI specification names GPUs that the driver does not have: it was made before a GPU was replaced or "
    "MIG was changed.",
    next_step=REFRESH,
)
DRIVER_GPUS_MISSING = FailKind(
    "container-driver-gpus-missing",
    "GPUs of the driver",
    meaning="The driver lists fewer GPUs than the platform has.",
    next_step=parts.FEWER,
)
DRIVER_GPUS_MORE = FailKind(
    "container-driver-gpus-too-many",
    "GPUs of the driver",
    meaning="The driver lists more GPUs than the platform has.",
    next_step=parts.MORE,
)
NO_CDI = FailKind(
    "cdi-missing",
    "no CDI specification for nvidia.com/gpu",
    meaning="There is no CDI specification for GPUs, so container runtimes cannot hand GPUs to containers.",
    next_step=REFRESH,
)
CDI_PATHS = FailKind(
    "cdi-paths-missing",
    "CDI specification names missing files",
    meaning="The CDI specification names files that do not exist, often those of the driver before the last update: "
    "containers fail to start.",
    next_step=REFRESH,
)
CDI_CONTROL = FailKind(
    "cdi-control-missing",
    "CDI specification without control devices",
    meaning="The CDI specification lacks a device of the driver that CUDA needs, because it did not exist when the "
    "specification was made: nvidia-smi works in containers, and CUDA programs fail.",
    next_step="Create it (`nvidia-ctk system create-device-nodes --control-devices --load-kernel-modules`), then "
    "recreate the CDI specification (`systemctl restart nvidia-cdi-refresh.service`). Install does both at every boot.",
)

FINDINGS = (
    CHECK_UNREADABLE,
    TOOL_MISSING,
    TOOL_FAILS,
    NOT_OFFERED,
    MIG_EMPTY,
    CDI_STALE,
    DRIVER_GPUS_MISSING,
    DRIVER_GPUS_MORE,
    NO_CDI,
    CDI_PATHS,
    CDI_CONTROL,
)


class Containers(Gate):
    """The Container Toolkit offers every GPU or MIG instance to containers, and all files that CDI names exist."""

    id = "node/gpu/sanity/containers"
    findings = FINDINGS
    looks = True
    covers = frozenset({"gpu"})

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002 - the same for all
        """Return one script per node."""
        return [Run.of_node(node, command(_KEY, node, script, timeout_s=120)) for node in nodes]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Compare the CDI devices with the GPUs that the driver has now, and the paths with the file system."""
        node = run.nodes[0]
        judge = Judge()
        output = outputs.get(_KEY)
        if judge.trouble(trouble(output, node, "container check")) or output is None:
            return judge.verdict(node)
        try:
            found = document(output, script.FORMAT)
            _judge(judge, node, facts.nodes[node].platform.gpus, found)
        except (FormatError, KeyError, TypeError, AttributeError, ValueError) as error:
            judge.error(node, CHECK_UNREADABLE, "a complete document", f"{type(error).__name__}: {error}")
        return judge.verdict(node)

    def tools(self, outputs: Outputs) -> dict[str, str]:
        """Return the toolkit's version."""
        try:
            text = document(outputs[_KEY], script.FORMAT)["toolkit"]["out"]
            return {"nvidia-container-toolkit": str(text).split("version", 1)[1].split()[0]}
        except (FormatError, KeyError, TypeError, IndexError):
            return {}


_ASKED = {
    "toolkit": ("nvidia-ctk", "nvidia-container-toolkit-base"),
    "list": ("nvidia-ctk", "nvidia-container-toolkit-base"),
    "gpus": ("nvidia-smi", "nvidia-driver-cuda"),
    "mig": ("nvidia-smi", "nvidia-driver-cuda"),
    "devices": ("nvidia-smi", "nvidia-driver-cuda"),
}
"""Answers of the document: the program that gave them, and its package."""


def _judge(judge: Judge, node: str, count: int, found: dict[str, Any]) -> None:
    judge.judged += 1
    for name, (program, package) in _ASKED.items():
        said = found[name]
        if "missing" in said:
            missing = said["missing"]
            judge.error(node, TOOL_MISSING, "an answer", "none", program=program, missing=missing, package=package)
            return
        if said["rc"] != 0:
            words = " ".join((said["out"] + said["err"]).split())[:160]
            judge.fail(node, TOOL_FAILS, "exit code 0", f"exit code {said['rc']}: {words}", what=program)
            return
    _devices(judge, node, count, found)
    _paths(judge, node, found)
    _runtimes(judge, found)
    if not judge.fails and not judge.errors:
        judge.measured.update(f"{node}/gpu{index}" for index in range(count))


def _devices(judge: Judge, node: str, count: int, found: dict[str, Any]) -> None:
    """Compare the CDI devices with the GPUs of the driver, and with the instances of GPUs in MIG mode.

    CDI names each by index, by UUID or by both. A GPU in MIG mode is not in CDI, only its instances are, as 0:1 or
    MIG-... (NVIDIA/nvidia-container-toolkit v1.20.0, getDeviceSpecGeneratorsForAllDevices in pkg/nvcdi/lib-nvml.go and
    pkg/nvcdi/namer.go).
    """
    gpus = smi_gpus.parse(found["gpus"]["out"])
    split = smi_mig.enabled(found["mig"]["out"])
    instances = smi_mig.devices(found["devices"]["out"])
    names = _names(found["list"]["out"]) - {"all"}
    compare_count(judge, node, count, gpus)
    for index, uuid in gpus.items():
        judge.judged += 1
        where = Place(node, f"gpu{index}")
        if index not in split:
            _offered(judge, where, names, index, uuid)
        else:
            _split(judge, where, names, [one for one in instances if one.gpu == index])
    known = {*gpus, *gpus.values(), *(name for one in instances for name in _both(one))}
    if stale := sorted(names - known):
        judge.fail(node, CDI_STALE, "devices that the driver has", f"also {', '.join(stale)}")


def _split(judge: Judge, where: Place, names: set[str], instances: Sequence[MigDevice]) -> None:
    """Require each instance of a GPU in MIG mode in CDI, and at least one."""
    if not instances:
        judge.fail(where, MIG_EMPTY, "an instance, or MIG off", "MIG on, no instance")
    for one in instances:
        _offered(judge, where, names, *_both(one))


def _both(one: MigDevice) -> tuple[str, str]:
    """Return the two names of a MIG device in CDI."""
    return f"{one.gpu}:{one.number}", one.uuid


def _offered(judge: Judge, where: Place, names: set[str], index: str, uuid: str) -> None:
    if not {index, uuid} & names:
        expected = f"{_PREFIX}{index} or {_PREFIX}{uuid}"
        judge.fail(where, NOT_OFFERED, expected, f"{len(names)} CDI devices without it")


def compare_count(judge: Judge, node: str, count: int, gpus: Mapping[str, str]) -> None:
    """Compare the number of GPUs that the host's driver has (index -> UUID) with the platform's."""
    judge.count("gpus_of_the_driver", node, len(gpus), count, "platform profile")
    if len(gpus) != count:
        judge.fail(node, DRIVER_GPUS_MISSING if len(gpus) < count else DRIVER_GPUS_MORE, f"{count}", f"{len(gpus)}")


def _names(listed: str) -> set[str]:
    """Return the GPUs in a list of CDI devices, which may contain other kinds of devices.

    Raises FormatError for a line that is no device.
    """
    lines = [line.strip() for line in listed.splitlines() if line.strip()]
    odd = next((line for line in lines if not _DEVICE.match(line)), None)
    if odd is not None:
        raise FormatError(f"a CDI device named {odd[:80]!r}")
    return {line.removeprefix(_PREFIX) for line in lines if line.startswith(_PREFIX)}


def _paths(judge: Judge, node: str, found: dict[str, Any]) -> None:
    judge.judged += 1
    if not found["specs"]:
        judge.fail(node, NO_CDI, f"one below {' or '.join(script.FOLDERS)}", "none")
    for spec in found["specs"]:
        if (
            not isinstance(spec["absent"], list)
            or spec["paths"] != spec["there"] + len(spec["absent"])
            or spec["paths"] < 1
        ):
            raise FormatError(f"paths of {spec['path']} do not add up")
        if spec["absent"]:
            shown = ", ".join(spec["absent"][:3]) + (
                f" and {len(spec['absent']) - 3} more" if len(spec["absent"]) > 3 else ""  # noqa: PLR2004 - as many as are shown
            )
            judge.fail(node, CDI_PATHS, f"every path of {spec['path']} exists", f"absent: {shown}")
        if spec["lacks"]:
            expected = f"{' and '.join(script.CONTROL)} in {spec['path']}"
            judge.fail(node, CDI_CONTROL, expected, f"without {', '.join(spec['lacks'])}")


def _runtimes(judge: Judge, found: dict[str, Any]) -> None:
    runtimes = {name: value for name, value in found["runtimes"].items() if value is not None}
    if not runtimes:
        judge.remark("no container runtime is configured on this node: only the toolkit and CDI were judged")
    for name, value in runtimes.items():
        judge.judged += 1
        if not value:
            step = f"Configure it (`nvidia-ctk runtime configure --runtime={name}`), then restart {name}."
            judge.remark(
                f"{name} does not name nvidia-container-runtime; containers reach GPUs through CDI only. {step}"
            )
