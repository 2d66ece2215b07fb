"""DCGM's diagnostic, by level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, ValidationInfo

from rackready.gates import base
from rackready.gates.base import Gate, GateFacts, Output, Outputs, Run, trouble
from rackready.gates.formats import dcgm_diag
from rackready.gates.formats.error import FormatError
from rackready.gates.gpu import dcgm_findings as kinds
from rackready.gates.gpu import parts
from rackready.gates.judging.finding_kinds import Kinds
from rackready.gates.judging.judge import Judge
from rackready.model.base import Reason
from rackready.model.outcome import Verdict

KEY = "dcgmi"
"""The command that runs the diagnostic."""
_ACTION = {
    "isolate": "Take the GPU out of service and replace it: docs/runbooks/gpu.md.",
    "reset": "Reset the GPU (`nvidia-smi -r`) or reboot, then run the gate again after repair is recorded.",
    "config": "Correct the configuration: run install again.",
    "triage": "Run `rackready gate run node/gpu/validation/dcgm-r3` after a power cycle; "
    "if it stays so, replace the part: docs/runbooks/gpu.md.",
}
_CONTRADICTED = frozenset({"isolate", "triage", "reset"})
"""Severities that ask for a repair of the GPU (dcgm_errors.h, dcgmErrorSeverity_enum): none of them goes with Pass."""
_SOFTWARE_3 = (
    "denylist",
    "nvml_library",
    "cuda_main_library",
    "permissions_and_os_blocks",
    "persistence_mode",
    "environment_variables",
    "page_retirement/row_remap",
    "graphics_processes",
    "inforom",
)
"""What DCGM 3.x runs in place of 4.x's `software` (levelOneTests in dcgmi/Diag.cpp, v3.0.4 to v3.3.9, without the CUDA toolkit's, which it leaves out)."""
_ALIASES_3 = {"gpu_memory": "memory", "eud_test": "eud"}
"""Names of DCGM 3.x (HelperGetTestName in dcgmi/Diag.cpp) -> those of 4.x, where they differ by more than their spelling."""
_EUD = "eud"
_OTHER = "Read the diagnostic's raw output and docs/runbooks/gpu.md."
_LONG = ("nvbandwidth", "memory_bandwidth", _EUD, "cpu_eud", "nccl_tests")
"""What levels 3 and 4 run beside the tests that they must have run, where it is installed and suits the GPU (DCGM_FI_DEV_DIAG_*_RESULT of DCGM 4)."""


def _runs(name: str, info: ValidationInfo) -> str:
    known = sorted((info.context or {}).get("runs", ()))
    if name not in known:
        message = f"one of the tests that it runs ({', '.join(known)})"
        raise ValueError(message)
    return name


TestName = Annotated[str, AfterValidator(_runs)]
"""A test that the gate runs, as DCGM 4 writes it, or one of those that DCGM 3 runs as its `software`."""


class DcgmDiagnostic(Gate):
    """DCGM's diagnostic passes on every GPU."""

    findings: ClassVar[Kinds] = kinds.FINDINGS

    tests: ClassVar[str]
    """What -r is given: a level, or names of tests."""
    label: ClassVar[str]
    """How findings call it, e.g. dcgm-r3."""
    required: ClassVar[tuple[str, ...]]
    further: ClassVar[tuple[str, ...]] = ()
    """What it may run beside these."""
    timeout_s: ClassVar[float]
    says_eud: ClassVar[bool] = False
    """The level runs the vendor's extended utility diagnostic where it is installed: the verdict says whether it was."""
    covers = frozenset({"gpu"})

    class Inputs(base.Inputs):
        """Tests that may be skipped, each with its reason."""

        skips: dict[TestName, Reason] = Field(
            default_factory=dict,
            description="test of this gate that may report Skip -> why, in words that "
            "a reader of the report understands",
        )

    inputs: Inputs

    def __init__(self, inputs: Mapping[str, object] | None = None) -> None:
        """Take the inputs, and hold the tests that may be skipped against those that the gate runs."""
        runs = {"software", *_SOFTWARE_3, *self.required, *self.further}
        self.inputs = self.Inputs.model_validate(dict(inputs or {}), context={"runs": runs})

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """One diagnostic per node; DCGM itself fails when another number of GPUs is active."""
        return [self._run(facts, node) for node in nodes]

    def _run(self, facts: GateFacts, node: str) -> Run:
        return Run.of_node(node, self.command(facts, node))

    def command(self, facts: GateFacts, node: str, parameters: str = "", stage: int = 0) -> base.Command:
        """Return the command that runs the diagnostic; ``parameters`` as -p takes them."""
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
        """Read the JSON; every required test must have passed on every GPU, and the exit code must agree."""
        judge = Judge()
        self.diagnose(judge, facts, run.nodes[0], outputs)
        return judge.verdict(f"{run.nodes[0]} {self.label}")

    def diagnose(self, judge: Judge, facts: GateFacts, node: str, outputs: Outputs) -> None:
        """Judge the diagnostic among the outputs. Whatever it says, the verdict's note names the tests that the site lets be skipped."""
        for test, reason in sorted(self.inputs.skips.items()):
            judge.remark(f"declared skip of {test}: {reason}")
        output = outputs.get(KEY)
        where = f"{node} {self.label}"
        if judge.trouble(trouble(output, where, "DCGM diagnostic")) or output is None:
            return
        try:
            diagnostic = dcgm_diag.parse(output.stdout)
        except dcgm_diag.DiagnosticDidNotRunError as error:
            self._not_run(judge, where, output, str(error))
            return
        except FormatError as error:
            judge.error(
                where, kinds.DIAG_UNREADABLE, "JSON of dcgmi diag 3.x or 4.x", f"{error} (exit code {output.exit_code})"
            )
            return
        if diagnostic.missing:
            self._too_little(judge, where, diagnostic)
        else:
            self._judge(judge, facts, node, diagnostic)
        self._exit_code(judge, where, output)
        if self.says_eud:
            judge.remark(_eud(diagnostic, set(range(facts.nodes[node].platform.gpus))))

    @staticmethod
    def _not_run(judge: Judge, where: str, output: Output, reason: str) -> None:
        judge.error(where, kinds.DIAG_DID_NOT_RUN, "a result for every GPU", f"{reason} (exit code {output.exit_code})")

    def _too_little(self, judge: Judge, where: str, diagnostic: dcgm_diag.Diagnostic) -> None:
        """A document that does not tell what a pass rests on measures nothing; a test that failed in it did fail."""
        version = (
            f"DCGM {diagnostic.version}"
            if diagnostic.version
            else "DCGM without a version number (3.0 and earlier print none)"
        )
        expected = "DCGM 3.3 or later, which tells the GPUs, their serial numbers and the severity of each warning"
        actual = f"{version} does not tell {', '.join(diagnostic.missing)}"
        judge.error(where, kinds.DIAG_TELLS_TOO_LITTLE, expected, actual)
        for result in diagnostic.results:
            if result.status in {"Fail", "Warn"}:
                self._result(judge, where.split(maxsplit=1)[0], result)

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
        eud = _eud_installed(diagnostic)
        for result in diagnostic.results:
            if (
                not eud and _name(result.test) == _EUD
            ):  # DCGM 3 lists it on every node, and skips it where it is not installed
                continue
            if result.entity != "summary" or result.test not in named:  # the summary repeats what its entities say
                self._result(judge, node, result)
        installed = self.says_eud and bool(diagnostic.eud)
        named_eud = (_EUD,) if installed or any(_name(result.test) == _EUD for result in diagnostic.results) else ()
        for test in (*self.required, *named_eud):
            self._required(judge, node, test, wanted, diagnostic)
        ran = [test for test in self.required if test not in self.inputs.skips]
        if not ran:
            self._nothing_ran(judge, node)
            return
        complete = set.intersection(wanted, *(_gpus(diagnostic, test, wanted, {"Pass"}) for test in ran))
        bad = {
            result.gpu for result in diagnostic.results if result.status in {"Fail", "Warn"} or _asks_for_repair(result)
        }
        judge.measured.update(f"{node}/gpu{gpu}" for gpu in complete - bad)

    def _nothing_ran(self, judge: Judge, node: str) -> None:
        """Every test left out is no diagnostic: it measures no GPU, whatever else DCGM reports."""
        judge.error(
            node,
            kinds.DIAG_MEASURED_NOTHING,
            f"at least one of {', '.join(self.required)} to run",
            "every one declared under the gate's input `skips`",
        )

    def _required(self, judge: Judge, node: str, test: str, wanted: set[int], diagnostic: dcgm_diag.Diagnostic) -> None:
        judge.judged += 1
        if test in self.inputs.skips:
            return
        missing = sorted(wanted - _gpus(diagnostic, test, wanted))
        absent = _absent_software(diagnostic) if test == "software" else []
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
        where = f"{node} {result.entity}" if result.entity != "summary" else node
        if result.status == "Skip":
            if _name(result.test) not in self.inputs.skips:
                judge.error(
                    where,
                    kinds.DIAG_TEST_SKIPPED,
                    "Pass",
                    ": ".join(part for part in ("Skip", result.info.rstrip(".")) if part),
                    test=result.test,
                )
        elif result.status != "Pass":
            judge.fail(where, kinds.DIAG_TEST_FAILED, "Pass", _why(result), test=result.test, step=_step(result))
        elif bad := _asks_for_repair(result):
            expected = "Pass without a warning that asks for a repair"
            judge.error(
                where,
                kinds.DIAG_TEST_CONTRADICTS,
                expected,
                _why(replace(result, warnings=tuple(bad))),
                test=result.test,
                step=_step(result),
            )

    def _exit_code(self, judge: Judge, where: str, output: Output) -> None:
        if output.exit_code != 0 and not judge.fails:
            judge.error(
                where, kinds.DIAG_EXIT_CODE, "exit code 0 with a passing result", f"exit code {output.exit_code}"
            )


