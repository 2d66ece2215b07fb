"""Copy bandwidth of every GPU: to and from the host, to its siblings and in its own memory.

DCGM's plugin of that name reports these rates and judges none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from pydantic import Field

from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates import base
from rackready.gates.base import Command, FleetMetric, Gate, GateFacts, Outputs, Run, trouble
from rackready.gates.formats import nvbandwidth
from rackready.gates.formats.nvbandwidth import Bandwidths, ListedGpu
from rackready.gates.formats.smi_xml import SmiLog
from rackready.gates.gpu import nvbandwidth_findings as kinds
from rackready.gates.gpu import paired_outputs, parts, siblings, smi
from rackready.gates.gpu.siblings import Comparison, compare
from rackready.gates.judging import gpu_models
from rackready.gates.judging.expectation import IMPLAUSIBLE, Bound, launches
from rackready.gates.judging.judge import Judge
from rackready.gates.judging.node_topology import TLP_BYTES, TLP_PAYLOAD, host_link
from rackready.model.outcome import Criterion, Op, Verdict
from rackready.model.place import Place
from rackready.model.supply import Figure

_HOST = ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce")
_OWN = "device_local_copy"
_EFFECT, _SIGMA = 0.1, 0.01
_DERIVED = 0.85
"""Share of a derived reference below which a copy fails."""
_MEMORY = 0.5
_MEMORY_SOURCE = (
    "NVIDIA/DCGM nvvs/diag-skus.yaml.in asks 0.51 (B200) to 0.70 of the data sheet's bandwidth, 0.57 of H100's"
)
_PER_LANE = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
_REPLAY_SOURCE = (
    "NVIDIA/DCGM modules/health/DcgmHealthWatch.cpp, GetExpectedPcieReplayRate: 1e-12 x GT/s x 60 per lane and minute"
)


class NvBandwidth(Gate):
    """Every GPU copies to the host, to its siblings and in its memory as fast as it should, without PCIe replays."""

    id = "node/gpu/performance/nvbandwidth"
    findings = (
        *smi.REPORT,
        *paired_outputs.AROUND_LOAD,
        *siblings.FINDINGS,
        paired_outputs.SAME_LAUNCH,
        *kinds.FINDINGS,
    )
    covers = frozenset({"gpu"})
    fleet = tuple(FleetMetric(name, _EFFECT, _SIGMA) for name in (*_HOST, kinds.PEER, _OWN))

    class Inputs(base.Inputs):
        """Program and launches of the copies."""

        binary: str | None = Field(
            None,
            description="path of nvbandwidth; null: the one in DCGM's plugin package for the installed CUDA major",
        )
        launches: int | None = Field(
            None,
            ge=1,
            le=20,
            description="launches whose median counts; null: computed from the number of GPUs of the site and an "
            "effect of 10 %",
        )

    inputs: Inputs

    def _launches(self, facts: GateFacts, node: str) -> int:
        return self.inputs.launches or launches(facts.fleet * parts.gpus(facts, node), sigma=_SIGMA, effect=_EFFECT)

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Return one run per node: counters, the launches one after the other, counters again."""
        return [Run.of_node(node, *self._commands(facts, node)) for node in nodes]

    def _commands(self, facts: GateFacts, node: str) -> list[Command]:
        major = facts.nodes[node].software.cuda.split(".", 1)[0]
        binary = self.inputs.binary or f"/usr/libexec/datacenter-gpu-manager-4/plugins/cuda{major}/nvbandwidth"
        tests = _tests(facts.nodes[node])
        count = self._launches(facts, node)
        argv = (binary, "-j", "-t", *tests)
        runs = [
            Command(key=f"copy-{number}", node=node, argv=argv, env=parts.BY_ADDRESS, timeout_s=300, stage=1 + number)
            for number in range(count)
        ]
        return [smi.command(node, "before"), *runs, smi.command(node, "after", stage=1 + count)]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Compare each test with the rate of its link and with the siblings, then judge the replays."""
        node = run.nodes[0]
        judge = Judge()
        found = [self._read(judge, facts, node, outputs, number) for number in range(self._launches(facts, node))]
        runs = [one for one in found if one is not None]
        slow: set[int] = set()
        if len(runs) == len(found) and self._distinct_launches(judge, facts, node, runs):
            for test in _tests(facts.nodes[node]):
                slow |= self._test(judge, facts, node, test, runs)
        slow |= _replays(judge, facts, node, outputs)
        if not judge.errors:
            judge.measured.update(f"{node}/gpu{gpu}" for gpu in range(parts.gpus(facts, node)) if gpu not in slow)
        # without a floor only siblings judge, and they may be as slow
        if any(_floor(facts.nodes[node], test) is None for test in _tests(facts.nodes[node])):
            judge.fleet_pending = True
        return judge.verdict(node)

    @staticmethod
    def _distinct_launches(judge: Judge, facts: GateFacts, node: str, runs: Sequence[Bandwidths]) -> bool:
        """Return whether these are different launches, all on the node's GPUs."""
        figures = [{name: case.matrix for name, case in one.tests.items() if case.matrix} for one in runs]
        return paired_outputs.distinct(judge, node, "nvbandwidth", figures) and all(
            _same_devices(judge, facts.nodes[node], node, one.devices) for one in runs if one.devices
        )

    @staticmethod
    def _read(judge: Judge, facts: GateFacts, node: str, outputs: Outputs, number: int) -> Bandwidths | None:
        output = outputs.get(f"copy-{number}")
        if judge.trouble(trouble(output, node, "nvbandwidth")) or output is None:
            return None
        try:
            found = nvbandwidth.parse(output.stdout)
        except FormatError as error:
            judge.error(
                node,
                kinds.NVBANDWIDTH_UNREADABLE,
                "a bandwidth per GPU",
                f"{error} (exit code {output.exit_code})",
                major=facts.nodes[node].software.cuda.split(".", 1)[0],
            )
            return None
        if output.exit_code != 0:
            judge.error(
                node, kinds.NVBANDWIDTH_EXIT_CODE, "exit code 0 with bandwidths", f"exit code {output.exit_code}"
            )
        return found

    def _test(self, judge: Judge, facts: GateFacts, node: str, test: str, runs: Sequence[Bandwidths]) -> set[int]:
        count = parts.gpus(facts, node)
        tables = [_per_gpu(judge, node, test, one, count) for one in runs]
        if any(table is None for table in tables):
            return set()
        values = {gpu: median(table[gpu] for table in tables if table is not None) for gpu in range(count)}
        for gpu, value in values.items():
            judge.metric(test, f"{node}/gpu{gpu}", value, "GB/s")
        slow = judge_bounds(judge, facts.nodes[node], node, test, values)
        # cards in slots reach some of their siblings over a bridge and others over PCIe
        if test == kinds.PEER and facts.nodes[node].gpu.form != "pcie":
            slow |= _pairs(judge, node, [one.tests[test].matrix for one in runs], slow)
        units = facts.fleet * count
        return slow | compare(
            judge,
            node,
            values,
            Comparison(test, "GB/s", _EFFECT, _SIGMA, self._launches(facts, node), units, kinds.STEP),
        )


