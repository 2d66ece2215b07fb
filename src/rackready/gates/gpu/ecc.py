"""ECC errors and remapped rows, each with the vendor's action.

Rules: NVIDIA "GPU Memory Error Management" (row remapping, SRAM threshold), Xid catalogue 48, 63, 64, 94, 95; limits as
DCGM has them.
"""

from __future__ import annotations

from pydantic import Field

from rackready.design.facts import NodeFacts
from rackready.gates import base
from rackready.gates.formats.smi_xml import SmiGpu
from rackready.gates.gpu import smi
from rackready.gates.gpu.smi import RUNBOOK, SmiGate, flag, number
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.gates.nodecheck.rules import UNCORRECTED
from rackready.model.outcome import Criterion, Op

_CORRECTED = {"sram_correctable": "SRAM", "dram_correctable": "DRAM"}
_RESET = f"Drain the node and reset the GPU (`nvidia-smi -r -i N`) or reboot, then run the gate again: {RUNBOOK}."
_XID_48 = f"Vendor's action WORKFLOW_XID_48: {_RESET[0].lower()}{_RESET[1:]}"
_REPLACE = f"Run the field diagnostic, then replace the GPU: {RUNBOOK}."
_MOST_REMAPS = 512
_MOST_REMAPS_SOURCE = "NVIDIA/DCGM common/DcgmGPUHardwareLimits.h: DCGM_LIMIT_MAX_ROW_REMAP_UNCORRECTABLE"


ECC_MODE = FailKind(
    "ecc-mode",
    "ECC mode",
    meaning="ECC is not set as the site wants. Without ECC, memory errors change results silently.",
    next_step="Set it (`nvidia-smi -e 1`), then reboot the node.",
)
ECC_MODE_PENDING = FailKind(
    "ecc-mode-pending",
    "ECC mode after the next reboot",
    meaning="At the next reboot ECC changes to a mode that the site does not want.",
    next_step="Set it (`nvidia-smi -e 1`), then reboot the node.",
)
ECC_UNCORRECTED = FailKind(
    "ecc-uncorrected",
    "uncorrected {what} errors since the driver was loaded",
    meaning="The GPU's memory lost data since the driver was loaded. Jobs on it may have crashed or computed wrong "
    "results.",
    next_step=_XID_48,
    runbook="docs/runbooks/gpu.md",
)
SRAM_THRESHOLD = FailKind(
    "ecc-sram-threshold",
    "lifetime SRAM errors above the vendor's threshold",
    meaning="The GPU counted more SRAM errors over its lifetime than the vendor allows.",
    next_step=f"The vendor replaces it (RMA). {_REPLACE}",
    runbook="docs/runbooks/gpu.md",
)
ECC_CORRECTED = FailKind(
    "ecc-corrected",
    "corrected {what} errors since the driver was loaded",
    meaning="More memory errors were corrected than the gate set allows.",
    next_step=f"Watch their rate under load. {_REPLACE}",
    runbook="docs/runbooks/gpu.md",
)
REPAIR_WORD = ErrorKind(
    "memory-repair-unknown-word",
    "{repair}: unknown value",
    meaning="The driver reports a value for a memory repair that rackready does not know.",
    next_step="Update rackready or read `nvidia-smi -q -d ECC` by hand.",
)
REMAP_FAILED = FailKind(
    "row-remap-failed",
    "row remapping failed (Xid 64)",
    meaning="A bad memory row could not be replaced by a spare one: the GPU has no good memory left there.",
    next_step=f"The vendor replaces it (RMA). {_REPLACE}",
    runbook="docs/runbooks/gpu.md",
)
REMAP_PENDING = FailKind(
    "row-remap-pending",
    "row remapping waits for a reset (Xid 63)",
    meaning="The GPU replaces a bad memory row by a spare one only after a reset.",
    next_step=_RESET,
    runbook="docs/runbooks/gpu.md",
)
REMAPS_MANY = FailKind(
    "row-remap-many",
    "rows remapped after uncorrected errors",
    meaning="So many memory rows were replaced that the vendor considers the GPU worn out.",
    next_step=f"{_MOST_REMAPS_SOURCE}. {_REPLACE}",
    runbook="docs/runbooks/gpu.md",
)

CHANNEL_REPAIR_PENDING = FailKind(
    "memory-channel-repair-pending",
    "memory channel repair waits for a reset",
    meaning="The GPU repairs a memory channel only after a reset.",
    next_step=_RESET,
    runbook="docs/runbooks/gpu.md",
)
TPC_REPAIR_PENDING = FailKind(
    "tpc-repair-pending",
    "TPC repair waits for a reset",
    meaning="The GPU repairs one of its processing clusters only after a reset.",
    next_step=_RESET,
    runbook="docs/runbooks/gpu.md",
)
MEMORY_UNREPAIRABLE = FailKind(
    "memory-unrepairable",
    "memory that cannot be repaired",
    meaning="The GPU has bad memory that it cannot replace by spare memory.",
    next_step=f"The vendor replaces it (RMA). {_REPLACE}",
    runbook="docs/runbooks/gpu.md",
)
_REPAIRS = {
    "channel_repair_pending": CHANNEL_REPAIR_PENDING,
    "tpc_repair_pending": TPC_REPAIR_PENDING,
    "unrepairable_memory": MEMORY_UNREPAIRABLE,
}

FINDINGS = (
    *_REPAIRS.values(),
    ECC_MODE,
    ECC_MODE_PENDING,
    ECC_UNCORRECTED,
    SRAM_THRESHOLD,
    ECC_CORRECTED,
    REPAIR_WORD,
    REMAP_FAILED,
    REMAP_PENDING,
    REMAPS_MANY,
)


