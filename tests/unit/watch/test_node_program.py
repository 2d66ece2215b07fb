"""The program on the node, as it is sent there: its own process, with programs of the node that a test provides."""

from __future__ import annotations

import fcntl
import inspect
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rackready.ondevice import watch_node
from rackready_sim.programs.hwsim import kmsg, paths
from tests.unit.watch.test_engine import FALLEN, until

JOURNAL = """#!/bin/sh
printf '%s\\n' "$*" >> "$(dirname "$0")/called"
case "$*" in *--lines=1*) cat "$(dirname "$0")/last" 2>/dev/null; exit;; esac
cat "$(dirname "$0")/lines"
case "$*" in *--follow*) sleep 30;; esac
"""


def entry(cursor: str, message: object) -> str:
    """Return a line of `journalctl --output=json` (systemd, JOURNAL_EXPORT_FORMATS)."""
    fields = {"__CURSOR": cursor, "__REALTIME_TIMESTAMP": "1795253400000000", "_BOOT_ID": "b1", "MESSAGE": message}
    return json.dumps({**fields, "_TRANSPORT": "kernel"})


def node(tmp_path: Path, *lines: str, smi: str = "echo no driver; exit 9", late_s: int = 30) -> tuple[str, Path]:
    """Return the program's text for a node with these lines in its journal, and its folder of programs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "lines").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for name, text in (("journalctl", JOURNAL), ("nvidia-smi", f"#!/bin/sh\n{smi}\n")):
        (programs / name).write_text(text, encoding="utf-8")
        (programs / name).chmod(0o755)
    source = inspect.getsource(watch_node)
    source = source.replace('_RUN = "/run"', f'_RUN = "{tmp_path}"').replace("_LATE_S = 30", f"_LATE_S = {late_s}")
    return source.replace('_PATH = "', f'_PATH = "{programs}:'), programs


def wanted(**values: Any) -> str:
    base = {"cursor": "", "since": None, "follow": False, "port_poll_s": 1, "gpu_poll_s": 5, "beat_s": 1, "devices": []}
    return json.dumps({**base, **values})


def said(text: str, arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-u", "-", arguments], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_it_tells_lines_about_devices_readings_and_the_place_in_the_journal(tmp_path: Path) -> None:
    noise = entry("c3", "usb 1-1: new device")
    odd = entry("c2", [*b"NVRM: Xid (PCI:0000:43:00): 13, \xff"])
    text, programs = node(tmp_path, entry("c1", FALLEN), odd, noise, "no json", entry("c4", None))
    told = said(text, wanted(cursor="c0"))
    logs = [one["log"] for one in told if "log" in one]
    assert [(one["cursor"], one["text"][:24]) for one in logs] == [
        ("c1", "NVRM: Xid (PCI:0000:9d:0"),
        ("c2", "NVRM: Xid (PCI:0000:43:0"),
    ]
    assert logs[0]["at"] == 1795253400.0
    assert told[0]["begin"] == watch_node.FORMAT
    (gpus,) = [one["gpus"] for one in told if "gpus" in one]
    assert gpus == {"code": 9, "problem": "no driver", "gpus": []}
    assert told[-2]["beat"] == {"cursor": "c4"}
    assert told[-1]["code"] == 0
    called = (programs / "called").read_text(encoding="utf-8").strip()
    assert called == "_TRANSPORT=kernel --output=json --no-pager --quiet --after-cursor=c0 --no-tail"


def test_a_quiet_node_has_a_place_in_its_journal_from_the_first_beat_on(tmp_path: Path) -> None:
    """Without one, a watch that was down would not know from where to go on, and lose what came meanwhile."""
    text, programs = node(tmp_path)
    (programs / "last").write_text(entry("c9", "usb 1-1: new device") + "\n", encoding="utf-8")
    told = said(text, wanted(since=12.7))
    beats = [one["beat"] for one in told if "beat" in one]
    assert beats == [{"cursor": "c9"}] * len(beats)
    assert beats
    asked, read = (programs / "called").read_text(encoding="utf-8").splitlines()
    assert asked.endswith("--quiet --reverse --lines=1 --until=@12")
    assert read.endswith("--quiet --after-cursor=c9 --no-tail")


def test_where_the_journal_is_read_from() -> None:
    assert watch_node.journal({"follow": True})[-2:] == ["--lines=0", "--follow"]
    assert watch_node.journal({"since": 12.7, "follow": True})[-3:] == ["--since=@12", "--no-tail", "--follow"]


def test_it_ends_when_nobody_reads_it_and_leaves_nothing(tmp_path: Path) -> None:
    text, _ = node(tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-u", "-", wanted(follow=True)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(text)
    child.stdin.close()
    child.stdout.readline()
    child.stdout.close()
    assert child.wait(120) == 0


HANGS = 'echo $$ >> "$(dirname "$0")/smi"; exec sleep 40'


def test_a_hung_nvidia_smi_stops_neither_beats_nor_the_end(tmp_path: Path) -> None:
    text, _ = node(tmp_path, smi=HANGS, late_s=4)
    told = said(text, wanted())
    (gpus,) = [one["gpus"] for one in told if "gpus" in one]
    assert gpus == {"code": 124, "problem": "nvidia-smi: no end within 4 s", "gpus": []}
    names = [next(iter(one.keys() - {"at", "code"})) for one in told]
    assert "beat" in names[: names.index("gpus")], "it tells that it lives while nvidia-smi hangs"
    assert "links" not in names
    assert told[-1]["code"] == 0


def stays(tmp_path: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """Return a process with the lock of a watch that was killed itself, as its nvidia-smi has it."""
    path = tmp_path / "rackready-watch-nvidia-smi"
    with path.open("w+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        child = subprocess.Popen(["sleep", "60"], pass_fds=[lock.fileno()])
        lock.write(str(child.pid))
    return child, path


def test_no_second_nvidia_smi_is_started_while_an_earlier_one_lives(tmp_path: Path) -> None:
    text, programs = node(tmp_path, smi='touch "$(dirname "$0")/called-smi"', late_s=1)
    child, path = stays(tmp_path)
    path.write_text("0", encoding="ascii")  # it is not found, and so not killed: as one that waits in the driver
    told = said(text, wanted())
    (gpus,) = [one["gpus"] for one in told if "gpus" in one]
    assert gpus == {"code": 124, "problem": "nvidia-smi: an earlier one has not ended", "gpus": []}
    assert not (programs / "called-smi").exists()
    child.kill()
    child.wait(60)
    assert [one["gpus"]["problem"] for one in said(text, wanted()) if "gpus" in one] == [
        "no report of nvidia-smi -q -x"
    ]


def test_an_nvidia_smi_that_a_killed_watch_left_is_killed(tmp_path: Path) -> None:
    text, _ = node(tmp_path, late_s=1)
    child, _ = stays(tmp_path)
    told = said(text, wanted())
    assert [one["gpus"]["problem"] for one in told if "gpus" in one] == [
        f"nvidia-smi: an earlier one has not ended (process {child.pid})"
    ]
    assert child.wait(60) == -signal.SIGKILL


def test_it_leaves_no_nvidia_smi_when_nobody_reads_it(tmp_path: Path) -> None:
    text, programs = node(tmp_path, smi=HANGS)
    watch = subprocess.Popen(
        [sys.executable, "-u", "-", wanted(follow=True)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert watch.stdin is not None
    assert watch.stdout is not None
    watch.stdin.write(text)
    watch.stdin.close()
    pids = programs / "smi"
    until(lambda: pids.exists() and pids.read_text(encoding="ascii").strip() != "")
    watch.stdout.close()
    assert watch.wait(120) == 0
    pid = int(pids.read_text(encoding="ascii"))
    until(lambda: not Path(f"/proc/{pid}").exists() or "State:\tZ" in Path(f"/proc/{pid}/status").read_text())


def test_a_journal_that_ends_is_told(tmp_path: Path) -> None:
    text, programs = node(tmp_path)
    (programs / "journalctl").write_text("#!/bin/sh\necho 'Failed to open journal' >&2; exit 1\n", encoding="utf-8")
    told = said(text, wanted(follow=True))
    assert told[-1] == {"end": "Failed to open journal", "code": 1}


def test_the_simulated_journal_goes_on_behind_a_cursor(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:  # noqa: ANN401
    monkeypatch.setattr(paths, "at", lambda path: tmp_path / str(path).lstrip("/"))
    (tmp_path / "run/hw").mkdir(parents=True)
    (tmp_path / "run/hw/booted").touch()
    for text in ("one", "two", "three"):
        kmsg.say(text)
    argv = ["_TRANSPORT=kernel", "--output=json", "--no-pager", "--quiet"]
    assert kmsg.journalctl([*argv, "--since=@0", "--no-tail"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["MESSAGE"] for row in rows] == ["one", "two", "three"]
    kmsg.journalctl([*argv, f"--after-cursor={rows[1]['__CURSOR']}", "--no-tail"])
    assert [json.loads(line)["MESSAGE"] for line in capsys.readouterr().out.splitlines()] == ["three"]
    kmsg.journalctl([*argv, "--reverse", "--lines=1"])
    assert [json.loads(line)["MESSAGE"] for line in capsys.readouterr().out.splitlines()] == ["three"]
    kmsg.journalctl([*argv, "--reverse", "--lines=1", "--until=@1"])
    assert capsys.readouterr().out == ""
    kmsg.journalctl([*argv, "--lines=0"])
    assert capsys.readouterr().out == ""
    assert abs(int(rows[0]["__REALTIME_TIMESTAMP"]) / 1e6 - time.time()) < 60
