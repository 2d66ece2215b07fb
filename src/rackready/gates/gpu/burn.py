"""Load gates: full power with counters before and after it, and a check that the GPUs compute the same results."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from statistics import median

from pydantic import Field

from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates.base import Command, GateFacts, Output, Outputs, Run, trouble
from rackready.gates.engine.shipped_script import command, document
from rackready.gates.formats import smi_xml
from rackready.gates.formats.smi_xml import SmiGpu, SmiLog
from rackready.gates.gpu import burn_findings as kinds
from rackready.gates.gpu import clocks, dcgm_findings, paired_outputs, parts, smi
from rackready.gates.gpu.dcgm import KEY, DcgmDiagnostic
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Criterion, Op, Verdict
from rackready.model.place import Place
from rackready.ondevice import under_load

_START_S = 600
_LENGTH_SOURCE = "the gate's inputs; DCGM runs each of its tests for that time, one after the other"
_MOST_CORRECTED = 10.0
_CORRECTED_SOURCE = (
    "NVIDIA/DCGM common/DcgmGPUHardwareLimits.h: DCGM_LIMIT_MAX_SBE_RATE (which DCGM itself calls provisional)"
)
_SLOWDOWNS = {
    "sw_therm_slowdown": "software thermal slowdown",
    "hw_therm_slowdown": "hardware thermal slowdown",
    "hw_power_brake": "power brake",
}
_POWER_TEST = "targeted_power"
_LEAST_POWER = 0.75
_POWER_SOURCE = (
    "NVIDIA's DCGM documentation, targeted_power: passes from 0.75 x the target on; the target is the GPU's power limit"
)
_MOST_POWER = 1.2
_MOST_POWER_SOURCE = "1.2 x the power limit as shipped: NVIDIA/DCGM targeted_power, target_power_max_ratio"
_UNCORRECTED = ("sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_uncorrectable")
_CORRECTED = ("sram_correctable", "dram_correctable")


class Load(DcgmDiagnostic):
    """DCGM's tests, one after the other, each for the time that the inputs give: a run that ends early is no load."""

    timeout_s = 0

    @abstractmethod
    def lengths(self) -> Mapping[str, int]:
        """Return how long each test must load the GPUs, s."""

    @property
    def longest(self) -> int:
        """Return the longest time that all tests may take, s."""
        return sum(self.lengths().values()) + _START_S

    def load(self, facts: GateFacts, node: str, stage: int = 0) -> Command:
        """Return the command that loads the GPUs."""
        parameters = ";".join(f"{test}.test_duration={seconds}" for test, seconds in self.lengths().items())
        return replace(self.command(facts, node, parameters, stage), timeout_s=self.longest)

    def diagnose(self, judge: Judge, facts: GateFacts, node: str, outputs: Outputs) -> None:
        """Judge the diagnostic and the time for which it loaded the GPUs.

        A diagnostic that failed may end early; its own findings give the reason.
        """
        super().diagnose(judge, facts, node, outputs)
        output = outputs.get(KEY)
        if output is None or judge.fails or judge.errors:
            return
        asked = sum(seconds for test, seconds in self.lengths().items() if test not in self.inputs.skips)
        judge.metric("load_time", node, output.seconds, "s")
        judge.criterion(
            Criterion(metric="load_time", op=Op.GE, bound=asked, unit="s", label="floor", source=_LENGTH_SOURCE)
        )
        if output.seconds <= 0:
            judge.error(node, kinds.LOAD_TIME_UNKNOWN, f"at least {asked} s ({_LENGTH_SOURCE})", "nothing")
        elif output.seconds < asked:
            judge.error(node, kinds.LOAD_TOO_SHORT, f"at least {asked} s ({_LENGTH_SOURCE})", f"{output.seconds:.1f} s")
        if judge.errors:
            judge.measured.clear()


