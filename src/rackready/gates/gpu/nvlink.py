"""NVLinks of every GPU: their number, speed and error counters."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence

from pydantic import Field

from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates import base
from rackready.gates.base import Command, Gate, GateFacts, Output, Outputs, Run, trouble
from rackready.gates.formats import smi_nvlink
from rackready.gates.formats.smi_nvlink import LinkGpu, LinkReport
from rackready.gates.gpu import nvlink_findings as kinds
from rackready.gates.gpu import parts
from rackready.gates.judging import gpu_models
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Verdict
from rackready.model.place import Place
from rackready.model.profile import NvLink

FAULTS = frozenset(
    {
        "Replay Errors", "Recovery Errors", "Malformed packet Errors", "Buffer overrun Errors", "Rx Errors",
        "Rx remote Errors", "Rx General Errors", "Local link integrity Errors", "Tx discards",
        "Link recovery failed events", "Effective Errors",
    }
)  # fmt: skip
"""Counters that mean a fault from 1 on.

Source: NVIDIA/DCGM modules/health (replay, recovery and failed recovery; DCGM_LIMIT_MAX_NVLINK_ERROR 1).
"""
WATCHED = frozenset(
    {
        "CRC Errors",
        "Link recovery successful events",
        "Total link recovery events",
        "Symbol Errors",
        "PLR Rcv Uncorrectable Code",
    }
)
"""Counters that a healthy link may have, so they are only noted.

