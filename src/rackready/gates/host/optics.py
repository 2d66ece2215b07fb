"""The gate on optics and cables of the compute NICs.

It judges bit error rates, the firmware's own verdict, the module's readings, error correction and part numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from pydantic import Field

from rackready.design.facts import NicFacts, NodeFacts
from rackready.format_error import FormatError
from rackready.gates import base
from rackready.gates.engine.nodes_without_nics import NOTE
from rackready.gates.formats import mlxlink
from rackready.gates.host import optics_findings as kinds
from rackready.gates.host import reading
from rackready.gates.host.reading import Answers, HostGate, Limit, Tool, WantedValues, placed
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Op
from rackready.model.place import Place

EFFECTIVE_SOURCE = "NVIDIA ibdiagnet user manual, bit error rate: threshold 10^-12"
_RAW_SOURCE = "IEEE 802.3 clause 124 (400GBASE-DR4): 2.4 x 10^-4 before the RS(544,514) code corrects"
_MODULE = "the module's own alarm thresholds, as mlxlink prints them"


def tools(facts: NodeFacts) -> tuple[Tool, ...]:
    """Return one call of mlxlink per compute NIC."""
    return tuple(
        Tool(f"mlxlink-{nic.rdma_device}", ("mlxlink", "-d", nic.rdma_device, "-m", "-c", "--json"), "mft")
        for nic in facts.nics
    )


def read(judge: Judge, node: str, nic: NicFacts, found: Answers) -> mlxlink.Port | None:
    """Return mlxlink's answer for one NIC's port; None, with an error, if it cannot be read."""
    where = Place(node, nic.rdma_device, f"(rail {nic.rail})")
    text = found.text(f"mlxlink-{nic.rdma_device}", good=None, where=where)
    if text is None:
        return None
    try:
        port = mlxlink.parse(text)
    except FormatError as error:
        judge.error(where, kinds.MLXLINK_UNREADABLE, "its JSON document", error)
        return None
    if found.code(f"mlxlink-{nic.rdma_device}"):
        judge.error(
            where, kinds.MLXLINK_CONTRADICTS, "exit 0 with status 0", f"exit {found.code(f'mlxlink-{nic.rdma_device}')}"
        )
        return None
    return port


_GOOD, _SIGNAL, _SIGNAL_BER = "No issue was observed", "Bad signal integrity", 1e-7
"""mlxlink's verdict on a good link; one that may be ignored below this raw bit error rate (oci-hpc, link check)."""
_NO_VERDICT = frozenset({"", "N/A", "Info not available", "Troubleshooting in process"})
"""The firmware's words for no verdict, or none yet (Mellanox/mstflint, opcodes of the register PDDR)."""
_DARK_DBM = -40
"""A module's reading without any light: 0 in steps of 0.1 uW (CMIS, optical power monitors)."""
EFFECTIVE_BER, RAW_BER = 1e-12, 2.4e-4
_WATCHED: tuple[tuple[str, str, Callable[[mlxlink.Port], mlxlink.Watched | None], str], ...] = (
    (
        "module temperature",
        "C",
        lambda port: port.temperature,
        "Check the airflow at this slot, and that the module has the heat sink that its cage needs.",
    ),
    ("received light", "dBm", lambda port: port.rx_power, kinds.SWAP),
    ("sent light", "dBm", lambda port: port.tx_power, "Replace the module."),
    (
        "supply voltage of the module",
        "mV",
        lambda port: port.voltage,
        "Reseat the module; if other modules of this node are outside their limits, replace the NIC.",
    ),
    ("laser current", "mA", lambda port: port.bias, "Replace the module: its laser is wearing out."),
)
"""Readings of a module: name, unit, reading, next step if it is outside its limits."""
_BY_LANE = frozenset({"dBm", "mA"})
"""Units of readings per lane: mlxlink prints one value for each lane of the link (Mellanox/mstflint, mlxlink)."""