def _same_gpus(judge: Judge, facts: GateFacts, node: str, diagnostic: dcgm_diag.Diagnostic) -> None:
    """Hold the GPUs that DCGM says it ran on against the node's model; no serial number is on more of them than a module holds."""
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
    """Return the warnings of a result that ask for a repair of the GPU, or of which nobody knows what they ask for."""
    return [
        warning for warning in result.warnings if dcgm_diag.SEVERITY.get(warning.severity, "isolate") in _CONTRADICTED
    ]


@lru_cache(maxsize=256)
def _name(test: str) -> str:
    """DCGM 3.x writes 'Targeted Stress', 4.x 'targeted_stress'."""
    name = test.strip().lower().replace(" ", "_")
    return _ALIASES_3.get(name, name)


def _gpus(diagnostic: dcgm_diag.Diagnostic, test: str, wanted: set[int], statuses: set[str] | None = None) -> set[int]:
    """Return the GPUs that have a result of a test: of DCGM 3.x's `software` those that have one of each of its parts."""
    if test == "software" and _spread(diagnostic):
        return set.intersection(wanted, *(_gpus(diagnostic, part, wanted, statuses) for part in _SOFTWARE_3))
    found = [result for result in diagnostic.results if _name(result.test) == test]
    if (
        len(found) == 1 and test in _SOFTWARE_3
    ):  # 3.x gives one result for the node, with the number of the last GPU that it warns of
        return wanted if statuses is None or found[0].status in statuses else set()
    return {
        result.gpu for result in found if result.gpu is not None and (statuses is None or result.status in statuses)
    }