class Ecc(SmiGate):
    """ECC is on, and no GPU has uncorrected errors since its last reset, or too many over its lifetime."""

    id = "node/gpu/sanity/ecc"
    findings = (
        *smi.FINDINGS,
        smi.NUMBER_NOT_REPORTED,
        smi.FLAG_NOT_REPORTED,
        ECC_MODE,
        ECC_MODE_PENDING,
        ECC_UNCORRECTED,
        SRAM_THRESHOLD,
        ECC_CORRECTED,
        REPAIR_WORD,
        CHANNEL_REPAIR_PENDING,
        TPC_REPAIR_PENDING,
        MEMORY_UNREPAIRABLE,
    )
    looks = True

    class Inputs(base.Inputs):
        """ECC as the site wants it."""

        enabled: bool = Field(default=True, description="ECC must be on")
        corrected_limit: int | None = Field(
            None,
            ge=1,
            le=10**9,
            description="corrected errors since the driver was loaded above which a GPU fails, at most 10^9 "
            "(judgement); null: only recorded",
        )

    inputs: Inputs

    def gpu(self, judge: Judge, facts: NodeFacts, where: str, gpu: SmiGpu) -> None:  # noqa: ARG002 - the same for every model
        """Judge mode, volatile and aggregate counters, and the threshold flag."""
        wanted = "Enabled" if self.inputs.enabled else "Disabled"
        judge.equal(where, ECC_MODE, wanted, gpu.text("ecc_mode/current_ecc"))
        judge.equal(where, ECC_MODE_PENDING, wanted, gpu.text("ecc_mode/pending_ecc"))
        if not self.inputs.enabled:
            return
        for path, what in UNCORRECTED.items():
            value = number(judge, where, gpu, f"ecc_errors/volatile/{path}", f"uncorrected {what} errors")
            if value:
                judge.fail(where, ECC_UNCORRECTED, "0", f"{value:.0f}", what=what)
            life = gpu.number(f"ecc_errors/aggregate/{path}")
            if life is not None:
                judge.metric(f"ecc_aggregate_{path}", where, life, "1")
        if flag(judge, where, gpu, "ecc_errors/aggregate/sram_threshold_exceeded", "SRAM threshold flag"):
            judge.fail(where, SRAM_THRESHOLD, "No", "Yes")
        self._corrected(judge, where, gpu)
        _repairs(judge, where, gpu)

    def _corrected(self, judge: Judge, where: str, gpu: SmiGpu) -> None:
        for path, what in _CORRECTED.items():
            value = number(judge, where, gpu, f"ecc_errors/volatile/{path}", f"corrected {what} errors")
            if value is None:
                continue
            judge.metric(f"ecc_volatile_{path}", where, value, "1")
            limit = self.inputs.corrected_limit
            if limit is not None and value > limit:
                judge.fail(where, ECC_CORRECTED, f"at most {limit} (gate input)", f"{value:.0f}", what=what)


def _repairs(judge: Judge, where: str, gpu: SmiGpu) -> None:
    """Judge the repairs that only newer drivers report: waiting for a reset, or impossible."""
    for path, kind in _REPAIRS.items():
        value = gpu.text(f"ecc_errors/{path}")
        if value == "Yes":
            judge.fail(where, kind, "No", value)
        elif value not in {None, "No"}:
            judge.error(where, REPAIR_WORD, "Yes or No", value, repair=kind.title)


class RowRemap(SmiGate):
    """No GPU has memory rows that wait to be remapped or that could not be remapped."""

    id = "node/gpu/sanity/row-remap"
    findings = (
        *smi.FINDINGS,
        smi.NUMBER_NOT_REPORTED,
        smi.FLAG_NOT_REPORTED,
        REMAP_FAILED,
        REMAP_PENDING,
        REMAPS_MANY,
    )
    looks = True

    def gpu(self, judge: Judge, facts: NodeFacts, where: str, gpu: SmiGpu) -> None:  # noqa: ARG002 - the same for every model
        """Judge failed and pending remaps (a failure asks for more), their count and the histogram of spare rows."""
        failed = flag(judge, where, gpu, "remapped_rows/remapped_row_failure", "row remapping failure")
        pending = flag(judge, where, gpu, "remapped_rows/remapped_row_pending", "pending row remapping")
        if failed:
            judge.fail(where, REMAP_FAILED, "No", "Yes")
        elif pending:
            judge.fail(where, REMAP_PENDING, "No", "Yes")
        rows = number(judge, where, gpu, "remapped_rows/remapped_row_unc", "rows remapped after uncorrected errors")
        if rows is None:
            return
        judge.metric("remapped_rows_uncorrectable", where, rows, "1")
        criterion = Criterion(
            metric="remapped_rows_uncorrectable",
            op=Op.LE,
            bound=_MOST_REMAPS - 1,
            unit="1",
            label="ceiling",
            source=_MOST_REMAPS_SOURCE,
        )
        if criterion not in judge.criteria:
            judge.criterion(criterion)
        if rows >= _MOST_REMAPS:
            judge.fail(where, REMAPS_MANY, f"fewer than {_MOST_REMAPS}", f"{rows:.0f}")
        _spare(judge, where, gpu)


def _spare(judge: Judge, where: str, gpu: SmiGpu) -> None:
    """Note banks without a spare row: the next error there cannot be remapped.

    The vendor replaces the GPU only after that happened, so this is recorded and noted.
    """
    empty = gpu.number("remapped_rows/row_remapper_histogram/row_remapper_histogram_none")
    if empty:
        judge.metric("banks_without_spare_rows", where, empty, "1")
        judge.remark(f"{where}: {empty:.0f} banks have no spare row left; plan to replace the GPU")
