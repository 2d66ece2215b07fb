"""Check of imported outputs: their identity against the manifest's fingerprints, other nodes and the record."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rackready.evidence.store import EvidenceStore
from rackready.gates.judging import output_identity
from rackready.gates.judging.output_identity import OutputIdentity
from rackready.gates.records.captured import Capture
from rackready.ledger.store import Ledger
from rackready.model.commands import repair
from rackready.model.evidence import UNREAD, CapturedOutput, Fingerprint
from rackready.model.problems import Message
from rackready.model.site import Site


@dataclass(frozen=True, slots=True)
class PartsCheck:
    """Check of the parts in one import. ``prints``: node -> fingerprint, for nodes whose host is proven."""

    site: Site
    store: EvidenceStore
    ledger: Ledger
    prints: Mapping[str, Fingerprint]

    def problems(self, capture: Capture) -> list[Message]:
        """Return why outputs cannot be from the nodes in the manifest; empty if nothing contradicts it."""
        items = list({(item.node, item.file): item for item in capture.manifest.outputs}.values())
        identities = {
            file: output_identity.identity(capture.files[file]) for file in dict.fromkeys(item.file for item in items)
        }
        strange, bad = self._strange(items, identities)
        return [*strange, *_shared(items, identities, bad), *self._elsewhere()]

    def _strange(
        self, items: Sequence[CapturedOutput], identities: Mapping[str, OutputIdentity]
    ) -> tuple[list[Message], set[tuple[str, str]]]:
        """Return the outputs that contradict their node's fingerprint, as problems and as (node, file)."""
        out, bad = [], set()
        both = _both(items, identities)
        for item in items:
            if item.node not in self.prints:
                continue
            for expected, actual in output_identity.contradictions(
                identities[item.file], self.prints[item.node], both[item.node]
            ):
                step = (
                    "It is from another machine or from another time: import outputs that were captured on "
                    f"{item.node} with this fingerprint."
                )
                out.append(
                    Message(
                        item.node,
                        f"{item.gate} {item.key}, {item.file}",
                        expected=expected,
                        actual=actual,
                        next_step=step,
                    )
                )
                bad.add((item.node, item.file))
        return out, bad

    def _elsewhere(self) -> Iterator[Message]:
        """Yield the fingerprints whose GPUs another node has too, by this import or by its newest record."""
        own = {node: [gpu for gpu in stated.gpus if not gpu.startswith(UNREAD)] for node, stated in self.prints.items()}
        seen = self._recorded({gpu for gpus in own.values() for gpu in gpus})
        for node, gpus in own.items():
            if both := [gpu for gpu in gpus if gpu in seen]:
                other, where = seen[both[0]]
                step = (
                    f"If parts were moved, run {repair(other)} and import outputs that were "
                    "captured since. Otherwise one of the two is wrong."
                )
                yield (
                    Message(
                        node,
                        "fingerprint",
                        expected="GPUs of its own",
                        actual=f"{len(both)} of {len(gpus)} (first {both[0]}) are {other}'s {where}",
                        next_step=step,
                    )
                )
            seen |= dict.fromkeys(gpus, (node, "in this import"))

    def _recorded(self, gpus: Collection[str]) -> dict[str, tuple[str, str]]:
        """Return the GPUs that other nodes have by their last record: GPU -> (node, where)."""
        out: dict[str, tuple[str, str]] = {}
        others = {node.name for node in self.site.nodes()} - set(self.prints)
        for record in self.store.last(others) if gpus else ():
            node = record.target
            both = {gpu for one in record.fingerprints if one.node == node for gpu in one.gpus if gpu in gpus}
            since, before = self.ledger.last_change(node)
            if both and record.started.timestamp() >= since and record.id > before:
                out |= dict.fromkeys(both, (node, "on record"))
        return out


def _both(items: Sequence[CapturedOutput], identities: Mapping[str, OutputIdentity]) -> Mapping[str, Mapping[str, str]]:
    """Return node -> UUID -> serial of GPUs for which its outputs contain both."""
    out: dict[str, dict[str, str]] = {item.node: {} for item in items}
    for item in items:
        out[item.node] |= {gpu.uuid: gpu.serial for gpu in identities[item.file].gpus if gpu.serial and gpu.uuid}
    return out


def _shared(
    items: Sequence[CapturedOutput], identities: Mapping[str, OutputIdentity], bad: set[tuple[str, str]]
) -> Iterator[Message]:
    """Yield the files that are listed for two nodes, or that contain parts of another node's output."""
    files: dict[str, str] = {}
    parts: dict[str, tuple[str, str]] = {}
    for item in items:
        where, step = (
            f"{item.node}: {item.gate} {item.key}, {item.file}",
            f"Import an output that was captured on {item.node}.",
        )
        if (item.node, item.file) in bad:
            continue
        if files.setdefault(item.file, item.node) != item.node:
            yield Message(
                where, expected="a file of its own", actual=f"it is listed for {files[item.file]}, too", next_step=step
            )
            continue
        both = [
            part
            for part in identities[item.file].parts()
            if parts.setdefault(part, (item.node, item.file))[0] != item.node
        ]
        if both:
            other, file = parts[both[0]]
            more = f" and {len(both) - 1} more" if len(both) > 1 else ""
            yield (
                Message(
                    where,
                    expected="parts that no other node has",
                    actual=f"{both[0]}{more}, as {file} of {other} has",
                    next_step=step,
                )
            )
