"""The gate on firmware: the versions that the site declares; else the same version on alike parts of identical nodes.

A site that declares one kind of a sort of parts (BIOS, NIC, VBIOS, drive) must declare every kind of that sort that
its nodes have.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from pydantic import Field, field_validator

from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates import base
from rackready.gates.base import FinishedRun, Gate, GateFacts, Outputs, Run
from rackready.gates.formats import dmidecode
from rackready.gates.host import drive_reading, reading
from rackready.gates.host.drive_reading import BLOCK, HEALTH, SCAN, attached, drives
from rackready.gates.host.reading import AGAIN, Answers, Tool, WantedValues, answers
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.baseline import same_version
from rackready.model.outcome import Outcome, Verdict
from rackready.model.place import Place

BIOS = Tool("dmidecode", ("dmidecode", "--type", "bios"), "dmidecode")
VBIOS = Tool(
    "nvidia-smi", ("nvidia-smi", "--query-gpu=index,name,vbios_version", "--format=csv,noheader"), "nvidia-open"
)
_NIC = "NIC"
_SORTS = ("BIOS of", _NIC, "VBIOS of", "drive")
"""Beginnings of the names of kinds of parts that `inventory` returns."""
_NIC_VERSION = re.compile(r"\d+(\.\d+){2,3}")
_PSID = re.compile(r"[A-Z0-9_-]{4,16}")
"""Firmware version and PSID of a NIC as the driver shows them.

