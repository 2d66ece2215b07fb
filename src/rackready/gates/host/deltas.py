"""Error counters before and after a load: absolute values say little, as their history is unknown."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from pydantic import Field

from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates import base
from rackready.gates.base import Command, Gate, GateFacts, Need, Output, Outputs, Run, trouble
from rackready.gates.fabric import port_errors
from rackready.gates.formats import complaint, dcgm_diag
from rackready.gates.gpu import nvlink_findings
from rackready.gates.host import nvlink_deltas, optics, optics_findings, pairing, reading
from rackready.gates.host.counter import Counter
from rackready.gates.host.links import folder
from rackready.gates.host.memory import CE_PER_DAY, CE_SOURCE, COUNTS, UE_SOURCE
from rackready.gates.host.pcie import parts
from rackready.gates.host.reading import AGAIN, Answers, Limit, Tool, WantedValues, answers, placed
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Op, Verdict
from rackready.model.place import Place
from rackready.ondevice.rdma_counters import ERRORS

_REPLAYS = Tool("nvidia-smi", ("nvidia-smi", "-q"), "nvidia-open", keep=r"^GPU [0-9A-Fa-f:.]+$|Replays Since Reset")
_ANSWERED = frozenset({0, 15})
"""Exit codes of nvidia-smi (its manual): 15 if a GPU is lost, which its output names."""
_AER = ("aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal")
_GT_S = {1: 2.5e9, 2: 5e9, 3: 8e9, 4: 16e9, 5: 32e9, 6: 64e9}
_BER = 1e-12
_LANES = 16
_DCGM = ("dcgmi", "diag")
_AER_SOURCE = (
    "derived: lanes x rate x seconds x 10^-12 (PCI Express base specification: bit error rate of a link), plus "
    "three standard deviations"
)
_NONE_SOURCE = "PCI Express base specification: an uncorrectable error lost data or the link"
_REPLAY_SOURCE = "DCGM 4.6, pcie plugin, max_pcie_replays: 80 a run"
_SEAT = (
    "Reseat the card and its riser, then swap the card with that of another slot and check whether the errors follow "
    "it."
)


LOAD_FAILED = ErrorKind(
    "load-failed",
    "load failed",
    meaning="The load ended with an error, so the counters say little.",
    next_step="First run the gates of the parts that it loads, then `{load}` by hand.",
)
LOAD_ENDED_AT_ONCE = ErrorKind(
    "load-ended-at-once",
    "load ended at once",
    meaning="The load ended at once, so it did not stress the parts.",
    next_step="First run the gates of the parts that it loads, then `{load}` by hand.",
)
LOAD_NOT_PROVEN = ErrorKind(
    "load-not-proven",
    "load failed",
    meaning="The load's output does not show that every GPU was tested and passed.",
    next_step="First run the gates of the parts that it loads, then `{load}` by hand.",
)
COUNT_UNREADABLE = ErrorKind(
    "error-count-unreadable",
    "{what} unreadable",
    meaning="An error counter is missing or went back, so the number of errors is unknown.",
    next_step=AGAIN,
)
ERRORS_GREW = FailKind(
    "error-count-grew",
    "{what} rose under load",
    meaning="An error counter rose while the part was under load.",
    next_step="{step}",
)

FINDINGS = (LOAD_FAILED, LOAD_ENDED_AT_ONCE, LOAD_NOT_PROVEN, COUNT_UNREADABLE, ERRORS_GREW)


def pcie_errors(generation: int, seconds: float) -> int:
    """Return how many corrected errors a 16-lane link may have at the specification's bit error rate."""
    mean = _LANES * _GT_S[generation] * seconds * _BER
    return math.ceil(mean + 3 * math.sqrt(mean))