def _same_devices(judge: Judge, facts: NodeFacts, node: str, devices: Sequence[ListedGpu]) -> bool:
    """Return whether nvbandwidth lists the platform's GPUs: they number the rows and columns of its tables."""
    judge.judged += 1
    good = gpu_models.require_model(
        judge, node, "nvbandwidth ran on", [(node, device.name) for device in devices], [facts.gpu.product_name]
    )
    if len(devices) != facts.platform.gpus:
        judge.error(node, kinds.NVBANDWIDTH_GPUS, f"{facts.platform.gpus}", f"{len(devices)}")
        return False
    told = [device.pci for device in devices if device.pci]
    if told != sorted(told):
        judge.error(node, kinds.NVBANDWIDTH_ORDER, "by PCI address", ", ".join(told))
        return False
    return good


def _tests(facts: NodeFacts) -> tuple[str, ...]:
    """Return the tests to run. Peer copies need NVLink: over PCIe alone they depend on the server."""
    peers = facts.gpu.nvlink is not None and facts.platform.gpus > 1
    return (*_HOST, *((kinds.PEER,) if peers else ()), _OWN)


def _per_gpu(judge: Judge, node: str, test: str, found: Bandwidths, count: int) -> dict[int, float] | None:
    """Return one figure per GPU: its cell, or in a table between GPUs the median of its row.

    None, with an error, if one is missing.
    """
    judge.judged += 1
    case = found.tests.get(test)
    if case is None or case.status != "Passed":
        judge.error(
            node, kinds.NVBANDWIDTH_TEST_NOT_RUN, "Passed", case.status if case else "not in the result", test=test
        )
        return None
    rows = case.matrix
    cells: dict[int, list[float]] = {gpu: [] for gpu in range(count)}
    if len(rows) == 1 and len(rows[0]) == count:
        cells = {gpu: [value] if value is not None else [] for gpu, value in enumerate(rows[0])}
    elif len(rows) == count and all(len(row) == count for row in rows):
        cells = {gpu: [value for value in row if value is not None] for gpu, row in enumerate(rows)}
    missing = [gpu for gpu, values in cells.items() if not values]
    if missing:
        judge.error(
            node,
            kinds.NVBANDWIDTH_NO_NUMBER,
            f"one for each of {count} GPUs",
            f"none for {', '.join(f'gpu{gpu}' for gpu in missing)}",
            test=test,
        )
        return None
    return {gpu: median(values) for gpu, values in cells.items()}


