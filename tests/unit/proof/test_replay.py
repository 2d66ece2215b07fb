"""The program on a node: it runs real modules on files and commands, and every kind of item is broken once."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rackready.drivers.proof import payload
from rackready.drivers.proof.judge import ProofResult, judged
from rackready.drivers.proof.kinds import KINDS
from rackready.drivers.proof.recorded import Recorded, RecordedStep
from rackready.ondevice import replay

SYSTEMCTL = """#!/bin/sh
# As systemctl of systemd 252: is-enabled and is-active print the state and exit 0 only for enabled and active.
f={folder}
case "$1" in
  show) cat $f/show; exit 0 ;;
  is-enabled) cat $f/enabled; [ "$(cat $f/enabled)" = enabled ]; exit $? ;;
  is-active) cat $f/active; [ "$(cat $f/active)" = active ]; exit $? ;;
  --version) echo "systemd 252 (252.38-1~deb12u1)"; exit 0 ;;
  list-unit-files) echo "unit.service enabled enabled"; exit 0 ;;
esac
echo "not expected: $*" >>$f/changed; exit 1
"""


def step(action: str, args: dict[str, Any], task: str = "a task") -> RecordedStep:
    return RecordedStep("role", task, action, args, None)


def ask(*steps: RecordedStep, env: dict[str, str] | None = None, limit_s: float = 60) -> dict[str, Any]:
    """Run the program as a node does, with Python alone, and return its document."""
    command = [sys.executable, *payload.command()[1:]]
    text = payload.request(Recorded(tuple(steps)), limit_s)
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]} | (env or {})
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def learned(*steps: RecordedStep, env: dict[str, str] | None = None) -> Recorded:
    """Return a record in which every step answered as it does now."""
    answers = ask(*steps, env=env)["steps"]
    return Recorded(
        tuple(
            RecordedStep(one.role, one.task, one.action, one.args, answer["result"])
            for one, answer in zip(steps, answers, strict=True)
        )
    )


def verdict(record: Recorded, env: dict[str, str] | None = None) -> ProofResult:
    return judged(record, json.dumps(ask(*record.steps, env=env)), time.time())


@pytest.fixture
def served() -> Iterator[dict[str, Any]]:
    """An index that a package source serves."""
    state: dict[str, Any] = {"text": b"Date: today\n", "status": 200}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(state["status"])
            self.end_headers()
            self.wfile.write(state["text"])

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    state["url"] = f"http://127.0.0.1:{server.server_address[1]}/InRelease"
    yield state
    server.shutdown()


@pytest.fixture
def unit(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A unit that is enabled and runs."""
    folder = tmp_path / "unit"
    folder.mkdir()
    (folder / "show").write_text(
        "Id=unit.service\nLoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\n"
    )
    (folder / "enabled").write_text("enabled\n")
    (folder / "active").write_text("active\n")
    program = tmp_path / "bin/systemctl"
    program.parent.mkdir()
    program.write_text(SYSTEMCTL.format(folder=folder))
    program.chmod(0o755)
    return folder, {"PATH": f"{program.parent}:{os.environ['PATH']}"}


Break = Callable[[Path], object]
COMMAND = step("ansible.builtin.command", {"_raw_params": "cat {}/a", "_uses_shell": False}, "read it")
SHELL = step("ansible.builtin.shell", {"_raw_params": "cat {}/a | tr a b"}, "read it")
STAT = step("ansible.builtin.stat", {"path": "{}/a"}, "look")
LINK = step("ansible.builtin.stat", {"path": "{}/link"}, "look where it leads")
FIND = step(
    "ansible.builtin.find",
    {"paths": "{}", "patterns": "*", "recurse": True, "get_checksum": True, "checksum_algorithm": "sha256"},
    "find",
)


def other_text(folder: Path) -> None:
    (folder / "a").write_text("other\n")


CASES: list[tuple[RecordedStep, Break, str]] = [
    (COMMAND, other_text, "another answer (stdout)"),
    (COMMAND, lambda folder: (folder / "a").unlink(), "another answer (rc, stderr, stdout)"),
    (SHELL, other_text, "another answer (stdout)"),
    (STAT, other_text, "another answer (stat)"),
    (STAT, lambda folder: (folder / "a").chmod(0o600), "another answer (stat)"),
    (STAT, lambda folder: (folder / "a").unlink(), "another answer (stat)"),
    (
        LINK,
        lambda folder: ((folder / "link").unlink(), (folder / "link").symlink_to(folder / "b")),
        "another answer (stat)",
    ),
    (FIND, other_text, "another answer (files)"),
    (FIND, lambda folder: (folder / "c").write_text("one more"), "another answer (files, matched)"),
]


