"""The resource ``rackready:virtual:Domain``: check, diff, create, read, update and delete of one libvirt domain."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

from pulumi.provider.experimental import provider as api
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime.rpc import UNKNOWN

from rackready.ledger.store import Ledger
from rackready.render.domain import domain_digest
from rackready.stacks.domain import DomainIncompleteError, DomainState, StackDomain
from rackready.stacks.resource import Work, args_of, checked, inputs_of, teller
from rackready.stacks.values import IncompleteError, Props, plain, state_dir, wrapped
from rackready.stacks.virtual_args import DomainArgs

T = TypeVar("T")
_THREADS = 32
"""A domain that is waited for costs only a thread; the engine limits those in progress."""
_UPDATE = api.PropertyDiffKind.UPDATE


class DomainResource(api.Provider):
    """One libvirt domain."""

    def __init__(self) -> None:
        self._threads = Work(_THREADS, "domain")

    async def check(self, request: api.CheckRequest) -> api.CheckResponse:
        """Refuse malformed inputs, each with its path."""
        return checked(DomainArgs, request)

    async def diff(self, request: api.DiffRequest) -> api.DiffResponse:
        """Compare desired with recorded state: inputs, power, and the definition as libvirt has it."""
        old = {key: plain(value) for key, value in request.old_state.items()}
        new = {key: plain(value) for key, value in request.new_inputs.items()}
        known = DomainArgs.model_fields.keys()
        changed = [key for key in known if old.get(key) != new.get(key) and key not in request.ignore_changes]
        detail = {key: api.PropertyDiff(_UPDATE, input_diff=True) for key in changed}
        for key in _drifted(request.new_inputs, old):
            changed.append(key)
            detail[key] = api.PropertyDiff(_UPDATE, input_diff=False)
        return api.DiffResponse(changes=bool(changed), diffs=changed, detailed_diff=detail)

    async def create(self, request: api.CreateRequest) -> api.CreateResponse:
        """Define and start the domain; one that others made is refused."""
        args = args_of(DomainArgs, request.properties)
        if request.preview:
            return api.CreateResponse(args.node, _preview(request.properties))
        state = await self._work(args, lambda domain: domain.ensure(), request.properties)
        return api.CreateResponse(args.node, _outputs(request.properties, state))

    async def update(self, request: api.UpdateRequest) -> api.UpdateResponse:
        """Define the domain anew where it differs, start it if it is off; one that runs is never restarted."""
        if request.preview:
            return api.UpdateResponse(_preview(request.news))
        text = str(plain(request.olds["written"]) or "") if "written" in request.olds else ""
        state = await self._work(
            args_of(DomainArgs, request.news), lambda domain: domain.ensure(text=text), request.news
        )
        return api.UpdateResponse(_outputs(request.news, state))

    async def read(self, request: api.ReadRequest) -> api.ReadResponse:
        """Observe the domain; Unknown with the reason when its hypervisor fails: one bad one stops no other."""
        args = args_of(DomainArgs, request.properties)
        state = await self._work(args, lambda domain: domain.observe())
        seen = {key: wrapped(value) for key, value in dataclasses.asdict(state).items() if key not in _KEPT}
        return api.ReadResponse(request.resource_id, {**request.properties, **seen}, dict(request.inputs))

    async def delete(self, request: api.DeleteRequest) -> None:
        """Stop and undefine the domain; its disk stays."""
        await self._work(args_of(DomainArgs, request.properties), lambda domain: domain.remove())

    async def cancel(self) -> None:
        """Stop waiting; the ledger has what was begun, and the next run continues it."""
        self._threads.stop()

    async def _work(self, args: DomainArgs, do: Callable[[StackDomain], T], inputs: Props | None = None) -> T:
        try:
            return await self._threads.do(args.env, lambda ledger: do(self._domain(args, ledger)))
        except DomainIncompleteError as error:
            seen = _outputs(inputs or {}, error.state)
            raise IncompleteError(args.node, seen, error, inputs_of(DomainArgs, seen)) from error

    def _domain(self, args: DomainArgs, ledger: Ledger) -> StackDomain:
        proceed, say = self._threads.proceed(args.node, "its domain is up"), teller(ledger, args.node)
        return StackDomain(args, ledger, state_dir(args.env) / "known_hosts", proceed=proceed, say=say)


_KEPT = frozenset({"host_key", "boot_id"})
"""Outputs that only a login reads: a look at the hypervisor leaves them as they were."""


def _drifted(inputs: Props, old: dict[str, object]) -> list[str]:
    """Return the outputs that are not as they should be: power, and the definition (removed, older, edited by hand)."""
    out = [] if old.get("power") == "On" else ["power"]
    if old.get("digest") != domain_digest(args_of(DomainArgs, inputs).facts) or old.get("text") != old.get("written"):
        out.append("text")
    return out


def _outputs(properties: Props, state: DomainState) -> dict[str, PropertyValue]:
    """Return inputs and state; ``written``: the definition as libvirt had it when we wrote it, kept by reads."""
    seen = {key: wrapped(value) for key, value in dataclasses.asdict(state).items()}
    return {**inputs_of(DomainArgs, properties), **seen, "written": PropertyValue(state.text)}


def _preview(properties: Props) -> dict[str, PropertyValue]:
    """Return the inputs, and the outputs as unknown, in the mark that the wire carries (SDK 3.250)."""
    names = [field.name for field in dataclasses.fields(DomainState)]
    return {**inputs_of(DomainArgs, properties), **{name: PropertyValue(UNKNOWN) for name in (*names, "written")}}
