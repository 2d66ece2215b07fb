"""Drives: each reads as fast as its siblings of the same model, and as fast as is declared."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Annotated

from pydantic import Field

from rackready.design.facts import NodeFacts
from rackready.gates import base
from rackready.gates.formats import fio, printed_json
from rackready.gates.formats.error import FormatError
from rackready.gates.host import reading
from rackready.gates.host.disks import of_the_host
from rackready.gates.host.reading import AGAIN, Answers, HostGate, Limit, Tool, Wanted
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Op

_RUN_S = 10
"""Seconds of reading that FIO asks for."""
LIST = Tool(
    "lsblk",
    ("lsblk", "--json", "--nodeps", "--bytes", "--exclude", "1,7,11", "--output", "PATH,MODEL,SERIAL,SIZE,TRAN,RM"),
    "util-linux",
)
"""Block devices without RAM disks, loops and optical drives."""
FIO = Tool(
    "fio",
    (
        "fio", "--name=read", "--readonly", "--rw=read", "--bs=1M", "--iodepth=32", "--direct=1", "--ioengine=libaio", "--time_based", f"--runtime={_RUN_S}",
        "--output-format=json", "--filename", "{}",
    ),
    "fio", timeout_s=40, each=("lsblk", "blockdevices", "path"),
)  # fmt: skip
_LEAST = 0.9
"""Share of them that a reading must have lasted; judgement: fio ends sooner only where it was stopped."""
_SIBLINGS = 3
_SOURCE = "oci-hpc, active check of NVMe drives: each within 2 % of the median"


DRIVE_NOT_LISTED = ErrorKind(
    "drive-read-not-listed",
    "a drive was read that lsblk does not list",
    meaning="A drive was read that the list of drives does not have: the outputs are not of one moment.",
    next_step=AGAIN,
)
LSBLK_UNREADABLE = ErrorKind(
    "drive-list-unreadable",
    "lsblk's output is not understood",
    meaning="lsblk printed something else than its list of drives.",
    next_step=AGAIN,
)
FIO_UNREADABLE = ErrorKind(
    "drive-fio-unreadable",
    "fio's output is not understood",
    meaning="fio printed something else than its document.",
    next_step=AGAIN,
)
READ_ERROR = FailKind(
    "drive-read-error",
    "reading the drive",
    meaning="The drive could not be read without an error: data on it are in danger.",
    next_step="Replace the drive.",
)
READ_TOO_SHORT = ErrorKind(
    "drive-read-too-short",
    "reading ended too soon",
    meaning="Reading ended long before its time, so the rate means little.",
    next_step="Run the gate again; if it stays so, look for what stops fio (kernel log).",
)
DRIVE_SLOW = FailKind(
    "drive-slow",
    "drive is slow",
    meaning="The drive reads slower than the site declares.",
    next_step="Look at its PCIe width (`lspci -vv`), temperature and firmware; then replace it.",
)
DRIVE_SLOW_BESIDE = FailKind(
    "drive-slow-beside-others",
    "drive is slow",
    meaning="The drive reads slower than others of its model in the node.",
    next_step="Look at its PCIe width (`lspci -vv`), temperature and firmware; then replace it.",
)
NO_DRIVE = ErrorKind(
    "no-drive-to-read",
    "no drive to read",
    meaning="The node lists no drive that can be read.",
    next_step="Look at what the kernel sees (`lsblk` on the node); "
    "node/host/sanity/disks says how many drives it must be.",
)
RATE_NOT_JUDGED = ErrorKind(
    "drive-rate-not-judged",
    "rate of the drives cannot be judged",
    meaning="No rate is declared and there are too few drives of one model to compare.",
    next_step="Declare what each model reads, from its data sheet (input `models`; `read_gb_s` for all).",
)

FINDINGS = (
    DRIVE_NOT_LISTED,
    LSBLK_UNREADABLE,
    FIO_UNREADABLE,
    READ_ERROR,
    READ_TOO_SHORT,
    DRIVE_SLOW,
    DRIVE_SLOW_BESIDE,
    NO_DRIVE,
    RATE_NOT_JUDGED,
)


class DiskBandwidth(HostGate):
    """Every drive reads as fast as its siblings of the same model, and as fast as is declared."""

    id = "node/host/performance/disk-bandwidth"
    findings = (*reading.FINDINGS, *FINDINGS)
    what = "drives"

    class Inputs(base.Inputs):
        """Bounds; a drive without siblings needs a declared one."""

        read_gb_s: float | None = Field(
            None,
            gt=0,
            le=1000,
            description="least sequential read rate of a drive, GB/s (10^9 bytes), as its data sheet has it; "
            "at most 1000 (judgement)",
        )
        models: dict[str, Annotated[float, Field(gt=0, le=1000)]] = Field(
            default_factory=dict,
            description="model as lsblk names it -> least sequential read rate, GB/s, as its data sheet has it; "
            "goes before read_gb_s",
        )
        sibling_tolerance: float = Field(
            0.02, gt=0, lt=1, description=f"how far below the median of its siblings a drive may be; source: {_SOURCE}"
        )

    inputs: Inputs

    def wanted(self, facts: NodeFacts) -> Wanted:  # noqa: ARG002 - the same on every node
        """List the drives, then read from one after the other for 10 s."""
        return Wanted((LIST, FIO))

    def judge_node(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Hold every drive against its siblings and the declared rate."""
        node = facts.node.name
        rates: dict[str, dict[str, float]] = {}
        for name, model in self._drives(judge, found).items():
            rate = self._rate(judge, node, found, name)
            if rate is not None:
                rates.setdefault(model, {})[name] = rate
        for model, by_name in rates.items():
            self._model(judge, node, model, by_name)
        if not (judge.judged or judge.fails or judge.errors):
            _unjudged(judge, node, rates)

    @staticmethod
    def _drives(judge: Judge, found: Answers) -> dict[str, str]:
        text = found.text("lsblk")
        if text is None:
            return {}
        try:
            listed = printed_json.load(text)["blockdevices"]
            if lost := {key.split(" ", 1)[1] for key in found.repeated("fio")} - {str(item["path"]) for item in listed}:
                judge.error(found.node, DRIVE_NOT_LISTED, "every drive on its list", ", ".join(sorted(lost)))
            return {
                str(item["path"]): str(item["model"] or "no model").strip()
                for item in listed
                if int(item["size"]) and of_the_host(item)
            }
        except (ValueError, KeyError, TypeError) as error:
            judge.error(found.node, LSBLK_UNREADABLE, "a list of block devices", error)
            return {}

    @staticmethod
    def _rate(judge: Judge, node: str, found: Answers, name: str) -> float | None:
        where = f"{node} {name}"
        text = found.text(f"fio {name}", where=where)
        if text is None:
            return None
        try:
            done = fio.parse(text)
        except FormatError as error:
            judge.error(where, FIO_UNREADABLE, "its JSON document", error)
            return None
        if done.error or done.read <= 0:
            judge.fail(where, READ_ERROR, "no error", f"errno {done.error}, {done.read:.2f} GB/s")
            return None
        if done.runtime < _LEAST * _RUN_S:
            judge.error(where, READ_TOO_SHORT, f"{_RUN_S} s", f"{done.runtime:g} s")
            return None
        return done.read

    def _model(self, judge: Judge, node: str, model: str, rates: dict[str, float]) -> None:
        declared = self.inputs.models.get(model, self.inputs.read_gb_s)
        for name, rate in rates.items():
            where, actual = f"{node} {name} ({model})", f"{rate:.2f} GB/s"
            others = [other for key, other in rates.items() if key != name]
            if declared is not None and not Limit(
                "drive_read", Op.GE, declared, "GB/s", "declared in the gate set"
            ).holds(judge, where, rate):
                judge.fail(where, DRIVE_SLOW, f"at least {declared:g} GB/s (declared)", actual)
            elif len(others) + 1 >= _SIBLINGS:
                bound = median(others) * (1 - self.inputs.sibling_tolerance)
                if not Limit("drive_read", Op.GE, round(bound, 4), "GB/s", _SOURCE, "fleet").holds(judge, where, rate):
                    expected = (
                        f"at least {bound:.2f} GB/s (median of its {len(others)} siblings less "
                        f"{self.inputs.sibling_tolerance:.0%})"
                    )
                    judge.fail(where, DRIVE_SLOW_BESIDE, expected, actual)
            elif declared is None:
                judge.metric("drive_read", where, rate, "GB/s")
        if declared is None:
            few = f"{len(rates)} of this model are too few to compare, and no rate is declared: measured, not judged"
            alike = (
                f"no rate of this model is declared: held against each other only ({min(rates.values()):.2f} to "
                f"{max(rates.values()):.2f} GB/s)"
            )
            judge.remark(f"{model}: {few if len(rates) < _SIBLINGS else alike} (inputs models, read_gb_s)")


def _unjudged(judge: Judge, node: str, rates: Mapping[str, Mapping[str, float]]) -> None:
    """Say why no drive could be held against anything, and what is missing for it."""
    if not rates:
        judge.error(node, NO_DRIVE, "at least one block device with a size", "none")
        return
    found = ", ".join(f"{len(by_name)} of {model}" for model, by_name in rates.items())
    judge.error(node, RATE_NOT_JUDGED, f"a declared rate, or {_SIBLINGS} drives of one model", found)
