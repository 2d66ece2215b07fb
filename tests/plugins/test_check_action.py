"""The action rackready_check: conditions as Ansible's assert evaluates them, values as data."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.drivers.ansible_items import CHECK, check_in

ROOT = Path(__file__).resolve().parents[2]
HELD = {"expected": "GPUs", "actual": "none", "next_step": "Look."}


def play(tmp_path: Path, tasks: list[dict[str, Any]], *options: str) -> list[dict[str, Any]]:
    """Run the tasks on this machine, and return the result of each one that failed, by Ansible's own JSON."""
    named = [{"name": f"t{number}", **task, "ignore_errors": True} for number, task in enumerate(tasks)]
    playbook = tmp_path / "play.yml"
    variables = {"gpus": 7, "names": ["a", "b"], "nothing": None, "condition": "gpus == 7"}
    playbook.write_text(
        yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": named}])
    )
    settings = {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_INVENTORY_ENABLED": "host_list",
        "ANSIBLE_DISPLAY_OK_HOSTS": "1",
        "ANSIBLE_STDOUT_CALLBACK": "minimal",
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
        "ANSIBLE_LOCAL_TEMP": str(tmp_path),
        "ANSIBLE_HOME": str(tmp_path),
    }
    tool = Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        [str(tool), "-i", "localhost,", "-c", "local", "-v", *options, str(playbook)],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return list(results(done.stdout)) or [{"output": done.stdout + done.stderr}]


def results(text: str) -> list[dict[str, Any]]:
    """Return the results that Ansible's callback `minimal` prints, each with whether it failed."""
    decoder, (_, *parts) = json.JSONDecoder(), re.split(r"localhost \| (\w+)!? => ", text)
    return [
        decoder.raw_decode(body)[0] | {"failed": word == "FAILED"}
        for word, body in zip(parts[::2], parts[1::2], strict=True)
    ]


def task(that: object, **words: object) -> dict[str, Any]:
    return {"rackready_check": {"that": that, **HELD, **words}}


@pytest.mark.parametrize("options", [(), ("--check",)], ids=["run", "dry run"])
def test_a_condition_that_holds_passes_and_one_that_does_not_fails_with_its_values(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    good, bad, last = play(
        tmp_path,
        [
            task(["gpus == 7", "names | length == 2"]),
            task(["gpus == 7", "gpus > 7"], actual="{{ gpus }} GPUs."),
            task("gpus == 7"),
        ],
        *options,
    )
    assert (good["failed"], CHECK in good, good["changed"]) == (False, False, False)
    assert (bad["failed"], bad["assertion"]) == (True, "gpus > 7")
    assert check_in(bad) == HELD | {"actual": "7 GPUs"}
    assert bad["msg"] == "Expected: GPUs Actual: 7 GPUs. Look."
    assert CHECK not in last


def test_values_that_templates_give_as_other_types_are_words(tmp_path: Path) -> None:
    number, several, nothing, bare = play(
        tmp_path,
        [
            task("gpus > 7", actual="{{ gpus }}"),
            task("gpus > 7", actual="{{ names }}"),
            task("gpus > 7", actual="{{ nothing }}"),
            {"rackready_check": {"that": "gpus > 7", "expected": "8.5", "actual": "7.5"}},
        ],
    )
    assert [one[CHECK]["actual"] for one in (number, several, nothing)] == ["7", "['a', 'b']", ""]
    assert (bare["msg"], bare[CHECK]["next_step"]) == ("Expected: 8.5 Actual: 7.5.", "")


def test_conditions_are_evaluated_as_ansible_s_assert_does(tmp_path: Path) -> None:
    conditions: list[object] = ["{{ [condition] }}", "names is contains('a')", "names", "undefined_one == 1", ["gpus"]]
    ours = play(tmp_path, [task(that) for that in conditions])
    theirs = play(tmp_path, [{"ansible.builtin.assert": {"that": that, "quiet": True}} for that in conditions])
    assert len(ours) == len(theirs) == len(conditions)
    assert [one["failed"] for one in ours] == [one["failed"] for one in theirs]
    assert [CHECK in one for one in ours] == ["assertion" in one for one in theirs], "an error is no failed check"


def test_a_value_that_is_left_out_is_refused(tmp_path: Path) -> None:
    (refused,) = play(tmp_path, [{"rackready_check": {"that": "gpus > 7", "expected": "8"}}])
    assert refused["msg"] == "rackready_check - Expected: that, expected, actual Actual: no actual."
    assert check_in(refused) is None