class Burn(Load):
    """At full load every GPU keeps its power and clocks, stays below its slowdown threshold, and has no ECC errors."""

    id = "node/gpu/stress/burn"
    findings = (
        *dcgm_findings.FINDINGS,
        *clocks.UNDER_LOAD,
        *smi.REPORT,
        *paired_outputs.AROUND_LOAD,
        smi.NUMBER_NOT_REPORTED,
        *kinds.FINDINGS,
    )
    tests, label = f"{_POWER_TEST},targeted_stress", "burn"
    required = (_POWER_TEST, "targeted_stress")

    class Inputs(Load.Inputs):
        """How long each test runs."""

        power_s: int = Field(120, ge=30, le=259200, description="length of DCGM's targeted_power, s")
        stress_s: int = Field(120, ge=30, le=259200, description="length of DCGM's targeted_stress, s")
        least_clock_mhz: float | None = Field(
            None,
            gt=0,
            le=10_000,
            description="lowest SM clock under load, MHz, at most 10^4 (judgement); "
            "null: the GPU profile's sm_clock_min, where it has one",
        )

    inputs: Inputs

    def lengths(self) -> Mapping[str, int]:
        """Return the lengths from the inputs."""
        return {_POWER_TEST: self.inputs.power_s, "targeted_stress": self.inputs.stress_s}

    def _run(self, facts: GateFacts, node: str) -> Run:
        """Return counters, then the load with a program that watches the GPUs beside it, then counters again."""
        load = self.load(facts, node, stage=1)
        watch = command(
            "watch", node, under_load, str(self.longest), load.argv[0], timeout_s=self.longest + 60, stage=1
        )
        return Run.of_node(node, smi.command(node, "before"), load, watch, smi.command(node, "after", stage=2))

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge DCGM's tests, the GPUs under load, and how far the counters rose."""
        node = run.nodes[0]
        judge = Judge()
        self.diagnose(judge, facts, node, outputs)
        warm = self._under_load(judge, facts.nodes[node], node, outputs.get("watch"))
        before, after = (smi.read(judge, outputs.get(key), node) for key in ("before", "after"))
        if (
            before is not None
            and after is not None
            and KEY in outputs
            and _same_gpus_throughout(judge, facts.nodes[node], before, warm, after)
        ):
            _gained(judge, facts.nodes[node], node, before, after, outputs[KEY].seconds)
        bad = {finding.unit for finding in judge.fails + judge.errors}
        judge.measured -= bad | (judge.measured if node in bad else set())
        return judge.verdict(f"{node} {self.label}")

    def _under_load(self, judge: Judge, facts: NodeFacts, node: str, output: Output | None) -> SmiLog | None:
        """Judge the GPUs under load. Return the report about them, None if there is none."""
        if judge.trouble(trouble(output, node, "watch under load")) or output is None:
            return None
        try:
            found = document(output, under_load.FORMAT)
            log = smi_xml.parse(str(found.get("last", ""))) if found.get("loaded") else None
        except FormatError as error:
            judge.error(node, kinds.WATCH_UNREADABLE, "a report of nvidia-smi under load", error)
            return None
        judge.judged += 1
        if log is None:
            judge.error(
                node, kinds.NO_LOAD_SEEN, "at least one report with every GPU busy", f"none of {found.get('samples')}"
            )
            return None
        smi.same_gpus(judge, facts, node, log)
        draws = found.get("draws")
        for gpu in log.gpus:
            where = Place(node, parts.name(facts, gpu.pci, gpu.position))
            try:
                clocks.reasons(judge, where, gpu)
                clocks.temperature(judge, where, gpu)
                clocks.memory(judge, facts, where, gpu)
                if _POWER_TEST not in self.inputs.skips:
                    _power(judge, facts, where, gpu, draws.get(gpu.pci) if isinstance(draws, dict) else None)
            except FormatError as error:
                judge.error(where, kinds.WATCH_NUMBERS, "numbers where numbers belong", error)
        try:
            self._clocks(judge, facts, node, log)
        except FormatError as error:
            judge.error(node, kinds.WATCH_NUMBERS, "clocks in MHz", error)
        return log

    def _clocks(self, judge: Judge, facts: NodeFacts, node: str, log: SmiLog) -> None:
        values = {parts.name(facts, gpu.pci, gpu.position): gpu.number("clocks/sm_clock") for gpu in log.gpus}
        least = facts.gpu.power.sm_clock_min
        bound, source = (least.value, least.source) if least else (0.0, "")
        if self.inputs.least_clock_mhz is not None:
            bound, source = self.inputs.least_clock_mhz, "gate input least_clock_mhz"
        known = [value for value in values.values() if value is not None]
        for part, value in values.items():
            judge.judged += 1
            if value is None:
                judge.error(Place(node, part), kinds.SM_CLOCK_UNKNOWN, "MHz", "nothing")
                continue
            judge.metric("sm_clock_under_load", f"{node}/{part}", value, "MHz")
            if value < bound:
                judge.fail(
                    Place(node, part), kinds.SM_CLOCK_LOW, f"at least {bound:.0f} MHz ({source})", f"{value:.0f} MHz"
                )
        if not bound:
            judge.remark(
                f"no lowest SM clock under load is published for {facts.gpu.id}: recorded, not judged (input "
                "least_clock_mhz)"
            )
        else:
            judge.criterion(
                Criterion(metric="sm_clock_under_load", op=Op.GE, bound=bound, unit="MHz", label="floor", source=source)
            )
        if known:
            judge.metric("sm_clock_under_load_median", node, median(known), "MHz")


