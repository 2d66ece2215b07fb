"""A change of Slurm's files on every node whose answer is lost: nodes are written only once it is known what is so."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rackready.drivers.remote import Answer
from rackready.drivers.scheduler.base import SchedulerError
from rackready.drivers.scheduler.slurm_files import Cluster, NoAnswerError, Recovered, SlurmController, TakenBackError
from rackready.drivers.scheduler.slurm_nodes import NotWritten
from rackready.handover import slurm_apply, slurm_classic
from rackready.handover.slurm_classic import Everywhere, Spread
from rackready.ondevice import slurm_files
from tests.unit.handover.test_slurm_classic import PLAIN, WHERE, Controller, Nodes, classic_site, cluster

NEW = {"slurm.conf": PLAIN + "Include rackready_nodes.conf\n", "rackready_nodes.conf": "NodeName=node01\n"}
STAND = "slurmctld may be stopped: run `rackready slurm apply`, or `systemctl start slurmctld` on the controller."
LOST = f"{WHERE}: Slurm's files - Expected: an answer from the controller Actual: no answer within 600 s. Check it."


def lost() -> NoAnswerError:
    return NoAnswerError(
        WHERE,
        "Slurm's files",
        expected="an answer from the controller",
        actual="no answer within 600 s",
        next_step="Check it.",
    )


@dataclass
class Losing(Controller):
    """A controller whose answers to some steps do not arrive, although it did them."""

    now: Cluster
    loses: frozenset[str] = frozenset()
    calls: list[str] = field(default_factory=list)
    dies: bool = False
    open: Recovered | None = None
    left: Recovered | SchedulerError | None = None
    opens: SchedulerError | None = None
    refusal: SchedulerError | None = None

    def begin(self, files: dict[str, str], _seen: str, reload: str, nodes: Sequence[str], hosts: Sequence[str]) -> bool:
        begun = super().begin(files, _seen, reload, nodes, hosts)
        self._lose("begin")
        return begun

    def finish(self, reload: str, _nodes: object) -> None:
        super().finish(reload, _nodes)
        self._lose("finish")

    def back(self) -> str:
        words = super().back()
        self._lose("back")
        return words

    def recover(self) -> Recovered:
        self.calls.append("recover")
        if isinstance(self.left, SchedulerError):
            raise self.left
        return self.left or Recovered()

    def close(self) -> None:
        super().close()
        if self.opens is not None:
            raise self.opens

    def _lose(self, step: str) -> None:
        if step in self.loses and self.refusal is not None:
            raise self.refusal
        if step in self.loses:
            raise lost()


def change(fake: Losing, nodes: Nodes) -> str:
    """Change the files of node01 and node02; return the refusal."""
    spread = Spread(
        {node: look for node, look in nodes.look(["node01", "node02"]).items() if not isinstance(look, str)}
    )
    places = Everywhere(fake, nodes, spread)  # type: ignore[arg-type]
    with pytest.raises(SchedulerError) as caught:
        slurm_classic.change(places, fake.now, NEW, "restart", ["node01"])
    return str(caught.value)


def two() -> Nodes:
    return Nodes("node01", "node02", files={"slurm.conf": PLAIN})


def test_a_finish_that_was_done_and_whose_answer_is_lost_leaves_the_new_files_on_the_nodes() -> None:
    fake, nodes = Losing(cluster(), frozenset({"finish"})), two()
    assert change(fake, nodes) == f"{LOST} Asked again, it said: no change is open. Run again."
    assert fake.calls == ["begin restart for node01,node02", "finish restart", "recover"]
    assert nodes.files["node01"] == nodes.files["node02"] == NEW


@pytest.mark.parametrize("step", ["begin", "finish"])
def test_what_the_controller_took_back_meanwhile_goes_to_the_nodes(step: str) -> None:
    old = {"slurm.conf": PLAIN, "rackready_nodes.conf": None}
    fake, nodes = Losing(cluster(), frozenset({step})), two()
    fake.left = Recovered("an interrupted change was taken back", ("node01", "node02"), old, NEW)
    assert change(fake, nodes) == (
        f"{LOST} Asked again, it said: an interrupted change was taken back; on the nodes too: node[01-02]; slurmctld "
        "runs with these files. Run again."
    )
    assert fake.calls[-2:] == ["recover", "close"]
    assert nodes.files["node01"] == nodes.files["node02"] == {"slurm.conf": PLAIN}


@pytest.mark.parametrize(("step", "written"), [("begin", 0), ("finish", 1)])
def test_while_the_controller_is_still_at_work_no_node_is_touched(step: str, written: int) -> None:
    fake, nodes = Losing(cluster(), frozenset({step})), two()
    fake.left = SchedulerError(WHERE, "/etc/slurm", expected="no other run", actual="busy", next_step="Wait for it.")
    assert change(fake, nodes).splitlines() == [
        LOST,
        f"{WHERE}: /etc/slurm - Expected: no other run Actual: busy. Wait for it. {STAND}",
    ]
    assert len(nodes.written) == written
    assert "close" not in fake.calls


@pytest.mark.parametrize(("step", "written", "more"), [("begin", 0, ""), ("finish", 1, f" {STAND}")])
def test_another_refusal_takes_no_node_back(step: str, written: int, more: str) -> None:
    fake, nodes = Losing(cluster(), frozenset({step})), two()
    fake.refusal = SchedulerError(WHERE, "/etc/slurm", expected="x", actual="disk full", next_step="Correct that.")
    assert change(fake, nodes) == f"{WHERE}: /etc/slurm - Expected: x Actual: disk full. Correct that.{more}"
    assert len(nodes.written) == written
    assert not {"recover", "close"} & set(fake.calls)


def test_a_controller_that_is_gone_is_said_once() -> None:
    fake, nodes = Losing(cluster(), frozenset({"finish"})), two()
    fake.left = lost()
    assert change(fake, nodes) == (f"{LOST} {STAND}")


def test_a_lost_answer_while_a_node_is_down_names_both() -> None:
    fake, nodes = Losing(cluster(), frozenset({"back"})), two()
    nodes.fails["node02"] = NotWritten("no route")
    assert change(fake, nodes).splitlines() == [
        (
            "node02: Slurm's files - Expected: written, and slurmd runs with them Actual: no route. `rackready slurm "
            "apply` ends the change."
        ),
        f"{LOST} {STAND}",
    ]
    assert "close" not in fake.calls


def test_a_change_that_slurmctld_does_not_read_is_not_said_to_be_ended() -> None:
    fake, nodes = Losing(cluster()), two()
    fake.opens = SchedulerError(WHERE, "/etc/slurm", expected="runs", actual="dies", next_step="It is open.")
    fake.left = Recovered("an interrupted change continues", ("node01",), dict(NEW), {"slurm.conf": PLAIN})
    with pytest.raises(SchedulerError, match="Actual: dies"):
        slurm_classic.recover(fake, nodes, {"node01"})  # type: ignore[arg-type]
    fake.dies = True
    assert change(fake, nodes).splitlines() == [
        f"{WHERE}: /etc/slurm - Expected: x Actual: y. The old files are back.",
        f"{WHERE}: /etc/slurm - Expected: runs Actual: dies. It is open.",
    ]


def test_a_node_that_died_in_a_change_and_is_named_does_not_hold_up_its_end() -> None:
    fake, nodes = Losing(cluster()), two()
    nodes.fails["node02"] = NotWritten("no route")
    old = {"slurm.conf": PLAIN, "rackready_nodes.conf": None}
    fake.left = Recovered("an interrupted change was taken back", ("node01", "node02"), old, NEW)
    assert slurm_classic.recover(fake, nodes, {"node01", "node02"}, {"node02"}) == (  # type: ignore[arg-type]
        "an interrupted change was taken back; on the nodes too: node01; not on node02 (handover.files.not_written): "
        "when it returns, compare rackready_nodes.conf, slurm.conf there with the controller's before slurmd starts; "
        "slurmctld runs with these files"
    )
    assert nodes.written == [("node01",)]
    assert fake.calls == ["recover", "close"]


def test_a_file_of_somebody_else_is_named_with_what_to_compare() -> None:
    fake, nodes = Losing(cluster()), two()
    names = "gres.conf, slurm.conf"
    nodes.fails |= {"node01": NotWritten(f"{names} changed meanwhile", names), "node02": NotWritten("no route")}
    fake.left = Recovered("x", ("node01", "node02"), dict(NEW), {})
    with pytest.raises(SchedulerError) as caught:
        slurm_classic.recover(fake, nodes, {"node01", "node02"})  # type: ignore[arg-type]
    assert str(caught.value).splitlines() == [
        (
            "node01: Slurm's files - Expected: written, and slurmd runs with them Actual: gres.conf, slurm.conf "
            "changed meanwhile. Compare gres.conf, slurm.conf there with the Slurm controller's, make it the same or "
            "remove it there, then run `rackready slurm apply`."
        ),
        (
            "node02: Slurm's files - Expected: written, and slurmd runs with them Actual: no route. Bring the node "
            "back, or name it in handover.files.not_written while it is away; then `rackready slurm apply` ends the "
            "change."
        ),
    ]


def test_a_recovery_leaves_out_the_nodes_that_the_site_names(tmp_path: Path) -> None:
    site = classic_site(tmp_path, not_written=["node02"])
    fake, nodes = Losing(cluster()), two()
    fake.left = Recovered("x", ("node02",), dict(NEW), {})
    with pytest.MonkeyPatch.context() as context:
        context.setattr(slurm_apply, "nodes_of", lambda *_: nodes)
        assert slurm_apply.recover(site, fake, None).startswith("x; not on node02 (")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("result", "kind"),
    [("taken-back", TakenBackError), ("os-error", SchedulerError), ("taken-over", SchedulerError), ("", NoAnswerError)],
)
def test_the_driver_tells_an_answer_from_none(result: str, kind: type[SchedulerError]) -> None:
    class Machine:
        def run(self, *_: Any, **__: Any) -> Answer:
            head = {"format": slurm_files.FORMAT, "complete": True, "result": result, "words": ["x"]}
            return Answer(0, json.dumps(head), "", 0.1) if result else Answer(None, "", "", 600, timed_out=True)

    with pytest.raises(SchedulerError) as caught:
        SlurmController(Machine(), WHERE, "/etc/slurm", "slurmctld.service").finish("restart", [])
    assert type(caught.value) is kind


def test_the_steps_of_a_change_carry_its_id_and_the_next_change_does_not() -> None:
    asked: list[tuple[str, str | None]] = []

    class Machine:
        def run(self, *_: Any, stdin: str = "", **__: Any) -> Answer:
            (text,) = ast.literal_eval(stdin.splitlines()[1].partition(" = ")[2])
            request = json.loads(text)
            asked.append((request["op"], request.get("change")))
            head = {"format": slurm_files.FORMAT, "complete": True, "result": "begun", "words": [], "kept": "/k"}
            ids = {"change": f"id{len(asked)}"} if request["op"] in {"begin", "apply"} else {}
            return Answer(0, json.dumps(head | ids), "", 0.1)

    controller = SlurmController(Machine(), WHERE, "/etc/slurm", "slurmctld.service")
    controller.begin({}, "", "restart", [], [])
    controller.finish("restart", [])
    controller.begin({}, "", "restart", [], [])
    controller.back()
    controller.close()
    controller.change({}, "", "none", [])
    controller.change({}, "", "none", [])
    assert asked == [
        ("begin", None), ("finish", "id1"), ("begin", None), ("back", "id3"), ("close", "id3"), ("apply", None),
        ("apply", None),
    ]  # fmt: skip
