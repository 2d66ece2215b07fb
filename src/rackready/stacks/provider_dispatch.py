"""One provider for several kinds of resources: each request goes to the one of its type."""

from __future__ import annotations

from collections.abc import Mapping

from pulumi.provider.experimental import provider as api

from rackready.model.problems import RackreadyError

_TYPE_AT = 2
"""Place of the type in a URN: urn:pulumi:stack::project::parent$type::name has it third."""


class UnknownTypeError(RackreadyError):
    """The engine asks for a resource that this release does not have."""


class ProviderDispatch(api.Provider):
    """Pass check, diff, create, read, update and delete on to the provider of the resource's type."""

    def __init__(self, kinds: Mapping[str, api.Provider]) -> None:
        self._kinds = kinds

    async def check(self, request: api.CheckRequest) -> api.CheckResponse:
        """Check the inputs of a resource."""
        return await self._of(request.urn).check(request)

    async def diff(self, request: api.DiffRequest) -> api.DiffResponse:
        """Compare desired with recorded state of a resource."""
        return await self._of(request.urn).diff(request)

    async def create(self, request: api.CreateRequest) -> api.CreateResponse:
        """Create a resource."""
        return await self._of(request.urn).create(request)

    async def update(self, request: api.UpdateRequest) -> api.UpdateResponse:
        """Update a resource."""
        return await self._of(request.urn).update(request)

    async def read(self, request: api.ReadRequest) -> api.ReadResponse:
        """Observe a resource."""
        return await self._of(request.urn).read(request)

    async def delete(self, request: api.DeleteRequest) -> None:
        """Delete a resource."""
        await self._of(request.urn).delete(request)

    async def cancel(self) -> None:
        """Cancel the work of every kind."""
        for kind in self._kinds.values():
            await kind.cancel()

    def _of(self, urn: str) -> api.Provider:
        kind = urn.split("::")[_TYPE_AT].rpartition("$")[2]
        if kind not in self._kinds:
            raise UnknownTypeError(
                urn,
                "type of resource",
                expected=f"one of {', '.join(sorted(self._kinds))}",
                actual=kind,
                next_step="The stack was made by another release of rackready: use that one.",
            )
        return self._kinds[kind]
