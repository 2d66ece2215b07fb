"""SIGKILL at every write of the watch, before and after it is committed: the next watch ends what was begun."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rackready.model.state import NodeState
from rackready.watch.store import WatchStore
from rackready.watch.tickets import folder
from tests.unit.watch.test_engine import FALLEN, begin, log
from tests.unit.watch.test_tickets import desk
from tests.unit.watch.world import FakeScheduler, World

WRITES = range(8, 18)
"""The writes of one fault come after those of the four nodes' streams; the last number is beyond them."""


class KeptScheduler(FakeScheduler):
    """A scheduler that outlives the watch: its drains are in a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        if path.exists():
            self.reasons = json.loads(path.read_text(encoding="utf-8"))

    def drain(self, node: str, reason: str) -> bool:
        super().drain(node, reason)
        self._path.write_text(json.dumps(self.reasons), encoding="utf-8")
        return True


def journal(node: str, wanted: dict[str, Any]) -> Iterator[str]:
    """Say what a node's journal has behind the cursor: one fault of node03."""
    yield begin()
    if node == "node03" and wanted["cursor"] != "c1":
        yield log(FALLEN, "c1")
    yield json.dumps({"end": "", "code": 0})


def watch_once(root: Path, kill_at: int, *, committed: bool) -> None:
    """Watch once in this process, and kill it at that write."""
    world = World(root, scheduler=KeptScheduler(root / "scheduler.json"))
    count, write = 0, WatchStore._write

    @contextmanager
    def counted(store: WatchStore) -> Iterator[Any]:
        nonlocal count
        count += 1
        with write(store) as connection:
            yield connection
            if count == kill_at and not committed:
                os.kill(os.getpid(), signal.SIGKILL)
        if count == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    WatchStore._write = counted  # type: ignore[method-assign]
    engine = world.engine(journal, once=True)
    engine.actor.clock = time.time
    engine.run()
    desk(world).work()
    os._exit(0)


def run(root: Path, kill_at: int, *, committed: bool) -> int:
    child = multiprocessing.get_context("fork").Process(
        target=watch_once, args=(root, kill_at), kwargs={"committed": committed}
    )
    child.start()
    child.join(120)
    assert child.exitcode is not None
    return child.exitcode


@pytest.mark.parametrize("kill_at", WRITES)
@pytest.mark.parametrize("committed", [False, True])
def test_a_killed_watch_goes_on(tmp_path: Path, kill_at: int, *, committed: bool) -> None:
    World(tmp_path).ready()
    killed = run(tmp_path, kill_at, committed=committed)
    assert killed == (0 if kill_at == WRITES[-1] else -signal.SIGKILL)
    assert run(tmp_path, 0, committed=committed) == 0
    world = World(tmp_path)
    ((fault,), row) = world.store.faults(), world.ledger.state("node03")
    assert (fault.condition, fault.count, fault.step, fault.ticket) == ("GpuXidRestartBm", 1, "ticketed", "open")
    assert row is not None
    assert row.state is NodeState.QUARANTINED
    reasons = json.loads((tmp_path / "scheduler.json").read_text(encoding="utf-8"))
    assert list(reasons) == ["node03"]
    assert reasons["node03"].startswith("rackready: GpuXidRestartBm: node03 gpu4")
    assert len(list(folder(world.paths).glob("*.json"))) == 1
