"""ECC errors and remapped rows, with the vendor's action.

Rules: NVIDIA "GPU Memory Error Management" (row remapping, SRAM threshold), Xid catalogue 48, 63, 64, 94, 95; limits as DCGM has them.
"""

from __future__ import annotations

from pydantic import Field

from rackready.design.facts import NodeFacts
from rackready.gates import base
from rackready.gates.formats.smi_xml import SmiGpu
from rackready.gates.gpu.smi import RUNBOOK, SmiGate, flag, number
from rackready.gates.judge import Judge
from rackready.model.outcome import Criterion, Op

_UNCORRECTED = {"sram_uncorrectable_parity": "SRAM parity", "sram_uncorrectable_secded": "SRAM SEC-DED", "dram_uncorrectable": "DRAM"}
_CORRECTED = {"sram_correctable": "SRAM", "dram_correctable": "DRAM"}
_RESET = f"Reset the GPU (`nvidia-smi -r -i N` on a drained node) or reboot; run the gate again after that: {RUNBOOK}."
_REPLACE = f"Run the field diagnostic, then replace the GPU: {RUNBOOK}."
_MOST_REMAPS = 512
_MOST_REMAPS_SOURCE = "NVIDIA/DCGM common/DcgmGPUHardwareLimits.h: DCGM_LIMIT_MAX_ROW_REMAP_UNCORRECTABLE"


class Ecc(SmiGate):
    """ECC is on, and no GPU has uncorrected errors since its last reset, or too many over its life."""

    id = "node/gpu/sanity/ecc"
    looks = True

    class Inputs(base.Inputs):
        """What the site wants of ECC."""

        enabled: bool = Field(default=True, description="ECC is to be on")
        corrected_limit: int | None = Field(
            None,
            ge=1,
            le=10**9,
            description="corrected errors since the driver was loaded above which a GPU fails, at most 10^9 (judgement); null: only recorded",
        )

    inputs: Inputs

    def gpu(self, judge: Judge, facts: NodeFacts, where: str, gpu: SmiGpu) -> None:  # noqa: ARG002 - the same for every model
        """Judge mode, volatile and aggregate counters, and the threshold flag."""
        wanted = "Enabled" if self.inputs.enabled else "Disabled"
        judge.equal(where, "ECC mode", wanted, gpu.text("ecc_mode/current_ecc"), "Set it (`nvidia-smi -e 1`), then reboot the node.")
        judge.equal(where, "ECC mode after the next reboot", wanted, gpu.text("ecc_mode/pending_ecc"), "Set it (`nvidia-smi -e 1`), then reboot the node.")
        if not self.inputs.enabled:
            return
        for path, what in _UNCORRECTED.items():
            value = number(judge, where, gpu, f"ecc_errors/volatile/{path}", f"uncorrected {what} errors")
            if value:
                judge.fail(
                    where,
                    f"uncorrected {what} errors since the driver was loaded",
                    "0",
                    f"{value:.0f}",
                    f"Vendor's action WORKFLOW_XID_48: {_RESET[0].lower()}{_RESET[1:]}",
                )
            life = gpu.number(f"ecc_errors/aggregate/{path}")
            if life is not None:
                judge.metric(f"ecc_aggregate_{path}", where, life, "1")
        if flag(judge, where, gpu, "ecc_errors/aggregate/sram_threshold_exceeded", "SRAM threshold flag"):
            judge.fail(where, "SRAM errors above the vendor's threshold over its life", "No", "Yes", f"The vendor replaces it (RMA). {_REPLACE}")
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
                judge.fail(
                    where,
                    f"corrected {what} errors since the driver was loaded",
                    f"at most {limit} (gate input)",
                    f"{value:.0f}",
                    f"Watch their rate under load. {_REPLACE}",
                )


def _repairs(judge: Judge, where: str, gpu: SmiGpu) -> None:
    """What newer drivers say besides: a repair that waits for a reset, memory that cannot be repaired. Absent on older ones."""
    for path, what, step in (
        ("channel_repair_pending", "memory channel repair waits for a reset", _RESET),
        ("tpc_repair_pending", "TPC repair waits for a reset", _RESET),
        ("unrepairable_memory", "memory that cannot be repaired", f"The vendor replaces it (RMA). {_REPLACE}"),
    ):
        value = gpu.text(f"ecc_errors/{path}")
        if value == "Yes":
            judge.fail(where, what, "No", value, step)
        elif value not in {None, "No"}:
            judge.error(where, f"{what}: word not known", "Yes or No", value, "Update rackready or read `nvidia-smi -q -d ECC` by hand.")


class RowRemap(SmiGate):
    """No GPU has memory rows that wait to be remapped, or that could not be."""

    id = "node/gpu/sanity/row-remap"
    looks = True

    def gpu(self, judge: Judge, facts: NodeFacts, where: str, gpu: SmiGpu) -> None:  # noqa: ARG002 - the same for every model
        """Judge pending, failure, count and the histogram of spare rows. Failure before pending: it asks for more."""
        failed = flag(judge, where, gpu, "remapped_rows/remapped_row_failure", "row remapping failure")
        pending = flag(judge, where, gpu, "remapped_rows/remapped_row_pending", "pending row remapping")
        if failed:
            judge.fail(where, "row remapping failed (Xid 64)", "No", "Yes", f"The vendor replaces it (RMA). {_REPLACE}")
        elif pending:
            judge.fail(where, "row remapping waits for a reset (Xid 63)", "No", "Yes", _RESET)
        rows = number(judge, where, gpu, "remapped_rows/remapped_row_unc", "rows remapped after uncorrected errors")
        if rows is None:
            return
        judge.metric("remapped_rows_uncorrectable", where, rows, "1")
        criterion = Criterion(metric="remapped_rows_uncorrectable", op=Op.LE, bound=_MOST_REMAPS - 1, unit="1", label="ceiling", source=_MOST_REMAPS_SOURCE)
        if criterion not in judge.criteria:
            judge.criterion(criterion)
        if rows >= _MOST_REMAPS:
            judge.fail(where, "rows remapped after uncorrected errors", f"fewer than {_MOST_REMAPS}", f"{rows:.0f}", f"{_MOST_REMAPS_SOURCE}. {_REPLACE}")
        _spare(judge, where, gpu)


def _spare(judge: Judge, where: str, gpu: SmiGpu) -> None:
    """Banks without a spare row: the next error there cannot be remapped. The vendor replaces only after it happened, so it is recorded and noted."""
    empty = gpu.number("remapped_rows/row_remapper_histogram/row_remapper_histogram_none")
    if empty:
        judge.metric("banks_without_spare_rows", where, empty, "1")
        judge.remark(f"{where}: {empty:.0f} banks have no spare row left; plan its replacement")
