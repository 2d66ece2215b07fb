"""The PCIe path of every GPU: each link from the GPU to the root port."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rackready.design.facts import NodeFacts
from rackready.gates.base import Gate, GateFacts, Outputs, Run, trouble
from rackready.gates.engine.shipped_script import command, document
from rackready.gates.formats.error import FormatError
from rackready.gates.gpu import parts
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Verdict
from rackready.ondevice import pcie_path

_KEY = "path"
_RUNBOOK = "docs/runbooks/gpu.md"
_STEP = (
    "Power the node off and on; if it stays so, reseat the board or riser of that link, then look at the BIOS's "
    f"link speed: {_RUNBOOK}."
)
_VIRTUAL = frozenset({"0x1b36", "0x15ad"})
"""Vendors of ports that no wire leaves (pci.ids: Red Hat, for QEMU; VMware): what they say that they can do is about no hardware."""
_REVISION = re.compile(r"0x[0-9a-f]{2}|None")
"""As sysfs writes it; None where it could not be read."""
_GENERATION = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


PATH_UNREADABLE = ErrorKind(
    "gpu-pcie-unreadable",
    "PCIe path unreadable",
    meaning="The document of the GPUs' PCIe links is not whole.",
    next_step="Run the gate again; read `lspci -t` and `lspci -vv` by hand.",
)
PCIE_GPUS = FailKind(
    "gpu-pcie-count",
    "GPUs on PCIe",
    meaning="Another number of GPUs is on the PCIe bus than the platform has.",
    next_step=f"Power the node off and on; if it stays so, reseat the GPU: {_RUNBOOK}.",
)
FELL_OFF = FailKind(
    "gpu-pcie-fell-off",
    "GPU fell off the PCIe bus",
    meaning="The GPU is listed on the PCIe bus and does not answer: only a power cycle may bring it back.",
    next_step=f"Power the node off and on; if it comes back, replace the GPU: {_RUNBOOK}.",
)
REVISION_UNREADABLE = ErrorKind(
    "gpu-pcie-revision-unreadable",
    "PCI revision unreadable",
    meaning="The PCI revision cannot be read, so nobody knows whether the GPU answers.",
    next_step="Read `lspci -s ADDRESS -n` by hand.",
)
PATH_NOT_REPORTED = ErrorKind(
    "gpu-pcie-path-not-reported",
    "PCIe path not reported",
    meaning="The bridges above the GPU are not listed, so its PCIe path cannot be judged.",
    next_step="Read `lspci -t` by hand.",
)
GENERATION_ABLE = FailKind(
    "gpu-pcie-generation-able",
    "PCIe generation that {whom} can do",
    meaning="The GPU or the slot above it can do another PCIe generation than it "
    "must: another part, or a BIOS setting.",
    next_step=_STEP,
)
LANES_ABLE = FailKind(
    "gpu-pcie-lanes-able",
    "PCIe lanes that {whom} can do",
    meaning="The GPU or the slot above it can do another number of lanes than it "
    "must: another part, or a riser that is "
    "not fully connected.",
    next_step=_STEP,
)
LINK_NOT_REPORTED = ErrorKind(
    "gpu-pcie-link-not-reported",
    "PCIe link {name} not reported",
    meaning="Speed and width of a PCIe link are not told, so it cannot be judged.",
    next_step="Read `lspci -vv` as root by hand; a device in D3 or off the bus reports none.",
)
WIDTH = FailKind(
    "gpu-pcie-width",
    "PCIe width of {name}",
    meaning="A PCIe link on the GPU's path runs with fewer lanes than both ends can do: copies are slower.",
    next_step=_STEP,
)
GENERATION = FailKind(
    "gpu-pcie-generation",
    "PCIe generation of {name}",
    meaning="A PCIe link on the GPU's path runs at a lower speed than both ends can do: copies are slower.",
    next_step=_STEP,
)

FINDINGS = (
    PATH_UNREADABLE,
    PCIE_GPUS,
    FELL_OFF,
    REVISION_UNREADABLE,
    PATH_NOT_REPORTED,
    GENERATION_ABLE,
    LANES_ABLE,
    LINK_NOT_REPORTED,
    WIDTH,
    GENERATION,
)


class PciePath(Gate):
    """Every PCIe link between a GPU and the root port runs at the generation and width that both its ends can do, and both can do what the profiles say."""

    id = "node/gpu/sanity/pcie-path"
    findings = FINDINGS
    looks = True
    covers = frozenset({"gpu"})

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002 - the same for all
        """One script per node."""
        return [Run.of_node(node, command(_KEY, node, pcie_path)) for node in nodes]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge each link by what its two ends say they can do, and the ends by the profiles of GPU and server."""
        node = run.nodes[0]
        judge = Judge()
        output = outputs.get(_KEY)
        if judge.trouble(trouble(output, node, "PCIe path")) or output is None:
            return judge.verdict(node)
        try:
            found = document(output, pcie_path.FORMAT)
            _judge(judge, facts.nodes[node], node, found)
        except (FormatError, KeyError, TypeError, AttributeError, ValueError) as error:
            judge.error(node, PATH_UNREADABLE, "the links of every GPU", f"{type(error).__name__}: {error}")
        return judge.verdict(node)


