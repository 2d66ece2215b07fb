"""A phase with a proof before its play: only a node that surely is as released is left out. All is on record."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from rackready.campaign import proof
from rackready.campaign.proof import LONGEST_S, Played, proven
from rackready.design.pinned import site_of
from rackready.drivers.process import Interrupted
from rackready.drivers.proof.recorded import Recorded
from rackready.drivers.proof.release import releases
from rackready.evidence.raw_outputs import RawOutputs
from rackready.ledger.proofs import proofs_of, record_of
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.ondevice import replay
from rackready.paths import EnvPaths
from tests.unit.proof.test_recorded import CHECK, DRIVER

ROOT = Path(__file__).resolve().parents[3]
NODES = ["node01", "node02"]
CANARY = "canary-Zk3vQ9"
OPERATION = "install:install.yml"


@dataclass
class Rack:
    """Nodes that are played and asked. ``answers``: what a node says instead of what its play recorded."""

    ctx: PhaseContext
    played: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    result: NodeResult = field(default_factory=lambda: NodeResult(Outcome.PASS))
    steps: list[dict[str, Any]] = field(default_factory=lambda: [DRIVER, CHECK])
    during: Callable[[], object] = lambda: None
    seen: dict[str, Any] = field(default_factory=dict)
    status: str = "done"

    @property
    def paths(self) -> EnvPaths:
        return EnvPaths(self.ctx.root, "sim")

    def play(
        self, ctx: PhaseContext, playbook: str, nodes: list[str], variables: dict[str, Any], *, steps: Path | None
    ) -> dict[str, NodeResult]:
        """Be ansible-playbook: the callback writes the steps, the run its end in the ledger."""
        assert playbook == "install.yml"
        self.played += nodes
        self.seen = {"variables": variables, "steps": steps, "check": ctx.check}
        if steps is not None:
            steps.write_text("".join(json.dumps(step | {"host": node}) + "\n" for node in nodes for step in self.steps))
        self.during()
        with Ledger.open(self.paths.database) as ledger:
            for node in () if ctx.check else nodes:
                token = ledger.begin(node, OPERATION, "d", {}).token
                {"done": ledger.done, "failed": lambda token: ledger.failed(token, "x"), "intent": bool}[self.status](
                    token
                )
        return dict.fromkeys(nodes, self.result)

    def ask(self, node: str, record: Recorded) -> tuple[str, str]:
        self.asked.append(node)
        if node in self.lost:
            return "", self.lost[node]
        steps = [
            {"at_s": 0.5, "status": 0, "changed": False, "result": step.expected | self.answers.get(node, {})}
            for step in record.steps
        ]
        document = {"format": replay.FORMAT, "steps": steps, "seconds": 1.0, "digest": replay.digest(steps)}
        return json.dumps(document | {"complete": True}), ""

    def run(self, nodes: list[str] | None = None, own: PhaseContext | None = None) -> dict[str, NodeResult]:
        self.played.clear()
        self.asked.clear()
        work = Played("install.yml", lambda nodes: {"rackready_tuned": nodes})
        return proven(self.ctx, "install", work, self.ask)(own or self.ctx, nodes or NODES)

    def events(self) -> list[str]:
        with Ledger.open(self.paths.database) as ledger:
            return [f"{row.node}: {row.text}" for row in ledger.events("c1")]

    def reason(self, node: str = "node01") -> str:
        found = [text for text in self.events() if text.startswith(f"{node}: is played: ")]
        return found[-1].removeprefix(f"{node}: is played: ")

    def sql(self, text: str, **values: object) -> None:
        with Ledger.open(self.paths.database) as ledger, ledger.write() as connection:
            connection.execute(sa.text(text), values)


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rack:
    (tmp_path / "inventories/sim").mkdir(parents=True)
    (tmp_path / "inventories/sim/site.yml").write_bytes((ROOT / "inventories/sim/site.yml").read_bytes())
    found = Rack(PhaseContext("sim", tmp_path, "c1"))
    monkeypatch.setattr(proof, "run_playbook", found.play)
    return found


def test_the_first_play_records_and_the_next_run_proves_without_a_play(rack: Rack) -> None:
    assert rack.run() == dict.fromkeys(NODES, NodeResult(Outcome.PASS))
    assert (rack.played, rack.asked, rack.reason()) == (NODES, [], "it was not played yet")
    assert rack.seen["variables"] == {"rackready_tuned": NODES}
    results = rack.run()
    assert (rack.played, sorted(rack.asked)) == ([], NODES)
    words = "as released: 1 steps answer as in its last play"
    assert results == dict.fromkeys(NODES, NodeResult(Outcome.PASS, words, data={"changed": 0, "ok": 1}))
    assert "node01: say this" in rack.events(), "a proof says again what the play had to say"


def test_a_proof_is_on_record_with_what_the_node_answered(rack: Rack) -> None:
    rack.run()
    rack.run()
    with Ledger.open(rack.paths.database) as ledger:
        (row,) = proofs_of(ledger, "node01")
        assert (row.campaign, row.phase, row.mode, row.same, row.reason) == ("c1", "install", "play", True, "")
        answer = json.loads(RawOutputs(ledger, rack.paths.raw).get(row.raw))
        assert answer["steps"][0]["result"]["loaded"] == "580.1"
        with pytest.raises(sa.exc.SQLAlchemyError), ledger.write() as connection:
            connection.execute(sa.text("update proofs set same = 0"))


def test_only_the_node_that_differs_is_played(rack: Rack) -> None:
    rack.run()
    rack.answers["node02"] = {"loaded": "570.9"}
    results = rack.run()
    assert rack.played == ["node02"]
    assert rack.reason("node02") == "nvidia_driver : load | Load the driver: another answer (loaded)"
    assert (results["node01"].message[:11], results["node02"].message) == ("as released", "")
    with Ledger.open(rack.paths.database) as ledger:
        assert (proofs_of(ledger, "node02")[0].same, proofs_of(ledger, "node02")[0].reason) == (
            False,
            rack.reason("node02"),
        )


def test_a_node_that_cannot_be_read_is_played(rack: Rack) -> None:
    rack.run()
    rack.lost["node01"] = "Permission denied"
    rack.run()
    assert (rack.played, rack.reason()) == (["node01"], "the node could not be read: Permission denied")


def test_full_and_a_dry_run_of_somebody_play_every_node(rack: Rack) -> None:
    rack.run()
    for ctx in (replace(rack.ctx, full=True), replace(rack.ctx, check=True)):
        rack.played.clear()
        proven(ctx, "install", Played("install.yml"), rack.ask)(ctx, NODES)
        assert (rack.played, rack.asked, rack.seen["steps"]) == (NODES, [], None)


def test_a_node_in_production_is_proven_by_a_dry_run_of_its_own_kind(rack: Rack) -> None:
    """Its dry run comes before a drain (run_drained). A play's record proves no dry run, and the other way round."""
    rack.run()
    dry = replace(rack.ctx, check=True)
    rack.run(own=dry)
    assert (rack.played, rack.reason()) == (NODES, "no play that changed nothing is on record")
    rack.run(own=dry)
    assert (rack.played, sorted(rack.asked)) == ([], NODES)
    rack.run()
    assert rack.played == []


