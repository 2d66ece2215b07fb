"""Streams over real SSH: the node's program is sent, its lines come at once, silence and its end are told."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackready.drivers.ssh.target import KeyLogin, SshTarget
from rackready.model.problems import RackreadyError
from rackready.watch import stream
from rackready.watch.stream import NodeStream, SshLines, StreamItem
from tests.gates.sshserver import Server, serve
from tests.unit.watch.test_engine import FALLEN
from tests.unit.watch.test_node_program import entry, node, wanted


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serve(tmp_path) as found:
        yield found


def target(server: Server) -> SshTarget:
    login = KeyLogin(server.client_key)
    return SshTarget("node01", "127.0.0.1", server.port, "tester", login, server.known_hosts)


def lines_of(server: Server, silent_s: float = 30) -> SshLines:
    return SshLines(lambda _node: target(server), silent_s)


def sent(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Send another program than ours to the node."""
    before: Callable[[Any], str] = inspect.getsource
    monkeypatch.setattr(
        stream.inspect, "getsource", lambda module: text if module is stream.watch_node else before(module)
    )


def test_lines_come_while_the_program_runs(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    text, _ = node(tmp_path, entry("c1", FALLEN))
    sent(monkeypatch, text)
    lines = lines_of(server)("node01", json.loads(wanted(follow=True)))
    told = map(json.loads, lines)
    assert "begin" in next(told)
    assert next(one for one in told if "log" in one)["log"]["cursor"] == "c1"
    lines.close()  # type: ignore[attr-defined]
    (call,) = server.commands
    assert call.startswith("python3 -u - ")


def test_a_silent_node_is_told(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    sent(monkeypatch, "import time\ntime.sleep(20)\n")
    with pytest.raises(TimeoutError, match=r"^silent for 1 s$"):
        list(lines_of(server, silent_s=1)("node01", {}))


def test_a_program_that_breaks_is_told_in_its_words(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    sent(
        monkeypatch,
        "import sys, time\nsys.stderr.write('journalctl: not found\\n')\nsys.stderr.flush()\ntime.sleep(1)\n",
    )
    with pytest.raises(RackreadyError) as refused:
        list(lines_of(server)("node01", {}))
    assert "journalctl: not found" in str(refused.value)


def test_a_node_that_does_not_answer_is_not_watched(server: Server) -> None:
    closed = SshLines(lambda _node: replace(target(server), port=1), 5)
    told: list[StreamItem] = []
    NodeStream("node01", closed, dict, told.append, once=True).run()
    ((item,),) = (told,)
    assert item.kind == "lost"
    assert "127.0.0.1:1" in item.document["why"]


def test_pauses_grow_up_to_two_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def lines(_node: str, _wanted: dict[str, Any]) -> Iterator[str]:
        raise TimeoutError("silent")
        yield ""

    thread = NodeStream("node01", lines, dict, lambda _item: None)

    def wait(pause: float) -> bool:
        pauses.append(pause)
        return len(pauses) > 10

    monkeypatch.setattr(thread.over, "wait", wait)
    thread.run()
    assert pauses[0] == 0.0
    assert 1.5 <= pauses[1] <= 2.5
    assert max(pauses) <= 150.0
    assert pauses[-1] >= 60.0
