"""Firmware of BMC, BIOS and other parts, compared with the baseline of the site, or else the platform profile's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rackready.gates.base import Gate, GateFacts, Outputs, Run
from rackready.gates.bmc import owner
from rackready.gates.bmc.documents import BmcAnswer, Document, name
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.baseline import named_as, same_version
from rackready.model.outcome import Verdict
from rackready.model.place import Place

_HOST, _BMC, _MANAGERS, _FIRMWARE = (
    "Systems/*!hgx_*",
    "Systems/*!hgx_*/Links.ManagedBy",
    "Managers/*!hgx_*",
    "UpdateService/FirmwareInventory/*",
)
_TIMEOUT_S = 900.0
"""Time for everything, s. Our choice: the firmware inventory alone may take minutes (drivers/redfish_http)."""
_STEP = (
    "Update it with the vendor's package of that version, or correct the baseline in the site file; "
    "mixed firmware hides faults."
)


FIRMWARE_NOT_DECLARED = ErrorKind(
    "bmc-firmware-not-declared",
    "firmware not judged",
    meaning="The site declares no firmware versions for this platform, so there is nothing to compare with.",
    next_step="Declare baselines.{where} (bmc, bios) in the site file, or the gate's skip with its reason.",
)
FIRMWARE_OTHER = FailKind(
    "bmc-firmware-version",
    "version",
    meaning="BMC or BIOS firmware differs from the version that the site wants.",
    next_step=_STEP,
)

FINDINGS = (FIRMWARE_NOT_DECLARED, FIRMWARE_OTHER)


class FirmwareBaseline(Gate):
    """BMC, BIOS and other listed firmware have the versions of the site's baseline, or else the platform profile's."""

    id = "bmc/firmware/sanity/versions"
    findings = (
        *owner.FINDINGS,
        *FINDINGS,
    )
    looks = True
    in_no_set = (
        "it needs a baseline, from the platform profile or the site (baselines); a site that has one "
        "adds the gate (gates.also)"
    )

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Plan one request to each BMC, for the firmware inventory only where it is wanted."""
        return [Run.of_node(node, owner.ask(node, *_trails(facts, node), timeout_s=_TIMEOUT_S)) for node in nodes]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Compare every wanted version with the present one."""
        node = run.nodes[0]
        judge = Judge()
        found = owner.server(judge, facts.nodes[node], "firmware versions", run, outputs)
        if found is None:
            return judge.verdict(node)
        wanted = facts.nodes[node].baseline
        if wanted is None or not (wanted.bmc or wanted.bios or wanted.firmware):
            where = facts.nodes[node].platform.id
            judge.error(node, FIRMWARE_NOT_DECLARED, f"versions wanted of {where}", "none declared", where=where)
            return judge.verdict(node)
        if wanted.bmc:
            _compare(
                judge,
                node,
                "BMC firmware",
                wanted.bmc,
                _of(found.at(_BMC), "FirmwareVersion") or _of(found.at(_MANAGERS), "FirmwareVersion"),
            )
        if wanted.bios:
            there = _of(found.at(_HOST), "BiosVersion")
            uefi = _bios(facts, node)
            if uefi and not any(there):  # "" says nothing: a GH200's system has that
                there = _of(found.at(uefi), "Version")
            _compare(judge, node, "BIOS version", wanted.bios, there)
        for part, version in wanted.firmware.items():
            _compare(judge, node, f"firmware {part}", version, _inventory(found, part))
        return judge.verdict(node)


def _trails(facts: GateFacts, node: str) -> list[str]:
    wanted = facts.nodes[node].baseline
    uefi = _bios(facts, node) if wanted is not None and wanted.bios else ""
    inventory = [_FIRMWARE] if wanted is not None and wanted.firmware else []
    return [_HOST, _BMC, _MANAGERS, *([uefi] if uefi else []), *inventory]


def _bios(facts: GateFacts, node: str) -> str:
    """Return the trail to the BIOS version of a server whose system has none, "" for others."""
    names = facts.nodes[node].platform.redfish
    return f"UpdateService/FirmwareInventory/*={names.bios}" if names is not None and names.bios else ""


def _of(documents: Iterable[Document], key: str) -> list[str]:
    """Return the values of a property, an empty one, too: it must not hide behind another."""
    return [str(document[key]) for document in documents if document.get(key) is not None]


def _inventory(found: BmcAnswer, part: str) -> list[str]:
    listed: list[Document] = list(found.at(_FIRMWARE))
    ids = named_as(part, map(name, listed))
    return _of((item for item in listed if name(item) in ids or item.get("Name") == part), "Version")


def _compare(judge: Judge, node: str, what: str, wanted: str, there: Sequence[str]) -> None:
    """Report an error for no version, and a fail for each one that is not the wanted one."""
    where = Place(node, what)
    found = {wanted if same_version(wanted, version) else version for version in there}
    if judge.equal(where, FIRMWARE_OTHER, wanted, ", ".join(sorted(found)) or None):
        judge.measured.add(f"{node}/{what.replace(' ', '-')}")
