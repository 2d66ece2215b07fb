"""Signals while an error ends a campaign: what runs is ended first, whoever asks the controller to stop meanwhile."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn, cast

import pytest

from rackready.campaign import controller
from rackready.campaign.request import CampaignRequest
from rackready.ledger.error import LedgerError
from rackready.ledger.store import Ledger
from rackready.paths import EnvPaths

_STOPS = """
import signal, sys, time
from rackready.campaign.controller import stop_signals
from rackready.drivers.process import STOP
with stop_signals(lambda text: print(text, flush=True)) as finish:
    signal.raise_signal(int(sys.argv[1]))
    assert STOP.is_set()
    signal.raise_signal(int(sys.argv[2]))
    finish()
print("ended in order", flush=True)
"""


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (signal.SIGINT, signal.SIGTERM, 0),
        (signal.SIGTERM, signal.SIGINT, 0),
        (signal.SIGINT, signal.SIGINT, 130),
        (signal.SIGTERM, signal.SIGTERM, 130),
    ],
)
def test_only_a_second_signal_of_one_kind_kills(first: int, second: int, code: int) -> None:
    """A cancelled job of GitHub gets SIGINT, then SIGTERM: what it had begun to put back goes on."""
    words = [sys.executable, "-c", _STOPS, str(int(first)), str(int(second))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, "ended in order" in done.stdout) == (code, code == 0), done.stderr
    assert done.stdout.count("stopping:") == (1 if code == 0 else done.stdout.count("stopping:"))


def test_a_signal_while_an_error_ends_what_runs_does_not_end_the_controller_before_that(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A lost lock sends one in just that moment: SIGTERM, where a shell's background job ignores SIGINT."""
    during: list[object] = []

    @contextmanager
    def engine(*_given: object) -> Iterator[Callable[[], None]]:
        try:
            yield lambda: None
        except LedgerError:
            during.append(signal.getsignal(signal.SIGTERM))
            raise

    def lost(*_given: object) -> NoReturn:
        raise LedgerError("the database", "does not answer", expected="an answer", actual="none", next_step="Wait.")

    monkeypatch.setattr(controller, "_engine", engine)
    monkeypatch.setattr(controller, "_show_new", lost)
    monkeypatch.setattr(controller, "_wait", lambda *_: None)
    ledger = SimpleNamespace(
        last_event=lambda _: 0, backend=SimpleNamespace(workers=None), put_campaign=lambda *_, **__: None
    )
    request = SimpleNamespace(campaign="c", check=False, batches_at_once=1)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(LedgerError):
        controller._drive(
            EnvPaths(tmp_path, "lab"),
            cast("Ledger", ledger),
            cast("CampaignRequest", request),
            resumed=False,
            leave=lambda _: None,
            say=lambda _: None,
            show=lambda *_: None,
        )
    assert during != [before], "the handler that stops in order was gone already"
    assert callable(during[0])
    assert signal.getsignal(signal.SIGTERM) is before
