"""Nodes that apply signed releases themselves (`pull` in the site file); without it, the controller pushes."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field

from rackready.model.base import Model
from rackready.model.provisioning import WebUrl

PullPhase = Literal["install", "optimize"]
"""A phase that nodes may apply themselves: the others need the controller between two nodes, or change switches."""


def _quoted(value: object) -> object:
    """Return a value. Raises ValueError for a number: YAML reads 3.10 without quotes as 3.1."""
    if isinstance(value, int | float):
        message = f'a number - Expected: a text in quotes, e.g. "3.11" Actual: {value}'
        raise ValueError(message)  # noqa: TRY004 - pydantic reports ValueError with its place
    return value


def _without_slash(url: str) -> str:
    return url.rstrip("/")


PythonMinor = Annotated[Literal["3.11", "3.12", "3.13"], BeforeValidator(_quoted)]
"""A version of Python that ansible-core 2.19 runs on."""


class Pull(Model):
    """How nodes fetch and apply signed releases, and report back."""

    url: Annotated[WebUrl, AfterValidator(_without_slash)] = Field(
        description="base URL at which nodes reach `rackready release serve`: they fetch releases there, and report"
    )
    phases: tuple[PullPhase, ...] = Field(
        ("install", "optimize"), min_length=1, description="phases that nodes apply themselves; the others are pushed"
    )
    every_min: int = Field(30, ge=5, le=1440, description="time between two looks of a node for a new order, minutes")
    limit_min: int = Field(60, ge=5, le=240, description="longest play on a node, minutes; after it, the play is ended")
    python: PythonMinor | None = Field(
        None,
        description="version of Python on the nodes that runs the plays, beside their own if that is older; default: "
        "that of the system (debian12: 3.11, ubuntu2404: 3.12); required for ubuntu2204 and el9, whose python3 is too "
        "old",
    )

    @property
    def in_order(self) -> list[str]:
        """Return the phases in the order in which they are deployed."""
        return [phase for phase in get_args(PullPhase) if phase in self.phases]