def write(rack: Rack, name: str, text: str) -> None:
    path = rack.paths.inventory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def tampered(rack: Rack) -> None:
    with Ledger.open(rack.paths.database) as ledger, ledger.write() as connection:
        (data,) = connection.execute(sa.text("select sealed from proof_records where node = 'node01'")).one()
        changed = data[:40] + bytes([data[40] ^ 1]) + data[41:]
        connection.execute(sa.text("update proof_records set sealed = :d where node = 'node01'"), {"d": changed})


def raised_epoch(rack: Rack) -> None:
    with Ledger.open(rack.paths.database) as ledger:
        for node in NODES:
            ledger.raise_epoch(node, "repaired")


def ended(rack: Rack, status: str) -> None:
    with Ledger.open(rack.paths.database) as ledger:
        token = ledger.begin("node01", OPERATION, "d", {}).token
        if status == "failed":
            ledger.failed(token, "x")


BEFORE: list[tuple[str, Callable[[Rack], object], str]] = [
    (
        "another release",
        lambda rack: (rack.ctx.root / "inventories/sim/site.yml").write_text(
            (ROOT / "inventories/sim/site.yml").read_text().replace("software:\n", "software:\n  persistence: false\n")
        ),
        "its release is another: roles, versions or variables changed since",
    ),
    (
        "variables",
        lambda rack: write(rack, "group_vars/nodes.yml", "base_sysctl: {vm.swappiness: 1}\n"),
        "its release is another: roles, versions or variables changed since",
    ),
    (
        "variables of the node",
        lambda rack: write(rack, "host_vars/node01.yml", "base_sysctl: {vm.swappiness: 1}\n"),
        "its release is another: roles, versions or variables changed since",
    ),
    (
        "variables in a vault",
        lambda rack: write(rack, "group_vars/nodes.yml", "$ANSIBLE_VAULT;1.1;AES256\n3132\n"),
        "group_vars/nodes.yml uses $ANSIBLE_VAULT, which may mean something else each time",
    ),
    (
        "variables by a lookup",
        lambda rack: write(rack, "group_vars/nodes.yml", "x: \"{{ lookup('pipe', 'date') }}\"\n"),
        "group_vars/nodes.yml uses lookup, which may mean something else each time",
    ),
    (
        "age",
        lambda rack: rack.sql("update proof_records set at = at - :s", s=LONGEST_S + 60),
        "its last full play is older than 7 days",
    ),
    (
        "a clock that was wrong",
        lambda rack: rack.sql("update proof_records set at = at + 3600"),
        "its last full play is",
    ),
    ("a repair", raised_epoch, "it was not played yet"),
    ("a failed play", lambda rack: ended(rack, "failed"), "its last play did not end well"),
    ("a killed play", lambda rack: ended(rack, "intent"), "its last play did not end well"),
    ("a tampered record", tampered, "its record cannot be opened: it was changed, or another"),
    (
        "a damaged record",
        lambda rack: rack.sql("update proof_records set sealed = cast(sealed || x'ff' as text)"),
        "its record is damaged: {ledger}: the ledger cannot be read",
    ),
    (
        "a shortened record",
        lambda rack: rack.sql("update proof_records set sealed = substr(sealed, 1, 20)"),
        "its record cannot be opened: it was changed, or another machine made it",
    ),
    ("an empty record", lambda rack: rack.sql("update proof_records set sealed = x''"), "its record cannot be opened"),
    (
        "another node's record",
        lambda rack: rack.sql(
            "update proof_records set sealed = (select sealed from proof_records where node = 'node02') "
            "where node = 'node01'"
        ),
        "its record cannot be opened: it was changed, or another machine made it",
    ),
    (
        "a younger time in it",
        lambda rack: rack.sql("update proof_records set at = at - 60"),
        "its record cannot be opened: it was changed, or another machine made it",
    ),
    (
        "another key",
        lambda rack: (rack.paths.state / "proof.key").write_bytes(os.urandom(32)),
        "its last play was recorded with another proof.key, of another machine or an earlier one: machines that share ",
    ),
    (
        "a torn key",
        lambda rack: (rack.paths.state / "proof.key").write_bytes(b"short"),
        "its last play was recorded with another proof.key, of another machine or an earlier one: machines that share ",
    ),
    ("no record", lambda rack: rack.sql("delete from proof_records"), "no play that changed nothing is on record"),
]


