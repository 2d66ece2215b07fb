"""Readings of a node's tools and kernel files are complete: output, exit code, missing programs, time-outs, lists."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rackready.ondevice import host_read


def spec(key: str, *argv: str, **more: Any) -> dict[str, Any]:
    return {"key": key, "argv": list(argv), "timeout_s": 5, **more}


def test_a_commands_output_and_exit_code() -> None:
    found = host_read.commands([spec("a", "sh", "-c", "echo out; echo err >&2; exit 3")])["a"]
    assert (found["exit_code"], found["stdout"], found["stderr"], found["missing"], found["timed_out"]) == (
        3,
        "out\n",
        "err\n",
        False,
        False,
    )


def test_a_program_that_is_not_there_and_one_that_does_not_end() -> None:
    found = host_read.commands([spec("none", "no-such-program-here"), spec("long", "sleep", "5", timeout_s=0.1)])
    assert (found["none"]["missing"], found["none"]["exit_code"]) == (True, None)
    assert (found["long"]["timed_out"], found["long"]["exit_code"]) == (True, None)


def test_only_the_lines_that_are_wanted_are_sent_with_the_number_of_all() -> None:
    found = host_read.commands([spec("log", "printf", "one\ntwo down\nthree\n", keep="down$")])["log"]
    assert (found["stdout"], found["lines"]) == ("two down\n", 3)


def test_a_command_is_repeated_over_what_another_lists() -> None:
    listed = spec("list", "printf", '{"devices": [{"name": "/dev/a"}, {"name": "/dev/b"}]}')
    each = spec("ask", "echo", "{}", each={"of": "list", "list": "devices", "field": "name"})
    found = host_read.commands([listed, each])
    assert {key: item["stdout"] for key, item in found.items() if key != "list"} == {
        "ask /dev/a": "/dev/a\n",
        "ask /dev/b": "/dev/b\n",
    }


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '{"devices": 3}', '{"devices": [{"path": 1}]}'])
def test_a_list_that_cannot_be_read_repeats_nothing(text: str) -> None:
    each = spec("ask", "echo", "{}", each={"of": "list", "list": "devices", "field": "name"})
    assert sorted(host_read.commands([spec("list", "printf", "%s", text), each])) == ["list"]


def test_files_of_a_pattern_and_one_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a1").write_text("7\n")
    (tmp_path / "a2").mkdir()
    pattern = f"{tmp_path}/a*"
    assert host_read.files(pattern) == {f"{tmp_path}/a1": "7", f"{tmp_path}/a2": None}
    assert host_read.files(f"{tmp_path}/none") == {}


def test_the_script_alone_prints_one_whole_document(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("up\n")
    wanted = json.dumps({"commands": [spec("who", "echo", "me")], "files": [f"{tmp_path}/state"]})
    done = subprocess.run(
        [sys.executable, "-I", host_read.__file__, wanted], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert (found["format"], found["complete"]) == (host_read.FORMAT, True)
    assert found["commands"]["who"]["stdout"] == "me\n"
    assert found["files"] == {f"{tmp_path}/state": {f"{tmp_path}/state": "up"}}