def _pairs(judge: Judge, node: str, matrices: Sequence[Sequence[Sequence[float | None]]], slow: set[int]) -> set[int]:
    """Compare each pair's copies, GB/s, with the median of all pairs: a GPU's own median hides one bad pair.

    Pairs of a GPU that is slow as a whole (``slow``) are not blamed. Returns the GPUs of bad pairs.
    """
    count, bad = len(matrices[0]), set[int]()
    cells = {(a, b): [matrix[a][b] for matrix in matrices] for a in range(count) for b in range(count) if a != b}
    figures = {
        pair: median(found)
        for pair, values in cells.items()
        if len(found := [value for value in values if value is not None]) == len(values)
    }
    typical = median(figures.values()) if figures else 0.0
    for pair in cells:
        where = Place(node, f"gpu{pair[0]}", f"and gpu{pair[1]}")
        value = figures.get(pair)
        if value is None:
            judge.error(where, kinds.PEER_NO_NUMBER, "one for each pair of GPUs", "none")
        elif value < _DERIVED * typical and not slow & set(pair):
            expected = (
                f"at least {_DERIVED * typical:.1f} GB/s ({_DERIVED} of the median of all pairs: behind NVSwitches "
                "all are alike)"
            )
            judge.fail(where, kinds.PEER_SLOW, expected, f"{value:.1f} GB/s")
        elif value > typical / _DERIVED and not slow:
            expected = f"at most {typical / _DERIVED:.1f} GB/s (the median of all pairs / {_DERIVED})"
            judge.error(where, kinds.PEER_IMPLAUSIBLE, expected, f"{value:.1f} GB/s")
        else:
            continue
        bad |= set(pair)
    return bad


def _ceiling(facts: NodeFacts, test: str) -> Figure | None:
    """Return the GB/s that no copy of this test can exceed: the rate of the PCIe link, the NVLinks or the memory."""
    if test in _HOST:
        own, host, path = facts.gpu.pcie, host_link(facts), facts.platform.host_path
        if own is not None and host is not None and path is not None and host < own.rate.value:
            return Figure(value=host, unit="GB/s", source=f"Gen{path.gen} x{path.lanes} of the host: {path.source}")
        return own.rate if own else None
    return facts.gpu.memory_bandwidth if test == _OWN else facts.gpu.nvlink.per_gpu if facts.gpu.nvlink else None


def _floor(facts: NodeFacts, test: str) -> Bound | None:
    """Return the GB/s below which a copy of this test fails; None if no published figure gives one."""
    nvlink, rate = facts.gpu.nvlink, _ceiling(facts, test)
    if rate is None or (test == kinds.PEER and nvlink is None):
        return None
    if test == _OWN:
        source = f"derived: {_MEMORY} x {rate.value:g} GB/s / 2, as a copy reads and writes each byte; {_MEMORY_SOURCE}"
        return Bound(_MEMORY * rate.value / 2, source, inputs={"rate": rate.value})
    if nvlink is not None and test == kinds.PEER:
        if nvlink.copy_min is not None:
            return Bound(nvlink.copy_min.value, nvlink.copy_min.source, derived=False)
        source = f"derived: {_DERIVED} x {nvlink.links} links x {nvlink.ring.value:g} GB/s ({nvlink.ring.source})"
        return Bound(
            _DERIVED * nvlink.links * nvlink.ring.value,
            source,
            inputs={"links": nvlink.links, "ring": nvlink.ring.value},
        )
    value = rate.value * _DERIVED * TLP_PAYLOAD / (TLP_PAYLOAD + TLP_BYTES)
    source = f"derived: {_DERIVED} x {rate.value:g} GB/s x {TLP_PAYLOAD}/({TLP_PAYLOAD}+{TLP_BYTES})"
    return Bound(value, source, inputs={"rate": rate.value})


