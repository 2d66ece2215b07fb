"""Gates that run DCGM's diagnostic, one per level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, ValidationInfo

from rackready.format_error import FormatError
from rackready.gates import base
from rackready.gates.base import Gate, GateFacts, Outputs, Run, trouble
from rackready.gates.formats import dcgm_diag
from rackready.gates.gpu import dcgm_findings as kinds
from rackready.gates.gpu import dcgm_tests, parts
from rackready.gates.judging.finding_kinds import Kinds
from rackready.gates.judging.judge import Judge
from rackready.model.base import Reason
from rackready.model.commands import repair
from rackready.model.outcome import Verdict
from rackready.model.place import Place

KEY = "dcgmi"
"""The command that runs the diagnostic."""
_ACTION = {
    "isolate": "Drain the node and replace the GPU: docs/runbooks/gpu.md.",
    "reset": f"Reset the GPU (`nvidia-smi -r`) or reboot the node, record the repair ({repair('{node}')}), then run "
    "the gate again.",
    "config": "Correct the configuration: run install again.",
    "triage": "Run `rackready gate run node/gpu/validation/dcgm-r3` after a power cycle; "
    "if it fails again, replace the part: docs/runbooks/gpu.md.",
}
_CONTRADICTED = frozenset({"isolate", "triage", "reset"})
"""Severities that ask for a repair of the GPU (dcgm_errors.h, dcgmErrorSeverity_enum): they contradict a Pass."""
_DISABLED = {
    dcgm_tests.NVBANDWIDTH: "DCGM does not run its nvbandwidth test on this GPU model; gate "
    "node/gpu/performance/nvbandwidth measures the same",
    dcgm_tests.PULSE: "DCGM does not run its pulse test on this GPU model: nothing here changes the load as fast",
}
_OTHER = "Read the diagnostic's raw output and docs/runbooks/gpu.md."
_LONG = (dcgm_tests.NVBANDWIDTH, "memory_bandwidth", dcgm_tests.EUD, "cpu_eud", "nccl_tests")
"""Tests that levels 3 and 4 run beside the required ones if they are installed and suit the GPU.

