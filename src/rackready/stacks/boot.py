"""The resource ``rackready:services:Boot``: the boot service of an environment, with everything that it keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pulumi.provider.experimental import provider as api
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime.rpc import UNKNOWN
from pydantic import Field

from rackready.drivers.boot_service import BootService
from rackready.model.base import Model
from rackready.model.provisioning import ProvisioningService
from rackready.stacks.resource import args_of, checked, inputs_of
from rackready.stacks.values import Props, plain, state_dir

T = TypeVar("T")
BOOT_TYPE = "rackready:services:Boot"
_RUNNING = "running"


class BootArgs(Model):
    """The boot service of one environment."""

    env: str = Field(min_length=1, description="environment in whose state folder its files are")
    service: ProvisioningService
    kernel: Path
    ramdisk: Path
    content: str = Field(pattern=r"^[0-9a-f]{64}$", description="hash of kernel and ramdisk: new ones are a difference")

    def boot_service(self) -> BootService:
        """Return the service."""
        return BootService(state_dir(self.env) / "boot", self.service)


class BootProvider(api.Provider):
    """Check, diff, create, read, update and delete of ``rackready:services:Boot``."""

    async def check(self, request: api.CheckRequest) -> api.CheckResponse:
        """Refuse malformed inputs, each with its path."""
        return checked(BootArgs, request)

    async def diff(self, request: api.DiffRequest) -> api.DiffResponse:
        """Compare desired with recorded state; a service that does not run differs. Another environment replaces it."""
        old = {key: plain(value) for key, value in request.old_state.items()}
        new = {key: plain(value) for key, value in request.new_inputs.items()}
        changed = [key for key in BootArgs.model_fields if old.get(key) != new.get(key)]
        if old.get(_RUNNING) is not True:
            changed.append(_RUNNING)
        return api.DiffResponse(
            changes=bool(changed),
            diffs=changed,
            replaces=["env"] if "env" in changed else [],
            delete_before_replace=True,
        )

    async def create(self, request: api.CreateRequest) -> api.CreateResponse:
        """Put the files in place and start the daemons; adopt running ones."""
        args = args_of(BootArgs, request.properties)
        seen = await _ensured(args, request.properties, preview=request.preview)
        return api.CreateResponse(f"{args.env}-boot", seen)

    async def update(self, request: api.UpdateRequest) -> api.UpdateResponse:
        """Restore the desired state."""
        return api.UpdateResponse(
            await _ensured(args_of(BootArgs, request.news), request.news, preview=request.preview)
        )

    async def read(self, request: api.ReadRequest) -> api.ReadResponse:
        """Observe whether both daemons run."""
        running = await _away(args_of(BootArgs, request.properties).boot_service().running)
        seen = {**request.properties, _RUNNING: PropertyValue(running)}
        return api.ReadResponse(request.resource_id, seen, dict(request.inputs))

    async def delete(self, request: api.DeleteRequest) -> None:
        """Stop the daemons and remove all files; refused while a node is armed."""
        await _away(args_of(BootArgs, request.properties).boot_service().remove)

    async def cancel(self) -> None:
        """Do nothing: every step ends by itself within seconds."""


async def _ensured(args: BootArgs, properties: Props, *, preview: bool) -> dict[str, PropertyValue]:
    known = inputs_of(BootArgs, properties)
    if preview:
        return {**known, _RUNNING: PropertyValue(UNKNOWN)}
    service = args.boot_service()
    await _away(lambda: service.prepare(args.ramdisk, args.kernel))
    await _away(service.start)
    return {**known, _RUNNING: PropertyValue(value=True)}


async def _away(do: Callable[[], T]) -> T:
    """Run outside the event loop."""
    return await asyncio.get_running_loop().run_in_executor(None, do)