def _spread(diagnostic: dcgm_diag.Diagnostic) -> bool:
    """Whether `software` is spread over the tests of the category Deployment, as in DCGM 3.x."""
    return any(result.category == "Deployment" and _name(result.test) != "software" for result in diagnostic.results)


def _absent_software(diagnostic: dcgm_diag.Diagnostic) -> list[str]:
    """Return the parts of DCGM 3.x's `software` that the result does not have."""
    there = {_name(result.test) for result in diagnostic.results}
    return [part for part in _SOFTWARE_3 if part not in there] if _spread(diagnostic) else []


def _why(result: dcgm_diag.Result) -> str:
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


def _step(result: dcgm_diag.Result) -> str:
    worst = max(
        (warning.severity for warning in result.warnings if warning.severity in dcgm_diag.SEVERITY),
        key=(0, 1, 3, 5, 4, 6, 2).index,
        default=0,
    )
    return _ACTION.get(dcgm_diag.SEVERITY[worst], _OTHER)


def _eud_installed(diagnostic: dcgm_diag.Diagnostic) -> bool:
    """Whether anything says so: a version in the document's head, or a result that is no skip."""
    return bool(diagnostic.eud) or any(
        _name(result.test) == _EUD and result.status != "Skip" for result in diagnostic.results
    )


def _eud(diagnostic: dcgm_diag.Diagnostic, wanted: set[int]) -> str:
    """EUD is a package that the operator brings, per driver branch: only its results say that it ran, not the version in the document's head."""
    version = f" {diagnostic.eud}" if diagnostic.eud else ""
    ran = _gpus(diagnostic, _EUD, wanted, {"Pass", "Fail", "Warn"})
    if ran == wanted:
        return f"EUD{version} ran with it"
    if ran:
        return f"EUD{version} ran with it on {', '.join(f'gpu{gpu}' for gpu in sorted(ran))} only"
    if version:
        return f"EUD{version} is installed on this node, and did not run"
    return "EUD (extended utility diagnostic) did not run: not installed on this node, or DCGM does not run as root"


class DcgmR1(DcgmDiagnostic):
    """DCGM's quick diagnostic (level 1): the software that every later test needs is in order."""

    id = "node/gpu/validation/dcgm-r1"
    tests, label = "1", "dcgm-r1"
    required = ("software",)
    timeout_s = 300


class DcgmR2(DcgmDiagnostic):
    """DCGM's medium diagnostic (level 2): device memory and PCIe of every GPU."""

    id = "node/gpu/validation/dcgm-r2"
    tests, label = "2", "dcgm-r2"
    required = ("software", "memory", "pcie")
    timeout_s = 900


class DcgmR3(DcgmDiagnostic):
    """DCGM's long diagnostic (level 3): memory, PCIe, compute, power and stress of every GPU."""

    id = "node/gpu/validation/dcgm-r3"
    tests, label = "3", "dcgm-r3"
    further = _LONG
    required = ("software", "memory", "pcie", "diagnostic", "targeted_stress", "targeted_power")
    timeout_s = 3600
    says_eud = True


class DcgmR4(DcgmDiagnostic):
    """DCGM's extended diagnostic (level 4): level 3, then memory patterns and power pulses on every GPU."""

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
