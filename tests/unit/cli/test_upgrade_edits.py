"""`rackready upgrade` beside other work: edits of the site file, deploys meanwhile, another controller, exit codes."""

from __future__ import annotations

import pytest

from rackready.cli import upgrade_run
from rackready.cli.sets_of_upgrade import settle_sets
from rackready.design.node_sets import NodeSet, read
from rackready.ledger import upgrades
from rackready.ledger.node_sets import assign, assigned
from rackready.ledger.store import Ledger
from rackready.model.state import NodeState
from rackready.model.upgrade import SetChoice, UpgradeState
from rackready.paths import EnvPaths
from tests.unit.cli.test_upgrade import NEW, NO_DRIVER, NODES, OLD, Call, Waves, document, paths, waves

__all__ = ["paths", "waves"]


def bump(paths: EnvPaths, name: str) -> None:
    text = paths.site_file.read_text(encoding="utf-8")
    paths.site_file.write_text(text.replace(f"set: {OLD}", f"set: {name}"), encoding="utf-8")


def test_a_deploy_takes_no_node_past_its_wave_when_the_file_names_the_new_set_too_early(
    call: Call, waves: Waves, paths: EnvPaths
) -> None:
    waves.up["node02"] = NO_DRIVER
    _, found = document(call, "--to", NEW)
    bump(paths, NEW)
    for command in ("deploy", "validate"):
        code, _, err = call(command)
        assert code == 2
        assert f"node04: version set - Expected: as upgrade {found['id']} to {NEW} has it" in err
        assert f"Actual: {NEW}. Put the former set into the site file until the upgrade has ended" in err
    call("upgrade", "--resume")
    assert waves.moved[-1] == "up node04"


def test_a_third_set_in_the_file_stops_the_upgrade(call: Call, waves: Waves, paths: EnvPaths) -> None:
    waves.up["node02"] = NO_DRIVER
    document(call, "--to", NEW)
    bump(paths, "hgx-r580-ubuntu2404")
    code, _, err = call("upgrade", "--resume")
    assert (code, "Actual: hgx-r580-ubuntu2404. Put the former set" in err) == (2, True)
    assert waves.moved[-1] == "back node02"


def test_once_a_run_saw_the_new_set_in_the_file_a_revert_of_the_file_counts(
    call: Call, waves: Waves, paths: EnvPaths
) -> None:
    del call, waves
    with Ledger.open(paths.database) as ledger:
        assign(ledger, paths, "node02", NodeSet(SetChoice(set=NEW), SetChoice(set=OLD)))
    settle_sets(paths, "rackready deploy")
    assert list(read(paths.node_sets)) == ["node02"]
    bump(paths, NEW)
    settle_sets(paths, "rackready deploy")
    with Ledger.open(paths.database) as ledger:
        assert assigned(ledger) == read(paths.node_sets) == {}


def test_a_node_in_quarantine_counts_as_missed(call: Call, waves: Waves, paths: EnvPaths) -> None:
    with Ledger.open(paths.database) as ledger:
        ledger.set_state("node01", NodeState.QUARANTINED, "gpu3 is dead")
    code, found = document(call, "--to", NEW)
    assert (code, found["state"], found["nodes"][-1]["step"]) == (1, "finished", "left-out")
    assert waves.moved == ["up node02", "up node03", "up node04"]
    code, _, err = call("upgrade", "--to", NEW)
    assert (code, "left out: node01 is quarantined: gpu3 is dead." in err) == (1, True)


def test_after_an_abort_the_nodes_that_were_not_taken_are_named_with_the_command(call: Call, waves: Waves) -> None:
    waves.up["node01"] = NO_DRIVER
    call("upgrade", "--to", NEW)
    call("upgrade", "--abort")
    assert call("upgrade")[1].endswith(
        f"node01: `rackready upgrade --to {NEW} --failed-only` takes them again once repaired. "
        f"node02, node03, node04: `rackready upgrade --to {NEW}` takes them\n"
    )


def test_pause_is_refused_where_another_machine_runs_it(
    call: Call, waves: Waves, monkeypatch: pytest.MonkeyPatch
) -> None:
    waves.up["node01"] = NO_DRIVER
    call("upgrade", "--to", NEW)
    monkeypatch.setattr(upgrade_run, "is_held", lambda *_: True)
    code, _, err = call("upgrade", "--pause")
    assert (code, err) == (
        2,
        (
            "upgrade --pause - Expected: an upgrade on this machine Actual: on another one. "
            "Run `rackready upgrade --pause` on the machine that runs it.\n"
        ),
    )


def test_what_ended_before_the_lock_was_free_does_not_begin_again(
    call: Call, waves: Waves, paths: EnvPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    waves.up["node01"] = NO_DRIVER
    call("upgrade", "--to", NEW)
    before = upgrade_run.last_record(paths)
    assert before is not None
    call("upgrade", "--abort")
    monkeypatch.setattr(upgrade_run, "last_record", lambda _: before)
    code, _, err = call("upgrade", "--resume")
    assert (code, err) == (
        2,
        f"upgrades - Expected: {before.id}, open Actual: {before.id}, aborted. Look at it: `rackready upgrade`.\n",
    )
    with Ledger.open(paths.database) as ledger:
        now = upgrades.last(ledger)
    assert now is not None
    assert now.state is UpgradeState.ABORTED
    assert len(NODES) == len(now.nodes)