Source: DCGM_FI_DEV_DIAG_*_RESULT of DCGM 4.
"""


def _is_run(name: str, info: ValidationInfo) -> str:
    known = sorted((info.context or {}).get("runs", ()))
    if name not in known:
        message = f"one of the tests that it runs ({', '.join(known)})"
        raise ValueError(message)
    return name


TestName = Annotated[str, AfterValidator(_is_run)]
"""A test that the gate runs, as DCGM 4 writes it, or one of those that DCGM 3 runs as its `software`."""


class DcgmDiagnostic(Gate):
    """DCGM's diagnostic passes on every GPU."""

    findings: ClassVar[Kinds] = kinds.FINDINGS

    tests: ClassVar[str]
    """Value of -r: a level, or names of tests."""
    label: ClassVar[str]
    """Name of the diagnostic in findings, e.g. dcgm-r3."""
    required: ClassVar[tuple[str, ...]]
    further: ClassVar[tuple[str, ...]] = ()
    """Tests that it may run beside the required ones."""
    timeout_s: ClassVar[float]
    says_eud: ClassVar[bool] = False
    """Whether the level runs EUD (extended utility diagnostic) if installed; the verdict's note reports that."""
    covers = frozenset({"gpu"})

    class Inputs(base.Inputs):
        """Tests that may be skipped, each with its reason."""

        skips: dict[TestName, Reason] = Field(
            default_factory=dict,
            description="test of this gate that may report Skip -> the reason, as the report shows it",
        )

    inputs: Inputs

    def __init__(self, inputs: Mapping[str, object] | None = None) -> None:
        """Read the inputs. Raises ValueError if they skip a test that the gate does not run."""
        runs = {"software", *dcgm_tests.SOFTWARE_3, *self.required, *self.further}
        self.inputs = self.Inputs.model_validate(dict(inputs or {}), context={"runs": runs})

    @property
    def needs(self) -> frozenset[base.Need]:
        """Return DCGM, and the mode without which its diagnostic fails (DCGM_FR_PERSISTENCE_MODE)."""
        return frozenset({"dcgm", "persistence"})

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Return one diagnostic per node; DCGM itself fails if another number of GPUs is active."""
        return [self._run(facts, node) for node in nodes]

    def _run(self, facts: GateFacts, node: str) -> Run:
        return Run.of_node(node, self.command(facts, node))

    def command(self, facts: GateFacts, node: str, parameters: str = "", stage: int = 0) -> base.Command:
        """Return the command that runs the diagnostic. ``parameters``: the value of -p."""
        argv = (
            "dcgmi",
            "diag",
            "-j",
            "-r",
            self.tests,
            *(("-p", parameters) if parameters else ()),
            "-n",
            f"gpu:{facts.nodes[node].platform.gpus}",
        )
        return base.Command(key=KEY, node=node, argv=argv, timeout_s=self.timeout_s, stage=stage)

    def tools(self, outputs: Outputs) -> dict[str, str]:
        """Return the versions of DCGM and of the driver that it saw."""
        try:
            found = dcgm_diag.parse(outputs[KEY].stdout)
        except (KeyError, FormatError):
            return {}
        return {name: version for name, version in (("dcgm", found.version), ("driver", found.driver)) if version}

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge the JSON: every required test must have passed on every GPU, and the exit code must agree."""
        judge = Judge()
        self.diagnose(judge, facts, run.nodes[0], outputs)
        return judge.verdict(f"{run.nodes[0]} {self.label}")

    def diagnose(self, judge: Judge, facts: GateFacts, node: str, outputs: Outputs) -> None:
        """Judge the diagnostic's output. The verdict's note always names the tests that the site skips."""
        for test, reason in sorted(self.inputs.skips.items()):
            judge.remark(f"declared skip of {test}: {reason}")
        output = outputs.get(KEY)
        where = Place(node, self.label)
        if judge.trouble(trouble(output, where, "DCGM diagnostic")) or output is None:
            return
        try:
            diagnostic = dcgm_diag.parse(output.stdout)
        except dcgm_diag.DiagnosticDidNotRunError as error:
            actual = f"{error} (exit code {output.exit_code})"
            judge.error(where, kinds.DIAG_DID_NOT_RUN, "a result for every GPU", actual)
            return
        except FormatError as error:
            judge.error(
                where, kinds.DIAG_UNREADABLE, "JSON of dcgmi diag 3.x or 4.x", f"{error} (exit code {output.exit_code})"
            )
            return
        if diagnostic.missing:
            self._incomplete(judge, node, diagnostic)
        else:
            self._judge(judge, facts, node, diagnostic)
        if output.exit_code != 0 and not judge.fails:
            actual = f"exit code {output.exit_code}"
            judge.error(where, kinds.DIAG_EXIT_CODE, "exit code 0 with a passing result", actual)
        if self.says_eud:
            judge.remark(dcgm_tests.eud_note(diagnostic, set(range(facts.nodes[node].platform.gpus))))

    def _incomplete(self, judge: Judge, node: str, diagnostic: dcgm_diag.Diagnostic) -> None:
        """Add an error for a document without the facts that a pass needs; tests that failed in it still fail."""
        version = (
            f"DCGM {diagnostic.version}"
            if diagnostic.version
            else "DCGM without a version number (3.0 and earlier print none)"
        )
        expected = "DCGM 3.3 or later, which reports the GPUs, their serial numbers and the severity of each warning"
        actual = f"{version} does not report {', '.join(diagnostic.missing)}"
        judge.error(Place(node, self.label), kinds.DIAG_TELLS_TOO_LITTLE, expected, actual)
        for result in diagnostic.results:
            if result.status in {"Fail", "Warn"}:
                self._result(judge, node, result)

    def _judge(self, judge: Judge, facts: GateFacts, node: str, diagnostic: dcgm_diag.Diagnostic) -> None:
        count = facts.nodes[node].platform.gpus
        wanted = set(range(count))
        judge.judged += 1
        judge.count(
            "gpus_diagnosed",
            node,
            len(set(diagnostic.gpus)),
            count,
            f"platform profile {facts.nodes[node].platform.id}",
        )
        found = set(diagnostic.gpus)
        if len(found) < count:
            judge.fail(node, kinds.DIAG_GPUS_MISSING, f"{count} GPUs", f"{len(found)}")
        elif len(found) > count:
            judge.fail(node, kinds.DIAG_GPUS_MORE, f"{count} GPUs", f"{len(found)}")
        elif found != wanted:
            judge.fail(node, kinds.DIAG_GPUS_OTHER, parts.numbers(wanted), parts.numbers(found))
        _same_gpus(judge, facts, node, diagnostic)
        named = {result.test for result in diagnostic.results if result.entity != "summary" and result.status != "Pass"}
        eud = dcgm_tests.eud_installed(diagnostic)
        device_id = facts.nodes[node].gpu.pci_device_id
        for result in diagnostic.results:
            if dcgm_tests.is_disabled(result, device_id):
                continue
            # DCGM 3 lists EUD on every node, and skips it if not installed
            if not eud and dcgm_tests.canonical_name(result.test) == dcgm_tests.EUD:
                continue
            if result.entity != "summary" or result.test not in named:  # the summary repeats its entities' results
                self._result(judge, node, result)
        installed = self.says_eud and bool(diagnostic.eud)
        named_eud = (
            (dcgm_tests.EUD,)
            if installed
            or any(dcgm_tests.canonical_name(result.test) == dcgm_tests.EUD for result in diagnostic.results)
            else ()
        )
        required = self._allowed(judge, diagnostic, device_id)
        for test in (*required, *named_eud):
            self._required(judge, node, test, wanted, diagnostic)
        ran = [test for test in required if test not in self.inputs.skips]
        if not ran:
            judge.error(
                node,
                kinds.DIAG_MEASURED_NOTHING,
                f"at least one of {', '.join(self.required)} to run",
                "every one declared under the gate's input `skips`",
            )
            return
        complete = set.intersection(
            wanted, *(dcgm_tests.gpus_with_result(diagnostic, test, wanted, {"Pass"}) for test in ran)
        )
        bad = {
            result.gpu for result in diagnostic.results if result.status in {"Fail", "Warn"} or _asks_for_repair(result)
        }
        judge.measured.update(f"{node}/gpu{gpu}" for gpu in complete - bad)

    def _allowed(self, judge: Judge, diagnostic: dcgm_diag.Diagnostic, device_id: str) -> list[str]:
        """Return the required tests that DCGM runs on this GPU model, and note what it leaves out there."""
        results = [result for result in diagnostic.results if dcgm_tests.is_disabled(result, device_id)]
        disabled = {dcgm_tests.canonical_name(result.test) for result in results}
        for test in sorted(disabled):
            judge.remark(_DISABLED[test])
        return [test for test in self.required if test not in disabled]

    def _required(self, judge: Judge, node: str, test: str, wanted: set[int], diagnostic: dcgm_diag.Diagnostic) -> None:
        judge.judged += 1
        if test in self.inputs.skips:
            return
        missing = sorted(wanted - dcgm_tests.gpus_with_result(diagnostic, test, wanted))
        absent = dcgm_tests.absent_software(diagnostic) if test == "software" else []
        if missing or absent:
            actual = (
                f"no result of {', '.join(absent)}"
                if absent
                else "not in the result"
                if len(missing) == len(wanted)
                else f"no result for {', '.join(f'gpu{gpu}' for gpu in missing)}"
            )
            judge.error(node, kinds.DIAG_TEST_DID_NOT_RUN, "a result for every GPU", actual, test=test)

    def _result(self, judge: Judge, node: str, result: dcgm_diag.Result) -> None:
        where = Place(node, result.entity) if result.entity != "summary" else node
        if result.status == "Skip":
            if dcgm_tests.canonical_name(result.test) not in self.inputs.skips:
                judge.error(
                    where,
                    kinds.DIAG_TEST_SKIPPED,
                    "Pass",
                    ": ".join(part for part in ("Skip", result.info.rstrip(".")) if part),
                    test=result.test,
                )
        elif result.status != "Pass":
            judge.fail(
                where, kinds.DIAG_TEST_FAILED, "Pass", _reason(result), test=result.test, step=_step(node, result)
            )
        elif bad := _asks_for_repair(result):
            expected = "Pass without a warning that asks for a repair"
            judge.error(
                where,
                kinds.DIAG_TEST_CONTRADICTS,
                expected,
                _reason(replace(result, warnings=tuple(bad))),
                test=result.test,
                step=_step(node, result),
            )


