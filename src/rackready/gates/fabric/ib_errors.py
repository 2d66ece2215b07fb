"""The gate on error rates of InfiniBand links: counters of both ends of each cable, twice, a stated time apart."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import Field

from rackready.design.facts import NicFacts
from rackready.drivers.ib.counters import read_perfquery
from rackready.drivers.ib.text import IbTextError
from rackready.format_error import FormatError
from rackready.gates import base
from rackready.gates.base import Command, Gate, GateFacts, Output, Outputs, Run, trouble
from rackready.gates.engine import nodes_without_nics
from rackready.gates.engine.shipped_script import command, document
from rackready.gates.fabric import ib_errors_findings as kinds
from rackready.gates.host.pairing import ONE_READING, OTHER_BOOT
from rackready.gates.host.reading import Limit
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Op, Verdict
from rackready.model.place import Place
from rackready.ondevice import ib_counters

_UFM = "UFM's port-health plugin (Mellanox/ufm_sdk_3.0 @3e96418e, plugins/pdr_deterministic_plugin)"
_BER_SOURCE = f"{_UFM}: 2.88 symbol errors in 12 min and 3 in 125 min at 400 Gb/s, which are bits x 1e-14 and x 1e-15"
_PROVEN = ((3e15, 1e-15), (1e14, 1e-14))
"""Bits from which on a bit error rate is judged: 1e-15 as the plugin, from 125 min at 400 Gb/s; 1e-14 from its inverse
on, as fewer bits cannot prove it."""
_DROP_RATE = 1e-12
_DROP_SOURCE = f"{_UFM}: MAX_PDR, damaged packets per received packet"
_DOWN_SOURCE = f"{_UFM}: a link went down if LinkDowned grew at both of its ends"
_SYMBOLS, _DOWNED, _PACKETS = "SymbolErrorCounter", "LinkDownedCounter", "PortRcvPkts"
_DAMAGED = ("PortRcvErrors", "PortRcvRemotePhysicalErrors")
_BITS = {_SYMBOLS: 16, _DOWNED: 8, "PortRcvErrors": 16, "PortRcvRemotePhysicalErrors": 16}
"""Width of counters that stay at their highest value (InfiniBand Architecture Specification vol. 1, 16.1.3.5; the
kernel's drivers/infiniband/core/sysfs.c). Adapters with the extended counters count them in 64 bits."""
_ETHERNET = "the compute fabric is not InfiniBand: nothing to judge"
_RATE = re.compile(r"^(\d+(?:\.\d+)?) Gb/sec")
Reading = Mapping[str, Any]
"""One device of a document of ib_counters.py."""


class IbErrors(Gate):
    """Links of InfiniBand make no more bit errors than their bound allows, do not go down, and damage no packets."""

    id = "node/fabric/stress/ib-errors"
    findings = kinds.FINDINGS
    covers = frozenset({"node"})
    in_no_set = (
        "it only waits, for 12 minutes, and says little of a link without traffic: add it (gates.also) beside jobs or "
        "a load"
    )

    class Inputs(base.Inputs):
        """The time between the two readings."""

        window_s: float = Field(
            720,
            ge=1,
            le=259200,
            description="time between the readings, s, at most three days (judgement); source of the default: "
            f"{_UFM}, 12 min for 1e-14",
        )

    inputs: Inputs

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Return one run per node: read, wait, read again. Other fabrics have nothing to read."""
        window = self.inputs.window_s
        return [
            Run.of_node(
                node,
                self._reading(facts, node, "before", 0),
                Command("wait", node, ("sleep", f"{window:g}"), timeout_s=window + 60, stage=1),
                self._reading(facts, node, "after", 2),
                chained=True,
            )
            if _nothing(facts, node) is None
            else Run.of_node(node)
            for node in nodes
        ]

    @staticmethod
    def _reading(facts: GateFacts, node: str, key: str, stage: int) -> Command:
        devices = [nic.rdma_device for nic in facts.nodes[node].nics]
        # Six requests a device, each of at most 30 s.
        return command(key, node, ib_counters, *devices, timeout_s=60 + 180 * len(devices), stage=stage)

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge the growth of each port's counters, and of those at the other end of its cable."""
        node, judge = run.nodes[0], Judge()
        if (note := _nothing(facts, node)) is not None:
            judge.nothing(note)
            return judge.verdict(node)
        first, last = (_document(judge, outputs.get(key), node, key) for key in ("before", "after"))
        waited = _waited(judge, node, outputs.get("wait"))
        if first is None or last is None or not waited or not _one_boot(judge, node, outputs, first, last):
            return judge.verdict(node)
        for nic in facts.nodes[node].nics:
            _Port(judge, node, nic).go(*(found["devices"].get(nic.rdma_device) for found in (first, last)))
        if not judge.errors and not judge.fails:
            judge.measured.add(node)
        return judge.verdict(node)


def _nothing(facts: GateFacts, node: str) -> str | None:
    """Return why there is nothing to judge on a node; None if there is."""
    if not facts.nodes[node].nics:
        return nodes_without_nics.NOTE
    return None if facts.fabric.kind == "infiniband" else _ETHERNET


def _waited(judge: Judge, node: str, wait: Output | None) -> bool:
    if judge.trouble(trouble(wait, node, "the wait between the readings")) or wait is None:
        return False
    if wait.exit_code != 0:
        judge.error(node, kinds.NOT_WAITED, "exit 0", f"exit {wait.exit_code}")
    return wait.exit_code == 0


def _document(judge: Judge, output: Output | None, node: str, key: str) -> dict[str, Any] | None:
    if judge.trouble(trouble(output, node, f"the reading {key} the wait")) or output is None:
        return None
    try:
        found = document(output, ib_counters.FORMAT)
        if not isinstance(found["devices"], dict):
            raise FormatError("no devices")  # noqa: TRY301 - reported like any damage
    except (FormatError, KeyError) as error:
        judge.error(node, kinds.READING_UNREADABLE, f"a complete document of {ib_counters.FORMAT}", error)
        return None
    return found


def _one_boot(judge: Judge, node: str, outputs: Outputs, first: Reading, last: Reading) -> bool:
    if outputs["before"].stdout == outputs["after"].stdout:
        judge.error(node, ONE_READING, "two readings", "the same output twice")
        return False
    before, after = first.get("boot_id"), last.get("boot_id")
    if not before or before != after:
        judge.error(node, OTHER_BOOT, "one boot", f"{before or 'nothing'} before, {after or 'nothing'} after")
        return False
    return True


class _Port:
    """One port and the switch port at its cable."""

    def __init__(self, judge: Judge, node: str, nic: NicFacts) -> None:
        self._judge, self._node, self._nic = judge, node, nic
        self._own = Place(node, nic.rdma_device, f"(rail {nic.rail})")
        far = f"{nic.switch} {nic.port}".strip() or "the switch"
        self._far = Place(node, nic.rdma_device, f"(rail {nic.rail}, at {far})")

    def go(self, first: object, last: object) -> None:
        """Judge both ends."""
        self._judge.judged += 1
        for found in (first, last):
            if said := _trouble(found):
                self._judge.error(self._own, kinds.UNREADABLE, "counters of both ends, and the rate", said)
                return
        self._ends(cast("Reading", first), cast("Reading", last))

    def _ends(self, first: Reading, last: Reading) -> None:
        peers = [(found["peer"]["guid"], found["peer"]["port"]) for found in (first, last)]
        if peers[0] != peers[1]:
            said = " then ".join(f"{guid} port {port}" for guid, port in peers)
            self._judge.error(self._far, kinds.OTHER_PEER, "one switch port at both readings", said)
            return
        ends = {self._own: (first["own"], last["own"]), self._far: (first["peer"], last["peer"])}
        grown = {where: self._grown(where, *pair) for where, pair in ends.items()}
        for where, more in grown.items():
            self._bit_errors(where, first, last, more)
            self._dropped(where, more)
        self._downs(*(more.get(_DOWNED) for more in grown.values()))

    def _grown(self, where: str, first: Reading, last: Reading) -> dict[str, int]:
        """Return the growth of each counter that can be trusted; the others are errors."""
        try:
            before, after = _values(first), _values(last)
        except IbTextError as error:
            self._judge.error(where, kinds.UNREADABLE, "the counters of perfquery", error)
            return {}
        out = {}
        for name in (_SYMBOLS, _DOWNED, *_DAMAGED, _PACKETS):
            (old, _), (new, most) = before.get(name, (-1, 0)), after.get(name, (-1, 0))
            if old < 0 or new < 0:
                self._judge.error(where, kinds.UNREADABLE, f"the counter {name}", "none")
            elif new == most:
                self._judge.error(where, kinds.FULL, f"below {most}", new, name=name)
            elif new < old:
                self._judge.error(where, kinds.BACK, f"at least {old}", new, name=name)
            else:
                out[name] = new - old
        return out

    def _bit_errors(self, where: str, first: Reading, last: Reading, grown: Mapping[str, int]) -> None:
        seconds = (_uptime(last) or 0.0) - (_uptime(first) or 0.0)
        rate = min(_rate(first) or 0.0, _rate(last) or 0.0) * 1e9
        bits = rate * seconds
        bound = next((ber for least, ber in _PROVEN if bits >= least), None)
        if bound is None:
            least = _PROVEN[-1][0] / rate if rate else 0.0
            words = f"at least {least:.0f} s at {rate / 1e9:g} Gb/s for a bit error rate of {_PROVEN[-1][1]:g}"
            self._judge.error(where, kinds.TOO_SHORT, words, f"{seconds:.0f} s")
        elif _SYMBOLS in grown:
            limit = Limit("symbol_errors", Op.LE, bits * bound, "1", _BER_SOURCE, derived=True)
            if not limit.holds(self._judge, where, grown[_SYMBOLS]):
                expected = f"at most {limit.bound:.2f} in {seconds:.0f} s (bit error rate {bound:g})"
                self._judge.fail(where, kinds.BIT_ERRORS, expected, grown[_SYMBOLS])

    def _dropped(self, where: str, grown: Mapping[str, int]) -> None:
        if not {*_DAMAGED, _PACKETS} <= grown.keys():
            return
        damaged = sum(grown[name] for name in _DAMAGED)
        limit = Limit("damaged_packets", Op.LE, grown[_PACKETS] * _DROP_RATE, "1", _DROP_SOURCE, derived=True)
        if not limit.holds(self._judge, where, damaged):
            self._judge.fail(where, kinds.DROPPED, f"at most {_DROP_RATE:g} of {grown[_PACKETS]} packets", damaged)

    def _downs(self, own: int | None, far: int | None) -> None:
        if own is None or far is None:
            return
        limit = Limit("link_downed", Op.LE, 0, "1", _DOWN_SOURCE)
        if not limit.holds(self._judge, self._own, min(own, far)):
            self._judge.fail(self._own, kinds.DOWNED, "not at both ends", f"{own} times here, {far} at the switch")
        elif own or far:
            self._judge.remark(f"{self._own}: LinkDowned grew at one end only ({own} here, {far} at the switch)")


def _trouble(found: object) -> str:
    """Return what a reading of a device lacks; empty if nothing."""
    if not isinstance(found, dict):
        return "no reading"
    if found.get("problem"):
        return str(found["problem"])
    ends = (found.get("own"), found.get("peer"))
    whole = all(isinstance(end, dict) and {"plain", "extended"} <= end.keys() for end in ends)
    if not whole or not {"guid", "port"} <= found["peer"].keys():
        return "not both ends"
    return "" if _rate(found) is not None and _uptime(found) is not None else "no rate or no time"


def _values(end: Reading) -> dict[str, tuple[int, int]]:
    """Return counter -> its value and the highest that it can have. Raises IbTextError."""
    plain, extended = read_perfquery(end["plain"]), read_perfquery(end["extended"])
    out = {name: (plain[name], 2**bits - 1) for name, bits in _BITS.items() if name in plain}
    return out | {name: (extended[name], 2**64 - 1) for name in (*_BITS, _PACKETS) if name in extended}


def _rate(found: Reading) -> float | None:
    match = _RATE.match(str(found.get("rate") or ""))
    return float(match[1]) if match else None


def _uptime(found: Reading) -> float | None:
    match = re.match(r"\d+\.\d+ ", f"{found.get('uptime') or ''} ")
    return float(match[0]) if match else None
