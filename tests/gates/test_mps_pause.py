"""MPS stands still while gates measure, and nodes where it does not are not measured."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from rackready.design.site import load_site
from rackready.drivers.remote import Answer
from rackready.gates.engine import validate
from rackready.gates.engine.mps_pause import without_mps
from rackready.model.outcome import Finding, Outcome, Verdict
from rackready.model.phase import PhaseContext
from rackready.model.profile import GateSetEntry
from rackready.ondevice import mps_pause as script
from rackready.paths import EnvPaths
from tests.gates.fake import answered


def said(hindered: str = "") -> Answer:
    return answered(json.dumps({"format": script.FORMAT, "hindered": hindered, "complete": True}))


class Nodes:
    """A connection; ``answers``: node and action to the answer."""

    def __init__(self, answers: Mapping[tuple[str, str], Answer] | None = None) -> None:
        self.answers, self.asked = answers or {}, list[tuple[str, str]]()

    def run(
        self, node: str, argv: Sequence[str], *, stdin: str = "", env: Mapping[str, str] | None = None, timeout_s: float
    ) -> Answer:
        del env, timeout_s
        assert "systemctl" in stdin
        self.asked.append((node, argv[-1]))
        return self.answers.get((node, argv[-1]), said())

    def start(self, *_: object, **__: object) -> None:
        raise NotImplementedError


def paused(nodes: Nodes, names: Sequence[str] = ("node01", "node02")) -> tuple[dict[str, Finding], list[str]]:
    told: list[str] = []
    with without_mps(nodes, names, lambda _node, found: told.append(str(found))) as hindered:  # type: ignore[arg-type]
        assert {action for _, action in nodes.asked} <= {"stop"}
    return hindered, told


def test_it_is_stopped_before_and_started_after() -> None:
    nodes = Nodes()
    assert paused(nodes) == ({}, [])
    assert sorted(nodes.asked, key=lambda pair: (pair[1] == "start", pair[0])) == [
        ("node01", "stop"), ("node02", "stop"), ("node01", "start"), ("node02", "start"),
    ]  # fmt: skip


def test_it_starts_again_after_an_interrupt() -> None:
    nodes = Nodes()
    with pytest.raises(KeyboardInterrupt), without_mps(nodes, ["node01"], lambda *_: None):  # type: ignore[arg-type]
        raise KeyboardInterrupt
    assert nodes.asked == [("node01", "stop"), ("node01", "start")]


def test_a_node_with_clients_is_not_measured() -> None:
    hindered, _ = paused(Nodes({("node02", "stop"): said("MPS clients 90")}))
    assert {node: str(found) for node, found in hindered.items()} == {
        "node02": "node02: MPS not stopped - Expected: MPS stops Actual: MPS clients 90. Drain the node and end what "
        "uses its GPUs; then run again."
    }


def test_an_output_that_cannot_be_read_is_no_stop() -> None:
    hindered, _ = paused(Nodes({("node01", "stop"): answered("Segmentation fault\n")}))
    assert [found.code for found in hindered.values()] == ["mps-not-stopped"]
    hindered, _ = paused(Nodes({("node01", "stop"): answered("", "python3: not found", 127)}))
    assert [found.code for found in hindered.values()] == ["mps-not-stopped"]


def test_a_node_that_is_away_is_not_told_twice() -> None:
    away = answered(reached=False)
    assert paused(Nodes({("node01", "stop"): away, ("node01", "start"): away})) == ({}, [])


def test_a_daemon_that_does_not_start_again_is_told() -> None:
    _, told = paused(Nodes({("node01", "start"): said("systemctl start rackready-mps.service: exit 1: failed")}))
    words = (
        "node01: MPS not started again - Expected: MPS starts Actual: systemctl start rackready-mps.service: exit 1: "
        "failed. Check `journalctl -u rackready-mps.service` on the node, then run `rackready optimize`."
    )
    assert told == [words]


@pytest.mark.parametrize(
    ("gate", "kept", "asked"),
    [
        ("node/gpu/validation/dcgm-r1", {}, [("node01", "stop"), ("node01", "start")]),
        ("node/gpu/validation/dcgm-r1", {"node01": {"node/gpu/validation/dcgm-r1": Verdict(outcome=Outcome.PASS)}}, []),
        ("node/gpu/sanity/settings", {}, []),
    ],
    ids=["a gate that loads", "its evidence still counts", "a look"],
)
def test_only_a_run_that_loads_a_node_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: str, kept: validate.Kept, asked: list[tuple[str, str]]
) -> None:
    nodes = Nodes()
    nodes.sweep = lambda _node: answered()  # type: ignore[attr-defined]

    @contextmanager
    def connect(*_: object) -> Iterator[tuple[Nodes, None]]:
        yield nodes, None

    monkeypatch.setattr(validate, "connect", connect)
    ctx, entries = PhaseContext("sim", tmp_path, "c1"), [GateSetEntry(id=gate)]
    with validate.stages(ctx, load_site("sim"), EnvPaths(tmp_path, "sim"), ["node01"], entries, kept):
        pass
    assert nodes.asked == asked


class Unit:
    """The unit on a node, and its daemon."""

    def __init__(self, *, active: bool, clients: str = "", fails: str = "") -> None:
        self.active, self.clients, self.fails, self.ran = active, clients, fails, list[str]()

    def __call__(self, argv: list[str]) -> tuple[int, str]:
        line = " ".join(argv)
        if "is-active" in line:
            return (0, "") if self.active else (3, "")
        if " show " in line:
            return 0, "CUDA_MPS_PIPE_DIRECTORY=/run/pipes\n"
        if argv[0] == "sh":
            assert "CUDA_MPS_PIPE_DIRECTORY='/run/pipes' nvidia-cuda-mps-control" in line
            if self.fails and self.fails in line:
                return 1, "Cannot find MPS control daemon process 100\n"
            return 0, "78\n" if "server" in line else self.clients
        self.ran.append(line)
        self.active = "start" in line
        return 0, ""


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(script, "MARK", tmp_path / "run/mps-stopped")
    return tmp_path / "run/mps-stopped"


def test_a_killed_run_s_stop_is_made_good_by_the_next(mark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = Unit(active=True)
    monkeypatch.setattr(script, "_run", unit)
    assert (script.stop(), mark.exists(), unit.active) == ("", True, False)
    assert (script.stop(), mark.exists()) == ("", True)  # the killed run's mark
    assert (script.start(), mark.exists(), unit.active) == ("", False, True)
    assert unit.ran == ["systemctl stop rackready-mps.service", "systemctl start rackready-mps.service"]


def test_jobs_of_clients_are_never_ended(mark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = Unit(active=True, clients="90\n91\n")
    monkeypatch.setattr(script, "_run", unit)
    assert (script.stop(), mark.exists(), unit.ran) == ("MPS clients 90, 91", False, [])


@pytest.mark.parametrize("query", ["get_server_list", "get_client_list 78"])
def test_a_daemon_that_does_not_answer_may_have_clients(
    mark: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    unit = Unit(active=True, fails=query)
    monkeypatch.setattr(script, "_run", unit)
    words = f"nvidia-cuda-mps-control {query}: exit 1: Cannot find MPS control daemon process 100"
    assert (script.stop(), mark.exists(), unit.ran) == (words, False, [])


def test_a_node_without_mps_is_left_alone(mark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = Unit(active=False)
    monkeypatch.setattr(script, "_run", unit)
    assert (script.stop(), script.start(), mark.exists(), unit.ran) == ("", "", False, [])
