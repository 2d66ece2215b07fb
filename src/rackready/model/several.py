"""Handover to several schedulers at once: each has nodes of its own, and a site may be seen by those of one part."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr

from rackready.model.base import Model, Name, Names, expand_names
from rackready.model.operations import Handover, Launcher
from rackready.model.own_profile import WithOwnProfiles


def _one_scheduler(value: object) -> object:
    """Return the handover of a part. Raises ValueError for one that has parts itself."""
    if isinstance(value, dict) and value.get("kind") == "several":
        message = "parts in a part - Expected: one scheduler: kind slurm, kubernetes, file or plugin Actual: several"
        raise ValueError(message)
    return value


class HandoverPart(Model):
    """Nodes of a site that have one scheduler, and that scheduler."""

    name: Name | None = Field(
        None, description="name in messages, metrics and for --part; default: the kind of the scheduler"
    )
    nodes: list[Names] = Field(min_length=1, description="its nodes: names or host lists such as gpu[01-32]")
    handover: Annotated[Handover, BeforeValidator(_one_scheduler), Field(discriminator="kind")] = Field(
        description="the scheduler of these nodes, as handover of a site with one scheduler"
    )
    launcher: Launcher | None = Field(
        None, description="launcher of programs on several of these nodes; absent: gates.launcher"
    )

    @property
    def called(self) -> str:
        """Return the name of the part, else the kind of its scheduler."""
        return self.name or self.handover.kind

    @cached_property
    def names(self) -> frozenset[str]:
        """Return the nodes, each by its name."""
        return frozenset(name for text in self.nodes for name in expand_names(text))


class SeveralHandover(Model):
    """Handover to several schedulers: each node belongs to exactly one part."""

    kind: Literal["several"]
    parts: list[HandoverPart] = Field(min_length=1, description="parts of the site, each with its scheduler")


class WithPart(WithOwnProfiles):
    """A site, or the same site as the nodes of one part see it."""

    _part: HandoverPart | None = PrivateAttr(default=None)

    @property
    def part(self) -> HandoverPart | None:
        """The part by which the site is seen; None for the site itself."""
        return self._part

    def seen_by(self, part: HandoverPart) -> Self:
        """Return this site with the scheduler and the launcher of one of its parts."""
        own: dict[str, object] = {"handover": part.handover}
        if part.launcher is not None:
            own["gates"] = getattr(self, "gates").model_copy(update={"launcher": part.launcher})  # noqa: B009 - Site's
        copied = self.model_copy(update=own)
        copied._part = part  # noqa: SLF001 - a copy of itself
        return copied
