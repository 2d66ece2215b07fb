"""Proof of the host and boot of imported outputs, by the fingerprints in their manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rackready.format_error import FormatError
from rackready.gates.base import Output
from rackready.gates.engine.shipped_script import document
from rackready.gates.formats import printed
from rackready.gates.records.captured import Capture
from rackready.gates.records.fingerprint import build, is_of, serials_of
from rackready.model.evidence import CapturedOutput, Fingerprint
from rackready.model.problems import Message, quoted
from rackready.model.serials import wanted_text
from rackready.model.site import Site
from rackready.ondevice import fingerprint as script

_NO_HOST = "no fingerprint with its chassis serial and GPUs proves that it is this node: it satisfies no gate"
_NO_BOOT = "no equal fingerprint afterwards proves the boot: it satisfies no gate with after_boot"


@dataclass(slots=True)
class ImportedProof:
    """Proof of one node's host and boot. ``lacks``: what is not proven, in words."""

    fingerprint: Fingerprint | None = None
    """None if the host is not proven; without a boot id if the boot is not."""
    lacks: tuple[str, ...] = ()
    problems: list[Message] = field(default_factory=list)


def prove(site: Site, capture: Capture, node: str, members: Sequence[CapturedOutput], now: datetime) -> ImportedProof:
    """Return what the fingerprints of a node's outputs prove, and the problems of the fingerprints and times."""
    step = "Correct the clock that is wrong, or the manifest."
    proof = ImportedProof(
        problems=[
            Message(node, f"{item.gate} {item.key}", expected="captured before now", actual=_when(item), next_step=step)
            for item in members
            if (now - item.time).total_seconds() < item.seconds
        ]
    )
    before = {item.fingerprint for item in members}
    after = {item.fingerprint_after for item in members}
    first = _fingerprint(site, capture, node, next(iter(before)), proof.problems) if len(before) == 1 else None
    last = _fingerprint(site, capture, node, next(iter(after)), proof.problems) if len(after) == 1 else None
    if first is None:
        proof.lacks = (_NO_HOST,)
        return proof
    same = last is not None and last.identity() == first.identity() and last.boot_id == first.boot_id
    proof.fingerprint = first if same else first.model_copy(update={"boot_id": ""})
    proof.lacks = () if same else (_NO_BOOT,)
    return proof


def _fingerprint(
    site: Site, capture: Capture, node: str, name: str | None, problems: list[Message]
) -> Fingerprint | None:
    """Return a fingerprint with the site's serial; None if it has no serial or no GPU could be read.

    Another machine's serial is a problem.
    """
    if name is None:
        return None
    try:
        found = document(
            Output("fingerprint", node, "captured", 0, capture.files[name]), script.FORMAT, printed.Fingerprint
        )
        made = None if found.get("gpu_error") else build(found, site, node)
    except FormatError as error:
        step = f"Import the output of that script on {node}."
        problems.append(
            Message(
                node, name, expected="what ondevice/fingerprint.py prints", actual=quoted(str(error)), next_step=step
            )
        )
        return None
    serials, own = serials_of(found), site.node(node)
    same = is_of(serials, own)
    if serials.found and own.serial and not same:
        step = "It is from another machine: import outputs of this node, or correct its serial in the site file."
        expected = wanted_text(own.serial, own.serial_kind)
        problems.append(Message(node, name, expected=expected, actual=serials, next_step=step))
    return made if same else None


def _when(item: CapturedOutput) -> str:
    return item.time.isoformat() + (f", which took {item.seconds:g} s" if item.seconds else "")