def _same_gpus_throughout(judge: Judge, facts: NodeFacts, before: SmiLog, warm: SmiLog | None, after: SmiLog) -> bool:
    """Return whether the reports before, under and after the load are of the same GPUs, in this order."""
    if warm is not None and not (
        paired_outputs.same_gpus(judge, facts, before, warm, "under")
        and paired_outputs.same_gpus(judge, facts, warm, after)
    ):
        return False
    return paired_outputs.same_gpus(judge, facts, before, after)


def _power(judge: Judge, facts: NodeFacts, where: Place, gpu: SmiGpu, drawn: object) -> None:
    """Compare a GPU's highest draw under load with its power limit: the profile's, or the one set if that is lower."""
    judge.judged += 1
    limit = gpu.number("gpu_power_readings/current_power_limit")
    if not isinstance(drawn, int | float) or limit is None:
        told = ", ".join(
            f"{name} {'nothing' if value is None else f'{value} W'}"
            for name, value in (("draw", drawn), ("limit", limit))
        )
        judge.error(where, kinds.POWER_UNKNOWN, "its draw and its limit", told)
        return
    target = min(limit, facts.gpu.power.limit.value)
    bound = _LEAST_POWER * target
    judge.metric("power_draw_under_load", where.unit, drawn, "W")
    judge.criterion_once(
        ("power_draw_under_load", bound),
        lambda: Criterion(
            metric="power_draw_under_load",
            op=Op.GE,
            bound=bound,
            unit="W",
            label="floor",
            source=_POWER_SOURCE,
            inputs={"limit": target},
        ),
    )
    most, shipped = _MOST_POWER * facts.gpu.power.limit.value, facts.gpu.power.limit
    judge.criterion_once(
        ("power_draw_under_load", most, "most"),
        lambda: Criterion(
            metric="power_draw_under_load",
            op=Op.LE,
            bound=most,
            unit="W",
            label="ceiling",
            source=_MOST_POWER_SOURCE,
            inputs={"limit": shipped.value},
        ),
    )
    if drawn > most:
        expected = f"at most {most:.0f} W ({_MOST_POWER_SOURCE}; {shipped.value:.0f} W, {shipped.source})"
        judge.error(where, kinds.POWER_IMPLAUSIBLE, expected, f"{drawn:g} W")
    elif drawn < bound:
        judge.fail(
            where,
            kinds.POWER_LOW,
            f"at least {bound:.0f} W ({_LEAST_POWER} x {target:.0f} W; {_POWER_SOURCE})",
            f"{drawn:.0f} W",
        )


