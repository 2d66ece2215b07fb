"""What the nodes' repositories offer: the new set, and the way back."""

from __future__ import annotations

import json

import pytest

from rackready.campaign.upgrade.changes import NodeChanges
from rackready.campaign.upgrade.mirror_check import judged
from rackready.ondevice import offered

CHANGE = NodeChanges((), reboot=False, why="", wanted=("dcgm=2", "driver=2"), former=("dcgm=1", "driver=1", "fm=1"))


def answer(*specs: str, problem: str = "") -> str:
    return json.dumps({"format": offered.FORMAT, "offered": list(specs), "problem": problem})


def said(text: str) -> list[str]:
    return [str(problem) for problem in judged("node01", text, CHANGE)]


def test_both_sets_are_offered() -> None:
    assert said(answer("dcgm=1", "dcgm=2", "driver=1", "driver=2", "fm=1")) == []


def test_a_way_back_that_the_mirror_dropped_is_named() -> None:
    assert said(answer("dcgm=2", "driver=2", "fm=1")) == [
        (
            "node01: packages of the way back - Expected: offered by its repositories Actual: no dcgm=1, driver=1. "
            "Put both sets into the mirror (`rackready mirror`), then run again. Nothing was changed."
        )
    ]


def test_a_new_set_that_is_not_there_yet_is_named() -> None:
    assert [line.partition(" - ")[0] for line in said(answer("dcgm=1", "driver=1", "fm=1"))] == [
        "node01: packages of the new set"
    ]


@pytest.mark.parametrize(
    ("text", "actual"),
    [
        ("", "no document about its repositories"),
        ("[]", "no document about its repositories"),
        (answer(problem="E: 404 Not Found"), "E: 404 Not Found"),
    ],
)
def test_an_answer_that_says_nothing_is_no_pass(text: str, actual: str) -> None:
    assert said(text) == [
        (
            f"node01: packages that its repositories offer - Expected: read from the node Actual: {actual}. "
            "Correct that, or leave the node out with --limit. Nothing was changed."
        )
    ]


def test_apt_is_asked_with_lists_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows of `apt-cache madison` (apt-cache(8)); the node's own lists stay as they are."""
    asked: list[list[str]] = []

    def run(argv: list[str]) -> tuple[int, str]:
        asked.append(argv)
        return 0, "nvidia-open | 580.1-1 | http://m ./ Packages\nnvidia-open | 580.2-1 | http://m ./ Packages\n"

    monkeypatch.setattr(offered.shutil, "which", lambda _name: "/usr/bin/apt-get")
    monkeypatch.setattr(offered, "_run", run)
    assert offered.main(["nvidia-open"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == {
        "format": offered.FORMAT,
        "offered": ["nvidia-open=580.1-1", "nvidia-open=580.2-1"],
        "problem": "",
    }
    lists = [word for argv in asked for word in argv if word.startswith("Dir::State::lists=")]
    assert len(lists) == 2
    assert all(word.startswith("Dir::State::lists=/") and "/var/lib/apt" not in word for word in lists)


def test_dnf_offers_with_and_without_epoch_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(offered.shutil, "which", lambda _name: None)
    monkeypatch.setattr(offered, "_run", lambda _argv: (0, "dcgm=1:4.6.0-1\nnccl=0:2.28-1\n\n"))
    offered.main(["dcgm"])
    assert json.loads(capsys.readouterr().out)["offered"] == ["dcgm=1:4.6.0-1", "nccl=0:2.28-1", "nccl=2.28-1"]


@pytest.mark.parametrize("which", ["/usr/bin/apt-get", None])
def test_a_package_manager_that_fails_is_a_problem(
    which: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(offered.shutil, "which", lambda _name: which)
    monkeypatch.setattr(offered, "_run", lambda _argv: (100, "E: 404"))
    offered.main(["dcgm"])
    assert json.loads(capsys.readouterr().out) == {"format": offered.FORMAT, "offered": [], "problem": "E: 404"}
