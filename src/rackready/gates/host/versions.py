"""The gate on versions of the GPU software: as wanted, matching each other, with their services running."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rackready.design.fabric_software import fabric_software
from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates.base import Gate, GateFacts, Outputs, Run, trouble
from rackready.gates.engine.shipped_script import command, document
from rackready.gates.formats import printed
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Verdict
from rackready.ondevice import versions as script

_KEY = "versions"
_AGAIN = "Run install again: it pins this version."


VERSIONS_UNREADABLE = ErrorKind(
    "versions-unreadable",
    "versions unreadable",
    meaning="The document of installed versions is not complete.",
    next_step="Run the gate again.",
)
VERSIONS_NVML = ErrorKind(
    "versions-nvml-cannot-be-asked",
    "NVML does not answer",
    meaning="NVML returned an error: the driver is not loaded or does not work.",
    next_step="Check that the driver is loaded (`nvidia-smi` on the node), then run install again.",
)
DRIVER_VERSION = FailKind(
    "driver-version",
    "driver by NVML",
    meaning="The driver has another version than the site wants.",
    next_step=_AGAIN,
)
KERNEL_MODULE_VERSION = FailKind(
    "driver-module-version",
    "loaded kernel module",
    meaning="The loaded kernel module has another version than the driver that the site wants.",
    next_step="Reboot the node to load the installed module.",
)
FABRIC_MANAGER_VERSION = FailKind(
    "fabric-manager-version",
    "fabric manager",
    meaning="The fabric manager has another version than the driver, so it does not set up the NVSwitches.",
    next_step=f"The fabric manager must be exactly the driver's version. {_AGAIN}",
)
PACKAGES_NOT_REPORTED = ErrorKind(
    "packages-not-reported",
    "packages not reported",
    meaning="The node reports no package versions.",
    next_step="Run the gate again.",
)
PACKAGE_NOT_REPORTED = ErrorKind(
    "package-not-reported",
    "package {name} not reported",
    meaning="The node does not report the version of this package.",
    next_step="Run the gate again.",
)
PACKAGE_VERSION = FailKind(
    "package-version",
    "package {name}",
    meaning="A package has another version than the site wants, or is not installed.",
    next_step=_AGAIN,
)
SERVICE_NOT_ACTIVE = FailKind(
    "gpu-service-not-active",
    "{name}",
    meaning="A service that GPUs need does not run.",
    next_step="Run `systemctl status {name}` and `journalctl -u {name}` on the node: they show why.",
)
CUDA_NOT_REPORTED = ErrorKind(
    "cuda-version-not-reported",
    "CUDA version of the driver not reported",
    meaning="The driver does not report which CUDA version it supports.",
    next_step="Update the driver.",
)
CUDA_VERSION = FailKind(
    "cuda-version",
    "CUDA version of the driver",
    meaning="The driver supports an older CUDA than the installed toolkit: programs built with it do not start.",
    next_step="Choose a version set whose driver branch supports its toolkit.",
)

FINDINGS = (
    VERSIONS_UNREADABLE,
    VERSIONS_NVML,
    DRIVER_VERSION,
    KERNEL_MODULE_VERSION,
    FABRIC_MANAGER_VERSION,
    PACKAGES_NOT_REPORTED,
    PACKAGE_NOT_REPORTED,
    PACKAGE_VERSION,
    SERVICE_NOT_ACTIVE,
    CUDA_NOT_REPORTED,
    CUDA_VERSION,
)


def wanted_packages(facts: NodeFacts) -> dict[str, str]:
    """Return package -> version, as the version set pins it."""
    software = facts.software
    out = {
        **software.cuda_packages,
        "nvidia-container-toolkit": software.container_toolkit,
        software.nccl_package: software.nccl,
        **({"datacenter-gpu-manager-4-core": software.dcgm} if facts.manage_dcgm else {}),
    }
    fabric = fabric_software(software, software.of_version(facts.driver), facts.platform)
    exact = {**fabric.manager, **fabric.subnet_manager, **fabric.imex}
    wanted = ("nvidia-fabricmanager", "nvlsm", "nvidia-imex")
    return out | {name: exact[name] for name in wanted if exact.get(name)}


class Versions(Gate):
    """Driver, fabric manager, CUDA, NCCL and DCGM have the wanted, matching versions, and their services run."""

    id = "node/gpu/sanity/versions"
    findings = FINDINGS
    stops_load = True
    looks = True
    covers = frozenset({"node"})

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Return one script per node, with the names of the packages to ask for."""
        return [
            Run.of_node(node, command(_KEY, node, script, *sorted(wanted_packages(facts.nodes[node]))))
            for node in nodes
        ]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Compare what runs and what is installed with the version set."""
        node = run.nodes[0]
        judge = Judge()
        output = outputs.get(_KEY)
        if judge.trouble(trouble(output, node, "version check")) or output is None:
            return judge.verdict(node)
        try:
            found = document(output, script.FORMAT, printed.PrintedVersions)
        except FormatError as error:
            judge.error(node, VERSIONS_UNREADABLE, "a complete versions document", error)
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
            judge.error(node, VERSIONS_NVML, "an answer", nvml["error"])
        else:
            judge.equal(node, DRIVER_VERSION, wanted.driver, nvml.get("driver"))
            _cuda(judge, node, wanted.software.cuda, nvml.get("cuda"))
        judge.equal(node, KERNEL_MODULE_VERSION, wanted.driver, found.get("driver_module"))
        if wanted.platform.runs_fabric_manager:
            judge.equal(node, FABRIC_MANAGER_VERSION, wanted.driver, found.get("fabric_manager"))

    @staticmethod
    def _packages(judge: Judge, node: str, wanted: NodeFacts, found: dict[str, Any]) -> None:
        packages = found.get("packages")
        if not isinstance(packages, dict):
            judge.error(node, PACKAGES_NOT_REPORTED, "installed versions", "nothing")
            return
        for name, version in sorted(wanted_packages(wanted).items()):
            judge.judged += 1
            if name not in packages:
                judge.error(node, PACKAGE_NOT_REPORTED, version, "nothing", name=name)
            elif packages[name] != version:
                judge.fail(node, PACKAGE_VERSION, version, packages[name] or "not installed", name=name)

    @staticmethod
    def _services(judge: Judge, node: str, wanted: NodeFacts, found: dict[str, Any]) -> None:
        services = found.get("services") or {}
        needed = {
            "nvidia-persistenced.service": True,
            "nvidia-dcgm.service": wanted.manage_dcgm,
            "nvidia-fabricmanager.service": wanted.platform.runs_fabric_manager,
        }
        for name in [name for name, is_needed in needed.items() if is_needed]:
            judge.equal(node, SERVICE_NOT_ACTIVE, "active", services.get(name), name=name)


def _cuda(judge: Judge, node: str, wanted: str, actual: object) -> None:
    """Fail unless the driver's CUDA version is at least the toolkit's: a newer driver runs an older toolkit."""
    judge.judged += 1
    if not isinstance(actual, str) or not all(part.isdigit() for part in actual.split(".")):
        judge.error(node, CUDA_NOT_REPORTED, f"at least {wanted}", actual or "nothing")
    elif [int(part) for part in actual.split(".")] < [int(part) for part in wanted.split(".")]:
        judge.fail(node, CUDA_VERSION, f"at least {wanted} (the toolkit's)", actual)
