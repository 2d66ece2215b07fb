"""What a play left behind: only one that can prove something is kept, and it says why another is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rackready.drivers.proof.recorded import Recorded, UnprovableError, by_node, recorded

DRIVER: dict[str, Any] = {
    "event": "ok",
    "host": "node01",
    "role": "nvidia_driver",
    "task": "load | Load the driver",
    "action": "rackready_driver",
    "args": {"version": "580.1", "token": 41, "ledger": "me", "lock_wait_s": 600, "_ansible_check_mode": False},
    "declared": {"check_mode": None, "changed_when": None},
    "result": {"changed": False, "loaded": "580.1", "invocation": {"x": 1}, "notes": ["say this"]},
    **dict.fromkeys(("no_log", "run_once", "ignore_errors", "delegate_to")),
    "async_val": 0,
    "environment": [{}],
}
WHERE = "nvidia_driver : load | Load the driver"
READ = DRIVER | {
    "action": "ansible.builtin.command",
    "declared": {"check_mode": False, "changed_when": False},
    "args": {"_raw_params": "nvidia-smi"},
    "result": {"changed": False, "rc": 0, "stdout": "a", "stderr": "", "start": "now"},
}
CHECK = DRIVER | {
    "action": "rackready_check",
    "task": "Check it",
    "args": {"that": True},
    "result": {"changed": False, "bounds": {"gpus": "8"}},
}
NOTE = DRIVER | {"action": "ansible.builtin.debug", "args": {"var": "notes"}, "result": {"notes": ["and this"]}}


def test_steps_bounds_and_notes_are_kept_without_what_a_run_adds() -> None:
    found = recorded([DRIVER, READ, CHECK, NOTE])
    assert [step.plain() if hasattr(step, "plain") else step.where for step in found.steps] == [
        "nvidia_driver : load | Load the driver"
    ] * 2
    assert found.steps[0].args == {"version": "580.1", "token": 0, "ledger": "", "lock_wait_s": 600}
    assert found.steps[0].expected == {"changed": False, "loaded": "580.1", "notes": ["say this"]}
    assert found.steps[1].expected == {"rc": 0, "stdout": "a", "stderr": ""}
    assert found.bounds == {"nvidia_driver : Check it": {"gpus": 8.0}}
    assert found.notes == ("say this", "and this")
    assert Recorded.load(json.loads(json.dumps(found.plain()))) == found


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (DRIVER | {"event": "failed"}, "nvidia_driver : load | Load the driver: failed"),
        (DRIVER | {"event": "unreachable"}, "nvidia_driver : load | Load the driver: unreachable"),
        ({"event": "unwritten", "host": "node01", "task": "t", "why": "x"}, "play : t: unwritten"),
        (
            DRIVER | {"action": "ansible.builtin.copy"},
            "nvidia_driver : load | Load the driver: nothing reads again what ansible.builtin.copy does",
        ),
        (
            DRIVER | {"action": "their.own.rackready_thing"},
            "nvidia_driver : load | Load the driver: nothing reads again what their.own.rackready_thing does",
        ),
        (
            DRIVER | {"no_log": True},
            "nvidia_driver : load | Load the driver: it has a secret, which is not kept",
        ),
        (DRIVER | {"delegate_to": "x"}, "nvidia_driver : load | Load the driver: delegate_to"),
        (DRIVER | {"async_val": 5}, "nvidia_driver : load | Load the driver: async_val"),
        (DRIVER | {"run_once": True}, "nvidia_driver : load | Load the driver: run_once"),
        (DRIVER | {"ignore_errors": True}, "nvidia_driver : load | Load the driver: ignore_errors"),
        (DRIVER | {"environment": [{"A": "b"}]}, "nvidia_driver : load | Load the driver: environment"),
        (
            DRIVER | {"result": {"changed": True}},
            "nvidia_driver : load | Load the driver: it changed something",
        ),
        *(
            (
                READ | {"declared": declared},
                f"{WHERE}: it is not declared a read (check_mode: false, changed_when: false)",
            )
            for declared in (
                {"check_mode": None, "changed_when": False},
                {"check_mode": False, "changed_when": None},
                {"check_mode": False, "changed_when": True},
                {"check_mode": False, "changed_when": ["a.rc == 0"]},
            )
        ),
    ],
)
def test_a_play_that_proves_nothing_is_not_kept(line: dict[str, Any], why: str) -> None:
    with pytest.raises(UnprovableError) as refused:
        recorded([DRIVER, line])
    assert str(refused.value) == why


@pytest.mark.parametrize("lines", [[], [CHECK]])
def test_a_play_without_steps_is_not_kept(lines: list[dict[str, Any]]) -> None:
    with pytest.raises(UnprovableError, match="no step was recorded"):
        recorded(lines)


def test_a_torn_record_is_none_at_all() -> None:
    whole = [json.dumps(DRIVER), json.dumps(DRIVER | {"host": "node02"})]
    assert {node: len(lines) for node, lines in by_node(whole).items()} == {"node01": 1, "node02": 1}
    assert by_node([*whole, json.dumps(DRIVER)[:30]]) == {}


def test_a_record_with_an_action_that_is_not_known_any_more_is_not_loaded() -> None:
    plain = recorded([DRIVER]).plain()
    plain["steps"][0]["action"] = "rackready_gone"
    with pytest.raises(KeyError):
        Recorded.load(plain)