@pytest.mark.parametrize(("damage", "why"), [case[1:] for case in BEFORE], ids=[case[0] for case in BEFORE])
def test_anything_that_is_not_certain_is_played_without_asking(
    rack: Rack, damage: Callable[[Rack], object], why: str
) -> None:
    rack.run()
    damage(rack)
    rack.run()
    assert "node01" in rack.played
    assert "node01" not in rack.asked
    reason = rack.reason()
    assert reason.isprintable()
    assert len(reason) < 700, "SQLite quotes a damaged value whole"
    assert reason.startswith(why.format(ledger=rack.paths.database.file))


def test_a_variable_of_one_node_leaves_the_others_proven(rack: Rack) -> None:
    rack.run()
    write(rack, "host_vars/node01/mine.yml", "x: 1\n")
    rack.run()
    assert (rack.played, rack.asked) == (["node01"], ["node02"])


def test_the_content_of_a_file_that_variables_name_counts(rack: Rack) -> None:
    write(rack, "mirror.asc", "one key\n")
    write(rack, "group_vars/nodes.yml", f"base_mirror_key: {rack.paths.inventory}/mirror.asc\n")
    rack.run()
    rack.run()
    assert rack.played == []
    write(rack, "mirror.asc", "another key\n")
    rack.run()
    assert rack.played == NODES


def test_the_content_of_a_file_that_the_site_names_counts(rack: Rack) -> None:
    """The site file's own variables name files, too: the key of a mirror or repository."""
    key = rack.ctx.root / "repository.asc"
    key.write_text("one key\n")
    site, given = site_of(rack.ctx), {"node01": {"base_mirror_key": str(key)}}
    first = releases(b"k", rack.paths, site, "install.yml", given)
    assert releases(b"k", rack.paths, site, "install.yml", given) == first
    key.write_text("another key\n")
    assert releases(b"k", rack.paths, site, "install.yml", given) != first


NO_RECORD: list[tuple[str, Callable[[Rack], object]]] = [
    ("changed", lambda rack: setattr(rack, "result", NodeResult(Outcome.PASS, changed=True))),
    ("failed", lambda rack: setattr(rack, "result", NodeResult(Outcome.FAIL, "x"))),
    ("not reached", lambda rack: setattr(rack, "result", NodeResult(Outcome.ERROR, "x"))),
    ("rescued", lambda rack: setattr(rack, "result", NodeResult(Outcome.PASS, data={"broken": [{"role": "a"}]}))),
    ("not measured", lambda rack: setattr(rack, "result", NodeResult(Outcome.PASS, data={"unmeasured": ["a"]}))),
    ("a step that cannot be proven", lambda rack: rack.steps.append(DRIVER | {"action": "ansible.builtin.copy"})),
    ("a secret", lambda rack: rack.steps.append(DRIVER | {"no_log": True})),
    ("no steps", lambda rack: rack.steps.clear()),
    (
        "edited meanwhile",
        lambda rack: setattr(rack, "during", lambda: write(rack, "group_vars/nodes.yml", f"x: {time.time()}\n")),
    ),
]


