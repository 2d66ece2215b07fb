"""What a container would see of the GPUs: Container Toolkit and CDI."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rackready.gates.base import Gate, GateFacts, Outputs, Run, trouble
from rackready.gates.formats import smi_gpus
from rackready.gates.formats.error import FormatError
from rackready.gates.gpu import parts
from rackready.gates.judge import Judge
from rackready.gates.shipped import command, document
from rackready.model.outcome import Verdict
from rackready.ondevice import containers as script

_KEY = "containers"
_PREFIX = "nvidia.com/gpu="
_DEVICE = re.compile(r"^(?:(?:management\.|runtime\.)?nvidia\.com/[a-z-]+=\S+|(?!nvid)[a-z0-9.-]+/[a-z0-9_-]+=\S+)$")
REFRESH = "Write it anew (`systemctl restart nvidia-cdi-refresh.service`); it is not done by itself after a driver was removed or MIG was changed."


class Containers(Gate):
    """The Container Toolkit offers every GPU of the node to containers, and everything that its CDI specification names is there."""

    id = "node/gpu/sanity/containers"
    looks = True
    covers = frozenset({"gpu"})

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002 - the same for all
        """One script per node."""
        return [Run.of_node(node, command(_KEY, node, script, timeout_s=120)) for node in nodes]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Hold the CDI devices against the GPUs that the driver has now, and the paths against the file system."""
        node = run.nodes[0]
        judge = Judge()
        output = outputs.get(_KEY)
        if judge.trouble(trouble(output, node, "container check")) or output is None:
            return judge.verdict(node)
        try:
            found = document(output, script.FORMAT)
            _judge(judge, node, facts.nodes[node].platform.gpus, found)
        except (FormatError, KeyError, TypeError, AttributeError, ValueError) as error:
            judge.error(node, "container check unreadable", "a complete document", f"{type(error).__name__}: {error}", "Run the gate again.")
        return judge.verdict(node)

    def tools(self, outputs: Outputs) -> dict[str, str]:
        """Return the toolkit's version."""
        try:
            text = document(outputs[_KEY], script.FORMAT)["toolkit"]["out"]
            return {"nvidia-container-toolkit": str(text).split("version", 1)[1].split()[0]}
        except (FormatError, KeyError, TypeError, IndexError):
            return {}


def _judge(judge: Judge, node: str, count: int, found: dict[str, Any]) -> None:
    judge.judged += 1
    for name, package in (("toolkit", "nvidia-container-toolkit-base"), ("list", "nvidia-container-toolkit-base"), ("gpus", "nvidia-driver-cuda")):
        said = found[name]
        if "missing" in said:
            judge.error(
                node,
                f"{'nvidia-smi' if name == 'gpus' else 'nvidia-ctk'} {said['missing']}",
                "an answer",
                "none",
                f"Install package {package} (run install again).",
            )
            return
        if said["rc"] != 0:
            words = " ".join((said["out"] + said["err"]).split())[:160]
            what = "nvidia-smi" if name == "gpus" else "nvidia-ctk"
            judge.fail(node, f"{what} fails", "exit code 0", f"exit code {said['rc']}: {words}", "Run it by hand on the node; then run install again.")
            return
    _devices(judge, node, count, found)
    _paths(judge, node, found)
    _runtimes(judge, found)
    if not judge.fails and not judge.errors:
        judge.measured.update(f"{node}/gpu{index}" for index in range(count))


def _devices(judge: Judge, node: str, count: int, found: dict[str, Any]) -> None:
    """CDI names a GPU by index, by UUID, or by both: each GPU must be there by one of them, and none that is gone."""
    gpus = smi_gpus.parse(found["gpus"]["out"])
    names = _names(found["list"]["out"]) - {"all"}
    of_the_driver(judge, node, count, gpus)
    known: set[str] = set()
    for index, uuid in gpus.items():
        known |= {index, uuid}
        judge.judged += 1
        if not {index, uuid} & names:
            judge.fail(
                f"{node} gpu{index}", "not offered to containers", f"{_PREFIX}{index} or {_PREFIX}{uuid}", f"{len(names)} CDI devices without it", REFRESH
            )
    stale = sorted(name for name in names if name not in known and ":" not in name)
    if stale:
        judge.fail(node, "CDI specification is stale", "devices that the driver has", f"also {', '.join(stale)}", REFRESH)


def of_the_driver(judge: Judge, node: str, count: int, gpus: Mapping[str, str]) -> None:
    """Hold the number of GPUs that the driver on the host has (index -> UUID) against the platform's."""
    judge.count("gpus_of_the_driver", node, len(gpus), count, "platform profile")
    if len(gpus) != count:
        judge.fail(node, "GPUs of the driver", f"{count}", f"{len(gpus)}", parts.count_step(len(gpus), count))


def _names(listed: str) -> set[str]:
    """Return the GPUs of a list of CDI devices, which may hold other kinds as well. Raises FormatError for a line that is no device."""
    lines = [line.strip() for line in listed.splitlines() if line.strip()]
    odd = next((line for line in lines if not _DEVICE.match(line)), None)
    if odd is not None:
        raise FormatError(f"a CDI device named {odd[:80]!r}")
    return {line.removeprefix(_PREFIX) for line in lines if line.startswith(_PREFIX)}


def _paths(judge: Judge, node: str, found: dict[str, Any]) -> None:
    judge.judged += 1
    if not found["specs"]:
        judge.fail(node, "no CDI specification for nvidia.com/gpu", f"one below {' or '.join(script.FOLDERS)}", "none", REFRESH)
    for spec in found["specs"]:
        if not isinstance(spec["absent"], list) or spec["paths"] != spec["there"] + len(spec["absent"]) or spec["paths"] < 1:
            raise FormatError(f"paths of {spec['path']} do not add up")
        if spec["absent"]:
            shown = ", ".join(spec["absent"][:3]) + (f" and {len(spec['absent']) - 3} more" if len(spec["absent"]) > 3 else "")  # noqa: PLR2004 - as many as are shown
            judge.fail(node, "CDI specification names what is not there", f"every path of {spec['path']} exists", f"absent: {shown}", REFRESH)


def _runtimes(judge: Judge, found: dict[str, Any]) -> None:
    runtimes = {name: value for name, value in found["runtimes"].items() if value is not None}
    if not runtimes:
        judge.remark("no container runtime is configured on this node: only the toolkit and CDI were judged")
    for name, value in runtimes.items():
        judge.judged += 1
        if not value:
            step = f"Configure it (`nvidia-ctk runtime configure --runtime={name}`), then restart {name}."
            judge.remark(f"{name} does not name nvidia-container-runtime; containers reach GPUs through CDI only. {step}")
