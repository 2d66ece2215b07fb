"""Versions: what runs is what was wanted, and the parts agree with each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rackready.design.facts import NodeFacts
from rackready.gates.base import Gate, GateFacts, Outputs, Run, trouble
from rackready.gates.formats import printed
from rackready.gates.formats.error import FormatError
from rackready.gates.judge import Judge
from rackready.gates.shipped import command, document
from rackready.model.outcome import Verdict
from rackready.ondevice import versions as script

_KEY = "versions"
_AGAIN = "Run install again; it pins this version."


def wanted_packages(facts: NodeFacts) -> dict[str, str]:
    """Return package -> version that the version set pins and this gate holds to."""
    software = facts.software
    out = {
        **software.cuda_packages,
        "nvidia-container-toolkit": software.container_toolkit,
        "datacenter-gpu-manager-4-core": software.dcgm,
        "libnccl2": software.nccl,
    }
    if facts.platform.runs_fabric_manager:
        out["nvidia-fabricmanager"] = facts.driver + software.package_suffix
    return out


class Versions(Gate):
    """Driver, fabric manager, CUDA, NCCL and DCGM are the wanted versions, agree with each other, and their services run."""

    id = "node/gpu/sanity/versions"
    stops_load = True
    looks = True
    covers = frozenset({"node"})

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """One script per node, told which packages to ask for."""
        return [Run.of_node(node, command(_KEY, node, script, *sorted(wanted_packages(facts.nodes[node])))) for node in nodes]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Compare what runs and what is installed with the version set."""
        node = run.nodes[0]
        judge = Judge()
        output = outputs.get(_KEY)
        if judge.trouble(trouble(output, node, "version check")) or output is None:
            return judge.verdict(node)
        try:
            found = document(output, script.FORMAT, printed.Versions)
        except FormatError as error:
            judge.error(node, "versions unreadable", "a complete versions document", error, "Run the gate again.")
            return judge.verdict(node)
        self._driver(judge, node, facts.nodes[node], found)
        self._packages(judge, node, facts.nodes[node], found)
        self._services(judge, node, facts.nodes[node], found)
        if not judge.errors and not judge.fails:
            judge.measured.add(node)
        return judge.verdict(node)

    @staticmethod
    def _driver(judge: Judge, node: str, wanted: NodeFacts, found: dict[str, Any]) -> None:
        nvml = found.get("nvml") or {}
        if "error" in nvml:
            judge.error(
                node, "NVML cannot be asked", "an answer", nvml["error"], "Check that the driver is loaded (`nvidia-smi` on the node), then run install again."
            )
        else:
            judge.equal(node, "driver by NVML", wanted.driver, nvml.get("driver"), _AGAIN)
            _cuda(judge, node, wanted.software.cuda, nvml.get("cuda"))
        judge.equal(node, "loaded kernel module", wanted.driver, found.get("driver_module"), "Reboot the node: a module of another version is loaded.")
        if wanted.platform.runs_fabric_manager:
            judge.equal(
                node, "fabric manager", wanted.driver, found.get("fabric_manager"), "The fabric manager must be exactly the driver's version. " + _AGAIN
            )

    @staticmethod
    def _packages(judge: Judge, node: str, wanted: NodeFacts, found: dict[str, Any]) -> None:
        packages = found.get("packages")
        if not isinstance(packages, dict):
            judge.error(node, "packages not reported", "installed versions", "nothing", "Run the gate again.")
            return
        for name, version in sorted(wanted_packages(wanted).items()):
            judge.judged += 1
            if name not in packages:
                judge.error(node, f"package {name} not reported", version, "nothing", "Run the gate again.")
            elif packages[name] != version:
                judge.fail(node, f"package {name}", version, packages[name] or "not installed", _AGAIN)

    @staticmethod
    def _services(judge: Judge, node: str, wanted: NodeFacts, found: dict[str, Any]) -> None:
        services = found.get("services") or {}
        needed = ["nvidia-persistenced.service", "nvidia-dcgm.service"] + (["nvidia-fabricmanager.service"] if wanted.platform.runs_fabric_manager else [])
        for name in needed:
            judge.equal(node, name, "active", services.get(name), f"`systemctl status {name}` and `journalctl -u {name}` on the node say why.")


def _cuda(judge: Judge, node: str, wanted: str, actual: object) -> None:
    """The driver's CUDA version must be at least the toolkit's: a newer driver runs an older toolkit."""
    judge.judged += 1
    if not isinstance(actual, str) or not all(part.isdigit() for part in actual.split(".")):
        judge.error(node, "CUDA version of the driver not reported", f"at least {wanted}", actual or "nothing", "Update the driver.")
    elif [int(part) for part in actual.split(".")] < [int(part) for part in wanted.split(".")]:
        judge.fail(
            node, "CUDA version of the driver", f"at least {wanted} (the toolkit's)", actual, "Choose a version set whose driver branch supports its toolkit."
        )
