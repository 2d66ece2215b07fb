"""Reads of a scheduler within a time limit, for commands that must continue when it does not answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from rackready.drivers.scheduler.base import SchedulerAdapter, SchedulerError, SchedulerNode
from rackready.model.problems import RackreadyError

Answer = SchedulerNode | RackreadyError


Asked = tuple[Callable[[], SchedulerAdapter], Sequence[str]]
"""How to connect to a scheduler, and the nodes to ask it about."""


def look(connect: Callable[[], SchedulerAdapter], nodes: Sequence[str], limit_s: float) -> dict[str, Answer]:
    """Return node -> its state in the scheduler, or the error; after ``limit_s`` seconds what has come until then.

    A daemon thread asks the scheduler: SSH has a time limit for each step, and the caller's limit is for their sum.
    """
    return look_at_all({"": (connect, nodes)}, limit_s)[""]


def look_at_all(schedulers: Mapping[str, Asked], limit_s: float) -> dict[str, dict[str, Answer]]:
    """Return the same of several schedulers, by name. They are asked at the same time: a silent one delays no other.

    ``schedulers``: the name of a part of the site, "" for the only scheduler -> how to ask it.
    """
    answers: dict[str, dict[str, Answer]] = {called: {} for called in schedulers}
    defects: list[Exception] = []
    threads = [
        threading.Thread(target=_ask, args=(*asked, answers[called], defects), daemon=True)
        for called, asked in schedulers.items()
    ]
    deadline = time.monotonic() + limit_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if defects:
        raise defects[0]
    out = {}
    for called, (_, nodes) in schedulers.items():
        got, silence = dict(answers[called]), _silence(called, limit_s)
        out[called] = {node: got.get(node, silence) for node in nodes}
    return out


def _ask(
    connect: Callable[[], SchedulerAdapter],
    nodes: Sequence[str],
    answers: dict[str, Answer],
    defects: list[Exception],
) -> None:
    try:
        with connect() as adapter:
            for node in nodes:
                answers[node] = _shown(adapter, node)
    except RackreadyError as error:
        answers.update(dict.fromkeys([node for node in nodes if node not in answers], error))
    except Exception as error:  # noqa: BLE001 - raised in the caller's thread
        defects.append(error)


def _silence(called: str, limit_s: float) -> SchedulerError:
    return SchedulerError(
        f"the scheduler{f' of part {called}' if called else ''}",
        expected=f"an answer within {limit_s:g} s",
        actual="none",
        next_step="Check that its controller runs and can be reached.",
    )


def _shown(adapter: SchedulerAdapter, node: str) -> Answer:
    try:
        return adapter.show(node)
    except RackreadyError as error:
        return error
