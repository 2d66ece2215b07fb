"""Makers of the documents of a run's commands from captured outputs of tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from rackready.format_error import FormatError
from rackready.gates.base import Command, GateFacts, Run
from rackready.gates.engine.shipped_script import source as text_of
from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.gates.plain.host import HostRead, RdmaCounters
from rackready.gates.plain.nvidia import Inventory, VersionsMaker
from rackready.gates.plain.pcie import PciePath
from rackready.gates.plain.source import LackError, Maker, Source
from rackready.gates.records.offline import Captured
from rackready.model.outcome import Finding
from rackready.ondevice import host_read, nvml_inventory, pcie_path, rdma_counters, versions

OUTPUTS_UNREAD = ErrorKind(
    "plain-outputs-unreadable",
    "outputs for {command} are not understood",
    meaning="The outputs that were given for a command cannot be read.",
    next_step="Give the tool's complete output; `rackready gate show` prints the gate's own command.",
)


@dataclass(frozen=True, slots=True)
class Slot:
    """A command of a run, and one source of its document."""

    command: str
    source: Source


@cache
def _makers() -> Mapping[str, Maker]:
    """Return script text -> maker of its document: a command is recognised by its script."""
    return {
        text_of(nvml_inventory): Inventory(),
        text_of(versions): VersionsMaker(),
        text_of(pcie_path): PciePath(),
        text_of(host_read): HostRead(),
        text_of(rdma_counters): RdmaCounters(),
    }


def _maker(facts: GateFacts, command: Command) -> Maker | None:
    return _makers().get(command.stdin) if command.stdin and command.node in facts.nodes else None


def sources_of(facts: GateFacts, command: Command) -> Sequence[Source]:
    """Return the sources of a command's document; none if the gate reads a tool's own output."""
    maker = _maker(facts, command)
    return () if maker is None else maker.sources(facts.nodes[command.node], command)


def slots(facts: GateFacts, run: Run) -> dict[str, Slot]:
    """Return a run's sources: COMMAND:SOURCE -> slot, and also SOURCE -> slot if only one command has it."""
    every: list[Slot] = []
    for command in run.commands:
        every += [Slot(command.key, source) for source in sources_of(facts, command)]
    out = {f"{slot.command}:{slot.source.key}": slot for slot in every}
    own = {command.key for command in run.commands}
    for slot in every:
        if slot.source.key not in own and sum(other.source.key == slot.source.key for other in every) == 1:
            out[slot.source.key] = slot
    return out


def recognised(found: Mapping[str, Slot], text: str, command: str = "") -> str | None:
    """Return the key of the source of a text, among those of a command; None if unknown or ambiguous."""
    keys = shown(found, text, command)
    return keys[0] if len(keys) == 1 else None


def shown(found: Mapping[str, Slot], text: str, command: str = "") -> list[str]:
    """Return the keys of all sources that a text could be from, among those of a command ("": of any command)."""
    if text.lstrip().startswith("{") and '"rackready/' in text:
        return []
    return [
        key for key, slot in found.items() if ":" in key and command in {"", slot.command} and slot.source.marks(text)
    ]


def made(
    facts: GateFacts, run: Run, given: Mapping[str, Mapping[str, Sequence[Captured]]]
) -> tuple[dict[str, Captured], list[Finding]]:
    """Return command key -> document, and findings of missing facts.

    ``given``: command key -> source key -> outputs.
    """
    out: dict[str, Captured] = {}
    findings: list[Finding] = []
    for command in run.commands:
        maker = _maker(facts, command)
        if maker is None or not given.get(command.key):
            continue
        try:
            out[command.key] = maker.make(facts.nodes[command.node], command, given[command.key])
        except LackError as error:
            findings += error.findings
        except FormatError as error:
            findings.append(_unread(command, error))
    return out, findings


def _unread(command: Command, error: FormatError) -> Finding:
    return OUTPUTS_UNREAD.found(command.node, "the tools' own outputs", str(error), command=command.key)
