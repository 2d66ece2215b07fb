"""Shared code of the gates that judge `nvidia-smi -q -x`: one command per node for all GPUs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError, TwoReportsError
from rackready.gates.base import Command, Gate, GateFacts, Output, Outputs, Run, trouble
from rackready.gates.formats import smi_xml
from rackready.gates.formats.smi_xml import SmiGpu, SmiLog
from rackready.gates.gpu import parts
from rackready.gates.judging import gpu_models
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.gates.nodecheck.rules import CORRUPT_INFOROM, LOST
from rackready.model.outcome import Verdict
from rackready.model.place import Place

KEY = "smi"
ARGV = ("nvidia-smi", "-q", "-x")
TIMEOUT_S = 60.0
"""Without persistence mode the driver first initialises every GPU, which takes seconds each."""
RUNBOOK = "docs/runbooks/gpu.md"


NO_DRIVER = ErrorKind(
    "nvidia-smi-no-driver",
    "nvidia-smi cannot reach the driver",
    meaning="nvidia-smi cannot talk to the driver: it is not loaded or does not work, and no GPU can be used.",
    next_step="Check that the driver is loaded (`lsmod`), then run install again.",
)
TWO_REPORTS = ErrorKind(
    "nvidia-smi-two-reports",
    "nvidia-smi unreadable",
    meaning="The output contains more than one report, so it is unknown which one is this node's.",
    next_step="Give one report of `nvidia-smi -q -x`, from this node.",
)
SMI_UNREADABLE = ErrorKind(
    "nvidia-smi-unreadable",
    "nvidia-smi unreadable",
    meaning="nvidia-smi left no complete report, so nothing is known about the GPUs.",
    next_step="Run `nvidia-smi -q -x` by hand. If it is missing, run install again (package nvidia-driver-cuda).",
)
SMI_GPU_LOST = FailKind(
    "gpu-lost",
    "GPU lost ({name})",
    meaning="The driver lost this GPU: it no longer answers, and jobs on it hang or crash.",
    next_step=f"Power the node off and on; if the GPU is lost again, replace it: {RUNBOOK}.",
    runbook=RUNBOOK,
)
SMI_EXIT_CODE = ErrorKind(
    "nvidia-smi-exit-code",
    "nvidia-smi contradicts itself",
    meaning="nvidia-smi printed a report and still ended with an error that the report does not explain.",
    next_step="Run `nvidia-smi -q -x` by hand.",
)
SMI_GPUS_MISSING = FailKind(
    "nvidia-smi-gpus-missing",
    "GPUs in nvidia-smi",
    meaning="nvidia-smi lists fewer GPUs than the platform has.",
    next_step=parts.FEWER,
)
SMI_GPUS_MORE = FailKind(
    "nvidia-smi-gpus-too-many",
    "GPUs in nvidia-smi",
    meaning="nvidia-smi lists more GPUs than the platform has.",
    next_step=parts.MORE,
)
SMI_GPU_TWICE = ErrorKind(
    "nvidia-smi-gpu-twice",
    "nvidia-smi lists one GPU twice",
    meaning="Several GPUs have the same identity in the report, so their figures cannot be told apart.",
    next_step="Run `nvidia-smi -q -x` by hand. If it shows the same, reseat the GPUs: a board's InfoROM may be "
    "damaged.",
)
SMI_NUMBERS = ErrorKind(
    "nvidia-smi-not-numbers",
    "nvidia-smi unreadable",
    meaning="nvidia-smi printed something other than a number where a number belongs.",
    next_step="Run `nvidia-smi -q -x` by hand.",
)
NUMBER_NOT_REPORTED = ErrorKind(
    "gpu-number-not-reported",
    "{what} not reported",
    meaning="The driver does not report a number that the gate judges.",
    next_step="Update the driver.",
)
FLAG_NOT_REPORTED = ErrorKind(
    "gpu-flag-not-reported",
    "{what} not reported",
    meaning="The driver does not report a flag (Yes or No) that the gate judges.",
    next_step="Update the driver.",
)

REPORT = (
    *gpu_models.FINDINGS,
    NO_DRIVER,
    TWO_REPORTS,
    SMI_UNREADABLE,
    SMI_GPU_LOST,
    SMI_EXIT_CODE,
    SMI_GPUS_MISSING,
    SMI_GPUS_MORE,
    SMI_GPU_TWICE,
)
"""Findings of reading a report of nvidia-smi."""
FINDINGS = (*REPORT, SMI_NUMBERS)
"""Findings of every gate on such a report."""


def command(node: str, key: str = KEY, stage: int = 0) -> Command:
    """Return the command that prints the report."""
    return Command(key=key, node=node, argv=ARGV, timeout_s=TIMEOUT_S, stage=stage)


def read(judge: Judge, output: Output | None, node: str) -> SmiLog | None:
    """Return the report; None, with an error, if there is none that can be judged. A lost GPU is a fail."""
    if judge.trouble(trouble(output, node, "nvidia-smi")) or output is None:
        return None
    try:
        log = smi_xml.parse(output.stdout)
    except smi_xml.NoDriverError as error:
        judge.error(node, NO_DRIVER, "a report of every GPU", error)
        return None
    except FormatError as error:
        judge.error(
            node,
            TWO_REPORTS if isinstance(error, TwoReportsError) else SMI_UNREADABLE,
            "a complete report of nvidia-smi -q -x",
            f"{error} (exit code {output.exit_code})",
        )
        return None
    for name in log.lost:
        judge.fail(node, SMI_GPU_LOST, "a GPU that answers", "GPU is lost", name=name)
    explained = {0} | ({CORRUPT_INFOROM} if log.corrupt_inforom else set()) | ({LOST} if log.lost else set())
    if output.exit_code not in explained:
        judge.error(node, SMI_EXIT_CODE, "exit code 0 with a complete report", f"exit code {output.exit_code}")
    return log


def same_gpus(judge: Judge, facts: NodeFacts, node: str, log: SmiLog) -> bool:
    """Compare number and model of the GPUs with the platform's, and the GPUs with each other.

    Returns whether all are of the platform's model and each is listed once: the model's bounds do not suit others, and
    a GPU that is listed in the place of another hides that one.
    """
    judge.judged += 1
    judge.count("gpus_reported", node, len(log.gpus), facts.platform.gpus, f"platform profile {facts.platform.id}")
    if len(log.gpus) != facts.platform.gpus:
        judge.fail(
            node,
            SMI_GPUS_MISSING if len(log.gpus) < facts.platform.gpus else SMI_GPUS_MORE,
            f"{facts.platform.gpus}",
            f"{len(log.gpus)}",
        )
    named = [(node, gpu.text("product_name") or "no model") for gpu in log.gpus]
    return gpu_models.require_model(
        judge, node, "nvidia-smi reports", named, [facts.gpu.product_name]
    ) and _listed_once(judge, facts, node, log)


def _listed_once(judge: Judge, facts: NodeFacts, node: str, log: SmiLog) -> bool:
    """Return whether no UUID is at two addresses and no serial on more GPUs than a module has; else add an error."""
    for field, most in (("uuid", 1), ("serial", parts.of_one_serial(facts.gpu))):
        found: dict[str, list[str]] = {}
        for gpu in log.gpus:
            found.setdefault(gpu.text(field) or "", []).append(gpu.pci)
        twice = next((value for value, at in found.items() if value and len(at) > most), None)
        if twice is not None:
            expected = (
                f"a {field} of its own for every GPU"
                if most == 1
                else f"one {field} for at most {most} GPUs, those of a module"
            )
            judge.error(node, SMI_GPU_TWICE, expected, f"{field} {twice} at {', '.join(found[twice])}")
            return False
    return True


class SmiGate(Gate):
    """A gate that judges each GPU in a report of `nvidia-smi -q -x`."""

    covers = frozenset({"gpu"})

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002 - the same for all
        """Return one report per node."""
        return [Run.of_node(node, command(node)) for node in nodes]

    def tools(self, outputs: Outputs) -> dict[str, str]:
        """Return the driver's version from the report."""
        try:
            return {"driver": smi_xml.parse(outputs[KEY].stdout).driver}
        except (KeyError, FormatError):
            return {}

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge every GPU in the report; a GPU with a finding is not measured."""
        node = run.nodes[0]
        judge = Judge()
        log = read(judge, outputs.get(KEY), node)
        if log is not None and same_gpus(judge, facts.nodes[node], node, log):
            for gpu in log.gpus:
                self._one(judge, facts.nodes[node], node, gpu)
            self.together(judge, facts.nodes[node], node, log)
        return judge.verdict(node)

    def _one(self, judge: Judge, facts: NodeFacts, node: str, gpu: SmiGpu) -> None:
        part = parts.name(facts, gpu.pci, gpu.position)
        before = len(judge.fails) + len(judge.errors)
        try:
            self.gpu(judge, facts, Place(node, part), gpu)
        except FormatError as error:
            judge.error(Place(node, part), SMI_NUMBERS, "numbers where numbers belong", error)
        if len(judge.fails) + len(judge.errors) == before:
            judge.measured.add(f"{node}/{part}")

    @abstractmethod
    def gpu(self, judge: Judge, facts: NodeFacts, where: str, gpu: SmiGpu) -> None:
        """Judge one GPU. A FormatError becomes an error of that GPU."""

    def together(self, judge: Judge, facts: NodeFacts, node: str, log: SmiLog) -> None:
        """Compare the GPUs of a node with each other."""


def number(judge: Judge, where: str, gpu: SmiGpu, path: str, what: str) -> float | None:
    """Return a number that must be there; None, with an error, if the driver does not report it."""
    judge.judged += 1
    value = gpu.number(path)
    if value is None:
        judge.error(where, NUMBER_NOT_REPORTED, "a number", gpu.element.findtext(path) or "nothing", what=what)
    return value


def flag(judge: Judge, where: str, gpu: SmiGpu, path: str, what: str) -> bool | None:
    """Return a Yes or No that must be there; None, with an error, for anything else."""
    judge.judged += 1
    value = gpu.text(path)
    if value in {"Yes", "No"}:
        return value == "Yes"
    judge.error(where, FLAG_NOT_REPORTED, "Yes or No", value or "nothing", what=what)
    return None
