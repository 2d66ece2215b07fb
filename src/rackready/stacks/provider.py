"""``pulumi-resource-rackready``: our Pulumi provider, with one kind of resource, ``rackready:metal:Node``.

Every effect goes through the ledger: a create that the engine repeats after a kill observes first and powers nothing on
twice. The provider ends with the engine, also with a killed one: it changes no machine that nobody would record.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]
from pulumi.provider.experimental import provider as api
from pulumi.provider.experimental.property_value import Computed, PropertyValue
from pulumi.provider.experimental.server import ProviderServicer
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, status_pb2
from pulumi.runtime.rpc import UNKNOWN
from pydantic import ValidationError

from rackready import __version__
from rackready.ledger.store import Ledger
from rackready.model.problems import RackreadyError
from rackready.paths import Database, EnvPaths, project_root
from rackready.stacks.args import NodeArgs
from rackready.stacks.machine import MachineIncompleteError, MachineState, StackMachine

T = TypeVar("T")
Props = Mapping[str, PropertyValue]
_THREADS = 64
"""Waiting for a node to boot costs only a thread; the engine limits the nodes in progress."""


def plain(value: PropertyValue) -> Any:  # noqa: ANN401 - JSON
    """Return a property value as JSON data (whole numbers as int); an unknown one as None."""
    inner = value.value
    if isinstance(inner, Mapping):
        return {key: plain(item) for key, item in inner.items()}
    if isinstance(inner, tuple):
        return [plain(item) for item in inner]
    if isinstance(inner, Computed) or inner == UNKNOWN:
        return None
    if isinstance(inner, float) and inner.is_integer():
        return int(inner)
    return inner


def wrapped(value: Any) -> PropertyValue:  # noqa: ANN401 - JSON
    """Return JSON data as a property value."""
    if isinstance(value, Mapping):
        return PropertyValue({key: wrapped(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return PropertyValue([wrapped(item) for item in value])
    if isinstance(value, int) and not isinstance(value, bool):
        return PropertyValue(float(value))
    return PropertyValue(value)


class IncompleteError(RackreadyError):
    """A resource exists and is not usable: the engine records it and tries again at the next update."""

    def __init__(self, resource_id: str, properties: dict[str, PropertyValue], error: RackreadyError) -> None:
        self.resource_id = resource_id
        self.properties = properties
        super().__init__(error)
        self.messages = error.messages


class MetalProvider(api.Provider):
    """Check, diff, create, read, update and delete of ``rackready:metal:Node``."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="node")

    async def check(self, request: api.CheckRequest) -> api.CheckResponse:
        """Refuse malformed inputs, each with its path."""
        inputs = {key: value for key, value in request.new_inputs.items() if value.value is not None}
        try:
            NodeArgs.model_validate({key: plain(value) for key, value in inputs.items()})
        except ValidationError as error:
            failures = [
                api.CheckFailure(".".join(str(part) for part in item["loc"]), str(item["msg"]))
                for item in error.errors(include_input=False)
            ]
            return api.CheckResponse(inputs=inputs, failures=failures)
        return api.CheckResponse(inputs=inputs)

    async def diff(self, request: api.DiffRequest) -> api.DiffResponse:
        """Compare desired with recorded state; a node that is not on differs. No difference needs a replacement."""
        known = NodeArgs.model_fields.keys()
        old = {key: plain(value) for key, value in request.old_state.items()}
        new = {key: plain(value) for key, value in request.new_inputs.items()}
        changed = [key for key in known if old.get(key) != new.get(key) and key not in request.ignore_changes]
        detail = {key: api.PropertyDiff(api.PropertyDiffKind.UPDATE, input_diff=True) for key in changed}
        if old.get("power") != "On":
            changed.append("power")
            detail["power"] = api.PropertyDiff(api.PropertyDiffKind.UPDATE, input_diff=False)
        return api.DiffResponse(changes=bool(changed), diffs=changed, detailed_diff=detail)

    async def create(self, request: api.CreateRequest) -> api.CreateResponse:
        """Power the node on once, wait for SSH, pin its host key; adopt a running node."""
        args = _args(request.properties)
        if request.preview:
            return api.CreateResponse(args.node, _preview(request.properties))
        state = await self._work(args, lambda machine: machine.ensure(made=False), request.properties)
        return api.CreateResponse(args.node, _outputs(request.properties, state))

    async def update(self, request: api.UpdateRequest) -> api.UpdateResponse:
        """Restore the desired state: verify the identity, power on if off, wait for SSH with the pinned key."""
        if request.preview:
            return api.UpdateResponse(_preview(request.news))
        made = bool(plain(request.olds["made"])) if "made" in request.olds else False
        state = await self._work(_args(request.news), lambda machine: machine.ensure(made=made), request.news)
        return api.UpdateResponse(_outputs(request.news, state))

    async def read(self, request: api.ReadRequest) -> api.ReadResponse:
        """Observe the power state; Unknown with the reason when the BMC fails, so that one bad BMC stops no other."""
        args = _args(request.properties)
        power, problem = await self._work(args, lambda machine: machine.observe())
        seen = {**request.properties, "power": PropertyValue(power), "problem": PropertyValue(problem)}
        return api.ReadResponse(request.resource_id, seen, dict(request.inputs))

    async def delete(self, request: api.DeleteRequest) -> None:
        """Power the node off if we powered it on."""
        made = bool(plain(request.properties["made"])) if "made" in request.properties else False
        await self._work(_args(request.properties), lambda machine: machine.remove(made=made))

    async def cancel(self) -> None:
        """Stop waiting; the ledger has what was begun, and the next run continues it."""
        self._stop.set()

    async def _work(self, args: NodeArgs, do: Callable[[StackMachine], T], inputs: Props | None = None) -> T:
        def run() -> T:
            with Ledger.open(_database(args.env)) as ledger:
                return do(self._machine(args, ledger))

        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, run)
        except MachineIncompleteError as error:
            raise IncompleteError(args.node, _outputs(inputs or {}, error.state), error) from error

    def _machine(self, args: NodeArgs, ledger: Ledger) -> StackMachine:
        campaign = os.environ.get("RACKREADY_CAMPAIGN", "")

        def proceed() -> None:
            if self._stop.is_set():
                raise RackreadyError(
                    args.node,
                    "stopped by the operator",
                    expected="SSH answers",
                    actual="not waited for",
                    next_step="Run the same command again: it continues here.",
                )

        def say(text: str) -> None:
            if campaign:
                ledger.event(campaign, args.node, "provision", text)

        return StackMachine(args, ledger, _state_dir(args.env) / "known_hosts", proceed=proceed, say=say)