CRC errors matter from 100 per second on, successful recoveries are a warning (DCGM).
"""
PLAIN = re.compile(r"^(?:FEC Errors - \d+|Raw (?:Errors|BER).*|PLR .*|(?:Tx|Rx)\d* (?!.*(?:Errors|discards)).*)$")
"""Traffic (without its errors and discards), and counters of forward error correction that rise on a healthy link."""
MOST_EFFECTIVE = 1e-12
"""The largest effective bit error rate of a good link."""
EFFECTIVE_SOURCE = "NVIDIA/DCGM common/DcgmUtilities.cpp, IsEffectiveBerThresholdExceeded"
_SPEED_TOLERANCE = 0.001
_SHOWN = 2
"""Number of GPUs that a message names."""


class NvLinks(Gate):
    """Every NVLink of every GPU is active at its full rate and counts no errors."""

    id = "node/gpu/sanity/nvlink"
    findings = (
        *gpu_models.FINDINGS,
        *kinds.FINDINGS,
    )
    looks = True
    covers = frozenset({"nvlink"})

    class Inputs(base.Inputs):
        """Limit on corrected errors of a link."""

        crc_limit: int | None = Field(
            None,
            ge=1,
            le=10**9,
            description="CRC errors since the driver was loaded above which a link fails, at most 10^9 (judgement); "
            "null: only noted, as no vendor publishes a limit",
        )

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:  # noqa: ARG002 - the same for all
        """Return one run per node, with its two commands side by side."""
        runs = []
        for node in nodes:
            commands = [
                Command(key=key, node=node, argv=("nvidia-smi", "nvlink", option), timeout_s=60)
                for key, option in (("status", "-s"), ("errors", "-e"))
            ]
            runs.append(Run.of_node(node, *commands))
        return runs

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge states and speeds, then the counters of active links."""
        node = run.nodes[0]
        of_node = facts.nodes[node]
        judge = Judge()
        if of_node.gpu.nvlink is None:
            judge.nothing(f"GPU {of_node.gpu.id} has no NVLink: nothing to judge")
            return judge.verdict(node)
        reports = [
            _read(judge, outputs.get(key), node, what, parse)
            for key, what, parse in (
                ("status", "nvidia-smi nvlink -s", smi_nvlink.status),
                ("errors", "nvidia-smi nvlink -e", smi_nvlink.errors),
            )
        ]
        for name, words in {name: words for report in reports if report for name, words in report.lost.items()}.items():
            lost(judge, of_node, name, words)
        states, counters = (report.gpus if report else None for report in reports)
        if counters is not None:
            _same_counters(judge, node, counters)
        if _same_gpus(judge, of_node, node, states, counters) and states:
            _compare_numbers(judge, of_node, node, states)
            for gpu in states.values():
                counted = counters.get(gpu.index) if counters is not None else None
                if counters is not None and not gpu.refused and (counted is None or counted.refused):
                    said = f"NVML: {counted.refused}" if counted else "nothing"
                    judge.error(Place(node, f"gpu{gpu.index}"), kinds.NVLINK_ERRORS_NOT_REPORTED, "its links", said)
                self._gpu(judge, of_node.gpu.nvlink, node, gpu, counted)
        return judge.verdict(node)

    def _gpu(self, judge: Judge, wanted: NvLink, node: str, gpu: LinkGpu, counted: LinkGpu | None) -> None:
        where = Place(node, f"gpu{gpu.index}")
        if gpu.refused:
            judge.fail(where, kinds.NVLINK_NONE_ACTIVE, f"{wanted.links} links active", f"NVML: {gpu.refused}")
            return
        active = {link: speed for link, speed in gpu.speeds.items() if speed is not None}
        judge.count("nvlinks_active", where, len(active), wanted.links, "GPU profile")
        if len(active) != wanted.links:
            down = sorted(set(range(wanted.links)) - set(active))
            judge.fail(
                where,
                kinds.NVLINK_INACTIVE,
                f"{wanted.links} links active",
                f"{len(active)} (inactive or not listed: {', '.join(map(str, down)) or 'none'})",
            )
        for link, speed in active.items():
            bad = len(judge.fails) + len(judge.errors)
            self._speed(judge, wanted, f"{where} nvlink{link}", speed)
            if counted is None or counted.refused:
                continue
            self._errors(judge, f"{where} nvlink{link}", counted.counters.get(link, {}))
            if len(judge.fails) + len(judge.errors) == bad:
                judge.measured.add(f"{node}/gpu{gpu.index}/nvlink{link}")

    @staticmethod
    def _speed(judge: Judge, wanted: NvLink, where: str, speed: float) -> None:
        judge.judged += 1
        bound = wanted.speed.value / 1000
        rounded = math.floor(bound)  # drivers before 535 print whole GB/s (A100: 25 for 25.781)
        if abs(speed - bound) > bound * _SPEED_TOLERANCE and speed != rounded:
            judge.fail(where, kinds.NVLINK_SPEED, f"{bound:g} GB/s ({wanted.speed.source})", f"{speed:g} GB/s")

    def _errors(self, judge: Judge, where: str, counters: dict[str, str]) -> None:
        judge.judged += 1
        counts_faults(judge, where, counters)
        for name, text in counters.items():
            if name.endswith("BER"):
                _rate(judge, where, name, text)
            elif not text.isdigit():
                judge.error(where, kinds.NVLINK_COUNTER_UNREADABLE, "a whole number", text, name=name)
            elif int(text) == 0:
                continue
            elif name in FAULTS:
                judge.fail(where, kinds.NVLINK_ERRORS, "0 since the driver was loaded", text, name=name)
            elif name in WATCHED:
                self._watched(judge, where, name, int(text))
            elif not PLAIN.match(name):
                judge.error(where, kinds.NVLINK_COUNTER_UNKNOWN, "a known counter, or 0", text, name=name)

    def _watched(self, judge: Judge, where: str, name: str, value: int) -> None:
        if name == "CRC Errors" and self.inputs.crc_limit is not None and value > self.inputs.crc_limit:
            judge.fail(where, kinds.NVLINK_CRC, f"at most {self.inputs.crc_limit} (gate input)", str(value), name=name)
            return
        judge.metric(name.lower().replace(" ", "_"), where, value, "1")
        judge.remark(f"{where}: {value} {name}")


def counts_faults(judge: Judge, where: str, counters: Collection[str]) -> None:
    """Add an error for a link without any counter of faults (with CRC errors only, for example): it proves nothing."""
    if not FAULTS & set(counters):
        judge.error(
            where,
            kinds.NVLINK_FAULTS_NOT_COUNTED,
            "a counter of faults on every active link",
            ", ".join(sorted(counters)) or "none",
        )


