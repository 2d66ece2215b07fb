"""Reads of a scheduler within a time limit, for commands that must continue when it does not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from rackready.drivers.scheduler.base import SchedulerAdapter, SchedulerError, SchedulerNode
from rackready.model.problems import RackreadyError

Answer = SchedulerNode | RackreadyError


def look(connect: Callable[[], SchedulerAdapter], nodes: Sequence[str], limit_s: float) -> dict[str, Answer]:
    """Return node -> its state in the scheduler, or the error; after ``limit_s`` seconds what has come until then.

    A daemon thread asks the scheduler: SSH has a time limit for each step, and the caller's limit is for their sum.
    """
    answers: dict[str, Answer] = {}
    defects: list[Exception] = []

    def ask() -> None:
        try:
            with connect() as adapter:
                for node in nodes:
                    answers[node] = _shown(adapter, node)
        except RackreadyError as error:
            answers.update(dict.fromkeys([node for node in nodes if node not in answers], error))
        except Exception as error:  # noqa: BLE001 - raised in the caller's thread
            defects.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(limit_s)
    if defects:
        raise defects[0]
    silence = SchedulerError(
        "the scheduler",
        expected=f"an answer within {limit_s:g} s",
        actual="none",
        next_step="Check that its controller runs and can be reached.",
    )
    return {node: answers.get(node, silence) for node in nodes}


def _shown(adapter: SchedulerAdapter, node: str) -> Answer:
    try:
        return adapter.show(node)
    except RackreadyError as error:
        return error