class CounterDeltas(Gate):
    """Under load no PCIe, NVLink, NIC or memory error counter rises too much, and links stay within their limits."""

    id = "node/host/stress/counter-deltas"
    findings = (
        *optics_findings.LINK,
        *reading.FINDINGS,
        *nvlink_deltas.FINDINGS,
        *pairing.FINDINGS,
        reading.PARTS_NOT_PLACED,
        nvlink_findings.NVLINK_GPU_LOST,
        *FINDINGS,
    )
    covers = frozenset({"node"})

    class Inputs(base.Inputs):
        """The load between the two readings."""

        load: tuple[str, ...] = Field(
            ("dcgmi", "diag", "-r", "2", "-j"),
            min_length=1,
            description="command that loads the node; it must exit with 0",
        )
        least_s: float = Field(
            1,
            gt=0,
            le=86400,
            description="shortest time of a load other than DCGM's, s, at most a day; "
            "judgement: a load that ends sooner did nothing",
        )
        timeout_s: float = Field(
            900, gt=0, le=259200, description="longest time that the load may take, s; at most three days (judgement)"
        )

    inputs: Inputs

    @property
    def needs(self) -> frozenset[Need]:
        """Return DCGM and what its diagnostic requires, where it is the load."""
        return frozenset({"dcgm", "persistence"}) if self.inputs.load[: len(_DCGM)] == _DCGM else frozenset()

    def wanted(self, facts: NodeFacts, key: str) -> WantedValues:
        """Return what to read before or after: counters both times, links and modules after, while still warm."""
        pcie = tuple(
            f"/sys/bus/pci/devices/{pci}/{leaf}" for pci in parts(facts) for leaf in (*_AER, "current_link_speed")
        )
        nics = tuple(
            f"{folder(nic.rdma_device)}/counters/{leaf}" for nic in facts.nics for leaf in (*ERRORS, "port_xmit_data")
        )
        gpus = (_REPLAYS, nvlink_deltas.TOOL) if facts.gpu.nvlink else (_REPLAYS,)
        return WantedValues(
            (*gpus, *(optics.tools(facts) if key == "after" else ())),
            (*pcie, *nics, COUNTS, pairing.BOOT_ID, pairing.UPTIME),
        )

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Return one run per node: read, load, read again."""
        return [
            Run.of_node(
                node,
                self.wanted(facts.nodes[node], "before").command(node, "before"),
                Command(key="load", node=node, argv=self.inputs.load, timeout_s=self.inputs.timeout_s, stage=1),
                self.wanted(facts.nodes[node], "after").command(node, "after", stage=2),
            )
            for node in nodes
        ]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Compare the rise of each counter with the rise that the load's time allows."""
        node, judge = run.nodes[0], Judge()
        known = facts.nodes[node]
        load = outputs.get("load")
        readings = [
            answers(judge, outputs.get(key), node, self.wanted(known, key), f"counters {key} the load")
            for key in ("before", "after")
        ]
        if (
            not placed(judge, known)
            or not self._loaded(judge, known, load)
            or load is None
            or readings[0] is None
            or readings[1] is None
        ):
            return judge.verdict(node)
        if not pairing.paired(
            judge, known, (outputs["before"], outputs["after"]), (readings[0], readings[1]), load.seconds
        ):
            return judge.verdict(node)
        before, after = (_values(judge, known, reading) for reading in readings if reading is not None)
        for counter in (*_counters(known, readings[1], load.seconds), *nvlink_deltas.counters(known, before, after)):
            _compare(judge, counter, before, after)
        self._traffic(judge, known, before, after)
        if known.gpu.nvlink is not None:
            nvlink_deltas.links(
                judge, known, [reading.commands["nvlink"]["stdout"] for reading in readings if reading], load.seconds
            )
        for nic in known.nics:
            port = optics.read(judge, node, nic, readings[1])
            if port is not None:
                where = Place(node, nic.rdma_device, f"(rail {nic.rail}) after the load")
                optics.errors(judge, where, port)
                optics.module(judge, where, port)
        if not judge.errors and not judge.fails:
            judge.measured.add(node)
        return judge.verdict(node)

    def _loaded(self, judge: Judge, facts: NodeFacts, load: Output | None) -> bool:
        """Return whether the load ran: DCGM's by its results for every GPU, any other by exit code and length."""
        node = facts.node.name
        if judge.trouble(trouble(load, node, "load")) or load is None:
            return False
        if load.exit_code != 0:
            judge.error(
                node,
                LOAD_FAILED,
                "exit 0",
                f"exit {load.exit_code}: {complaint.last_words(load.stdout, load.stderr)}",
                load=" ".join(self.inputs.load),
            )
            return False
        lacks = ""
        if self.inputs.load[:2] == _DCGM and "-j" in self.inputs.load:
            lacks = _missing_load(load.stdout, facts.platform.gpus)
        elif load.seconds < self.inputs.least_s:
            judge.error(
                node,
                LOAD_ENDED_AT_ONCE,
                f"at least {self.inputs.least_s:g} s",
                f"{load.seconds:g} s",
                load=" ".join(self.inputs.load),
            )
            return False
        if lacks:
            judge.error(
                node,
                LOAD_NOT_PROVEN,
                "a test of the hardware that passed on every GPU, and none that failed",
                lacks,
                load=" ".join(self.inputs.load),
            )
        return not lacks

    @staticmethod
    def _traffic(judge: Judge, facts: NodeFacts, before: Mapping[str, int], after: Mapping[str, int]) -> None:
        """Note NICs that the load did not use: counters of an idle link say little."""
        keys = [f"{nic.rdma_device}/port_xmit_data" for nic in facts.nics]
        idle = [key.split("/", 1)[0] for key in keys if after.get(key, 0) <= before.get(key, 0)]
        if idle:
            judge.remark(
                f"the load sent nothing over {', '.join(idle)}, so their counters say little; "
                "the gates that send over them judge the same counters"
            )


def _missing_load(text: str, gpus: int) -> str:
    """Return why a diagnostic did not load every GPU; empty if it did.

    Tests of the Deployment category only check software.
    """
    try:
        found = dcgm_diag.parse(text)
    except FormatError as error:
        return str(error)
    failed = sorted(
        {f"{result.test} {result.status} on {result.entity}" for result in found.results if result.status == "Fail"}
    )
    if failed:
        return ", ".join(failed)
    loaded = {result.gpu for result in found.results if result.status == "Pass" and result.category != "Deployment"}
    idle = [f"gpu{gpu}" for gpu in range(gpus) if gpu not in loaded]
    return f"none on {', '.join(idle)}" if idle else ""


