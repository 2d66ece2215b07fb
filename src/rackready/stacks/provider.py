"""``pulumi-resource-rackready``: our Pulumi provider; here, the resource ``rackready:metal:Node`` and the server.

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
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]
from pulumi.provider.experimental import provider as api
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.provider.experimental.server import ProviderServicer
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, status_pb2
from pulumi.runtime.rpc import UNKNOWN

from rackready import __version__
from rackready.ledger.store import Ledger
from rackready.model.problems import RackreadyError
from rackready.stacks.args import NodeArgs
from rackready.stacks.boot import BOOT_TYPE, BootProvider
from rackready.stacks.domain_resource import DomainResource
from rackready.stacks.end_with_engine import end_with
from rackready.stacks.imaging import ERASE_VARIABLE, Imaging
from rackready.stacks.installations import installed_by
from rackready.stacks.machine import MachineIncompleteError, MachineState, StackMachine
from rackready.stacks.metal import NODE_TYPE
from rackready.stacks.provider_dispatch import ProviderDispatch
from rackready.stacks.resource import Work, args_of, checked, inputs_of, teller
from rackready.stacks.values import IncompleteError, Props, database, plain, state_dir, wrapped
from rackready.stacks.virtual import DOMAIN_TYPE

T = TypeVar("T")
_THREADS = 64
"""Waiting for a node to boot costs only a thread; the engine limits the nodes in progress."""


class MetalProvider(api.Provider):
    """Check, diff, create, read, update and delete of ``rackready:metal:Node``."""

    def __init__(self) -> None:
        self._threads = Work(_THREADS, "node")

    async def check(self, request: api.CheckRequest) -> api.CheckResponse:
        """Refuse malformed inputs, each with its path."""
        return checked(NodeArgs, request)

    async def diff(self, request: api.DiffRequest) -> api.DiffResponse:
        """Compare desired with recorded state; a node that is not on differs. No difference needs a replacement."""
        known = NodeArgs.model_fields.keys()
        old = {key: plain(value) for key, value in request.old_state.items()}
        new = {key: plain(value) for key, value in request.new_inputs.items()}
        changed = [key for key in known if old.get(key) != new.get(key) and key not in request.ignore_changes]
        detail = {key: api.PropertyDiff(api.PropertyDiffKind.UPDATE, input_diff=True) for key in changed}
        for key in (["power"] if old.get("power") != "On" else []) + (["erase"] if _to_erase(new) else []):
            changed.append(key)
            detail[key] = api.PropertyDiff(api.PropertyDiffKind.UPDATE, input_diff=False)
        return api.DiffResponse(changes=bool(changed), diffs=changed, detailed_diff=detail)

    async def create(self, request: api.CreateRequest) -> api.CreateResponse:
        """Power the node on once, wait for SSH, pin its host key; adopt a running node."""
        args = args_of(NodeArgs, request.properties)
        if request.preview:
            return api.CreateResponse(args.node, _preview(request.properties))
        state = await self._work(args, lambda machine: machine.ensure(made=False), request.properties)
        return api.CreateResponse(args.node, _outputs(request.properties, state))

    async def update(self, request: api.UpdateRequest) -> api.UpdateResponse:
        """Restore the desired state: verify the identity, power on if off, wait for SSH with the pinned key."""
        if request.preview:
            return api.UpdateResponse(_preview(request.news))
        made = bool(plain(request.olds["made"])) if "made" in request.olds else False
        state = await self._work(
            args_of(NodeArgs, request.news), lambda machine: machine.ensure(made=made), request.news
        )
        return api.UpdateResponse(_outputs(request.news, state))

    async def read(self, request: api.ReadRequest) -> api.ReadResponse:
        """Observe the power state; Unknown with the reason when the BMC fails, so that one bad BMC stops no other."""
        args = args_of(NodeArgs, request.properties)
        power, problem = await self._work(args, lambda machine: machine.observe())
        seen = {**request.properties, "power": PropertyValue(power), "problem": PropertyValue(problem)}
        return api.ReadResponse(request.resource_id, seen, dict(request.inputs))

    async def delete(self, request: api.DeleteRequest) -> None:
        """Power the node off if we powered it on."""
        made = bool(plain(request.properties["made"])) if "made" in request.properties else False
        await self._work(args_of(NodeArgs, request.properties), lambda machine: machine.remove(made=made))

    async def cancel(self) -> None:
        """Stop waiting; the ledger has what was begun, and the next run continues it."""
        self._threads.stop()

    async def _work(self, args: NodeArgs, do: Callable[[StackMachine], T], inputs: Props | None = None) -> T:
        try:
            return await self._threads.do(args.env, lambda ledger: do(self._machine(args, ledger)))
        except MachineIncompleteError as error:
            seen = _outputs(inputs or {}, error.state)
            raise IncompleteError(args.node, seen, error, inputs_of(NodeArgs, seen)) from error

    def _machine(self, args: NodeArgs, ledger: Ledger) -> StackMachine:
        proceed, say = self._threads.proceed(args.node, "SSH answers"), teller(ledger, args.node)
        state = state_dir(args.env)
        imaging = None
        if (what := args.imaging) is not None:
            consent = _consent(args.node)
            imaging = Imaging(args, what, ledger, state, consent=consent, proceed=proceed, say=say)
        return StackMachine(args, ledger, state, proceed=proceed, say=say, imaging=imaging)


def _consent(node: str) -> str:
    """Return the campaign that may erase a node, "" when none may."""
    named = os.environ.get(ERASE_VARIABLE, "").split(",")
    return os.environ.get("RACKREADY_CAMPAIGN", "") if node in named else ""


def _to_erase(inputs: dict[str, Any]) -> bool:
    """Whether this run is to erase a node that its stack may find as it should be."""
    if not inputs.get("imaging") or not (consent := _consent(str(inputs.get("node")))):
        return False
    place = database(str(inputs["env"]))
    if not Ledger.exists(place):
        return True
    with Ledger.open(place) as ledger:
        return not installed_by(ledger, str(inputs["node"]), consent)


def _outputs(properties: Props, state: MachineState) -> dict[str, PropertyValue]:
    return {
        **inputs_of(NodeArgs, properties),
        **{key: wrapped(value) for key, value in dataclasses.asdict(state).items()},
    }


def _preview(properties: Props) -> dict[str, PropertyValue]:
    """Return the inputs, and the outputs as unknown.

    The mark on the wire is used, since the SDK (3.250) cannot send PropertyValue.computed().
    """
    return {
        **inputs_of(NodeArgs, properties),
        **{field.name: PropertyValue(UNKNOWN) for field in dataclasses.fields(MachineState)},
    }


def every_kind() -> ProviderDispatch:
    """Return the provider of all our resources."""
    return ProviderDispatch({NODE_TYPE: MetalProvider(), BOOT_TYPE: BootProvider(), DOMAIN_TYPE: DomainResource()})


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
        inputs = PropertyValue.marshal_map(error.inputs)
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


async def _serve(engine: str) -> None:
    server = grpc.aio.server(options=_GRPC_CHANNEL_OPTIONS)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(
        _Servicer(sys.argv[1:], __version__, every_kind(), engine_address=engine), server
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
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    engine = next((arg for arg in sys.argv[1:] if not arg.startswith("-")), "")
    asyncio.run(_serve(engine))


if __name__ == "__main__":
    main()
