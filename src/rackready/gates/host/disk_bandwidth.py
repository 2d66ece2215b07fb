"""The gate on drives' read rates: compared with siblings of the same model and with declared rates."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Annotated

from pydantic import Field

from rackready import printed_json
from rackready.design.facts import NodeFacts
from rackready.gates import base
from rackready.gates.host import reading
from rackready.gates.host.drive_reading import of_the_host
from rackready.gates.host.fio_answer import transfer
from rackready.gates.host.reading import AGAIN, Answers, HostGate, Limit, Tool, WantedValues
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Op
from rackready.model.place import Place

_RUN_S = 10
"""How long fio reads, s."""
_RAMP_S = 2
"""How long it reads before that, unmeasured, s. Judgement: by then a drive has left its power-saving state."""
LIST = Tool(
    "lsblk",
    ("lsblk", "--json", "--nodeps", "--bytes", "--exclude", "1,7,11", "--output", "PATH,MODEL,SERIAL,SIZE,TRAN,RM"),
    "util-linux",
)
"""Block devices without RAM disks, loops and optical drives."""
FIO = Tool(
    "fio",
    (
        "fio", "--name=read", "--readonly", "--rw=read", "--bs=1M", "--iodepth=32", "--direct=1", "--ioengine=libaio",
        "--time_based", f"--ramp_time={_RAMP_S}", f"--runtime={_RUN_S}", "--output-format=json", "--filename", "{}",
    ),
    "fio", timeout_s=40, each=("lsblk", "blockdevices", "path"),
)  # fmt: skip
_LEAST_SHARE = 0.9
"""Share of that time that fio must have read; judgement: it ends sooner only if it was stopped."""
_SIBLINGS = 3
_SOURCE = (
    "judgement: rates of sound drives of one model differ by some per cent with what was written to them; a drive with "
    "half its PCIe lanes, or throttled, loses far more"
)


DRIVE_NOT_LISTED = ErrorKind(
    "drive-read-not-listed",
    "lsblk does not list a drive that was read",
    meaning="A drive was read that is not on the list of drives: the outputs were not made together.",
    next_step=AGAIN,
)
LSBLK_UNREADABLE = ErrorKind(
    "drive-list-unreadable",
    "lsblk's output is not understood",
    meaning="lsblk printed something other than its list of drives.",
    next_step=AGAIN,
)
FIO_UNREADABLE = ErrorKind(
    "drive-fio-unreadable",
    "fio's output is not understood",
    meaning="fio printed something other than its document.",
    next_step=AGAIN,
)
READ_ERROR = FailKind(
    "drive-read-error",
    "reading the drive",
    meaning="Reading the drive gave an error: its data are at risk.",
    next_step="Replace the drive.",
)
READ_TOO_SHORT = ErrorKind(
    "drive-read-too-short",
    "reading ended too soon",
    meaning="Reading ended before its time, so the rate says little.",
    next_step="Run the gate again; if that does not help, find out what stops fio (kernel log).",
)
DRIVE_SLOW = FailKind(
    "drive-slow",
    "drive is slow",
    meaning="The drive reads slower than the site declares.",
    next_step="Check its PCIe width (`lspci -vv`), temperature and firmware; if they are right, replace the drive.",
)
DRIVE_SLOW_BESIDE = FailKind(
    "drive-slow-beside-others",
    "drive is slow",
    meaning="The drive reads slower than others of its model in the node.",
    next_step="Check its PCIe width (`lspci -vv`), temperature and firmware; if they are right, replace the drive.",
)
NO_DRIVE = ErrorKind(
    "no-drive-to-read",
    "no drive to read",
    meaning="The node lists no drive that can be read.",
    next_step="Check which drives the kernel sees (`lsblk` on the node); "
    "gate node/host/sanity/disks reports how many there must be.",
)
RATE_NOT_JUDGED = ErrorKind(
    "drive-rate-not-judged",
    "read rate of the drives cannot be judged",
    meaning="No rate is declared and there are too few drives of one model to compare.",
    next_step="Declare each model's read rate, from its data sheet (input `models`, or `read_gb_s` for all).",
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
    """Every drive reads as fast as its siblings of the same model, and as fast as declared."""

    id = "node/host/performance/disk-bandwidth"
    findings = (*reading.FINDINGS, *FINDINGS)
    what = "drives"

    class Inputs(base.Inputs):
        """Bounds; a drive without siblings needs a declared one."""

        read_gb_s: float | None = Field(
            None,
            gt=0,
            le=1000,
            description="lowest sequential read rate of a drive, GB/s (10^9 bytes), from its data sheet; "
            "at most 1000 (judgement)",
        )
        models: dict[str, Annotated[float, Field(gt=0, le=1000)]] = Field(
            default_factory=dict,
            description="model as lsblk names it -> lowest sequential read rate, GB/s, from its data sheet; "
            "overrides read_gb_s",
        )
        sibling_tolerance: float = Field(
            0.1, gt=0, lt=1, description=f"how far below the median of its siblings a drive may be; {_SOURCE}"
        )

    inputs: Inputs

    def wanted(self, facts: NodeFacts) -> WantedValues:  # noqa: ARG002 - the same on every node
        """Return the list of drives, then a read of each for 10 s, one after the other."""
        return WantedValues((LIST, FIO))

    def judge_node(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Compare every drive with its siblings and with the declared rate."""
        node = facts.node.name
        rates: dict[str, dict[str, float]] = {}
        for name, model in self._drives(judge, found).items():
            rate = self._rate(judge, node, found, name)
            if rate is not None:
                rates.setdefault(model, {})[name] = rate
        for model, by_name in rates.items():
            self._model(judge, node, model, by_name)
        if not (judge.judged or judge.fails or judge.errors):
            _nothing_judged(judge, node, rates)

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
        where = Place(node, name)
        done = transfer(found, f"fio {name}", FIO_UNREADABLE, where)
        if done is None:
            return None
        if done.error or done.read <= 0:
            judge.fail(where, READ_ERROR, "no error", f"errno {done.error}, {done.read:.2f} GB/s")
            return None
        if done.runtime < _LEAST_SHARE * _RUN_S:
            judge.error(where, READ_TOO_SHORT, f"{_RUN_S} s", f"{done.runtime:g} s")
            return None
        return done.read

    def _model(self, judge: Judge, node: str, model: str, rates: dict[str, float]) -> None:
        declared = self.inputs.models.get(model, self.inputs.read_gb_s)
        for name, rate in rates.items():
            where, actual = Place(node, name, f"({model})"), f"{rate:.2f} GB/s"
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
                f"no rate of this model is declared: compared with each other only ({min(rates.values()):.2f} to "
                f"{max(rates.values()):.2f} GB/s)"
            )
            judge.remark(f"{model}: {few if len(rates) < _SIBLINGS else alike} (inputs models, read_gb_s)")


def _nothing_judged(judge: Judge, node: str, rates: Mapping[str, Mapping[str, float]]) -> None:
    """Add an error with the reason why no drive could be judged."""
    if not rates:
        judge.error(node, NO_DRIVE, "at least one block device with a size", "none")
        return
    found = ", ".join(f"{len(by_name)} of {model}" for model, by_name in rates.items())
    judge.error(node, RATE_NOT_JUDGED, f"a declared rate, or {_SIBLINGS} drives of one model", found)
