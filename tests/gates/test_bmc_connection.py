"""Connection to a BMC: one request at a time, however many gates run side by side."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rackready.gates.bmc.connection import Bmcs


def test_a_bmc_is_asked_one_thing_at_a_time_and_several_bmcs_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    busy: dict[str, int] = {"node01": 0, "node02": 0}
    most, together, guard = dict(busy), [0], threading.Lock()

    def do(_self: Bmcs, node: str, *_more: Any, **_named: Any) -> str:
        with guard:
            busy[node] += 1
            most[node] = max(most[node], busy[node])
            together[0] = max(together[0], sum(busy.values()))
        time.sleep(0.05)
        with guard:
            busy[node] -= 1
        return "{}"

    monkeypatch.setattr(Bmcs, "_do", do)
    found = Bmcs(dict.fromkeys(busy))  # type: ignore[arg-type]
    found._sites = dict.fromkeys(busy, object())  # type: ignore[arg-type] # its credentials are not used here
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda node: found.run(node, ("GET", "Chassis"), timeout_s=0.2), ["node01", "node02"] * 4)
        )
    assert [answer.stdout for answer in answers] == ["{}"] * 8, "what waits for others is not late"
    assert (most, together[0]) == ({"node01": 1, "node02": 1}, 2)
