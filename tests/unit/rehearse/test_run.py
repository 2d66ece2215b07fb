"""A rehearsal with a rack that only takes notes: files, order, exit codes, what stays and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from rackready.model.problems import RackreadyError, StoppedError
from rackready_sim.errors import SimError
from rackready_sim.rehearse import run
from rackready_sim.rehearse.run import Rehearsal, Rehearsed, named
from rackready_sim.rehearse.scaled import scaled
from rackready_sim.store import Record, Store
from tests.unit.rehearse.small import SITES, changed, rehearsal, site
from tests.waiting import until

NAME = "prod-rehearsal"


class FakeRack:
    """A rack that writes an overlay and notes what is asked of it."""

    def __init__(self, root: Path, env: str, say: object) -> None:
        self.root, self.env, self.calls = root, env, list[str]()
        self.store = Store(root)
        self.overlay = "access: {port: 22}\n"
        self.error: BaseException | None = None
        del say

    def up(self) -> None:
        self.calls.append("up")
        if self.error is not None:
            raise self.error
        path = self.root / ".rackready/overlays" / f"{self.env}.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.overlay)

    def down(self) -> None:
        self.calls.append("down")
        self.store.record_file.unlink(missing_ok=True)


class FakeDefinition:
    """What chooses addresses, with the networks that it had to avoid."""

    avoided: tuple[IPv4Network, ...] = ()

    @classmethod
    def load_or_choose(cls, root: Path, env: str, *, avoid: Sequence[IPv4Network]) -> FakeDefinition:
        cls.avoided = tuple(avoid)
        del root
        return cls(Record("ab12cd", env, "10.64.7.0/24", "127.9.8"))

    def __init__(self, record: Record) -> None:
        self.record = record


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rehearsal:
    monkeypatch.setattr(run, "Rack", FakeRack)
    monkeypatch.setattr(run, "Definition", FakeDefinition)
    monkeypatch.setattr(run, "require_root", lambda: None)
    monkeypatch.setattr(run, "_ENDS_WITH_US", ())
    deploys(tmp_path, monkeypatch, 0)
    source = tmp_path / "inventories/prod/site.yml"
    source.parent.mkdir(parents=True)
    return Rehearsal(tmp_path, "prod", site("example"), source, lambda _: None)


def deploys(root: Path, monkeypatch: pytest.MonkeyPatch, code: int, document: dict[str, Any] | None = None) -> None:
    """Let deploys end with this code and document; each writes its arguments to `called`."""
    program = root / "deploy"
    text = json.dumps({"nodes": [{"name": "n1", "state": "ready", "reason": ""}]} if document is None else document)
    program.write_text(f"#!/bin/sh\necho \"$@\" >> {root}/called\ncat <<'E'\n{text}\nE\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def calls(made: Rehearsal) -> list[str]:
    rack = made._rack
    assert isinstance(rack, FakeRack)
    return rack.calls


def carried(made: Rehearsal, *, keep: bool = False) -> Rehearsed:
    return made.run(rehearsal("example"), keep=keep, verbose=False)


def test_rack_comes_up_deploys_and_goes_down(made: Rehearsal, tmp_path: Path) -> None:
    done = carried(made)
    assert (done.code, done.kept, dict(done.covered.nodes)) == (0, False, {"n1": "ready"})
    assert (tmp_path / "called").read_text() == f"-m rackready deploy --env {NAME} --output json\n"
    assert calls(made) == ["up", "down"]
    assert not made.paths.inventory.exists()
    assert FakeDefinition.avoided, "the rack's own network is beside those of the site"


def test_state_of_the_site_is_never_touched(made: Rehearsal, tmp_path: Path) -> None:
    carried(made, keep=True)
    below = {path.relative_to(tmp_path).parts[:2] for path in tmp_path.rglob("*") if path.is_file()}
    assert {parts for parts in below if "prod" in parts} == set()
    assert made.paths.state == tmp_path / ".rackready" / NAME


@pytest.mark.parametrize(("code", "keep", "last"), [(1, 0, "down"), (1, 1, "up"), (0, 1, "up"), (2, 0, "down")])
def test_exit_code_is_that_of_the_deploy(
    made: Rehearsal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, keep: int, last: str
) -> None:
    deploys(tmp_path, monkeypatch, code)
    done = carried(made, keep=bool(keep))
    assert (done.code, done.kept, calls(made)[-1]) == (code, bool(keep), last)


def test_stopped_deploy_leaves_the_rack_to_the_next_rehearsal(
    made: Rehearsal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploys(tmp_path, monkeypatch, 130, {"error": "stopped"})
    assert (carried(made).code, calls(made)) == (130, ["up"])
    deploys(tmp_path, monkeypatch, 0)
    assert carried(made).code == 0
    assert calls(made) == ["up", "down", "up", "down"], "what was left is removed first"


def test_ctrl_c_while_the_rack_comes_up_says_what_stays(made: Rehearsal) -> None:
    rack: Any = made._rack
    rack.error = KeyboardInterrupt()
    with pytest.raises(StoppedError) as caught:
        carried(made)
    assert str(caught.value) == (
        f"rackready rehearse: stopped. The rack stays: the next rehearsal, or `rackready sim down --env {NAME}`, "
        "removes it."
    )
    assert calls(made) == ["up"]


def test_rack_of_another_environment_is_not_removed(made: Rehearsal, tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.base.mkdir(parents=True)
    store.save(Record("ab12cd", "sim", "10.64.7.0/24", "127.9.8"))
    with pytest.raises(SimError) as caught:
        carried(made)
    assert str(caught.value) == (
        "the simulated rack of this checkout - Expected: none Actual: one of sim. Run `rackready sim down --env sim` "
        "first; a checkout has one simulated rack at a time."
    )
    assert calls(made) == []


def test_site_of_somebody_with_the_name_of_the_rehearsal_is_kept(made: Rehearsal) -> None:
    made.paths.inventory.mkdir(parents=True)
    made.paths.site_file.write_text("schema: rackready/site/v1\n")
    with pytest.raises(SimError) as caught:
        carried(made)
    assert str(caught.value) == (
        f"{made.paths.inventory} - Expected: none, or one of an earlier rehearsal Actual: a site of yours. Rename that "
        "environment: its name is that of the rehearsal."
    )
    assert made.paths.site_file.read_text() == "schema: rackready/site/v1\n"


def test_overlay_that_leads_to_the_site_is_not_deployed(made: Rehearsal, tmp_path: Path) -> None:
    rack: Any = made._rack
    rack.overlay = "racks: [{nodes: [{bmc: {address: 10.20.0.12}}]}]\n"
    with pytest.raises(SimError) as caught:
        carried(made)
    assert str(caught.value) == (
        f"{made.paths.overlay} - Expected: no address, host or secret of the site Actual: 10.20.0.12. Nothing was "
        "deployed. This is a defect of rackready: report it with this message."
    )
    assert not (tmp_path / "called").exists()


def test_one_rehearsal_at_a_time(made: Rehearsal) -> None:
    with made._alone(), pytest.raises(SimError) as caught:
        carried(made)
    assert str(caught.value) == (
        "rackready rehearse - Expected: no other in this checkout Actual: one runs. Wait until it ends, or stop it "
        "(Ctrl-C)."
    )


def test_reports_stay_when_the_rack_is_gone(made: Rehearsal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "c1.json"
    gate = {"gate": "node/gpu/sanity/count", "outcome": "pass"}
    found = [("install", "n1", "info"), ("install", "n1", "ok"), ("validate", "n1", "ok"), ("", "", "ok")]
    found += [("optimize", "n1", "info"), ("optimize", "n1", "error")]  # begun, and not passed
    events = [dict(zip(("phase", "node", "level"), item, strict=True)) for item in found]
    report.write_text(
        json.dumps(
            {
                "nodes": [{"gates": [gate, gate]}],
                "runs": [{"gate": "pair/fabric/performance/ib-write-bw", "outcome": "skip"}],
                "events": events,
                "unseen": [{"gate": "node/gpu/stress/x"}],
            }
        )
    )
    deploys(tmp_path, monkeypatch, 0, {"nodes": [], "report_json": str(report)})
    (tmp_path / "playbooks").mkdir()
    monkeypatch.setattr(run, "shipped", lambda: tmp_path)
    (tmp_path / "playbooks/optimize.yml").write_text("- hosts: nodes\n  roles: [tuning]\n")
    (tmp_path / "playbooks/install.yml").write_text(
        "- hosts: nodes\n  roles: [{role: base}, dcgm]\n  tasks:\n"
        "    - ansible.builtin.import_role: {name: nic_stack, tasks_from: x.yml}\n    - ansible.builtin.ping:\n"
    )
    done = carried(made)
    assert done.files == (str(made.results / "c1.json"),)
    assert (made.results / "c1.json").exists()
    assert done.covered.plain() == {
        "phases": ["install", "validate"],
        "gates": {"node/gpu/sanity/count": {"pass": 2}, "pair/fabric/performance/ib-write-bw": {"skip": 1}},
        "nodes": {},
        "roles": ["base", "dcgm", "nic_stack"],
        "unseen": ["node/gpu/stress/x"],
    }
    assert done.covered.lines() == [
        "phases: install, validate",
        "roles: base, dcgm, nic_stack",
        "gates: 1 pass, 1 skip",
        "nodes: none",
    ]


def test_profiles_of_the_site_go_with_it(made: Rehearsal) -> None:
    source = SITES["sim-ib"]
    made._source = source
    made.write(rehearsal("sim-ib"))
    here = {path.relative_to(source.parent) for path in source.parent.glob("profiles/*/*.yml")}
    assert {path.relative_to(made.paths.inventory) for path in made.paths.inventory.glob("profiles/*/*.yml")} == here


def test_a_site_file_given_beside_it_has_the_name_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prod").mkdir()
    monkeypatch.chdir(tmp_path / "prod")
    assert [named("sim", Path("site.yml")), named("sim", Path("../prod/./site.yml"))] == ["prod", "prod"]


def test_a_deploy_that_tells_nothing_is_no_pass(
    made: Rehearsal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploys(tmp_path, monkeypatch, 0, {})
    with pytest.raises(SimError) as caught:
        carried(made)
    assert str(caught.value) == (
        f"rackready deploy --env {NAME} --output json - Expected: a result on standard output "
        "Actual: exit code 0, and none. Nothing was shown. The rack stays: look at the messages above, then "
        "rehearse again."
    )


def test_a_rehearsal_of_a_rehearsal_is_refused() -> None:
    assert [named("prod", None), named("sim", Path("/x/lab.yml")), named("sim", Path("/x/prod/site.yml"))] == [
        "prod",
        "lab",
        "prod",
    ]
    with pytest.raises(SimError) as caught:
        named(NAME, None)
    assert str(caught.value) == (
        f"--env {NAME} - Expected: an environment of yours Actual: a rehearsal. Give the environment that it is of."
    )


def doca(document: dict[str, Any]) -> None:
    document["software"]["nic_stack"] = "doca"


def test_what_the_deploy_would_refuse_is_refused_before_the_rack_is_made(made: Rehearsal) -> None:
    small = scaled(changed("lab-4-nodes", doca), most=4)
    with pytest.raises(RackreadyError) as caught:
        made.run(small, keep=False, verbose=False)
    assert "software.nic_stack: doca - Expected: packages of DOCA-OFED for debian12" in str(caught.value)
    assert calls(made) == []


def test_deploy_ends_with_a_rehearsal_that_is_killed(tmp_path: Path) -> None:
    up, ended = tmp_path / "up", tmp_path / "ended"
    loop = f"trap 'touch {ended}; exit' TERM; touch {up}; while :; do sleep 0.1; done"
    code = f"import subprocess\nsubprocess.run([*{run._ENDS_WITH_US!r}, 'sh', '-c', {loop!r}])"
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        until(up.exists)
        parent.kill()
    until(ended.exists)