@pytest.mark.parametrize(("one", "damage", "why"), CASES)
def test_an_answer_that_changed_is_a_difference(one: RecordedStep, damage: Break, why: str, tmp_path: Path) -> None:
    folder = tmp_path / "node"
    folder.mkdir()
    (folder / "a").write_text("alpha\n")
    (folder / "a").chmod(0o644)
    (folder / "b").write_text("beta\n")
    (folder / "link").symlink_to(folder / "a")
    args = {
        key: value.replace("{}", str(folder)) if isinstance(value, str) else value for key, value in one.args.items()
    }
    record = learned(step(one.action, args, one.task))
    assert verdict(record).same
    damage(folder)
    assert verdict(record) == ProofResult((f"role : {one.task}: {why}",))


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("enabled", "disabled\n", "unit.service"),
        ("enabled", "masked\n", "unit.service"),
        ("show", "Id=unit.service\nLoadState=loaded\nActiveState=inactive\nUnitFileState=enabled\n", "unit.service"),
        ("show", "Id=unit.service\nLoadState=loaded\nActiveState=failed\nUnitFileState=enabled\n", "unit.service"),
    ],
)
def test_a_unit_that_is_not_as_wanted_is_a_difference(
    unit: tuple[Path, dict[str, str]], file: str, text: str, why: str
) -> None:
    folder, env = unit
    record = learned(
        step("ansible.builtin.systemd_service", {"name": "unit.service", "enabled": True, "state": "started"}), env=env
    )
    assert verdict(record, env).same
    (folder / file).write_text(text)
    found = verdict(record, env)
    assert not found.same
    assert "role : a task: " in found.reason, why
    assert not (folder / "changed").exists()


@pytest.mark.parametrize(("key", "value"), [("text", b"Date: tomorrow\n"), ("status", 404)])
def test_a_package_index_that_is_another_is_a_difference(served: dict[str, Any], key: str, value: object) -> None:
    record = learned(step("ansible.builtin.uri", {"url": served["url"], "return_content": True, "timeout": 10}))
    assert verdict(record).same
    assert "Date" not in json.dumps(record.plain()), "only a hash of the index is kept"
    served[key] = value
    assert not verdict(record).same


FILE = {"path": "{}/conf.d/a.conf", "content": "wanted\n", "mode": "0644"}
FILES = {"folders": ["{}/conf.d"], "files": [FILE], "sweep": ["{}/conf.d/rackready*.asc"]}


@pytest.mark.skipif(os.geteuid() != 0, reason="the module gives its files to root")
@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda folder: (folder / "a.conf").write_text("edited\n"), "a.conf"),
        (lambda folder: (folder / "a.conf").unlink(), "a.conf"),
        (lambda folder: (folder / "a.conf").chmod(0o666), "a.conf"),
        (lambda folder: os.chown(folder / "a.conf", 1, 1), "a.conf"),
        (lambda folder: folder.chmod(0o777), "conf.d"),
        (lambda folder: os.chown(folder, 1, 1), "conf.d"),
        (lambda folder: (folder / "rackready-old.asc").write_text("a key that was taken back"), "rackready-old.asc"),
    ],
)
def test_a_file_that_is_not_as_written_is_a_difference(damage: Break, why: str, tmp_path: Path) -> None:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    folder.chmod(0o755)  # whatever the umask is
    (folder / "a.conf").write_text("wanted\n")
    (folder / "a.conf").chmod(0o644)
    args = json.loads(json.dumps(FILES).replace("{}", str(tmp_path)))
    record = learned(step("rackready_files", args))
    assert verdict(record).same
    damage(folder)
    before = sorted((path.name, path.stat().st_mode, path.stat().st_uid) for path in folder.iterdir())
    found = verdict(record)
    assert why in found.reason
    assert sorted((path.name, path.stat().st_mode, path.stat().st_uid) for path in folder.iterdir()) == before


def test_a_kernel_setting_that_is_not_in_force_is_a_difference() -> None:
    now = Path("/proc/sys/vm/swappiness").read_text().strip()
    record = learned(step("rackready_settings", {"kernel": {"vm.swappiness": now}}))
    assert verdict(record).same
    other = Recorded(
        (RecordedStep(*("role", "a task", "rackready_settings"), {"kernel": {"vm.swappiness": "17"}}, {}),)
    )
    assert "vm.swappiness" in verdict(other).reason
    assert Path("/proc/sys/vm/swappiness").read_text().strip() == now


def test_a_module_that_fails_or_prints_nonsense_or_hangs_is_a_difference(tmp_path: Path) -> None:
    answers = ask(
        step("rackready_files", {"nonsense": 1}),
        step("rackready_files", {"folders": str(tmp_path)}),
        step("ansible.builtin.command", {"_raw_params": "sleep 60"}),
        step("ansible.builtin.stat", {"path": "/"}),
        limit_s=3,
    )["steps"]
    assert answers[0]["failed"]
    assert "nonsense" in answers[0]["failure"]
    assert answers[2]["failure"] == "it ran too long"
    assert answers[3]["failure"] == "no time was left"


def test_nothing_is_left_on_the_node(tmp_path: Path) -> None:
    ask(step("ansible.builtin.stat", {"path": "/"}), env={"HOME": str(tmp_path), "TMPDIR": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []


def test_every_module_of_a_proof_is_sent_and_starts() -> None:
    """Also those of which this machine has no tools: each reads its arguments, and refuses a wrong one."""
    names = sorted(name for name in KINDS if name.startswith("rackready_"))
    for name, answer in zip(names, ask(*[step(name, {"nonsense": 1}) for name in names])["steps"], strict=True):
        assert "arguments" in answer["failure"] or "Unsupported" in answer["failure"], (name, answer)


def test_noise_and_contents_never_leave_the_node() -> None:
    answer = {
        "changed": True,
        "diff": {"before": "secret"},
        "invocation": {"x": "secret"},
        "drift": [],
        "_ansible_x": 1,
    }
    assert replay.reduced(answer, keep=True) == {"changed": True, "drift": []}
    assert replay.reduced({"content": "a", "date": "b"}, {"content": "sha256"}) == {
        "content": "sha256:ac8d8342bbb2362d13f0a559a3621bb407011368895164b628a54f7fc33fc43c"
    }