def _same_gpus(judge: Judge, facts: GateFacts, node: str, diagnostic: dcgm_diag.Diagnostic) -> None:
    """Compare the GPUs that DCGM ran on with the node's model, and their serial numbers with each other."""
    wanted = facts.nodes[node].gpu.pci_device_id
    others = sorted({found for found in diagnostic.device_ids if found != wanted})
    if others:
        judge.error(node, kinds.DIAG_OTHER_MODEL, f"PCI device id {wanted}", ", ".join(others))
    most = parts.of_one_serial(facts.nodes[node].gpu)
    often = sorted(
        serial for serial, times in Counter(serial for serial in diagnostic.serials if serial).items() if times > most
    )
    if often:
        expected = (
            "every GPU its own serial number"
            if most == 1
            else f"a serial number of its own on every module of {most} GPUs"
        )
        actual = f"{', '.join(often)} more than {'once' if most == 1 else f'{most} times'}"
        judge.error(node, kinds.DIAG_GPUS_NOT_TOLD_APART, expected, actual)


def _asks_for_repair(result: dcgm_diag.Result) -> list[dcgm_diag.Warned]:
    """Return the warnings of a result that ask for a repair of the GPU, or whose severity is unknown."""
    return [
        warning for warning in result.warnings if dcgm_diag.SEVERITY.get(warning.severity, "isolate") in _CONTRADICTED
    ]