fw_ver; board_id with at most 16 characters (mlx5 IB_DEVICE and mstflint, PSID_LEN).
"""
_UNKNOWN = frozenset({"", "unknown", "n/a", "none", "[no information found]"})
"""Values for a name or version that a drive does not report; the last as smartctl prints it."""
_FLASH = (
    "Flash the wanted version (the server's or part's update package), power the node off and on, and run the gate "
    "again."
)


BIOS_UNREADABLE = ErrorKind(
    "firmware-dmidecode-unreadable",
    "dmidecode's output is not understood",
    meaning="dmidecode printed something other than the BIOS version.",
    next_step=AGAIN,
)
NIC_NOT_REPORTED = ErrorKind(
    "nic-firmware-not-reported",
    "NIC firmware not reported",
    meaning="A NIC does not report its firmware version and PSID.",
    next_step="Check that the NIC is on the bus and its driver is loaded.",
)
DRIVE_NOT_REPORTED = ErrorKind(
    "drive-firmware-not-reported",
    "drive firmware not reported",
    meaning="A drive does not report its model and firmware version.",
    next_step="Run `smartctl -a {name}` on the node.",
)
VBIOS_UNREADABLE = ErrorKind(
    "vbios-unreadable",
    "nvidia-smi's output is not understood",
    meaning="nvidia-smi printed something other than VBIOS versions.",
    next_step=AGAIN,
)
VBIOS_NOT_ALL = ErrorKind(
    "vbios-not-all-told",
    "VBIOS not reported for every GPU",
    meaning="nvidia-smi does not report one VBIOS for each GPU of the platform, all of one model.",
    next_step="Run gate node/gpu/sanity/inventory: it names the missing or different GPU.",
)
NO_MAJORITY = FailKind(
    "firmware-no-majority",
    "firmware",
    meaning="Alike parts have different firmware and no version is on most of them, so it is unknown which is right.",
    next_step="Declare the wanted version in the gate set (input `baseline`).",
)
FIRMWARE_VERSION = FailKind(
    "firmware-version",
    "firmware of {kind}",
    meaning="The part has another firmware version than the site declares, or than most alike parts have.",
    next_step=_FLASH,
)
NOT_IN_BASELINE = ErrorKind(
    "firmware-not-in-baseline",
    "{sort} missing in the firmware baseline",
    meaning="The site's baseline does not declare this kind of part, so its firmware cannot be judged.",
    next_step="Install a declared part, or also declare this kind of part (input `baseline`: '{kind}' and the wanted "
    "version).",
)
NIC_ALONE = ErrorKind(
    "firmware-nic-alone",
    "NIC unlike all other NICs",
    meaning="No other NIC is of this kind, so there is nothing to compare its firmware with.",
    next_step="Install a NIC of the same kind, or declare both kinds in the gate set (input `baseline`). "
    "`mstflint -d DEVICE query` shows its PSID.",
)
_WRONG = frozenset({NO_MAJORITY.code, FIRMWARE_VERSION.code})
"""Codes of findings on wrong firmware; the other findings are about firmware that could not be judged."""

FINDINGS = (
    BIOS_UNREADABLE,
    NIC_NOT_REPORTED,
    DRIVE_NOT_REPORTED,
    VBIOS_UNREADABLE,
    VBIOS_NOT_ALL,
    NO_MAJORITY,
    FIRMWARE_VERSION,
    NOT_IN_BASELINE,
    NIC_ALONE,
)


def wanted(facts: NodeFacts) -> WantedValues:
    """Return what to read on one node."""
    base_ = "/sys/class/infiniband"
    return WantedValues(
        (BIOS, VBIOS, SCAN, HEALTH, BLOCK),
        tuple(f"{base_}/{nic.rdma_device}/{leaf}" for nic in facts.nics for leaf in ("fw_ver", "board_id")),
    )


def inventory(judge: Judge, facts: NodeFacts, found: Answers) -> dict[str, dict[str, str]]:
    """Return kind of part (BIOS; NIC with its PSID; GPU or drive with its model) -> part -> firmware version.

    A version that cannot be read is an error. Devices on USB (a BMC's virtual media, for example) are left out.
    """
    out: dict[str, dict[str, str]] = defaultdict(dict)
    text = found.text("dmidecode")
    if text is not None:
        try:
            out[f"BIOS of {facts.platform.product}"]["BIOS"] = dmidecode.bios_version(text)
        except FormatError as error:
            judge.error(found.node, BIOS_UNREADABLE, "its BIOS Information", error)
    for nic in facts.nics:
        version, board = (
            found.one(f"/sys/class/infiniband/{nic.rdma_device}/{leaf}") for leaf in ("fw_ver", "board_id")
        )
        if version and board and _NIC_VERSION.fullmatch(version) and _PSID.fullmatch(board):
            out[f"NIC {board}"][nic.rdma_device] = version
        else:
            actual = f"{version!r} and {board!r}" if version or board else "nothing"
            judge.error(Place(found.node, nic.rdma_device), NIC_NOT_REPORTED, "version and PSID", actual)
    loose = {name for name, own in attached(judge, found).items() if not own}
    for drive in drives(judge, found, loose):
        if _is_reported(drive.model) and _is_reported(drive.firmware):
            out[f"drive {drive.model}"][drive.name] = drive.firmware
        else:
            actual = f"{drive.model!r} and {drive.firmware!r}"
            judge.error(Place(found.node, drive.name), DRIVE_NOT_REPORTED, "model and version", actual, name=drive.name)
    _vbios(judge, facts, found, out)
    return dict(out)


def _is_reported(word: str) -> bool:
    """Return whether a drive reports this: printable ASCII with single spaces, and no word for unknown."""
    return word.isascii() and word.isprintable() and word == " ".join(word.split()) and word.lower() not in _UNKNOWN


def _vbios(judge: Judge, facts: NodeFacts, found: Answers, out: dict[str, dict[str, str]]) -> None:
    """Add the VBIOS of every GPU to ``out``.

    A node has GPUs of one model: an output with another one is damaged or of another part, and is an error.
    """
    text = found.text("nvidia-smi")
    rows = [[field.strip() for field in line.split(",")] for line in (text or "").splitlines() if line.strip()]
    if text is not None and (not rows or any(len(row) != 3 or not row[0].isdigit() or not row[2] for row in rows)):  # noqa: PLR2004 - index, name, version
        judge.error(
            found.node, VBIOS_UNREADABLE, "index, name, VBIOS version per line", (text or "").strip()[:80] or "nothing"
        )
        return
    every = [str(index) for index in range(facts.platform.gpus)]
    if text is not None and ([row[0] for row in rows] != every or len({row[1] for row in rows}) != 1):
        expected = f"one line for each of {len(every)} GPUs of one model"
        actual = ", ".join(f"{index} {name}" for index, name, _ in rows)
        judge.error(found.node, VBIOS_NOT_ALL, expected, actual)
        return
    for index, name, version in rows:
        out[f"VBIOS of {name}"][f"gpu{index}"] = version


class Firmware(Gate):
    """All firmware is as the site declares; else alike parts of identical nodes have the same version."""

    id = "group/host/validation/firmware"
    findings = (
        *reading.FINDINGS,
        *drive_reading.READ,
        *FINDINGS,
    )
    after_fail = True
    covers = frozenset({"node"})

    class Inputs(base.Inputs):
        """The site's baseline."""

        baseline: dict[str, str] = Field(
            {},
            description="kind of part, as findings name it (e.g. 'NIC MT_0000000838') -> the wanted firmware version",
        )

        @field_validator("baseline")
        @classmethod
        def _known_sorts_only(cls, baseline: dict[str, str]) -> dict[str, str]:
            strange = sorted(kind for kind in baseline if not kind.startswith(_SORTS))
            if strange:
                message = (
                    f"names that begin with {', '.join(_SORTS)}; no part is called {', '.join(strange)}, "
                    "so this would never be checked"
                )
                raise ValueError(message)
            return baseline

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Return one run per platform, over all its nodes."""
        groups: dict[str, list[str]] = defaultdict(list)
        for node in nodes:
            groups[facts.nodes[node].platform.id].append(node)
        return [
            Run(
                id=f"{platform}-{members[0]}-{len(members)}",
                target=platform,
                nodes=tuple(members),
                commands=tuple(wanted(facts.nodes[node]).command(node, key=f"read-{node}") for node in members),
            )
            for platform, members in groups.items()
        ]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Read the parts of every node and compare them."""
        judge = Judge()
        seen: dict[str, dict[str, dict[str, str]]] = {}
        for node in run.nodes:
            found = answers(judge, outputs.get(f"read-{node}"), node, wanted(facts.nodes[node]), "reading of firmware")
            if found is not None:
                seen[node] = inventory(judge, facts.nodes[node], found)
        alone = []
        declared = {_sort(kind) for kind in self.inputs.baseline}
        kinds = sorted({kind for parts in seen.values() for kind in parts})
        nics = [kind for kind in kinds if _sort(kind) == _NIC]
        for kind in kinds:
            by_node = {node: parts[kind] for node, parts in seen.items() if kind in parts}
            if kind not in self.inputs.baseline and _sort(kind) in declared:
                self._undeclared(judge, kind, by_node)
            elif kind not in self.inputs.baseline and sum(len(parts) for parts in by_node.values()) == 1:
                alone.append(kind)
                if nics not in ([], [kind]) and kind in nics:
                    _odd_one(judge, kind, by_node, [other for other in nics if other != kind])
            else:
                self._kind(judge, kind, by_node)
        bad = {finding.node for finding in [*judge.fails, *judge.errors]}
        judge.blamed = bad
        judge.measured = set(seen) - bad
        missing = sorted({kind for kind in self.inputs.baseline if not any(kind in parts for parts in seen.values())})
        judge.note = _note(len(seen), self.inputs.baseline, missing, alone)
        return judge.verdict(run.target)

    def _kind(self, judge: Judge, kind: str, by_node: Mapping[str, Mapping[str, str]]) -> None:
        declared = self.inputs.baseline.get(kind)
        versions = Counter(version for parts in by_node.values() for version in parts.values())
        judge.judged += 1
        usual, times = versions.most_common(1)[0]
        total = sum(versions.values())
        if declared is None and len(versions) > 1 and times * 2 <= total:
            for node in by_node:
                judge.fail(Place(node, kind), NO_MAJORITY, "one version on alike parts", ", ".join(sorted(versions)))
            return
        expected = f"{declared} (declared)" if declared else f"{usual}, as {times} of {total} alike parts have"
        for node, parts in by_node.items():
            for part, version in parts.items():
                if not same_version(declared or usual, version):
                    judge.fail(Place(node, part), FIRMWARE_VERSION, expected, version, kind=kind)

    def _undeclared(self, judge: Judge, kind: str, by_node: Mapping[str, Mapping[str, str]]) -> None:
        """Add an error for parts that the baseline lacks, though it declares others of their sort."""
        sort = _sort(kind)
        expected = " or ".join(sorted(name for name in self.inputs.baseline if _sort(name) == sort)) + " (declared)"
        for node, parts in by_node.items():
            actual = ", ".join(f"{part} has {version}" for part, version in parts.items())
            judge.error(Place(node, kind), NOT_IN_BASELINE, expected, actual, sort=sort, kind=kind)

    def attribute(self, facts: GateFacts, done: Sequence[FinishedRun]) -> dict[str, list[Verdict]]:  # noqa: ARG002 - the verdict names its nodes
        """Return each node's own part of the verdict: another node's drift is not its fault."""
        out: dict[str, list[Verdict]] = {}
        for item in done:
            for node in item.run.nodes:
                out.setdefault(node, []).append(_of_node(item.verdict, node))
        return out


def _odd_one(judge: Judge, kind: str, by_node: Mapping[str, Mapping[str, str]], others: Sequence[str]) -> None:
    """Add an error for a compute NIC with a PSID of its own: it is compared with no other."""
    for node, parts in by_node.items():
        actual = ", ".join(f"{part} is {kind}" for part in parts)
        judge.error(Place(node, ", ".join(parts)), NIC_ALONE, " or ".join(others), actual)


def _sort(kind: str) -> str:
    """Return the sort of a kind of part, the first word of its name: BIOS, NIC, VBIOS or drive."""
    return kind.split(" ", 1)[0]


def _of_node(verdict: Verdict, node: str) -> Verdict:
    """Return the part of a group's verdict that is about one node."""
    findings = [finding for finding in verdict.findings if finding.node == node]
    if not findings and node not in verdict.measured:
        return verdict  # an error of the whole run
    failed = any(finding.code in _WRONG for finding in findings)
    outcome = Outcome.FAIL if failed else Outcome.ERROR if findings else Outcome.PASS
    measured = [node] if outcome is Outcome.PASS else []
    return Verdict(
        outcome=outcome,
        findings=findings,
        criteria=verdict.criteria,
        measured=measured,
        blamed=[node] if findings else [],
        note=verdict.note,
    )


def _note(nodes: int, baseline: Mapping[str, str], missing: Sequence[str], alone: Sequence[str]) -> str:
    words = (
        "compared with the declared baseline"
        if baseline
        else f"no baseline is declared: compared among {nodes} identical node{'s' if nodes != 1 else ''}"
    )
    words += f"; declared but not found: {', '.join(missing)}" if missing else ""
    return words + (f"; not judged, as there is only one: {', '.join(alone)}" if alone else "")