def _gained(judge: Judge, facts: NodeFacts, node: str, before: SmiLog, after: SmiLog, seconds: float) -> None:
    old = {gpu.pci: gpu for gpu in before.gpus}
    judge.judged += 1
    for pci in sorted(set(old) - {gpu.pci for gpu in after.gpus}):
        judge.fail(
            Place(node, parts.name(facts, pci)), kinds.GPU_GONE, "as many GPUs as before", "no longer in nvidia-smi"
        )
    for gpu in after.gpus:
        where = Place(node, parts.name(facts, gpu.pci, gpu.position))
        if gpu.pci in old:
            try:
                _counters(judge, where, old[gpu.pci], gpu, seconds)
            except FormatError as error:
                judge.error(where, kinds.COUNTERS_UNREADABLE, "numbers before and after", error)


def _counters(judge: Judge, where: Place, before: SmiGpu, after: SmiGpu, seconds: float) -> None:
    def gain(path: str) -> float | None:
        first, last = before.number(path), after.number(path)
        return None if first is None or last is None else last - first

    judge.judged += 1
    uncorrected = [gain(f"ecc_errors/volatile/{name}") for name in _UNCORRECTED]
    corrected = [gain(f"ecc_errors/volatile/{name}") for name in _CORRECTED]
    if None in uncorrected or None in corrected:
        judge.error(where, kinds.ECC_NOT_COUNTED, "a number before and after", "nothing")
        return
    held = {name: gain(f"clocks_event_reasons_counters/clocks_event_reasons_counters_{name}") for name in _SLOWDOWNS}
    silent = sorted(name for name, lasted in held.items() if lasted is None)
    if silent:
        judge.error(
            where,
            kinds.SLOWDOWNS_NOT_COUNTED,
            "time of each reason, before and after",
            f"nothing of {', '.join(silent)}",
        )
    back = [value for value in (*uncorrected, *corrected, *held.values()) if value is not None and value < 0]
    if back:
        judge.error(where, kinds.COUNTERS_WENT_BACK, "numbers that grow", f"{back[0]:.0f}")
        return
    if sum(value or 0 for value in uncorrected) > 0:
        judge.fail(where, kinds.ECC_UNCORRECTED, "0", f"{sum(value or 0 for value in uncorrected):.0f}")
    if seconds > 0:
        _corrected(judge, where, sum(value or 0 for value in corrected) * 60 / seconds)
    for name, what in _SLOWDOWNS.items():
        lasted = held[name]
        if lasted:
            judge.fail(
                where,
                kinds.CLOCKS_HELD_UNDER_LOAD,
                "0 s",
                f"{lasted / 1e6:.1f} s of {seconds:.0f} s",
                what=what,
                step=clocks.SUPPLY if "brake" in name else clocks.COOLING,
            )


def _corrected(judge: Judge, where: Place, rate: float) -> None:
    judge.metric("ecc_corrected_per_minute", where.unit, rate, "1/min")
    if rate > _MOST_CORRECTED:
        judge.fail(
            where,
            kinds.ECC_CORRECTED,
            f"at most {_MOST_CORRECTED:g} per minute ({_CORRECTED_SOURCE})",
            f"{rate:.0f} per minute",
        )


class ComputeIntegrity(Load):
    """Every GPU computes the same results again and again under load, in its cores and in all its memory."""

    id = "node/gpu/stress/compute-integrity"
    findings = (*dcgm_findings.FINDINGS, *kinds.LENGTH)
    tests, label = "diagnostic,memtest", "compute-integrity"
    required = ("diagnostic", "memtest")

    class Inputs(Load.Inputs):
        """How long each test runs."""

        compute_s: int = Field(
            180,
            ge=30,
            le=86400,
            description="length of DCGM's diagnostic (matrices multiplied and compared), s; its default is 180",
        )
        memory_s: int = Field(600, ge=30, le=86400, description="length of DCGM's memtest, s; its default is 600")

    inputs: Inputs

    def lengths(self) -> Mapping[str, int]:
        """Return the lengths from the inputs."""
        return {"diagnostic": self.inputs.compute_s, "memtest": self.inputs.memory_s}

    def _run(self, facts: GateFacts, node: str) -> Run:
        return Run.of_node(node, self.load(facts, node))