def _args(properties: Props) -> NodeArgs:
    known = NodeArgs.model_fields.keys()
    return NodeArgs.model_validate({key: plain(value) for key, value in properties.items() if key in known})


def _inputs(properties: Props) -> dict[str, PropertyValue]:
    known = NodeArgs.model_fields.keys()
    return {key: value for key, value in properties.items() if key in known}


def _outputs(properties: Props, state: MachineState) -> dict[str, PropertyValue]:
    return {**_inputs(properties), **{key: wrapped(value) for key, value in dataclasses.asdict(state).items()}}


def _preview(properties: Props) -> dict[str, PropertyValue]:
    """Return the inputs, and the outputs as unknown.

    The mark on the wire is used, since the SDK (3.250) cannot send PropertyValue.computed().
    """
    return {**_inputs(properties), **{field.name: PropertyValue(UNKNOWN) for field in dataclasses.fields(MachineState)}}


def _state_dir(env: str) -> Path:
    """Return the folder of the environment's ledger and pins: the caller's, else the one below the checkout."""
    if (given := os.environ.get("RACKREADY_STATE_DIR")) and os.environ.get("RACKREADY_ENV", env) == env:
        return Path(given)
    return EnvPaths(project_root(), env).state


def _database(env: str) -> Database:
    return EnvPaths(project_root(), env).database_in(_state_dir(env))


class _Servicer(ProviderServicer):
    """A servicer that returns our error texts without the name of a Python class before them."""

    async def Create(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802 - gRPC's own names
        return await _spoken(super().Create(request, context), context)  # type: ignore[no-untyped-call]

    async def Update(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        return await _spoken(super().Update(request, context), context)  # type: ignore[no-untyped-call]

    async def Read(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        return await _spoken(super().Read(request, context), context)  # type: ignore[no-untyped-call]

    async def Delete(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        return await _spoken(super().Delete(request, context), context)  # type: ignore[no-untyped-call]


async def _spoken(answer: Awaitable[T], context: Any) -> T:  # noqa: ANN401
    try:
        return await answer
    except IncompleteError as error:
        properties = PropertyValue.marshal_map(error.properties)
        inputs = PropertyValue.marshal_map(_inputs(error.properties))
        detail = provider_pb2.ErrorResourceInitFailed(
            id=error.resource_id, properties=properties, reasons=[str(error)], inputs=inputs
        )
        status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=str(error))
        status.details.add().Pack(detail)
        trailing = (("grpc-status-details-bin", status.SerializeToString()),)
        await context.abort(grpc.StatusCode.UNKNOWN, str(error), trailing)
        raise
    except RackreadyError as error:
        await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        raise


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


async def _serve(engine: str) -> None:
    server = grpc.aio.server(options=_GRPC_CHANNEL_OPTIONS)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(
        _Servicer(sys.argv[1:], __version__, MetalProvider(), engine_address=engine), server
    )
    port = server.add_insecure_port(address="127.0.0.1:0")
    await server.start()
    # At its end, the engine interrupts its plugins and waits for them.
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, os._exit, 0)
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await server.wait_for_termination()


def main() -> None:
    """Serve the engine, whose address is the first argument, until it ends."""
    for name in ("sushy", "paramiko"):  # our errors name the cause; they would print it again
        logging.getLogger(name).addHandler(logging.NullHandler())
        logging.getLogger(name).propagate = False
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    engine = next((arg for arg in sys.argv[1:] if not arg.startswith("-")), "")
    asyncio.run(_serve(engine))


if __name__ == "__main__":
    main()
