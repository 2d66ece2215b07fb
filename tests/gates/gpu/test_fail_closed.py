"""No GPU gate passes on a missing, truncated, damaged or contradictory output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rackready.gates.base import Gate, GateFacts, Output, Run
from rackready.gates.engine.registry import gate
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome
from tests.gates.gpu.simulated import node
from tests.gates.gpu.test_faults import GATES

INPUTS: dict[str, dict[str, object]] = {
    "node/gpu/performance/gemm": {"launches": 1},
    "node/gpu/performance/nvbandwidth": {"launches": 1},
}
Captured = tuple[GateFacts, Gate, Run, dict[str, Output]]
ENDLESS = {"node/gpu/sanity/xid"}
"""A log has no end of its own: what its last lines said cannot be known."""

BROKEN: dict[str, Callable[[Output], Output | None]] = {
    "not run": lambda _one: None,
    "empty": lambda one: replace(one, stdout=""),
    "timed out": lambda one: replace(one, stdout=one.stdout[: len(one.stdout) // 2], exit_code=None, timed_out=True),
    "unreachable": lambda one: replace(one, stdout="", exit_code=None, failure="no route to host"),
    "not installed": lambda one: replace(one, stdout="", stderr="bash: command not found", exit_code=127),
    "killed, with its whole text": lambda one: replace(one, exit_code=137),
    "garbage": lambda one: replace(one, stdout="\x00\ufffd{]<gpu>"),
    "null": lambda one: replace(one, stdout="null"),
    "another tool's help": lambda one: replace(one, stdout="Usage: tool [options]\n"),
}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Captured]:
    with pytest.MonkeyPatch.context() as patch:
        made = node(tmp_path_factory.mktemp("node"), patch)
        known = facts("dgx_h100", 1)
        out: dict[str, Captured] = {}
        for name in GATES:
            found = gate(name, INPUTS.get(name))
            run = found.plan(known, ["node01"])[0]
            out[name] = (
                known,
                found,
                run,
                {
                    command.key: made.answer(command)
                    for command in sorted(run.commands, key=lambda command: command.stage)
                },
            )
        return out


def judged(captured: Captured, key: str, output: Output | None) -> Outcome:
    known, found, run, outputs = captured
    changed = {name: one for name, one in outputs.items() if name != key}
    if output is not None:
        changed[key] = output
    return found.evaluate(known, run, changed).outcome


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("name", GATES)
def test_a_broken_output_is_an_error(healthy: dict[str, Captured], name: str, how: str) -> None:
    for key, output in healthy[name][3].items():
        assert judged(healthy[name], key, BROKEN[how](output)) in {Outcome.ERROR, Outcome.FAIL}, key


@pytest.mark.parametrize("name", [name for name in GATES if name not in ENDLESS])
def test_a_cut_off_output_never_passes(healthy: dict[str, Captured], name: str) -> None:
    for key, output in healthy[name][3].items():
        text = output.stdout.rstrip()
        for share in (0.05, 0.3, 0.5, 0.75, 0.95):
            cut = replace(output, stdout=text[: int(share * len(text))])
            if (
                key == "set"
                or (key == "seen" and "NvSwitches" in cut.stdout)
                or (name.endswith("affinity") and "Legend" in cut.stdout and "NIC7:" in cut.stdout)
            ):
                continue
            assert judged(healthy[name], key, cut) is not Outcome.PASS, (key, share)


@pytest.mark.parametrize("name", GATES)
def test_a_healthy_capture_passes(healthy: dict[str, Captured], name: str) -> None:
    known, found, run, outputs = healthy[name]
    assert found.evaluate(known, run, outputs).outcome is Outcome.PASS


@pytest.mark.parametrize("name", [name for name in GATES if "/sanity/" in name])
def test_a_sanity_gate_asks_a_node_at_most_twice(name: str) -> None:
    run = gate(name).plan(facts("dgx_h100", 1), ["node01"])[0]
    assert len(run.commands) <= 2
    assert {command.stage for command in run.commands} == {0}