def _judge(judge: Judge, facts: NodeFacts, node: str, found: dict[str, Any]) -> None:
    if "error" in found:
        raise FormatError(str(found["error"]))
    gpus = found["gpus"]
    judge.judged += 1
    judge.count("gpus_on_pcie", node, len(gpus), facts.platform.gpus, f"platform profile {facts.platform.id}")
    if len(gpus) != facts.platform.gpus:
        detail = f"{len(gpus)}{parts.empty_places(facts, (gpu['pci'] for gpu in gpus))}"
        judge.fail(node, PCIE_GPUS, f"{facts.platform.gpus}", detail)
    notes: list[str] = []
    for position, gpu in enumerate(gpus):
        _gpu(judge, facts, f"{node} {parts.name(facts, gpu['pci'], position)}", gpu, notes)
    judge.note = "; ".join(notes) or None


def _gpu(judge: Judge, facts: NodeFacts, where: str, gpu: dict[str, Any], notes: list[str]) -> None:
    before = len(judge.fails) + len(judge.errors)
    links: list[dict[str, Any]] = gpu["links"]
    judge.judged += 1
    if gpu["revision"] == "0xff":
        judge.fail(where, FELL_OFF, "a device that answers", "its configuration space reads as all ones (rev ff)")
        return
    if not _REVISION.fullmatch(str(gpu["revision"])):
        judge.error(where, REVISION_UNREADABLE, "0x and two hexadecimal digits", ascii(gpu["revision"])[:40])
        return
    if not links:
        judge.error(where, PATH_NOT_REPORTED, "the GPU and its bridges", "nothing")
        return
    own_end(judge, facts, where, links[0])
    _ends_above(judge, facts, where, links[1:], notes)
    for below, above in zip(links[::2], links[1::2], strict=False):
        _link(judge, facts, where, below, above, notes)
    if len(links) % 2:
        _link(judge, facts, where, links[-1], links[-1], notes)
        notes.append(
            f"{where}: the other end of {links[-1]['pci']}'s link is not in sysfs (virtual machine?); "
            "judged by the GPU's end alone"
        )
    if len(judge.fails) + len(judge.errors) == before:
        judge.measured.add(where.replace(" ", "/"))


def own_end(judge: Judge, facts: NodeFacts, where: str, link: dict[str, Any]) -> None:
    """Hold what the GPU's end can do against the profile: a card that cannot do its model's lanes is another card, or behind a wrong slot's straps."""
    judge.judged += 1
    if facts.gpu.pcie is not None:
        _can(judge, where, link, "the GPU", _Wanted(facts.gpu.pcie.gen, facts.gpu.pcie.lanes, "GPU profile"))