def _rate(judge: Judge, where: str, name: str, text: str) -> None:
    """Judge a bit error rate. Effective BER is after error correction: above 1e-12 the link loses data."""
    try:
        value = smi_nvlink.bit_error_rate(text)
    except FormatError:
        judge.error(where, kinds.NVLINK_RATE_UNREADABLE, "a rate such as 15e-255", text, name=name)
        return
    if name == "Effective BER" and value > MOST_EFFECTIVE:
        judge.fail(where, kinds.NVLINK_EFFECTIVE_BER, f"at most {MOST_EFFECTIVE:g}", text)


def lost(judge: Judge, facts: NodeFacts, name: str, words: str) -> None:
    """Fail for a GPU that does not answer. ``name``: its number or PCI address, as nvidia-smi printed it."""
    part = f"gpu{name}" if name.isdigit() else parts.name(facts, name)
    judge.fail(Place(facts.node.name, part), kinds.NVLINK_GPU_LOST, "a GPU that answers", words)


def _read(
    judge: Judge, output: Output | None, node: str, what: str, parse: Callable[[str], LinkReport]
) -> LinkReport | None:
    if judge.trouble(trouble(output, node, what)) or output is None:
        return None
    try:
        found = parse(output.stdout)
    except FormatError as error:
        judge.error(
            node, kinds.NVLINK_UNREADABLE, "GPUs and their links", f"{error} (exit code {output.exit_code})", what=what
        )
        return None
    if output.exit_code != 0 and not found.lost and not any(gpu.refused for gpu in found.gpus.values()):
        judge.error(
            node, kinds.NVLINK_EXIT_CODE, "exit code 0 with a list of links", f"exit code {output.exit_code}", what=what
        )
    return found


def _compare_numbers(judge: Judge, facts: NodeFacts, node: str, states: dict[int, LinkGpu]) -> None:
    judge.judged += 1
    wanted = set(range(facts.platform.gpus))
    if len(states) != len(wanted):
        judge.fail(
            node,
            kinds.NVLINK_GPUS_MISSING if len(states) < len(wanted) else kinds.NVLINK_GPUS_MORE,
            parts.numbers(wanted),
            parts.numbers(states),
        )
    elif set(states) != wanted:
        judge.fail(node, kinds.NVLINK_GPUS_OTHER, parts.numbers(wanted), parts.numbers(states))


def _same_gpus(
    judge: Judge, facts: NodeFacts, node: str, states: dict[int, LinkGpu] | None, counters: dict[int, LinkGpu] | None
) -> bool:
    """Return whether states and counters are of the same GPUs, of the node's model; else add an error."""
    named = [(node, gpu.name) for gpu in (states or counters or {}).values()]
    judge.judged += 1
    if not gpu_models.require_model(judge, node, "nvidia-smi nvlink reports", named, [facts.gpu.product_name]):
        return False
    if states is None or counters is None:
        return True  # an error already
    others = [
        f"gpu{index} {counters[index].uuid} for {gpu.uuid}"
        for index, gpu in states.items()
        if index in counters and counters[index].uuid != gpu.uuid
    ]
    if others:
        expected = "the UUIDs of nvidia-smi nvlink -s"
        actual = f"{', '.join(others[:_SHOWN])}{f' and {len(others) - _SHOWN} more' if len(others) > _SHOWN else ''}"
        judge.error(node, kinds.NVLINK_ERRORS_OTHER_GPUS, expected, actual)
    return not others


def _same_counters(judge: Judge, node: str, counters: dict[int, LinkGpu]) -> None:
    """Add an error unless every link of every GPU has the same counters: the output was cut off."""
    names = {frozenset(values) for gpu in counters.values() for values in gpu.counters.values()}
    judge.judged += 1
    if len(names) > 1:
        fewest = min(len(one) for one in names)
        judge.error(
            node,
            kinds.NVLINK_ERRORS_NOT_WHOLE,
            f"{max(len(one) for one in names)} counters for every link",
            f"{fewest} for one",
        )
