"""What a node reports for its lines in Slurm's files: sockets, cores, memory, and its GPUs with cores and NVLinks."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rackready import printed_json
from rackready.design.facts import node_facts
from rackready.drivers.remote import Remote
from rackready.format_error import FormatError
from rackready.gates.formats import lscpu, smi_topo, smi_xml
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult
from rackready.model.site import Site
from rackready.ondevice import host_read
from rackready.render.slurm_files import Gpu, NodeParts

_TIMEOUT_S = 120
_COMMANDS = {
    "cores": ["lscpu", lscpu.PARSE],
    "gpus": ["nvidia-smi", "-q", "-x"],
    "topology": ["nvidia-smi", "topo", "-m"],
}
_MEMORY = "/proc/meminfo"
_MEMTOTAL = re.compile(r"^MemTotal:\s+(\d+) kB$", re.MULTILINE)
"""slurmd counts the same pages (_SC_PHYS_PAGES: Slurm, src/slurmd/common/get_mach_stat.c)."""
_AT_ONCE = 32


def read_parts(site: Site, remote: Remote, nodes: list[str]) -> dict[str, NodeParts | NodeResult]:
    """Return what each node reports, or an error for a node whose lines cannot be written."""

    def one(node: str) -> NodeParts | NodeResult:
        try:
            return parts_of(node, read(remote, node), node_facts(site, node).platform.gpus)
        except FormatError as error:
            text = (
                f"{node}: parts for Slurm's files - Expected: known from the node Actual: {error}. "
                "Nothing was written for it. Correct that, then run again."
            )
            return NodeResult(Outcome.ERROR, text)

    with ThreadPoolExecutor(max_workers=max(1, min(_AT_ONCE, len(nodes))), thread_name_prefix="slurm-parts") as pool:
        return dict(zip(nodes, pool.map(one, nodes), strict=True))


def read(remote: Remote, node: str) -> dict[str, str]:
    """Return the outputs of a node by key. Raises FormatError for one that cannot be had."""
    asked = {
        "commands": [{"key": key, "argv": argv, "timeout_s": _TIMEOUT_S / 2} for key, argv in _COMMANDS.items()],
        "files": [_MEMORY],
    }
    argv = ["python3", "-", json.dumps(asked)]
    answer = remote.run(node, argv, stdin=inspect.getsource(host_read), timeout_s=_TIMEOUT_S)
    if answer.exit_code != 0:
        raise FormatError(answer.failure or f"exit code {answer.exit_code}: {answer.stderr.strip()[-200:]}")
    found = printed_json.load(answer.stdout)
    if not isinstance(found, dict) or found.get("complete") is not True:
        raise FormatError("an incomplete answer")
    return {"memory": found["files"][_MEMORY].get(_MEMORY) or "", **_outputs(found["commands"])}


def _outputs(commands: Mapping[str, Any]) -> dict[str, str]:
    for answer in commands.values():
        if answer["exit_code"] != 0:
            line = " ".join(answer["argv"])
            why = "not installed" if answer["missing"] else f"exit code {answer['exit_code']}"
            said = " ".join((answer["stderr"] or answer["stdout"]).split())[:160]
            raise FormatError(f"`{line}`: {why}{f', {said}' if said else ''}")
    return {key: answer["stdout"] for key, answer in commands.items()}


def parts_of(node: str, found: Mapping[str, str], gpus: int) -> NodeParts:
    """Return a node's parts from its outputs; ``gpus``: how many it must have. Raises FormatError."""
    cores = lscpu.parse_cores(found["cores"])
    memory = _MEMTOTAL.search(found["memory"])
    if memory is None:
        raise FormatError(f"{_MEMORY} without MemTotal")
    report, topology = smi_xml.parse(found["gpus"]), smi_topo.parse(found["topology"])
    if not len(report.gpus) == len(topology.gpus) == gpus:
        raise FormatError(
            f"{len(report.gpus)} GPUs in nvidia-smi -q, {len(topology.gpus)} in topo -m; its platform has {gpus}"
        )
    if any(gpu.text("mig_mode/current_mig") == "Enabled" for gpu in report.gpus):
        raise FormatError("MIG is on, whose slices rackready does not write; keep this node's lines by hand")
    return NodeParts(
        sockets=cores.count,
        cores=cores.cores,
        threads=cores.threads,
        memory_mib=int(memory[1]) // 1024,
        gpus=tuple(_gpu(node, at, report.gpus[at], topology, cores) for at in range(gpus)),
    )


def _gpu(node: str, at: int, gpu: smi_xml.SmiGpu, topology: smi_topo.Topology, cores: lscpu.Cores) -> Gpu:
    minor = gpu.text("minor_number")
    if minor is None or not minor.isdigit():
        raise FormatError(f"{node} GPU {at} has no minor number")
    return Gpu(int(minor), _near(topology.affinity.get(at, ""), cores), _links(at, topology))


def _near(text: str, cores: lscpu.Cores) -> str:
    """Return the cores of the whole sockets that are near a GPU, as Slurm counts them; "" when that is every socket.

    Slurm's numbers are hwloc's logical ones, socket by socket, and it wants whole sockets (gres.conf(5), Cores).
    """
    sockets = {cores.sockets[cpu] for cpu in lscpu.cpu_list(text) if cpu in cores.sockets}
    if not sockets or len(sockets) == cores.count:
        return ""
    return ",".join(f"{socket * cores.cores}-{(socket + 1) * cores.cores - 1}" for socket in sorted(sockets))


def _links(at: int, topology: smi_topo.Topology) -> tuple[int, ...]:
    """Return the number of NVLinks to each GPU, -1 for itself (gres.conf(5), Links); () when there is none at all."""
    cells = [topology.links[at, other] for other in topology.gpus]
    if not any(cell.startswith("NV") for cell in cells):
        return ()
    return tuple(-1 if cell == "X" else int(cell[2:]) if cell.startswith("NV") else 0 for cell in cells)