def _ends_above(judge: Judge, facts: NodeFacts, where: str, links: Sequence[dict[str, Any]], notes: list[str]) -> None:
    """Hold what the ports above can do: a port that a wrong riser or a BIOS limit keeps below its generation makes a slow link look right.

    The port at the other end of the GPU's own link must do what the GPU does, unless the server's profile says
    otherwise; the ports further up only what the server's profile says, for a server may well share a slower uplink
    among its GPUs.
    """
    path, own = facts.platform.gpu_path, facts.gpu.pcie
    declared = None if path is None else _Wanted(path.gen, path.lanes, f"platform profile {facts.platform.id}")
    nearest = declared or (None if own is None else _Wanted(own.gen, own.lanes, "GPU profile"))
    for place, link in enumerate(links):
        wanted = declared if place else nearest
        if facts.node.kind == "virtual" or link.get("vendor") in _VIRTUAL:
            notes.append(
                f"{where}: {link['pci']} is a virtual port: what it can do is about no hardware, and not judged"
            )
        elif wanted is not None:
            judge.judged += 1
            _can(judge, where, link, f"{link['pci']} above the GPU", wanted)
    unsaid = []
    if own is None:
        unsaid.append(f"GPU profile {facts.gpu.id} does not say what a GPU's own PCIe link can do")
    if len(links) > 1 and declared is None:
        unsaid.append(f"platform profile {facts.platform.id} does not say what the PCIe path above it can do")
    notes.extend(text for said in unsaid if (text := f"{said}: held end against end") not in notes)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the end of a link must be able to do, and who says so."""

    gen: int
    lanes: int
    source: str


def _can(judge: Judge, where: str, link: dict[str, Any], whom: str, wanted: _Wanted) -> None:
    """Hold one end; what it does not report, the judgement of its link says."""
    gen, lanes = _generation(link["max_link_speed"]), link["max_link_width"]
    if gen is not None and gen < wanted.gen:
        judge.fail(where, GENERATION_ABLE, f"{wanted.gen} ({wanted.source})", f"{gen}", whom=whom)
    if lanes is not None and lanes < wanted.lanes:
        judge.fail(where, LANES_ABLE, f"{wanted.lanes} ({wanted.source})", f"{lanes:.0f}", whom=whom)


def _link(
    judge: Judge, facts: NodeFacts, where: str, below: dict[str, Any], above: dict[str, Any], notes: list[str]
) -> None:
    """Judge one link by the least of what its two ends can do. Links inside a switch chip stand between two links and are none."""
    name = f"{below['pci']} to {above['pci'] if above is not below else 'the end that is not seen'}"
    judge.judged += 2
    speed, width = below["current_link_speed"], below["current_link_width"]
    speeds, widths = (
        (speed, below["max_link_speed"], above["max_link_speed"]),
        (width, below["max_link_width"], above["max_link_width"]),
    )
    if not all(_known(*one) for one in zip(speeds, widths, strict=True)):
        told = (*speeds[:2], *widths[:2], speeds[2], widths[2])
        judge.error(
            where,
            LINK_NOT_REPORTED,
            "speed and width of both ends",
            "nothing" if None in told else ", ".join(f"{value:g}" for value in told),
            name=name,
        )
        return
    lanes, most = min(widths[1:]), min(speeds[1:])
    if width < lanes:
        judge.fail(where, WIDTH, f"x{lanes:.0f}", f"x{width:.0f}", name=name)
    if speed >= most:
        return
    actual, wanted = (f"generation {_generation(value)} ({value:g} GT/s)" for value in (speed, most))
    if (
        facts.gpu.form == "pcie"
    ):  # a card in a slot trains down while idle to save power; SXM boards and superchips do not
        notes.append(
            f"{where}: {name} runs at {actual} of {wanted} while idle, which such a card may; "
            "node/gpu/performance/nvbandwidth measures it under load"
        )
    else:
        judge.fail(where, GENERATION, wanted, actual, name=name)


def _known(speed: float | None, lanes: float | None) -> bool:
    """Return whether these are a speed and a width that PCIe has."""
    return _generation(speed) is not None and lanes is not None and lanes > 0


def _generation(speed: float | None) -> int | None:
    return None if speed is None else _GENERATION.get(speed)
