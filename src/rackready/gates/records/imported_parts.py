"""Holds what imported outputs name against the fingerprints that are stated with them, and the nodes of an import against each other and the record."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rackready.evidence.store import EvidenceStore
from rackready.gates.judging import output_identity
from rackready.gates.judging.output_identity import OutputIdentity
from rackready.gates.records.captured import Capture
from rackready.ledger.store import Ledger
from rackready.model.evidence import UNREAD, CapturedOutput, Fingerprint
from rackready.model.site import Site


@dataclass(frozen=True, slots=True)
class PartsCheck:
    """What is known beside the outputs. ``prints``: of each node whose host is proven, its fingerprint."""

    site: Site
    store: EvidenceStore
    ledger: Ledger
    prints: Mapping[str, Fingerprint]

    def problems(self, capture: Capture) -> list[str]:
        """Return why outputs cannot be those of the nodes that the manifest names: empty when nothing speaks against them."""
        items = list({(item.node, item.file): item for item in capture.manifest.outputs}.values())
        said = {
            file: output_identity.identity(capture.files[file]) for file in dict.fromkeys(item.file for item in items)
        }
        strange, bad = self._strange(items, said)
        return [*strange, *_shared(items, said, bad), *self._elsewhere()]

    def _strange(
        self, items: Sequence[CapturedOutput], said: Mapping[str, OutputIdentity]
    ) -> tuple[list[str], set[tuple[str, str]]]:
        """Return what contradicts the fingerprint that was stated with it, and which (node, file) that is."""
        out, bad = [], set()
        both = _both(items, said)
        for item in items:
            if item.node not in self.prints:
                continue
            for expected, actual in output_identity.contradictions(
                said[item.file], self.prints[item.node], both[item.node]
            ):
                step = (
                    "It is another machine's, or was captured at another time: bring what was captured on "
                    f"{item.node} with this fingerprint."
                )
                out.append(
                    f"{item.node}: {item.gate} {item.key}, {item.file} - Expected: {expected} Actual: {actual}. {step}"
                )
                bad.add((item.node, item.file))
        return out, bad

    def _elsewhere(self) -> Iterator[str]:
        """Say which GPUs of a fingerprint are in another node's, too: of this import, or by the newest that is recorded since its last change."""
        own = {node: [gpu for gpu in stated.gpus if not gpu.startswith(UNREAD)] for node, stated in self.prints.items()}
        seen = self._recorded({gpu for gpus in own.values() for gpu in gpus})
        for node, gpus in own.items():
            if both := [gpu for gpu in gpus if gpu in seen]:
                other, where = seen[both[0]]
                step = (
                    f"If parts were moved, run `rackready repair {other} --reason '...'` and bring what was "
                    "captured since; else one of the two is wrong."
                )
                yield (
                    f"{node}: fingerprint - Expected: GPUs of its own Actual: {len(both)} of {len(gpus)} (first "
                    f"{both[0]}) are {other}'s {where}. {step}"
                )
            seen |= dict.fromkeys(gpus, (node, "in this import"))

    def _recorded(self, gpus: Collection[str]) -> dict[str, tuple[str, str]]:
        """Return which of these GPUs other nodes than the import's have, by what is recorded of them last: GPU -> (node, where it stands)."""
        out: dict[str, tuple[str, str]] = {}
        others = {node.name for node in self.site.nodes()} - set(self.prints)
        for record in self.store.last(others) if gpus else ():
            node = record.target
            both = {gpu for one in record.fingerprints if one.node == node for gpu in one.gpus if gpu in gpus}
            if both and record.started.timestamp() >= self.ledger.last_change(node):
                out |= dict.fromkeys(both, (node, "on record"))
        return out


def _both(items: Sequence[CapturedOutput], said: Mapping[str, OutputIdentity]) -> Mapping[str, Mapping[str, str]]:
    """Return node -> UUID -> serial of the GPUs of which its outputs say both."""
    out: dict[str, dict[str, str]] = {item.node: {} for item in items}
    for item in items:
        out[item.node] |= {gpu.uuid: gpu.serial for gpu in said[item.file].gpus if gpu.serial and gpu.uuid}
    return out


def _shared(
    items: Sequence[CapturedOutput], said: Mapping[str, OutputIdentity], bad: set[tuple[str, str]]
) -> Iterator[str]:
    """Say which files are listed for two nodes, and which name what an output of another node names: both cannot be true."""
    files: dict[str, str] = {}
    parts: dict[str, tuple[str, str]] = {}
    for item in items:
        where, step = f"{item.node}: {item.gate} {item.key}, {item.file}", f"Bring what was captured on {item.node}."
        if (item.node, item.file) in bad:
            continue
        if files.setdefault(item.file, item.node) != item.node:
            yield f"{where} - Expected: a file of its own Actual: it is listed for {files[item.file]}, too. {step}"
            continue
        both = [
            part for part in said[item.file].parts() if parts.setdefault(part, (item.node, item.file))[0] != item.node
        ]
        if both:
            other, file = parts[both[0]]
            more = f" and {len(both) - 1} more" if len(both) > 1 else ""
            yield (
                f"{where} - Expected: parts that no other node has Actual: {both[0]}{more}, as {file} of {other} "
                f"has. {step}"
            )
