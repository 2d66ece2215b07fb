"""PCIe path of every GPU: each link from the GPU to the root port."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates.base import Gate, GateFacts, Outputs, Run, trouble
from rackready.gates.engine.shipped_script import command, document
from rackready.gates.gpu import parts
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Verdict
from rackready.model.place import Place
from rackready.ondevice import pcie_path

_KEY = "path"
_RUNBOOK = "docs/runbooks/gpu.md"
_STEP = (
    "Power the node off and on; if that does not help, reseat the board or riser of that link, then check the link "
    f"speed in the BIOS: {_RUNBOOK}."
)
_VIRTUAL = frozenset({"0x1b36", "0x15ad"})
"""Vendors of virtual ports (pci.ids: Red Hat, for QEMU; VMware), whose capabilities describe no hardware."""
_REVISION = re.compile(r"0x[0-9a-f]{2}|None")
"""As sysfs writes it; None if it could not be read."""
_GENERATION = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


PATH_UNREADABLE = ErrorKind(
    "gpu-pcie-unreadable",
    "PCIe path unreadable",
    meaning="The document of the GPUs' PCIe links is not complete.",
    next_step="Run the gate again, or run `lspci -t` and `lspci -vv` by hand.",
)
PCIE_GPUS = FailKind(
    "gpu-pcie-count",
    "GPUs on PCIe",
    meaning="The PCIe bus has another number of GPUs than the platform.",
    next_step=f"Power the node off and on; if that does not help, reseat the GPU: {_RUNBOOK}.",
    runbook=_RUNBOOK,
)
FELL_OFF = FailKind(
    "gpu-pcie-fell-off",
    "GPU fell off the PCIe bus",
    meaning="The GPU is listed on the PCIe bus and does not answer: only a power cycle can bring it back.",
    next_step=f"Power the node off and on; if it happens again, replace the GPU: {_RUNBOOK}.",
    runbook=_RUNBOOK,
)
REVISION_UNREADABLE = ErrorKind(
    "gpu-pcie-revision-unreadable",
    "PCI revision unreadable",
    meaning="The PCI revision cannot be read, so it is unknown whether the GPU answers.",
    next_step="Run `lspci -s ADDRESS -n` by hand.",
)
PATH_NOT_REPORTED = ErrorKind(
    "gpu-pcie-path-not-reported",
    "PCIe path not reported",
    meaning="The bridges above the GPU are not listed, so its PCIe path cannot be judged.",
    next_step="Run `lspci -t` by hand.",
)
GENERATION_ABLE = FailKind(
    "gpu-pcie-generation-able",
    "PCIe generation that {part} supports",
    meaning="The GPU or a port above it supports a lower PCIe generation than it should: it is another part, or the "
    "BIOS limits it.",
    next_step=_STEP,
    runbook=_RUNBOOK,
)
LANES_ABLE = FailKind(
    "gpu-pcie-lanes-able",
    "PCIe lanes that {part} supports",
    meaning="The GPU or a port above it supports fewer lanes than it should: it is another part, or a riser is not "
    "fully connected.",
    next_step=_STEP,
    runbook=_RUNBOOK,
)
LINK_NOT_REPORTED = ErrorKind(
    "gpu-pcie-link-not-reported",
    "PCIe link {name} not reported",
    meaning="Speed and width of a PCIe link are not reported, so it cannot be judged.",
    next_step="Run `lspci -vv` as root by hand; a device in D3 or off the bus reports none.",
)
WIDTH = FailKind(
    "gpu-pcie-width",
    "PCIe width of {name}",
    meaning="A PCIe link on the GPU's path uses fewer lanes than both ends support: copies are slower.",
    next_step=_STEP,
    runbook=_RUNBOOK,
)
GENERATION = FailKind(
    "gpu-pcie-generation",
    "PCIe generation of {name}",
    meaning="A PCIe link on the GPU's path runs at a lower speed than both ends support: copies are slower.",
    next_step=_STEP,
    runbook=_RUNBOOK,
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
    """Every PCIe link from a GPU to the root port runs at the generation and width of its ends and of the profiles."""

    id = "node/gpu/sanity/pcie-path"
    findings = FINDINGS
    looks = True
    covers = frozenset({"gpu"})

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002 - the same for all
        """Return one script per node."""
        return [Run.of_node(node, command(_KEY, node, pcie_path)) for node in nodes]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Compare each link with what its ends support, and the ends with the profiles of GPU and server."""
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
        _gpu(judge, facts, Place(node, parts.name(facts, gpu["pci"], position)), gpu, notes)
    judge.note = "; ".join(notes) or None


