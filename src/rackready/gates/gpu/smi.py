"""What the gates share that judge `nvidia-smi -q -x`: one command a node, all GPUs at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from rackready.design.facts import NodeFacts
from rackready.gates import models
from rackready.gates.base import Command, Gate, GateFacts, Output, Outputs, Run, trouble
from rackready.gates.formats import smi_xml
from rackready.gates.formats.error import FormatError, TwoReportsError
from rackready.gates.formats.smi_xml import SmiGpu, SmiLog
from rackready.gates.gpu import parts
from rackready.gates.judge import Judge
from rackready.model.outcome import Verdict

KEY = "smi"
ARGV = ("nvidia-smi", "-q", "-x")
TIMEOUT_S = 60.0
"""Without persistence mode the driver initialises every GPU first, which takes seconds each."""
RUNBOOK = "docs/runbooks/gpu.md"
_CORRUPT_INFOROM, _LOST = 14, 15
"""Exit codes of nvidia-smi (its manual): an InfoROM is corrupt, a GPU is lost. The report is printed all the same."""


def command(node: str, key: str = KEY, stage: int = 0) -> Command:
    """Return the command that prints the report."""
    return Command(key=key, node=node, argv=ARGV, timeout_s=TIMEOUT_S, stage=stage)


def read(judge: Judge, output: Output | None, node: str) -> SmiLog | None:
    """Return the report; None, with the reason as an error or a fail of the judge, where there is none that could be judged."""
    if judge.trouble(trouble(output, node, "nvidia-smi")) or output is None:
        return None
    try:
        log = smi_xml.parse(output.stdout)
    except smi_xml.NoDriverError as error:
        judge.error(
            node, "nvidia-smi cannot ask the driver", "a report of every GPU", error, "Check that the driver is loaded (`lsmod`), then run install again."
        )
        return None
    except FormatError as error:
        step = "Run `nvidia-smi -q -x` by hand; when it is not there, run install again (package nvidia-driver-cuda)."
        if isinstance(error, TwoReportsError):
            step = "Give one report of nvidia-smi -q -x, of this node."
        judge.error(node, "nvidia-smi unreadable", "a whole report of nvidia-smi -q -x", f"{error} (exit code {output.exit_code})", step)
        return None
    for name in log.lost:
        judge.fail(node, f"GPU lost ({name})", "a GPU that answers", "GPU is lost", f"Power the node off and on; if it comes back, replace the GPU: {RUNBOOK}.")
    explained = {0} | ({_CORRUPT_INFOROM} if log.corrupt_inforom else set()) | ({_LOST} if log.lost else set())
    if output.exit_code not in explained:
        judge.error(
            node, "nvidia-smi contradicts itself", "exit code 0 with a whole report", f"exit code {output.exit_code}", "Run `nvidia-smi -q -x` by hand."
        )
    return log


def same_gpus(judge: Judge, facts: NodeFacts, node: str, log: SmiLog) -> bool:
    """Compare number and model of the GPUs with the platform's, and the GPUs with each other.

    Returns whether all are of its model, and each is described once: no bound of it is one for others, and a GPU in the place of another hides that one.
    """
    judge.judged += 1
    judge.count("gpus_reported", node, len(log.gpus), facts.platform.gpus, f"platform profile {facts.platform.id}")
    if len(log.gpus) != facts.platform.gpus:
        judge.fail(node, "GPUs in nvidia-smi", f"{facts.platform.gpus}", f"{len(log.gpus)}", parts.count_step(len(log.gpus), facts.platform.gpus))
    named = [(node, gpu.text("product_name") or "no model") for gpu in log.gpus]
    return models.same(judge, node, "nvidia-smi reports", named, [facts.gpu.product_name]) and _once(judge, facts, node, log)


def _once(judge: Judge, facts: NodeFacts, node: str, log: SmiLog) -> bool:
    """Err where GPUs at different addresses have one UUID, or more of them one serial than GPUs of their kind share."""
    for field, most in (("uuid", 1), ("serial", parts.of_one_serial(facts.gpu))):
        found: dict[str, list[str]] = {}
        for gpu in log.gpus:
            found.setdefault(gpu.text(field) or "", []).append(gpu.pci)
        twice = next((value for value, at in found.items() if value and len(at) > most), None)
        if twice is not None:
            expected = f"a {field} of its own for every GPU" if most == 1 else f"at most {most} GPUs of one {field}, those of a module"
            step = "Run `nvidia-smi -q -x` by hand; if it says so again, reseat the GPUs: the board's InfoROM may be damaged."
            judge.error(node, "nvidia-smi describes one GPU twice", expected, f"{field} {twice} at {', '.join(found[twice])}", step)
            return False
    return True


class SmiGate(Gate):
    """A gate that judges each GPU of one `nvidia-smi -q -x`."""

    covers = frozenset({"gpu"})

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002 - the same for all
        """One report per node."""
        return [Run.of_node(node, command(node)) for node in nodes]

    def tools(self, outputs: Outputs) -> dict[str, str]:
        """Return the driver's version as the report has it."""
        try:
            return {"driver": smi_xml.parse(outputs[KEY].stdout).driver}
        except (KeyError, FormatError):
            return {}

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge every GPU that the report has; one with a finding is not measured."""
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
            self.gpu(judge, facts, f"{node} {part}", gpu)
        except FormatError as error:
            judge.error(f"{node} {part}", "nvidia-smi unreadable", "numbers where numbers belong", error, "Run `nvidia-smi -q -x` by hand.")
        if len(judge.fails) + len(judge.errors) == before:
            judge.measured.add(f"{node}/{part}")

    @abstractmethod
    def gpu(self, judge: Judge, facts: NodeFacts, where: str, gpu: SmiGpu) -> None:
        """Judge one GPU. FormatError of a number becomes an error of that GPU."""

    def together(self, judge: Judge, facts: NodeFacts, node: str, log: SmiLog) -> None:
        """Compare the GPUs of a node with each other."""


def number(judge: Judge, where: str, gpu: SmiGpu, path: str, what: str) -> float | None:
    """Return a number that must be there; None, with an error, where the driver does not give it."""
    judge.judged += 1
    value = gpu.number(path)
    if value is None:
        judge.error(
            where, f"{what} not reported", "a number", gpu.element.findtext(path) or "nothing", "Update the driver; without the value nothing is known."
        )
    return value


def flag(judge: Judge, where: str, gpu: SmiGpu, path: str, what: str) -> bool | None:
    """Return a Yes or No that must be there; None, with an error, for anything else."""
    judge.judged += 1
    value = gpu.text(path)
    if value in {"Yes", "No"}:
        return value == "Yes"
    judge.error(where, f"{what} not reported", "Yes or No", value or "nothing", "Update the driver; without the value nothing is known.")
    return None
