"""Slurm's files on every node: who gets them, who is refused, and what returns when something goes wrong."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackready.drivers.remote import Answer
from rackready.drivers.scheduler.base import SchedulerError
from rackready.drivers.scheduler.slurm_files import Cluster, Recovered, TakenBackError
from rackready.drivers.scheduler.slurm_nodes import NodeLook, NotWritten, SlurmNodes, digests, shared
from rackready.drivers.with_request import ARGV
from rackready.handover import slurm_apply, slurm_classic
from rackready.handover.slurm_apply import Candidate, apply, candidate
from rackready.handover.slurm_classic import Spread, spread_over
from rackready.model.operations import files_of
from rackready.model.problems import Problem
from rackready.model.site import Site
from rackready.model.slurm_files import SlurmFiles
from rackready.ondevice import slurm_node_files
from tests.unit.handover.test_slurm_apply import PARTS, THEIRS, WHERE, site_with

PLAIN = THEIRS.replace("SlurmctldParameters=enable_configless\n", "")
OPTIONS = {"distribution": "classic", "not_written": ["cpu[1-2]"]}


def classic_site(tmp_path: Path, **more: Any) -> Site:
    return site_with(tmp_path, OPTIONS | more)


def files(site: Site) -> SlurmFiles:
    found = files_of(site.handover)
    assert found is not None
    return found


def cluster(*known: str, **more: str) -> Cluster:
    return Cluster({"slurm.conf": PLAIN, **more}, "d", (22, 5), answers=True, known=frozenset(known))


Files = Mapping[str, str | None]
More = Mapping[str, Mapping[str, str]]


class Nodes:
    """Nodes as the tests say they are: their files, those that do not answer, and those that fail when written."""

    def __init__(self, *nodes: str, files: dict[str, str] | None = None) -> None:
        self.files: dict[str, dict[str, str]] = {node: dict(files or {}) for node in nodes}
        self.kill_mode = "process"
        self.mute: dict[str, str] = {}
        self.ours: dict[str, frozenset[str]] = {}
        self.fails: dict[str, NotWritten] = {}
        self.written: list[tuple[str, ...]] = []
        self.restarts: list[bool] = []

    def look(self, nodes: list[str]) -> dict[str, NodeLook | str]:
        def one(node: str) -> NodeLook | str:
            if node in self.mute:
                return self.mute[node]
            found = {name: digest for name, digest in digests(self.files[node]).items() if digest}
            return NodeLook(found, active=True, kill_mode=self.kill_mode, ours=self.ours.get(node, frozenset()))

        return {node: one(node) for node in nodes}

    def write(
        self,
        nodes: Sequence[str],
        files: Files,
        _instead: Files,
        _anything: object = None,
        more: More | None = None,
        *,
        restart: bool = True,
    ) -> dict[str, NotWritten]:
        self.written.append(tuple(nodes))
        self.restarts.append(restart)
        for node in nodes:
            if node not in self.fails:
                wanted = {**self.files[node], **files, **(more or {}).get(node, {})}
                self.files[node] = {name: text for name, text in wanted.items() if text is not None}
        return {node: failed for node, failed in self.fails.items() if node in nodes}


class Controller:
    """A controller that takes changes in steps, and can refuse to come up."""

    where = WHERE

    def __init__(self, now: Cluster) -> None:
        self.now = now
        self.calls: list[str] = []
        self.dies = False
        self.open: Recovered | None = None
        self.old: Cluster = now

    def look(self) -> Cluster:
        return self.now

    def begin(self, files: dict[str, str], _seen: str, reload: str, nodes: Sequence[str], hosts: Sequence[str]) -> bool:
        self.calls.append(f"begin {reload} for {','.join(hosts)}")
        self.old = self.now
        known = self.now.known | set(nodes)
        self.now = replace(self.now, files={**self.now.files, **files}, known=known)
        return True

    def finish(self, reload: str, _nodes: object) -> None:
        self.calls.append(f"finish {reload}")
        if self.dies:
            self.now = self.old
            raise TakenBackError.of(
                [Problem.of(WHERE, "/etc/slurm", "The old files are back.", expected="x", actual="y")]
            )

    def back(self) -> str:
        self.calls.append("back")
        self.now = self.old
        return "with the old files slurmctld runs again"

    def close(self) -> None:
        self.calls.append("close")

    def recover(self) -> Recovered:
        return self.open or Recovered()


def found_for(site: Site, fake: Controller, nodes: Nodes, *entering: str) -> Candidate:
    found = candidate(site, fake.look(), WHERE, dict.fromkeys(entering, PARTS))
    spread = spread_over(site, files(site), fake.look(), WHERE, nodes, list(entering))  # type: ignore[arg-type]
    return replace(found, spread=spread)


def run(fake: Controller, found: Candidate, nodes: Nodes) -> list[str]:
    return apply(fake, found, nodes)  # type: ignore[arg-type]


def test_a_joining_node_and_those_of_the_cluster_get_the_same_files_in_slurms_order(tmp_path: Path) -> None:
    site = classic_site(tmp_path)
    fake = Controller(cluster("cpu1", "cpu2", **{"cgroup.conf": "ConstrainDevices=yes\n"}))
    nodes = Nodes("node01", "node02")
    found = found_for(site, fake, nodes, "node01")
    assert run(fake, found, nodes) == ["gres.conf", "rackready_gres.conf", "rackready_nodes.conf", "slurm.conf"]
    # slurmctld stands still between begin and finish; the state of the new node goes by a second change.
    assert fake.calls == [
        "begin restart for node01", "finish restart", "begin reconfigure for node01", "finish reconfigure",
    ]  # fmt: skip
    assert nodes.restarts == [True, False], "a reconfigure makes slurmd read its files"
    assert nodes.files["node01"] == dict(fake.now.files)
    assert "State=DRAIN" not in nodes.files["node01"]["rackready_nodes.conf"]
    assert nodes.files["node02"] == {}
    assert found.spread is not None
    assert slurm_apply.to_copy(site, found, ["slurm.conf", "files of node01"]) == (
        "Copy slurm.conf from /etc/slurm on the Slurm controller to cpu[1-2] (handover.files.not_written), and to "
        "login nodes. Restart slurmd on cpu[1-2]: until then slurmctld logs that they appear "
        '"to have a different slurm.conf".'
    )
    assert slurm_apply.to_copy(site, found, ["files of node01"]) == ""
    again = found_for(site, fake, nodes, "node02")
    assert run(fake, again, nodes)
    assert nodes.files["node01"] == nodes.files["node02"] == dict(fake.now.files)
    assert again.reload == "restart"
    assert nodes.written[-1] == ("node01", "node02")


def test_a_node_of_the_cluster_that_lost_its_files_gets_them_without_touching_slurmctld(tmp_path: Path) -> None:
    site = classic_site(tmp_path)
    fake, nodes = Controller(cluster()), Nodes("node01")
    run(fake, found_for(site, fake, nodes, "node01"), nodes)
    fake.calls.clear()
    nodes.files["node01"].pop("slurm.conf")
    found = found_for(site, fake, nodes, "node01")
    assert (found.files, found.behind) == ({}, ("node01",))
    assert run(fake, found, nodes) == ["files of node01"]
    assert fake.calls == []
    assert nodes.files["node01"] == dict(fake.now.files)
    assert found_for(site, fake, nodes, "node01").behind == ()


def test_every_node_that_cannot_get_the_files_is_named_at_once(tmp_path: Path) -> None:
    site = classic_site(tmp_path, not_written=["cpu1"])
    own = "NodeName=node01 Sockets=2\nNodeName=node02 Sockets=2\nNodeName=node03 Sockets=2\n"
    now = cluster("cpu1", "cpu2", "cpu3", "node01", **{"rackready_nodes.conf": own, "gres.conf": "a\n"})
    nodes = Nodes("node01", "node02", "node03", files={"slurm.conf": PLAIN})
    nodes.files["node02"]["gres.conf"] = "Name=gpu File=/dev/nvidia0\n"
    nodes.files["node02"]["cgroup.conf"] = "its own\n"
    nodes.mute["node03"] = "SSH at 192.0.2.13:22 - no route to host"
    with pytest.raises(SchedulerError) as caught:
        spread_over(site, files(site), now, WHERE, nodes, [])  # type: ignore[arg-type]
    assert str(caught.value).splitlines() == [
        (
            f"{WHERE}: Slurm's files on cpu[2-3] - Expected: nodes of the site, which rackready can write to "
            "Actual: nodes that slurmctld knows and the site does not name. Copy the files there yourself after "
            "each change and name the nodes in handover.files.not_written, or add them to the site."
        ),
        (
            "node03: Slurm's files - Expected: can be read on every node of the cluster Actual: SSH at "
            "192.0.2.13:22 - no route to host. Nothing was changed. Bring the node back, or name it in "
            "handover.files.not_written while it is away: `rackready handover` writes its files when it returns."
        ),
        (
            "node02: gres.conf in /etc/slurm - Expected: the same as on the Slurm controller Actual: different. "
            "Nothing was changed. Compare them, and make them the same or remove them there: a missing file is "
            "written."
        ),
    ]


def test_a_node_that_was_away_comes_back_with_old_files_of_ours(tmp_path: Path) -> None:
    site = classic_site(tmp_path)
    fake, nodes = Controller(cluster()), Nodes("node01")
    run(fake, found_for(site, fake, nodes, "node01"), nodes)
    nodes.files["node01"]["slurm.conf"] = "old\n"
    nodes.ours["node01"] = frozenset({"slurm.conf"})
    found = found_for(site, fake, nodes, "node01")
    assert found.behind == ("node01",)
    assert run(fake, found, nodes) == ["files of node01"]
    assert nodes.files["node01"] == dict(fake.now.files)


def test_a_unit_whose_restart_would_kill_jobs_is_refused(tmp_path: Path) -> None:
    site = classic_site(tmp_path)
    nodes = Nodes("node01")
    nodes.kill_mode = "control-group"
    with pytest.raises(SchedulerError) as caught:
        spread_over(site, files(site), cluster(), WHERE, nodes, ["node01"])  # type: ignore[arg-type]
    assert str(caught.value) == (
        "node01: KillMode of slurmd.service - Expected: process: a restart of slurmd leaves jobs alone Actual: "
        "control-group. Nothing was changed. Set KillMode=process in the unit, as Slurm's own does, and reload systemd."
    )


def test_a_node_that_is_away_and_named_holds_nothing_back_and_cannot_enter(tmp_path: Path) -> None:
    site = classic_site(tmp_path, not_written=["node02"])
    now = cluster("node01", "node02", **{"rackready_nodes.conf": "NodeName=node01 A=1\nNodeName=node02 A=1\n"})
    nodes = Nodes("node01")
    spread = spread_over(site, files(site), now, WHERE, nodes, [])  # type: ignore[arg-type]
    assert (spread.nodes, spread.of_others) == (("node01",), ("node02",))
    assert slurm_apply._of_others("node02").message == (
        "node02: Slurm's files - Expected: written by rackready Actual: named in handover.files.not_written. Remove it "
        "there, then run again."
    )


def test_a_node_that_cannot_be_written_takes_the_change_back_everywhere(tmp_path: Path) -> None:
    site = classic_site(tmp_path)
    fake, nodes = Controller(cluster()), Nodes("node01", "node02")
    run(fake, found_for(site, fake, nodes, "node01"), nodes)
    before = dict(nodes.files["node01"])
    fake.calls.clear()
    nodes.fails["node02"] = NotWritten("slurmd does not start: fatal: Unable to bind")
    with pytest.raises(SchedulerError) as caught:
        run(fake, found_for(site, fake, nodes, "node02"), nodes)
    assert str(caught.value).splitlines() == [
        (
            "node02: Slurm's files - Expected: written, and slurmd runs with them Actual: slurmd does not start: "
            "fatal: Unable to bind. The old files are back: with the old files slurmctld runs again."
        ),
        (
            "node02: Slurm's files - Expected: written, and slurmd runs with them Actual: slurmd does not start: "
            "fatal: Unable to bind. Bring the node back, or name it in handover.files.not_written while it is away; "
            "then `rackready slurm apply` ends the change."
        ),
    ]
    # The change stays open, since node02 could not be brought back.
    assert fake.calls == ["begin restart for node01,node02", "back"]
    assert nodes.files["node01"] == before


def test_a_slurmctld_that_does_not_come_up_takes_it_back_on_the_nodes_too(tmp_path: Path) -> None:
    site = classic_site(tmp_path)
    fake, nodes = Controller(cluster()), Nodes("node01")
    fake.dies = True
    with pytest.raises(SchedulerError, match="The old files are back"):
        run(fake, found_for(site, fake, nodes, "node01"), nodes)
    assert fake.calls == ["begin restart for node01", "finish restart", "close"]
    assert nodes.files["node01"] == {"slurm.conf": PLAIN}


def test_a_killed_change_is_ended_on_the_nodes_and_then_closed(tmp_path: Path) -> None:
    del tmp_path
    fake, nodes = Controller(cluster()), Nodes("node01", "node02", files={"slurm.conf": "new"})
    fake.open = Recovered(
        "an interrupted change was taken back", ("node01", "node02", "old1"), {"slurm.conf": PLAIN}, {}
    )
    names = {"node01", "node02", "node03"}
    nodes.fails["node02"] = NotWritten("no answer")
    with pytest.raises(SchedulerError) as caught:
        slurm_classic.recover(fake, nodes, names)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "node02: Slurm's files - Expected: written, and slurmd runs with them Actual: no answer. Bring the node back, "
        "or name it in handover.files.not_written while it is away; then `rackready slurm apply` ends the change."
    )
    assert fake.calls == []
    nodes.fails.clear()
    assert slurm_classic.recover(fake, nodes, names) == (  # type: ignore[arg-type]
        "an interrupted change was taken back; on the nodes too: node[01-02]; not on old1, no longer in the site; "
        "slurmctld runs with these files"
    )
    assert fake.calls == ["close"]
    assert nodes.files["node02"] == {"slurm.conf": PLAIN}
    with pytest.raises(SchedulerError) as caught:
        slurm_classic.recover(fake, None, names)  # type: ignore[arg-type]
    assert str(caught.value) == (
        f"{WHERE}: a change of Slurm's files on every node - Expected: handover.files.distribution classic, with which "
        "it began Actual: configless. Set it back, run `rackready slurm apply`, then change it."
    )


def test_only_what_must_be_the_same_everywhere_is_shared() -> None:
    found = {
        "slurm.conf": "Include a.conf #x\n#Include b.conf\nInclude /elsewhere/c.conf\n", "a.conf": "Include d.conf\n",
        "b.conf": "", "d.conf": "x", "gres.conf": "", "slurmdbd.conf": "StoragePass=secret\n", "cgroup.conf": "",
    }  # fmt: skip
    assert sorted(shared(found)) == ["a.conf", "d.conf", "gres.conf", "slurm.conf"]
    spread = Spread({"node01": NodeLook({}, active=False, kill_mode="process")}, frozenset({"node01"}))
    assert spread.beside(found) == {"node01": {"cgroup.conf": ""}}


def test_not_written_without_classic_is_refused() -> None:
    with pytest.raises(ValueError, match="not_written - Expected: only with distribution: classic Actual: nodes fetch"):
        SlurmFiles.model_validate({"folder": "/e", "not_written": ["cpu1"]})


class Runner:
    """Keeps requests, and answers each with one document."""

    def __init__(self, result: str, words: list[str], **more: Any) -> None:
        head = {"format": slurm_node_files.FORMAT, "complete": True, "result": result, "words": words}
        self.answer = Answer(0, json.dumps(head | more), "", 0.1)
        self.asked: list[tuple[str, dict[str, Any], bool]] = []

    def run(
        self, node: str, argv: Sequence[str], *, stdin: str = "", timeout_s: float, cleaning: bool = False
    ) -> Answer:
        del timeout_s
        assert argv == ARGV, "no request in `ps`"
        (request,) = ast.literal_eval(stdin.splitlines()[1].partition(" = ")[2])
        self.asked.append((node, json.loads(request), cleaning))
        return self.answer


@pytest.mark.parametrize(
    ("result", "words", "why"),
    [
        ("written", ["slurm.conf"], {}),
        ("unchanged", [], {}),
        ("differs", ["slurm.conf"], {"n1": NotWritten("slurm.conf changed meanwhile", "slurm.conf")}),
        ("not-restarted", ["fatal: x"], {"n1": NotWritten("slurmd does not start: fatal: x")}),
        ("os-error", ["no space left on device"], {"n1": NotWritten("no space left on device")}),
    ],
)
def test_a_node_answers_why_it_was_not_written(result: str, words: list[str], why: dict[str, NotWritten]) -> None:
    runner = Runner(result, words)
    found = SlurmNodes(runner, "/etc/slurm").write(
        ["n1"], {"a": "x", "b": None}, {"a": "y"}, frozenset({"n1"}), {"n1": {"c": "z"}}
    )
    assert found == why
    node, request, cleaning = runner.asked[0]
    # The operator cannot stop it while slurmctld stands still.
    assert (node, cleaning) == ("n1", True)
    assert request == {
        "op": "write", "folder": "/etc/slurm", "unit": "slurmd.service", "files": {"a": "x", "b": None, "c": "z"},
        "instead": digests({"a": "y"}), "anything": True, "restart": True,
    }  # fmt: skip


def test_a_look_tells_a_mute_node_from_its_files() -> None:
    found = {"files": {"slurm.conf": "1"}, "ours": ["slurm.conf"], "links": ["gres.conf"], "filesystem": "nfs4"}
    good = Runner("looked", [], **found, active=True, kill_mode="process")
    own, links = frozenset({"slurm.conf"}), frozenset({"gres.conf"})
    assert SlurmNodes(good, "/e").look(["n1"]) == {
        "n1": NodeLook({"slurm.conf": "1"}, True, "process", ours=own, links=links, filesystem="nfs4")  # noqa: FBT003
    }
    bad = Runner("looked", [])
    bad.answer = Answer(None, "", "", 0.1, failure="n1: no route", reached=False)
    assert SlurmNodes(bad, "/e").look(["n1"]) == {"n1": "no route"}
