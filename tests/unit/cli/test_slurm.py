"""`rackready slurm` on a cluster whose controller the tests play."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.drivers.scheduler.slurm_files import Cluster, Recovered
from rackready.handover import slurm_apply
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from rackready.render.slurm_files import Gpu, NodeParts
from tests.unit.handover.test_slurm_classic import Nodes

Call = Callable[..., tuple[int, str, str]]
THEIRS = (
    "ClusterName=x\nSelectType=select/cons_tres\nSlurmctldParameters=enable_configless\nPartitionName=admin State=UP\n"
)
PARTS = NodeParts(2, 56, 2, 2063500, tuple(Gpu(at) for at in range(8)))


class Controller:
    """A cluster that takes every change."""

    where = "Slurm controller 192.0.2.5:22"

    def __init__(self) -> None:
        self.now = Cluster({"slurm.conf": THEIRS}, "d", (22, 5), answers=True, known=frozenset())
        self.open = ""

    def look(self) -> Cluster:
        return self.now

    def recover(self) -> Recovered:
        ended, self.open = self.open, ""
        return Recovered(ended)

    def begin(self, files: dict[str, str], seen: str, reload: str, nodes: Any, hosts: Any) -> bool:  # noqa: ANN401
        del hosts
        self.change(files, seen, reload, nodes)
        return True

    def finish(self, *_: object) -> None:
        """It comes up."""

    def change(self, files: dict[str, str], _seen: str, _reload: str, nodes: Any) -> str:  # noqa: ANN401
        self.now = Cluster(
            {**self.now.files, **files}, "d", (22, 5), answers=True, known=self.now.known | frozenset(nodes)
        )
        return ""


@pytest.fixture
def cluster(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> Controller:
    """A site whose Slurm files are ours to write; node01 is certified, node02 connected, node03 certified and mute."""
    del call
    path = tmp_path / "inventories/sim/site.yml"
    site = yaml.safe_load(path.read_text(encoding="utf-8"))
    site["handover"]["files"] = {"folder": "/etc/slurm"}
    path.write_text(yaml.safe_dump(site), encoding="utf-8")
    with Ledger.open(EnvPaths(tmp_path, "sim").database) as ledger:
        for node, state in (
            ("node01", NodeState.CERTIFIED),
            ("node02", NodeState.CONNECTED),
            ("node03", NodeState.CERTIFIED),
        ):
            ledger.set_state(node, state, "", phase="", campaign="c")
    made = Controller()

    @contextmanager
    def connected(*_: object) -> Iterator[tuple[Controller, None]]:
        yield made, None

    def parts(_site: object, _remote: object, nodes: list[str]) -> dict[str, NodeParts | NodeResult]:
        mute = NodeResult(Outcome.ERROR, "node03: no answer")
        return {node: mute if node == "node03" else PARTS for node in nodes}

    monkeypatch.setattr(slurm_apply, "controller", connected)
    monkeypatch.setattr(slurm_apply, "read_parts", parts)
    return made


def test_diff_shows_what_handover_would_write_for_certified_nodes(cluster: Controller, call: Call) -> None:
    code, out, err = call("slurm", "diff", "--limit", "node01,node02")
    assert code == 1
    assert "+++ b/slurm.conf\n@@ -2,3 +2,4 @@\n" in out
    assert "+Include rackready_nodes.conf\n" in out
    assert "+NodeName=node01 NodeAddr=192.0.2.11 Sockets=2 " in out
    assert "node02" not in out
    assert err == "slurmctld 22.05: restart\n"
    assert cluster.now.files == {"slurm.conf": THEIRS}


def test_apply_writes_it_once_and_names_the_node_that_is_mute(cluster: Controller, call: Call) -> None:
    cluster.open = "an interrupted change was taken back"
    code, out, err = call("slurm", "apply")
    assert code == 1
    assert "Include rackready_nodes.conf" in cluster.now.files["slurm.conf"]
    assert "node03" not in cluster.now.files["rackready_nodes.conf"]
    assert "node03: no answer\n" in err
    assert "Slurm controller 192.0.2.5:22: an interrupted change was taken back\n" in err
    assert err.endswith("changed: gres.conf, rackready_gres.conf, rackready_nodes.conf, slurm.conf\n")
    assert call("slurm", "apply", "--limit", "node01") == (0, "", "nothing to change\n")
    code, out, err = call("slurm", "diff", "--limit", "node01", "--output", "json")
    assert (code, json.loads(out)) == (
        0,
        {"nodes": ["node01"], "files": {}, "reload": "none", "failed": {}, "left": [], "lacking": [], "behind": []},
    )


def test_a_node_that_is_out_of_service_is_not_asked_for_the_check(
    cluster: Controller, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def lacking(_remote: object, nodes: list[str], *_: object) -> tuple[str, ...]:
        asked.append(nodes)
        return tuple(nodes)

    monkeypatch.setattr(slurm_apply.on_nodes, "lacking", lacking)
    assert call("slurm", "apply", "--limit", "node01")[0] == 0
    path = tmp_path / "inventories/sim/site.yml"
    site = yaml.safe_load(path.read_text(encoding="utf-8"))
    site["handover"]["files"]["checks"] = {}
    path.write_text(yaml.safe_dump(site), encoding="utf-8")
    assert call("slurm", "diff", "--limit", "node01")[0] == 1
    with Ledger.open(EnvPaths(tmp_path, "sim").database) as ledger:
        ledger.set_state("node01", NodeState.QUARANTINED, "gpu3 is gone", phase="", campaign="c")
    call("slurm", "diff", "--limit", "node01")
    call("slurm", "apply", "--limit", "node01")
    assert asked == [["node01"], [], []]
    assert "Prolog=/usr/local/lib/rackready/slurm-check\n" in cluster.now.files["rackready_nodes.conf"]


def test_a_line_of_a_node_that_left_the_site_stays_and_is_named(cluster: Controller, call: Call) -> None:
    cluster.now = Cluster(
        {**cluster.now.files, "rackready_nodes.conf": "NodeName=old01 Sockets=2\n"}, "d", (22, 5), answers=True,
        known=frozenset({"old01"}),
    )  # fmt: skip
    _, out, err = call("slurm", "diff", "--limit", "node01")
    assert " NodeName=old01 Sockets=2\n" in out
    assert err.endswith(
        "old01: in Slurm's files, and no longer in the site. Delete the line there when no job runs on it.\n"
    )


def test_an_interrupted_change_is_for_apply_to_end(cluster: Controller, call: Call) -> None:
    cluster.now = Cluster(cluster.now.files, "d", (22, 5), answers=True, known=frozenset(), journal=True)
    code, out, err = call("slurm", "diff")
    assert (code, out) == (2, "")
    assert err == (
        "Slurm controller 192.0.2.5:22: Slurm's files - Expected: no change under way Actual: one that was "
        "interrupted. "
        "`rackready slurm apply` ends it.\n"
    )


def test_with_files_on_every_node_nodes_behind_are_named_and_others_are_left_to_their_owner(
    cluster: Controller, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "inventories/sim/site.yml"
    site = yaml.safe_load(path.read_text(encoding="utf-8"))
    site["handover"]["files"] |= {"distribution": "classic", "not_written": ["login01"]}
    path.write_text(yaml.safe_dump(site), encoding="utf-8")
    nodes = Nodes("node01")
    monkeypatch.setattr(slurm_apply, "nodes_of", lambda *_: nodes)
    cluster.now = Cluster(cluster.now.files, "d", (22, 5), answers=True, known=frozenset({"login01"}))
    code, _, err = call("slurm", "diff", "--limit", "node01")
    assert (code, err) == (1, "slurmctld 22.05: restart\nwithout the cluster's files, or with others: node01\n")
    code, _, err = call("slurm", "apply", "--limit", "node01")
    assert code == 0
    assert nodes.files["node01"] == cluster.now.files
    names = "gres.conf, rackready_gres.conf, rackready_nodes.conf, slurm.conf"
    assert f"Copy {names} from /etc/slurm on the Slurm controller to login01 (handover.files.not_written)" in err
    code, out, _ = call("slurm", "diff", "--limit", "node01", "--output", "json")
    assert (code, json.loads(out)["behind"]) == (0, [])
    nodes.files["node01"].pop("gres.conf")
    code, out, _ = call("slurm", "diff", "--limit", "node01", "--output", "json")
    assert (code, json.loads(out)["behind"]) == (1, ["node01"])
    code, _, err = call("slurm", "apply", "--limit", "node01")
    assert (code, err.endswith("changed: files of node01\n"), "Copy" in err) == (0, True, False)


def test_a_site_whose_files_are_not_ours_is_refused(call: Call) -> None:
    code, out, err = call("slurm", "apply")
    assert (code, out) == (2, "")
    assert err == (
        "inventories/sim/site.yml - Expected: handover.files, which says where Slurm's files lie Actual: none. Add it "
        "(docs/howto/slurm.md), or go on writing the files yourself.\n"
    )
