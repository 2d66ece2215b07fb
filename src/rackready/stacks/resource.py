"""What the resources of our provider share: their arguments on the wire, and work in threads with the ledger."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pulumi.provider.experimental import provider as api
from pulumi.provider.experimental.property_value import PropertyValue
from pydantic import ValidationError

from rackready.ledger.store import Ledger
from rackready.model.base import Model
from rackready.model.problems import RackreadyError
from rackready.model.wanted import path_text, said, steps, wanted
from rackready.stacks.values import Props, database, plain

A = TypeVar("A", bound=Model)
T = TypeVar("T")


def checked(kind: type[Model], request: api.CheckRequest) -> api.CheckResponse:
    """Return the inputs that are given; malformed ones are refused, each with its path."""
    inputs = {key: value for key, value in request.new_inputs.items() if value.value is not None}
    try:
        kind.model_validate({key: plain(value) for key, value in inputs.items()})
    except ValidationError as error:
        failures = [
            api.CheckFailure(path_text(steps(item)), f"Expected: {words}" if (words := wanted(item)) else said(item))
            for item in error.errors(include_input=False)
        ]
        return api.CheckResponse(inputs=inputs, failures=failures)
    return api.CheckResponse(inputs=inputs)


def inputs_of(kind: type[Model], properties: Props) -> dict[str, PropertyValue]:
    """Return those properties that are arguments."""
    return {key: value for key, value in properties.items() if key in kind.model_fields}


def args_of(kind: type[A], properties: Props) -> A:
    """Return the arguments among properties. Raises ValidationError."""
    return kind.model_validate({key: plain(value) for key, value in inputs_of(kind, properties).items()})


class Work:
    """Threads in which one kind of resource waits for its machines, until the engine stops it."""

    def __init__(self, threads: int, name: str) -> None:
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name)

    def stop(self) -> None:
        """Let everything that waits end; the ledger has what was begun, and the next run continues it."""
        self._stop.set()

    async def do(self, env: str, work: Callable[[Ledger], T]) -> T:
        """Run work with the environment's ledger, outside the event loop."""

        def run() -> T:
            with Ledger.open(database(env)) as ledger:
                return work(ledger)

        return await asyncio.get_running_loop().run_in_executor(self._pool, run)

    def proceed(self, node: str, awaited: str) -> Callable[[], None]:
        """Return a check for use while waiting for what ``awaited`` names; it raises RackreadyError after a stop."""

        def proceed() -> None:
            if self._stop.is_set():
                raise RackreadyError(
                    node,
                    "stopped by the operator",
                    expected=awaited,
                    actual="not waited for",
                    next_step="Run the same command again: it continues here.",
                )

        return proceed


def teller(ledger: Ledger, node: str) -> Callable[[str], None]:
    """Return a function that records progress of a node as events of the campaign, if there is one."""
    campaign = os.environ.get("RACKREADY_CAMPAIGN", "")

    def say(text: str) -> None:
        if campaign:
            ledger.event(campaign, node, "provision", text)

    return say
