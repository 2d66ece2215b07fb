"""What the gate tests share: a site's facts, captured outputs, and one function that runs a table of cases."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from string import Formatter
from typing import Any

from rackready.gates.base import GateFacts, Output, Run
from rackready.gates.engine.registry import gate
from rackready.gates.records.offline import facts
from rackready.gates.records.sanitize import clean
from rackready.model.finding_kinds import KINDS
from rackready.model.outcome import Finding, Outcome, Verdict
from rackready.model.problems import quoted
from rackready.ondevice import rdma_counters

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"


def text(name: str) -> str:
    """Return a fixture's text, captured or made: names are unique over both (tests/repo/test_fixtures.py)."""
    (path,) = FIXTURES.glob(f"*/{name}")
    return path.read_text(encoding="utf-8")


def wrote(argv: Sequence[str], name: str = "perftest/dgx_h100_rail1_healthy.txt") -> str:
    """What ib_write_bw's client says, for the device, GPU and addresses that its command line names."""
    gpu = next((word.split("=")[1] for word in argv if word.startswith("--use_cuda=")), "0")
    own = ".".join(str(int(part[at : at + 2], 16)) for part in argv[5].split(":")[-2:] for at in (0, 2))
    return between(text(name).replace(": mlx5_0", f": {argv[4]}").replace("dev = 0]", f"dev = {gpu}]"), own, argv[-1])


def between(body: str, local: str, remote: str) -> str:
    """What a program of perftest says of a connection of its own, with the GIDs of these addresses at its ends."""
    ends = iter((local, remote))
    drawn = (f"PSN 0x{zlib.crc32(f'{local} {remote} {end}'.encode()) & 0xFFFFFF:x}" for end in count())
    body = re.sub(r"PSN 0x[0-9a-f]+", lambda _: next(drawn), body)
    return re.sub(
        r"GID: [\d:]+",
        lambda _: f"GID: {':'.join(f'{byte:02d}' for byte in (*[0] * 10, 255, 255, *map(int, next(ends).split('.'))))}",
        body,
    )


def later(report: str, clock: str = "06:05:00") -> str:
    """A report of nvidia-smi (one of our fixtures, of 06:00:00) as it would be made at another time of that day."""
    return report.replace("<timestamp>Sun Nov 22 06:00:00 2026<", f"<timestamp>Sun Nov 22 {clock} 2026<")


def launched(body: str, number: int) -> str:
    """Return a fixture's NCCL launch (process ids from 41) as another launch: with other processes."""
    return re.sub(r"\b41(\d{3})\b", rf"{41 + number}\1", body)


def document(name: str) -> Any:  # noqa: ANN401
    return json.loads(text(name))


def rack(nodes: int = 1) -> GateFacts:
    return facts("dgx_h100", nodes)


def port(sent: float = 0, **changed: object) -> dict[str, object]:
    """One device as rdma_counters reads it: up, with bytes sent, and no errors."""
    plain = {
        "state": "4: ACTIVE",
        "link_layer": "Ethernet",
        "rate": "400 Gb/sec (4X NDR)",
        "xmit_bytes": int(sent),
        "rcv_bytes": 0,
    }
    return {**plain, "errors": dict.fromkeys(rdma_counters.ERRORS, 0), **changed}


def ports(devices: Mapping[str, Mapping[str, object]]) -> str:
    """What rdma_counters prints of these devices."""
    return json.dumps({"format": rdma_counters.FORMAT, "devices": devices, "complete": True})


@dataclass(frozen=True)
class Said:
    """What a command left behind, without the parts that a test does not care about."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = 0
    timed_out: bool = False
    failure: str = ""


@dataclass(frozen=True)
class Case:
    """One row of a table: outputs by command key, and what the gate must say."""

    name: str
    outputs: Mapping[str, Said]
    outcome: Outcome
    findings: tuple[Told, ...] = ()
    inputs: Mapping[str, object] = field(default_factory=dict)
    nodes: int = 1


def judge(gate_id: str, case: Case) -> Verdict:
    known = rack(case.nodes)
    found = gate(gate_id, case.inputs)
    run = found.plan(known, list(known.nodes))[0]
    return found.evaluate(known, run, outputs(run, case.outputs))


def outputs(run: Run, captured: Mapping[str, Said]) -> dict[str, Output]:
    nodes = {command.key: command.node for command in run.commands}
    assert set(captured) <= set(nodes), f"no such command: {set(captured) - set(nodes)}"
    return {
        key: Output(
            key=key,
            node=nodes[key],
            command="captured",
            exit_code=one.exit_code,
            stdout=one.stdout,
            stderr=one.stderr,
            seconds=1.0,
            timed_out=one.timed_out,
            failure=one.failure,
        )
        for key, one in captured.items()
    }


Told = tuple[str, ...]
"""A finding without its words: code, place, expected and actual value, then the values in its words as name=value.

docs/reference/findings.md has the words. ``step=2`` stands for the second of the steps that its kind declares.
"""


def told(finding: Finding) -> Told:
    """Return what a program reads of a finding."""
    kind = KINDS[finding.code]
    values = _filled(kind.title, finding.what)
    if finding.next_step in kind.steps:
        values["step"] = str(kind.steps.index(finding.next_step) + 1)
    else:
        values |= _filled(kind.next_step, finding.next_step)
    return (
        finding.code,
        finding.where,
        finding.expected,
        quoted(finding.actual),
        *(f"{k}={v}" for k, v in values.items()),
    )


def _filled(template: str, words: str) -> dict[str, str]:
    """Return the values with which a template became these words; words of another template are all one value."""
    pattern, names = "", set[str]()
    for fixed, name, _, _ in Formatter().parse(template):
        pattern += re.escape(fixed)
        if name is not None:
            pattern += f"(?P={name})" if name in names else f"(?P<{name}>.*?)"
            names.add(name)
    match = re.fullmatch(pattern, words, re.DOTALL)
    return match.groupdict() if match else {"words": words}


def tells(verdict: Verdict) -> list[Told]:
    """Return the findings of a verdict without their words."""
    return [told(finding) for finding in verdict.findings]


def check(gate_id: str, case: Case) -> None:
    """Outcome and every finding by code, place and values; a pass says nothing and measured something."""
    verdict = judge(gate_id, case)
    assert tells(verdict) == list(case.findings)
    assert clean(verdict) == verdict, "what a gate says in its own words holds no secret and nothing unseen"
    assert verdict.outcome is case.outcome
    if case.outcome is Outcome.PASS:
        assert verdict.measured
        assert not verdict.findings