def errors(
    judge: Judge, where: str, port: mlxlink.Port, effective: float = EFFECTIVE_BER, raw: float = RAW_BER
) -> None:
    """Compare a port's bit error rates with their bounds, and judge its firmware's verdict."""
    found = len(judge.fails) + len(judge.errors)
    judge.judged += 1
    if port.state != "Active":
        judge.fail(where, kinds.OPTICS_LINK_DOWN, "Active", f"{port.state}: {port.recommendation}")
        return
    for what, name, value, bound, source in (
        ("bit error rate after correction", "effective_ber", port.effective_ber, effective, EFFECTIVE_SOURCE),
        ("bit error rate before correction", "raw_ber", port.raw_ber, raw, _RAW_SOURCE),
    ):
        if value is None:
            judge.error(where, kinds.BER_NOT_REPORTED, f"at most {bound:g}", "N/A", what=what)
        elif not Limit(name, Op.LE, bound, "1", source).holds(judge, where, value):
            judge.fail(where, kinds.BER_HIGH, f"at most {bound:g}", f"{value:g} ({port.recommendation})", what=what)
    said = port.recommendation.strip().rstrip(".")
    ignored = said == _SIGNAL and port.raw_ber is not None and port.raw_ber < _SIGNAL_BER
    if len(judge.fails) + len(judge.errors) > found:
        return
    if said in _NO_VERDICT:
        judge.error(where, kinds.NO_FIRMWARE_VERDICT, _GOOD, said or "nothing")
    elif said != _GOOD and not ignored:
        judge.fail(where, kinds.FIRMWARE_VERDICT, _GOOD, f"{said or 'nothing'} (raw bit error rate {port.raw_ber:g})")


def module(judge: Judge, where: str, port: mlxlink.Port) -> None:
    """Compare a module's readings with its own limits. Copper has no light and mostly no sensors."""
    for what, unit, read, step in _WATCHED:
        watched = read(port)
        if watched is None:
            continue
        if watched.low is None or watched.high is None:
            if unit == "dBm" and all(value <= _DARK_DBM for value in watched.values):
                actual = f"{', '.join(f'{value:g}' for value in watched.values)} dBm"
                judge.error(where, kinds.MODULE_DARK, f"more than {_DARK_DBM} dBm on a lane", actual, what=what)
            judge.remark("a module has no limits for some readings: those are not judged")
            continue
        for lane, value in enumerate(watched.values):
            name = f"{where} lane {lane}" if unit in _BY_LANE else where
            metric = what.replace(" ", "_")
            good = Limit(metric, Op.GE, watched.low, unit, _MODULE).holds(judge, name, value)
            good = Limit(metric, Op.LE, watched.high, unit, _MODULE).holds(judge, name, value) and good
            if not good:
                judge.fail(
                    name,
                    kinds.MODULE_READING,
                    f"{watched.low:g} to {watched.high:g} {unit} ({_MODULE})",
                    f"{value:g} {unit}",
                    what=what,
                    step=step,
                )


def _readings(judge: Judge, where: str, port: mlxlink.Port, ports: list[mlxlink.Port]) -> None:
    """Add errors for missing readings of optics, and for readings or limits that modules of the same part have."""
    alike = [other for other in ports if other.part == port.part]
    for what, unit, read, _step in _WATCHED:
        watched, having = read(port), sum(_has_limits(read(other)) for other in alike)
        if having and not _has_limits(watched):
            judge.error(
                where,
                kinds.READING_MISSING,
                f"a reading with its limits, as {having} modules of the same part have",
                "nothing",
                what=what,
            )
        elif watched is None and port.watches and port.part:
            judge.error(
                where,
                kinds.NO_READING,
                "a reading: the module is optical, not copper, so it has sensors",
                "nothing",
                what=what,
            )
        elif watched is not None and unit in _BY_LANE:
            lanes = max(port.lanes or 0, *(len(other.values) for other in map(read, alike) if other is not None))
            if len(watched.values) < lanes:
                judge.error(where, kinds.LANES_MISSING, f"{lanes} lanes", f"{len(watched.values)}", what=what)
    if not port.watches and not port.copper:
        judge.remark(
            "an optical cable has no sensors (digital diagnostic monitoring): its light and temperature are not judged"
        )


def _has_limits(watched: mlxlink.Watched | None) -> bool:
    return watched is not None and watched.low is not None and watched.high is not None