def _gpu(judge: Judge, facts: NodeFacts, where: Place, gpu: dict[str, Any], notes: list[str]) -> None:
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
            "only the GPU's end is judged"
        )
    if len(judge.fails) + len(judge.errors) == before:
        judge.measured.add(where.unit)


def own_end(judge: Judge, facts: NodeFacts, where: str, link: dict[str, Any]) -> None:
    """Compare the capabilities of the GPU's end with the profile.

    A card that does not support its model's lanes is another card, or in a slot with wrong straps.
    """
    judge.judged += 1
    if facts.gpu.pcie is not None:
        _check_capabilities(
            judge, where, link, "the GPU", _Wanted(facts.gpu.pcie.gen, facts.gpu.pcie.lanes, "GPU profile")
        )


def _ends_above(judge: Judge, facts: NodeFacts, where: str, links: Sequence[dict[str, Any]], notes: list[str]) -> None:
    """Compare the capabilities of the ports above with the profiles.

    A port that a wrong riser or a BIOS limit keeps below its generation makes a slow link look right. The port at the
    other end of the GPU's own link must support what the GPU supports, unless the server's profile says otherwise. The
    ports further up must support only what the server's profile says: a server may share a slower uplink among its
    GPUs.
    """
    path, own = facts.platform.gpu_path, facts.gpu.pcie
    declared = None if path is None else _Wanted(path.gen, path.lanes, f"platform profile {facts.platform.id}")
    nearest = declared or (None if own is None else _Wanted(own.gen, own.lanes, "GPU profile"))
    for place, link in enumerate(links):
        wanted = declared if place else nearest
        if facts.node.kind == "virtual" or link.get("vendor") in _VIRTUAL:
            notes.append(
                f"{where}: {link['pci']} is a virtual port: its capabilities describe no hardware and are not judged"
            )
        elif wanted is not None:
            judge.judged += 1
            _check_capabilities(judge, where, link, f"{link['pci']} above the GPU", wanted)
    gaps = []
    if own is None:
        gaps.append(f"GPU profile {facts.gpu.id} has no capabilities of a GPU's own PCIe link")
    if len(links) > 1 and declared is None:
        gaps.append(f"platform profile {facts.platform.id} has no capabilities of the PCIe path above it")
    notes.extend(text for gap in gaps if (text := f"{gap}: the two ends were compared with each other") not in notes)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Capabilities that the end of a link must have, with their source."""

    gen: int
    lanes: int
    source: str


def _check_capabilities(judge: Judge, where: str, link: dict[str, Any], part: str, wanted: _Wanted) -> None:
    """Compare the capabilities of one end with the wanted ones. `_link` judges those that it does not report."""
    gen, lanes = _generation(link["max_link_speed"]), link["max_link_width"]
    if gen is not None and gen < wanted.gen:
        judge.fail(where, GENERATION_ABLE, f"{wanted.gen} ({wanted.source})", f"{gen}", part=part)
    if lanes is not None and lanes < wanted.lanes:
        judge.fail(where, LANES_ABLE, f"{wanted.lanes} ({wanted.source})", f"{lanes:.0f}", part=part)


def _link(
    judge: Judge, facts: NodeFacts, where: str, below: dict[str, Any], above: dict[str, Any], notes: list[str]
) -> None:
    """Compare one link with the lesser of its two ends' capabilities. Connections inside a switch chip are no links."""
    name = f"{below['pci']} to {above['pci'] if above is not below else 'the unseen end'}"
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
    if facts.gpu.form == "pcie":  # a card in a slot trains down while idle to save power; SXM and superchips do not
        notes.append(
            f"{where}: {name} runs at {actual} of {wanted} while idle, as such a card may; "
            "node/gpu/performance/nvbandwidth measures it under load"
        )
    else:
        judge.fail(where, GENERATION, wanted, actual, name=name)


def _known(speed: float | None, lanes: float | None) -> bool:
    """Return whether PCIe has this speed and this width."""
    return _generation(speed) is not None and lanes is not None and lanes > 0


def _generation(speed: float | None) -> int | None:
    return None if speed is None else _GENERATION.get(speed)