def _counters(facts: NodeFacts, after: Answers, seconds: float) -> list[Counter]:
    out = []
    for pci, part in parts(facts).items():
        where = Place(facts.node.name, part)
        allowed = pcie_errors(_generation(after.one(f"/sys/bus/pci/devices/{pci}/current_link_speed")), seconds)
        out.append(
            Counter(
                where,
                f"{part}/aer_dev_correctable",
                Limit("aer_corrected", Op.LE, allowed, "1", _AER_SOURCE, derived=True),
                _SEAT,
            )
        )
        out += [
            Counter(where, f"{part}/{leaf}", Limit(leaf.replace("_dev", ""), Op.LE, 0, "1", _NONE_SOURCE), _SEAT)
            for leaf in _AER[1:]
        ]
    for nic in facts.nics:
        where = Place(facts.node.name, nic.rdma_device, f"(rail {nic.rail})")
        out += [
            Counter(
                where, f"{nic.rdma_device}/{leaf}", Limit(leaf, Op.LE, 0, "1", port_errors.SOURCE), port_errors.STEP
            )
            for leaf in ERRORS
        ]
    for gpu in range(facts.platform.gpus):
        where = Place(facts.node.name, f"gpu{gpu}")
        out.append(Counter(where, f"gpu{gpu}/pcie_replay", Limit("pcie_replay", Op.LE, 80, "1", _REPLAY_SOURCE), _SEAT))
    limit = Limit("memory_corrected", Op.LE, CE_PER_DAY, "1", CE_SOURCE)
    lost = Limit("memory_uncorrected", Op.LE, 0, "1", UE_SOURCE)
    step = "See node/host/sanity/memory-errors for the module, and"
    return [
        *out,
        Counter(facts.node.name, "memory/ce_count", limit, f"{step} reseat it."),
        Counter(facts.node.name, "memory/ue_count", lost, f"{step} replace it."),
    ]


def _generation(speed: str | None) -> int:
    """Return the PCIe generation of a sysfs speed such as '32.0 GT/s PCIe'; if unknown 1, which allows least."""
    match = re.match(r"([\d.]+) GT/s", speed or "")
    rate = float(match[1]) * 1e9 if match else 0.0
    return next((generation for generation, known in _GT_S.items() if known == rate), 1)


def _compare(judge: Judge, counter: Counter, before: Mapping[str, int], after: Mapping[str, int]) -> None:
    first, last = before.get(counter.name), after.get(counter.name)
    what = counter.name.split("/", 1)[1]
    judge.judged += 1
    if first is None or last is None or last < first:
        said = f"{'nothing' if first is None else first} before, {'nothing' if last is None else last} after"
        judge.error(counter.where, COUNT_UNREADABLE, "a count that does not go back", said, what=what)
    elif not counter.limit.holds(judge, counter.where, last - first):
        judge.fail(
            counter.where,
            ERRORS_GREW,
            f"by at most {counter.limit.bound:g}",
            last - first,
            what=what,
            step=counter.step,
        )


def _values(judge: Judge, facts: NodeFacts, found: Answers) -> dict[str, int]:
    """Return part/name -> value of every readable counter. `_compare` adds an error for a missing one."""
    out: dict[str, int] = {}
    for pci, part in parts(facts).items():
        for leaf in _AER:
            out.update(_total(part, leaf, found.one(f"/sys/bus/pci/devices/{pci}/{leaf}")))
    for nic in facts.nics:
        for leaf in (*ERRORS, "port_xmit_data"):
            text = found.one(f"{folder(nic.rdma_device)}/counters/{leaf}") or ""
            out.update({f"{nic.rdma_device}/{leaf}": int(text)} if text.isdigit() else {})
    memory = found.matching(COUNTS)
    for leaf in ("ce_count", "ue_count"):
        counted = [text for path, text in memory.items() if path.endswith(f"/{leaf}")]
        if counted and all(text.isdigit() for text in counted):
            out[f"memory/{leaf}"] = sum(int(text) for text in counted)
    out.update(_gpu_values(judge, facts, found))
    return out


def _total(part: str, leaf: str, text: str | None) -> dict[str, int]:
    """Return part/leaf -> the total in an AER file (TOTAL_ERR_COR, TOTAL_ERR_NONFATAL, TOTAL_ERR_FATAL)."""
    match = re.search(r"^TOTAL_ERR_\w+ (\d+)$", text or "", re.MULTILINE)
    return {f"{part}/{leaf}": int(match[1])} if match else {}


def _gpu_values(judge: Judge, facts: NodeFacts, found: Answers) -> dict[str, int]:
    out: dict[str, int] = {}
    replays = re.findall(r"Replays Since Reset\s*: (\d+)", found.text("nvidia-smi") or "")
    if len(replays) == facts.platform.gpus:
        out.update({f"gpu{index}/pcie_replay": int(count) for index, count in enumerate(replays)})
    if facts.gpu.nvlink is not None:
        out.update(nvlink_deltas.values(judge, facts, found.text("nvlink", good=_ANSWERED) or ""))
        judge.judged += 1
    return out