def _majority(values: Sequence[str]) -> tuple[str | None, str]:
    """Return the value of more than half (None: no majority), and how often each value occurs, as text."""
    counted = Counter(values).most_common()
    usual, times = counted[0] if counted else ("", 0)
    return (usual if times * 2 > len(values) else None), ", ".join(
        f"{value} on {count}" for value, count in sorted(counted)
    )


def _fec(judge: Judge, where: str, port: mlxlink.Port, ports: list[mlxlink.Port]) -> None:
    """Compare the error correction with that of most ports, or of those with the same part: rails are alike."""
    judge.judged += 1
    if port.state != "Active":
        return
    active = [other for other in ports if other.state == "Active"]
    alike = [other for other in active if other.part == port.part]
    alike = alike if len(alike) > 1 else active
    group = f"of the node's {len(alike)} ports" + (f" with {port.part}" if len(alike) < len(active) else "")
    values = [other.fec for other in alike]
    usual, all_ = _majority(values)
    if usual is None:
        judge.fail(where, kinds.FEC_NO_MAJORITY, f"one on most {group}", f"{port.fec} ({all_})")
    elif port.fec != usual:
        judge.fail(where, kinds.FEC_OTHER, f"{usual}, as {values.count(usual)} {group} have", port.fec)


class Optics(HostGate):
    """Every compute NIC's link has few bit errors, and its module is the right part, within its limits."""

    id = "node/host/validation/optics"
    findings = (*reading.FINDINGS, reading.PARTS_NOT_PLACED, *kinds.FINDINGS)
    what = "optics"
    covers = frozenset({"node", "nic"})

    class Inputs(base.Inputs):
        """Bounds and parts. If no parts are declared, the node's ports are compared with each other."""

        max_effective_ber: float = Field(
            EFFECTIVE_BER,
            gt=0,
            le=1e-6,
            description="largest bit error rate after correction, at most 1e-6 (judgement); "
            f"source of the default: {EFFECTIVE_SOURCE}",
        )
        max_raw_ber: float = Field(
            RAW_BER,
            gt=0,
            le=1e-2,
            description="largest bit error rate before correction, at most 1e-2 (judgement); "
            f"source of the default: {_RAW_SOURCE}",
        )
        parts: tuple[str, ...] = Field(
            (),
            description="right part numbers of modules or cables; empty: the one on more than half of the ports",
        )

    inputs: Inputs

    def wanted(self, facts: NodeFacts) -> WantedValues:
        """Return one call of mlxlink for every compute NIC."""
        return WantedValues(tools(facts))

    def judge_node(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Compare every port with the bounds and its siblings."""
        node = facts.node.name
        if not facts.nics:
            judge.nothing(NOTE)
            return
        if not placed(judge, facts):
            return
        ports = {nic: port for nic in facts.nics if (port := read(judge, node, nic, found)) is not None}
        for nic, port in ports.items():
            before = len(judge.fails) + len(judge.errors)
            where = Place(node, nic.rdma_device, f"(rail {nic.rail})")
            errors(judge, where, port, self.inputs.max_effective_ber, self.inputs.max_raw_ber)
            module(judge, where, port)
            _readings(judge, where, port, list(ports.values()))
            self._part(judge, where, port, [other.part for other in ports.values() if other.part])
            _fec(judge, where, port, list(ports.values()))
            if len(judge.fails) + len(judge.errors) == before:
                judge.measured.add(f"{node}/{nic.rdma_device}")

    def _part(self, judge: Judge, where: str, port: mlxlink.Port, siblings: list[str]) -> None:
        judge.judged += 1
        if not port.part:
            judge.error(where, kinds.PART_NOT_REPORTED, "the module's or cable's part number", "N/A")
            return
        if self.inputs.parts:
            if port.part not in self.inputs.parts:
                judge.fail(where, kinds.PART_OTHER, f"{' or '.join(self.inputs.parts)} (declared)", port.part)
            return
        usual, all_ = _majority(siblings)
        if usual is None:
            expected = f"one part on most of the node's {len(siblings)} ports, or the right ones declared"
            judge.fail(where, kinds.PART_NO_MAJORITY, expected, f"{port.part} ({all_})")
        elif port.part != usual:
            judge.fail(
                where,
                kinds.PART_ODD,
                f"{usual}, as {siblings.count(usual)} of the node's {len(siblings)} ports have",
                port.part,
            )