@pytest.mark.parametrize("damage", [case[1] for case in NO_RECORD], ids=[case[0] for case in NO_RECORD])
def test_a_play_that_proves_nothing_leaves_no_record(rack: Rack, damage: Callable[[Rack], object]) -> None:
    damage(rack)
    rack.run()
    with Ledger.open(rack.paths.database) as ledger:
        assert record_of(ledger, "node01", "install", "play") is None


def test_a_play_that_changed_something_does_not_void_the_record_of_the_same_release(rack: Rack) -> None:
    """The record says how a play of this release goes when nothing is to change; the node itself is asked each time."""
    rack.run()
    rack.answers["node01"] = {"loaded": "570.9"}
    rack.result = NodeResult(Outcome.PASS, changed=True)
    rack.run()
    assert rack.played == ["node01"]
    rack.answers.clear()
    rack.run()
    assert rack.played == []


def test_a_kill_between_the_play_and_its_record_leaves_none(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    class KilledError(BaseException):
        pass

    def killed(*_: object) -> None:
        raise KilledError

    monkeypatch.setattr(proof, "keep_record", killed)
    with pytest.raises(KilledError):
        rack.run()
    monkeypatch.undo()
    monkeypatch.setattr(proof, "run_playbook", rack.play)
    rack.run()
    assert (rack.played, rack.reason()) == (NODES, "no play that changed nothing is on record")


def test_the_steps_of_a_killed_run_are_removed_and_those_of_this_one(rack: Rack) -> None:
    left = rack.paths.logs / "c0" / "install-1-abcd.steps"
    left.parent.mkdir(parents=True)
    left.write_text(CANARY)
    rack.during = lambda: oct(rack.seen["steps"].parent.stat().st_mode) == oct(0o40700) or pytest.fail("open folder")
    rack.run()
    assert list(rack.paths.logs.rglob("*.steps")) == []


def test_a_stop_is_no_verdict(rack: Rack) -> None:
    rack.run()

    def stopped(_node: str, _record: Recorded) -> tuple[str, str]:
        raise Interrupted

    rack.ask = stopped  # type: ignore[method-assign]
    with pytest.raises(Interrupted):
        rack.run()
    assert rack.played == []


def test_an_answer_that_cannot_be_stored_proves_nothing(rack: Rack) -> None:
    rack.run()
    rack.paths.raw.parent.mkdir(parents=True, exist_ok=True)
    rack.paths.raw.write_text("no folder")
    rack.run()
    assert rack.played == NODES
    assert "a raw output cannot be stored" in rack.reason()


def test_no_secret_of_a_play_is_found_in_any_file(rack: Rack) -> None:
    """A password in a role's arguments and in variables: sealed, in keyed digests, and never in an answer."""
    secret = DRIVER | {
        "action": "rackready_files",
        "task": "write",
        "args": {"files": [{"path": "/x", "content": f"password {CANARY}\n"}]},
        "result": {"changed": False, "invocation": {"module_args": CANARY}, "diff": [{"before": CANARY}]},
    }
    rack.steps = [secret]
    write(rack, "group_vars/nodes.yml", f"x: {CANARY}\n")
    rack.run()
    rack.answers["node02"] = {"changed": True}
    rack.run()
    assert rack.played == ["node02"]
    (rack.paths.inventory / "group_vars/nodes.yml").unlink()
    files = [path for path in rack.ctx.root.rglob("*") if path.is_file()]
    assert any(path.name == "state.sqlite" for path in files)
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []
    key = rack.paths.state / "proof.key"
    assert (oct(key.stat().st_mode), len(key.read_bytes())) == (oct(0o100600), 32)


def test_a_release_is_keyed_so_that_nobody_can_guess_what_is_in_it(rack: Rack) -> None:
    rack.run()
    with Ledger.open(rack.paths.database) as ledger:
        first = record_of(ledger, "node01", "install", "play")
    (rack.paths.state / "proof.key").write_bytes(os.urandom(32))
    rack.run()
    with Ledger.open(rack.paths.database) as ledger:
        second = record_of(ledger, "node01", "install", "play")
    assert first is not None
    assert second is not None
    assert re.fullmatch(r"[0-9a-f]{16}:[0-9a-f]{64}", first.release)
    assert first.release != second.release