def _reason(result: dcgm_diag.Result) -> str:
    if not result.warnings:
        return result.status + (f": {result.info.rstrip('.')}" if result.info else "")
    first = result.warnings[0]
    more = f" (and {len(result.warnings) - 1} more)" if len(result.warnings) > 1 else ""
    code = (
        f" [error {first.code}, severity {dcgm_diag.SEVERITY.get(first.severity, 'not known')}]"
        if first.code >= 0
        else ""
    )
    return f"{result.status}: {first.text}{code}{more}"


def _step(node: str, result: dcgm_diag.Result) -> str:
    worst = max(
        (warning.severity for warning in result.warnings if warning.severity in dcgm_diag.SEVERITY),
        key=(0, 1, 3, 5, 4, 6, 2).index,
        default=0,
    )
    return _ACTION.get(dcgm_diag.SEVERITY[worst], _OTHER).format(node=node)


class DcgmR1(DcgmDiagnostic):
    """DCGM's quick diagnostic (level 1) passes: the software that every later test needs is in order."""

    id = "node/gpu/validation/dcgm-r1"
    tests, label = "1", "dcgm-r1"
    required = ("software",)
    timeout_s = 300


class DcgmR2(DcgmDiagnostic):
    """DCGM's medium diagnostic (level 2) passes: device memory and PCIe of every GPU."""

    id = "node/gpu/validation/dcgm-r2"
    tests, label = "2", "dcgm-r2"
    required = ("software", "memory", "pcie")
    timeout_s = 900


class DcgmR3(DcgmDiagnostic):
    """DCGM's long diagnostic (level 3) passes: memory, PCIe, compute, power and stress of every GPU."""

    id = "node/gpu/validation/dcgm-r3"
    tests, label = "3", "dcgm-r3"
    further = _LONG
    required = ("software", "memory", "pcie", "diagnostic", "targeted_stress", "targeted_power")
    timeout_s = 3600
    says_eud = True


class DcgmR4(DcgmDiagnostic):
    """DCGM's extended diagnostic (level 4) passes: level 3, then memory patterns and power pulses on every GPU."""

    id = "node/gpu/validation/dcgm-r4"
    tests, label = "4", "dcgm-r4"
    further = _LONG
    required = (
        "software",
        "memory",
        "pcie",
        "diagnostic",
        "targeted_stress",
        "targeted_power",
        "memtest",
        "pulse_test",
    )
    timeout_s = 10800
    says_eud = True
