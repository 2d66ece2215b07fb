"""Typed differences from the results of Ansible tasks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rackready.drivers.ansible_items import check_in, check_of, items_of

TASK = "service | Start it"


def one(result: dict[str, Any]) -> tuple[str, str, str, str]:
    (item,) = items_of(TASK, {"changed": True, **result})
    return item["kind"], item["name"], item["expected"], item["actual"]


def unit(enabled: str, active: str, state: str = "started") -> dict[str, Any]:
    status = {"UnitFileState": enabled, "ActiveState": active, "Environment": "TOKEN=hunter2"}
    return {"name": "nvidia-dcgm.service", "enabled": True, "state": state, "status": status}


def test_a_task_that_changes_nothing_has_no_item() -> None:
    assert items_of(TASK, {"changed": False, "diff": [{"before": "a", "after": "b"}]}) == []


def test_items_of_our_own_modules_are_taken_as_they_are() -> None:
    item = {"kind": "package", "name": "libnccl2", "expected": "2 held", "actual": "absent"}
    assert items_of(TASK, {"changed": True, "drift": [item | {"more": 1}]}) == [item]


@pytest.mark.parametrize(
    ("enabled", "active", "expected", "actual"),
    [
        ("disabled", "active", "enabled", "disabled"),
        ("enabled", "inactive", "active", "inactive"),
        ("disabled", "failed", "enabled, active", "disabled, failed"),
        ("masked", "inactive", "enabled, active", "masked, inactive"),
        ("", "inactive", "enabled, active", "not enabled, inactive"),
    ],
)
def test_a_unit_is_compared_as_it_was_before(enabled: str, active: str, expected: str, actual: str) -> None:
    assert one(unit(enabled, active)) == ("unit", "nvidia-dcgm.service", expected, actual)


def test_a_restart_of_a_unit_that_runs_follows_another_change() -> None:
    assert items_of(TASK, {"changed": True, **unit("static", "active", "restarted")}) == []


def test_a_file_is_compared_by_hash_and_its_content_is_dropped() -> None:
    result = {"dest": "/opt/pynvml.py", "diff": [{"before": "secret 1\n", "after": "secret 2\n", "after_header": "x"}]}
    kind, name, expected, actual = one(result)
    assert (kind, name) == ("file", "/opt/pynvml.py")
    assert expected.startswith("sha256 ")
    assert actual.startswith("sha256 ")
    assert expected != actual
    assert "secret" not in json.dumps(items_of(TASK, {"changed": True, **result}))


def test_a_file_that_is_absent_and_attributes_are_named() -> None:
    assert one({"dest": "/a", "diff": {"before": "", "after": "x\n"}})[3] == "absent or empty"
    modes = {"before": {"path": "/a", "mode": "0755"}, "after": {"path": "/a", "mode": "0644"}}
    assert one({"path": "/a", "diff": modes}) == ("file", "/a", "mode 0644", "mode 0755")


@pytest.mark.parametrize("hidden", [{"censored": "hidden"}, {"_ansible_no_log": True, "diff": [{"after": "hunter2"}]}])
def test_what_a_task_keeps_secret_stays_secret(hidden: dict[str, Any]) -> None:
    assert one(hidden) == (
        "file",
        TASK,
        "the content that the site declares",
        "differs (its content is kept secret)",
    )


def test_a_change_of_which_nothing_is_known_is_named_by_its_task() -> None:
    assert one({"cmd": ["make"]}) == ("task", TASK, "nothing to change", "it would change something")


def test_a_failed_check_of_a_role_is_a_difference_and_another_failure_is_not() -> None:
    given = {
        "expected": "mode Enabled on 8 GPUs",
        "actual": "Disabled, Enabled",
        "next_step": "Check `journalctl -u x` on the node.",
    }
    check = check_in({"failed": True, "msg": "in any words", "check": given})
    assert check is not None
    assert check_of("verify | Check", check) == {
        "kind": "check",
        "name": "verify | Check",
        "expected": "mode Enabled on 8 GPUs",
        "actual": "Disabled, Enabled",
        "next_step": "Check `journalctl -u x` on the node.",
    }
    assert check_in({"check": {"expected": "8.5 GPUs", "actual": "7.5"}}) == {
        "expected": "8.5 GPUs",
        "actual": "7.5",
        "next_step": "",
    }
    for foreign in ({"msg": "Expected: 8.5 GPUs Actual: 7.5."}, {"check": True}, {"check": {"rc": 1}}, {}):
        assert check_in(foreign) is None
