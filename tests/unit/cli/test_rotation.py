"""Waves and stop rule of `bmc rotate` and `switch rotate`, and what `--check` shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from rackready.cli.rotation import in_waves
from rackready.drivers import secret_store
from rackready.model.problems import RackreadyError
from rackready.paths import EnvPaths

Call = Callable[..., tuple[int, str, str]]
NAMES = [f"node{number:02}" for number in range(1, 12)]


class _LostError(RackreadyError):
    """Neither password works."""


def played(bad: dict[str, type[RackreadyError]], limit: int = 100) -> tuple[list[str], list[dict[str, object]]]:
    asked: list[str] = []

    def work(name: str, say: Callable[[str], None]) -> None:
        asked.append(name)
        if name in bad:
            raise bad[name](name, "refused", expected="a login", actual="401")
        say(f"{name}: done")

    rows = in_waves(NAMES, work, lost=_LostError, stop_above_pct=limit)
    return sorted(asked), rows


def test_all_are_changed_the_first_before_the_others() -> None:
    asked, rows = played({})
    assert (asked, [row["outcome"] for row in rows]) == (NAMES, ["changed"] * 11)
    assert [row["name"] for row in rows] == NAMES


def test_a_failure_of_the_first_holds_all_others() -> None:
    asked, rows = played({"node01": RackreadyError})
    assert asked == ["node01"]
    assert [row["outcome"] for row in rows] == ["error", *["not begun"] * 10]
    assert rows[1]["message"] == (
        "node02: not begun, its password is as it was - Expected: the devices before it changed Actual: node01, which "
        "went first, failed. Correct that, then run again."
    )


def test_a_device_on_which_neither_works_ends_the_run_after_its_wave() -> None:
    asked, rows = played({"node03": _LostError})
    assert asked == NAMES[:9]
    assert (rows[2]["outcome"], rows[9]["outcome"]) == ("lost", "not begun")
    assert "Actual: neither password works on node03." in str(rows[9]["message"])


@pytest.mark.parametrize(("limit", "goes_on"), [(25, True), (24, False)])
def test_the_sites_stop_rule_counts_a_wave(limit: int, *, goes_on: bool) -> None:
    asked, rows = played({"node03": RackreadyError, "node04": RackreadyError}, limit)
    assert asked == (NAMES if goes_on else NAMES[:9])
    if not goes_on:
        assert "2 of 8 failed in a wave (campaign.stop_above_pct: 24)" in str(rows[-1]["message"])


def test_a_password_that_cannot_be_written_is_of_that_device_alone() -> None:
    def work(name: str, say: Callable[[str], None]) -> None:
        if name == "node03":
            raise PermissionError(13, "Permission denied", "/secrets/node03.pending")
        say(f"{name}: done")

    rows = in_waves(NAMES, work, lost=_LostError, stop_above_pct=100)
    assert [row["outcome"] for row in rows] == ["changed", "changed", "error", *["changed"] * 8]
    assert rows[2]["message"] == (
        "node03: /secrets/node03.pending - Expected: a path that this user may use Actual: Permission denied. Correct "
        "its permissions or its owner, or run as another user."
    )


def overlay(root: Path, document: dict[str, object]) -> None:
    path = EnvPaths(root, "sim").overlay
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document), encoding="utf-8")


def test_a_dry_run_asks_no_device_and_names_what_cannot_be_written(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_store.FileStore, "prepare", None)
    bmc = {"address": "127.85.1.99", "password": {"env": "BMC"}}
    overlay(tmp_path, {"racks": [{"name": "rack01", "nodes": [{"name": "node02", "bmc": bmc}]}]})
    code, out, err = call("bmc", "rotate", "node01", "node02", "--check")
    pending = tmp_path / ".rackready/sim/secrets/node01-bmc.pending"
    assert (code, out) == (
        1,
        f"node01: would set a new random password, kept in {pending} until it works; the BMC was not asked\n",
    )
    assert "node02 bmc.password - Expected: file, sops or vault, which rackready writes Actual: environment" in err
    code, out, _ = call("switch", "rotate", "--all", "--check", "--output", "json")
    rows = json.loads(out)["switches"]
    assert (code, [(row["name"], row["outcome"]) for row in rows]) == (
        0,
        [("leaf01", "would change"), ("leaf02", "would change")],
    )


def test_switches_are_named_or_all(call: Call) -> None:
    code, _, err = call("switch", "rotate", "leaf09", "--check")
    assert code == 2
    assert (
        "switch rotate - Expected: a switch with a login: leaf01, leaf02 Actual: leaf09. Correct the name, or add os, "
        "address and password to switches in the site file."
    ) in err
    code, _, err = call("switch", "rotate", "leaf01", "--all")
    assert code == 2
    assert "switch - Expected: names of switches, or --all Actual: both. Give one of them." in err


@pytest.mark.parametrize("check", [[], ["--check"]])
def test_a_place_that_two_devices_share_is_refused_before_anything(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: list[str]
) -> None:
    monkeypatch.setattr(secret_store.FileStore, "prepare", None)
    shared = {"file": str(tmp_path / "bmc")}
    again = {"file": str(tmp_path / "x" / ".." / "bmc")}
    nodes = [
        {"name": "node01", "bmc": {"address": "127.85.1.98", "password": shared}},
        {"name": "node02", "bmc": {"address": "127.85.1.99", "password": again}},
    ]
    overlay(
        tmp_path, {"racks": [{"name": "rack01", "nodes": nodes}], "switches": [{"name": "leaf01", "password": shared}]}
    )
    step = "Copy the secret to a place for each device and name those: the others would lose theirs.\n"
    for words, name in ((["bmc", "rotate", "node01", "node02"], "node01"), (["switch", "rotate", "--all"], "leaf01")):
        code, out, err = call(*words, *check)
        assert (code, out) == (2, "")
        assert err == (
            f"{name} password in file {tmp_path / 'bmc'} - Expected: a place of its own, which nothing else uses "
            f"Actual: the site file names it 3 times. {step}"
        )
