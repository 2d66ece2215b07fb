"""rackready's part of Slurm's files: node and partition lines, GPUs, topology. Pure.

slurm.conf and gres.conf include files of ours, so that what others wrote in them stays. Their names have no slash:
slurmctld then sends them to configless nodes, too (tried with Slurm 22.05.8).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackready.design.check_groups import domain_nodes
from rackready.design.endpoints import unit_of
from rackready.design.facts import node_facts
from rackready.model.host_list import host_list
from rackready.model.site import Site
from rackready.model.slurm_files import SlurmFiles, SlurmPartition

NODES, GRES, TOPOLOGY = "rackready_nodes.conf", "rackready_gres.conf", "topology.conf"
HEAD = "# Written by rackready: `rackready slurm apply` replaces this file. Put lines of your own into another file."
NEW = 'State=DRAIN Reason="rackready: not handed over yet"'
"""State of a node that slurmctld does not know yet. It must not stay in the file: at each restart slurmctld 22.05.8
drains the node anew, also one that was resumed (tried)."""
NOT_DETECTED = "AutoDetect=off"
"""Stands on a NodeName line of our nodes, which counts before the owner's AutoDetect for all nodes (from Slurm 20.11).

With nvml, slurmd drops each GPU whose Cores or Links differ from what its plugin finds (gres_gpu.c). Behind NVSwitch
that finds no links: it counts those whose other end is a GPU (gpu_nvml.c).
"""
_FORM = re.compile(r"_(?:sxm|pcie|nvl\d*)$")
_SPARE_MIB = 1024
"""RealMemory is rounded down to this: a node that reports less than its line is drained, and another kernel may leave
some MiB less. Our judgement."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU: device file /dev/nvidia``minor``, ``cores`` near it as Slurm's numbers ("": all), NVLinks to each."""

    minor: int
    cores: str = ""
    links: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeParts:
    """What a node reported of itself. ``cores`` and ``threads``: of one socket, of one core. GPUs in PCI order."""

    sockets: int
    cores: int
    threads: int
    memory_mib: int
    gpus: tuple[Gpu, ...]


def partitions_of(files: SlurmFiles, partition: str, *, default: bool) -> tuple[SlurmPartition, ...]:
    """Return the partitions: those declared, else one with every node. ``default``: that one is for all jobs."""
    return tuple(files.partitions) or (SlurmPartition(name=partition, default=default),)


def gpu_type(profile: str) -> str:
    """Return the type of a GPU in Slurm from its profile's id without the form of the card: h100 of h100_sxm."""
    return _FORM.sub("", profile)


def node_line(site: Site, node: str, parts: NodeParts) -> str:
    """Return the NodeName line of a node, without a state (slurm.conf(5))."""
    memory = parts.memory_mib // _SPARE_MIB * _SPARE_MIB
    kind = gpu_type(node_facts(site, node).gpu.id)
    return (
        f"NodeName={node} NodeAddr={site.node(node).address} Sockets={parts.sockets} CoresPerSocket={parts.cores} "
        f"ThreadsPerCore={parts.threads} RealMemory={memory} Gres=gpu:{kind}:{len(parts.gpus)}"
    )


def gres_lines(site: Site, node: str, parts: NodeParts) -> tuple[str, ...]:
    """Return a node's lines of gres.conf without its name: one per GPU, or one for all where they do not differ."""
    kind = gpu_type(node_facts(site, node).gpu.id)
    minors = [gpu.minor for gpu in parts.gpus]
    alike = len({gpu.cores for gpu in parts.gpus}) == 1 and not any(gpu.links for gpu in parts.gpus)
    if alike and minors == list(range(len(minors))):
        numbers = f"[0-{minors[-1]}]" if len(minors) > 1 else "0"
        return (f"Name=gpu Type={kind} File=/dev/nvidia{numbers}{_cores(parts.gpus[0])}",)
    return tuple(
        f"Name=gpu Type={kind} File=/dev/nvidia{gpu.minor}{_cores(gpu)}"
        + (f" Links={','.join(map(str, gpu.links))}" if gpu.links else "")
        for gpu in parts.gpus
    )


def _cores(gpu: Gpu) -> str:
    return f" Cores={gpu.cores}" if gpu.cores else ""


def nodes_text(
    lines: Mapping[str, str], partitions: Sequence[SlurmPartition], extra: Sequence[str], new: frozenset[str]
) -> str:
    """Return our included part of slurm.conf. ``extra``: lines before the nodes; ``new``: nodes that begin drained.

    A partition of which no node is there yet is written without nodes: slurmctld does not start without partitions.
    """
    out = [HEAD, *extra]
    out += [f"{line} {NEW}" if node in new else line for node, line in sorted(lines.items())]
    for partition in partitions:
        held = host_list(node for node in sorted(lines) if partition.holds(node))
        words = [f"PartitionName={partition.name}", *([f"Nodes={held}"] if held else [])]
        words += ["Default=YES"] if partition.default else []
        out.append(" ".join([*words, f"MaxTime={partition.max_time}", "State=UP"]))
    return "\n".join(out) + "\n"


def gres_text(gres: Mapping[str, Sequence[str]]) -> str:
    """Return our included part of gres.conf: nodes with the same GPUs share their lines."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for node, lines in sorted(gres.items()):
        alike.setdefault(tuple(lines), []).append(node)
    out = [f"NodeName={host_list(sorted(gres))} {NOT_DETECTED}"] if gres else []
    out += [f"NodeName={host_list(nodes)} {line}" for lines, nodes in alike.items() for line in lines]
    return "\n".join([HEAD, *out]) + "\n"


def tree_text(site: Site, nodes: Sequence[str], others: Sequence[str]) -> str:
    """Return topology.conf as a tree: one switch per scalable unit, one for nodes of others, and one above all.

    Leafs and one top suffice, and without a common parent no job spans two (Slurm's topology.shtml). No job starts on a
    node that is on no switch (Slurm, topology/tree: "unable to identify top level switch").
    """
    units: dict[int, list[str]] = {}
    for node in sorted(nodes):
        units.setdefault(unit_of(site, site.rack_of(node)), []).append(node)
    leafs = {f"su{unit}": host_list(held) for unit, held in sorted(units.items())}
    leafs |= {"others": host_list(others)} if others else {}
    out = [f"SwitchName={name} Nodes={held}" for name, held in leafs.items()]
    out += [f"SwitchName=top Switches={','.join(leafs)}"] if leafs else []
    return "\n".join([HEAD, *out]) + "\n"


def outside_blocks(site: Site, nodes: Sequence[str]) -> list[str]:
    """Return the nodes that are in no NVLink domain of the site, sorted."""
    inside = {node for domain in site.nvlink_domains for node in domain_nodes(site, domain)}
    return sorted(set(nodes) - inside)


def block_text(site: Site, nodes: Sequence[str]) -> str:
    """Return topology.conf as blocks, one per NVLink domain (topology.conf(5), from Slurm 24.05).

    The base size is that of the smallest block, because a block below it is fatal to slurmctld 24.05 and 24.11.
    """
    there = set(nodes)
    blocks = {
        domain.name: [node for node in domain_nodes(site, domain) if node in there] for domain in site.nvlink_domains
    }
    held = {name: members for name, members in blocks.items() if members}
    out = [f"BlockName={name} Nodes={host_list(members)}" for name, members in sorted(held.items())]
    size = min((len(members) for members in held.values()), default=0)
    return "\n".join([HEAD, *out, *([f"BlockSizes={size}"] if size else [])]) + "\n"