def judge_bounds(judge: Judge, facts: NodeFacts, node: str, test: str, values: dict[int, float]) -> set[int]:
    """Compare copies with the rate of their path and with the floor. Return the GPUs below the floor.

    A rate above that of the path is implausible.
    """
    rate, lower = _ceiling(facts, test), _floor(facts, test)
    if rate is not None:
        judge.criterion(
            Criterion(
                metric=test, op=Op.LE, bound=rate.value * IMPLAUSIBLE, unit="GB/s", label="ceiling", source=rate.source
            )
        )
        for gpu, value in values.items():
            if value > rate.value * IMPLAUSIBLE:
                judge.error(
                    Place(node, f"gpu{gpu}"),
                    kinds.BANDWIDTH_IMPLAUSIBLE,
                    f"at most {rate.value:g} GB/s",
                    f"{value:.1f} GB/s",
                    test=test,
                )
    if lower is None:
        return set()
    judge.criterion(
        Criterion(
            metric=test,
            op=Op.GE,
            bound=lower.value,
            unit="GB/s",
            label="floor",
            source=lower.source,
            derived=lower.derived,
            inputs=lower.inputs,
        )
    )
    below = {gpu for gpu, value in values.items() if value < lower.value}
    for gpu in sorted(below):
        judge.fail(
            Place(node, f"gpu{gpu}"),
            kinds.BANDWIDTH_LOW,
            f"at least {lower.value:.1f} GB/s ({lower.source})",
            f"{values[gpu]:.1f} GB/s",
            test=test,
            step=kinds.STEP if test in _HOST else kinds.OTHER_STEP,
        )
    return below


def _replays(judge: Judge, facts: GateFacts, node: str, outputs: Outputs) -> set[int]:
    """Compare the PCIe replays during the copies with the rate that DCGM allows for the link's generation and width."""
    before, after = (smi.read(judge, outputs.get(key), node) for key in ("before", "after"))
    seconds = sum(output.seconds for key, output in outputs.items() if key.startswith("copy-"))
    if before is None or after is None:
        return set()
    smi.same_gpus(judge, facts.nodes[node], node, after)
    if not paired_outputs.same_gpus(judge, facts.nodes[node], before, after):
        return set()
    _same_addresses(judge, facts.nodes[node], node, outputs, after)
    bad: set[int] = set()
    for position, gpu in enumerate(after.gpus):
        where = Place(node, parts.name(facts.nodes[node], gpu.pci, gpu.position))
        found = _replay_rate(judge, where, before, after, position, seconds)
        if found is not None and found[0] > found[1]:
            bad.add(position)
            judge.fail(
                where, kinds.REPLAYS, f"at most {found[1]} per minute ({_REPLAY_SOURCE})", f"{found[0]:.0f} per minute"
            )
    return bad


def _same_addresses(judge: Judge, facts: NodeFacts, node: str, outputs: Outputs, after: SmiLog) -> None:
    """Compare the PCI addresses that nvbandwidth lists with nvidia-smi's, whose counters count."""
    wanted = [parts.short(gpu.pci) for gpu in after.gpus]
    for key in sorted(key for key in outputs if key.startswith("copy-")):
        try:
            devices = nvbandwidth.parse(outputs[key].stdout).devices
        except FormatError:  # an error already
            continue
        found = [device.pci for device in devices if device.pci]
        if found and sorted(found) != sorted(wanted) and len(found) == facts.platform.gpus:
            judge.error(node, kinds.NVBANDWIDTH_OTHER_GPUS, ", ".join(wanted), ", ".join(found))


def _replay_rate(
    judge: Judge, where: Place, before: SmiLog, after: SmiLog, position: int, seconds: float
) -> tuple[float, int] | None:
    """Return replays per minute and the most that DCGM allows; None, with an error, if they are not counted."""
    judge.judged += 1
    old = next((gpu for gpu in before.gpus if gpu.pci == after.gpus[position].pci), None)
    try:
        values = [gpu.number("pci/replay_counter") if gpu else None for gpu in (old, after.gpus[position])]
        gen = after.gpus[position].number("pci/pci_gpu_link_info/pcie_gen/current_link_gen")
        width = after.gpus[position].number("pci/pci_gpu_link_info/link_widths/current_link_width")
    except FormatError as error:
        judge.error(where, kinds.REPLAYS_UNREADABLE, "a counter before and after", error)
        return None
    if values[0] is None or values[1] is None or gen is None or width is None:
        judge.error(where, kinds.REPLAYS_NOT_REPORTED, "a counter before and after", "nothing")
        return None
    gained = values[1] - values[0]
    if gained < 0 or (gained > 0 and seconds <= 0):
        actual = f"{values[0]:.0f} before, {values[1]:.0f} after{'' if gained < 0 else ', in an unknown time'}"
        judge.error(where, kinds.REPLAYS_NO_RATE, "a counter that grows, and the time of the copies", actual)
        return None
    rate = gained * 60 / seconds if gained else 0.0
    judge.metric("pcie_replays_per_minute", where.unit, rate, "1/min")
    return rate, math.ceil(_PER_LANE.get(int(gen), _PER_LANE[6]) / 1000 * 60 * width)
