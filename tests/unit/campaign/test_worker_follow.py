"""A worker beside the process of its batch: a database that does not answer must not keep it from ending that."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rackready import __version__
from rackready.campaign.abi import CAMPAIGN_ABI
from rackready.campaign.worker import Worker
from rackready.drivers.stop_flag import StopFlag
from rackready.ledger.error import ControllerBusyError, LedgerError
from rackready.ledger.work import Claim, WorkQueue
from rackready.ledger.work_workers import Roll
from rackready.paths import EnvPaths, private_dir

LEASE_S = 6
CLAIM = cast("Claim", SimpleNamespace(token=1))


@pytest.fixture
def batch() -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends nothing by itself, as one that stands still."""
    with subprocess.Popen(["sleep", "60"]) as child:
        yield child
        child.kill()


def nothing(_refuses: str) -> None:
    """A sign of life that arrives."""


def follow(
    tmp_path: Path,
    batch: subprocess.Popen[bytes],
    holds: Callable[[int], bool],
    beat: Callable[[str], None] = nothing,
) -> float:
    """Follow a batch to its end or the worker's decision. Return how long that took."""

    def tell(_kind: str, _text: str, **_about: Any) -> None:
        return

    stop, kill = StopFlag(), StopFlag()
    worker = Worker(EnvPaths(tmp_path, "lab"), "w1", {}, tell, stop, kill)
    queue = SimpleNamespace(use=SimpleNamespace(lease_s=LEASE_S), holds=holds)
    roll = SimpleNamespace(beat=beat)
    at = time.monotonic()
    worker._follow(cast("WorkQueue", queue), cast("Roll", roll), CLAIM, batch)
    return time.monotonic() - at


def test_a_database_that_does_not_answer_is_not_waited_for_beyond_the_lease(
    tmp_path: Path, batch: subprocess.Popen[bytes]
) -> None:
    silent = threading.Event()

    def holds(_token: int) -> bool:
        silent.wait(30)
        return True

    took = follow(tmp_path, batch, holds)
    silent.set()
    assert batch.poll() is None
    assert LEASE_S / 2 < took < LEASE_S


def test_a_database_that_refuses_is_asked_again_until_the_lease_may_be_over(
    tmp_path: Path, batch: subprocess.Popen[bytes]
) -> None:
    asked: list[int] = []

    def holds(token: int) -> bool:
        asked.append(token)
        raise LedgerError("the ledger", "cannot be read")

    assert LEASE_S / 2 < follow(tmp_path, batch, holds) < LEASE_S
    assert len(asked) > 2


def test_a_name_that_another_worker_took_does_not_end_the_batch(tmp_path: Path) -> None:
    """The batch has a lease of its own; the worker ends after it."""

    def beat(_refuses: str) -> None:
        raise ControllerBusyError("worker w1", "another worker took this name")

    with subprocess.Popen(["sleep", "9"]) as child:
        assert follow(tmp_path, child, lambda _token: True, beat) > LEASE_S
        assert child.returncode == 0


def test_a_claim_that_is_over_is_left_at_once(tmp_path: Path, batch: subprocess.Popen[bytes]) -> None:
    assert follow(tmp_path, batch, lambda _token: False) < LEASE_S / 2
    assert batch.poll() is None


def test_a_claim_that_is_held_is_followed_to_the_end(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "9"]) as child:
        assert follow(tmp_path, child, lambda _token: True) > LEASE_S
        assert child.returncode == 0


def test_a_worker_whose_batch_died_leaves_the_next_try_to_others_for_a_while(tmp_path: Path) -> None:
    """Its own disk may be full: it would use up all attempts within seconds."""
    told: list[str] = []
    claimed: list[str] = []
    offer = SimpleNamespace(
        campaign="c", phase="install", nodes=("node01",), site="d", version=__version__, abi=CAMPAIGN_ABI
    )
    offer.labels, offer.request, offer.pins = {}, {}, {}

    def claim(name: str, *_: object) -> Any:  # noqa: ANN401 - a claim
        claimed.append(name)
        return SimpleNamespace(token=1, controller=1, offer=offer)

    queue = SimpleNamespace(
        use=SimpleNamespace(lease_s=60),
        offers=lambda: [offer],
        sweep=lambda: None,
        open_children=list,
        children_ended=lambda _gone: None,
        claim=claim,
        holds=lambda _token: True,
        release=lambda *_given, **_more: True,
    )
    roll = SimpleNamespace(beat=nothing)
    worker = Worker(
        EnvPaths(tmp_path, "lab"),
        "w1",
        {},
        lambda kind, *_, **__: told.append(kind),
        StopFlag(),
        StopFlag(),
    )
    worker.command, worker._sites = ("false",), {"d"}
    private_dir(worker.paths.state)
    for _ in range(3):
        worker._once(cast("WorkQueue", queue), cast("Roll", roll))
    assert (claimed, told) == (["w1"], ["takes", "died"])
    worker._rests_until = 0.0
    worker._once(cast("WorkQueue", queue), cast("Roll", roll))
    assert claimed == ["w1", "w1"]
