"""The option `--limit`, and others that name nodes: names and host lists, as every command reads them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rackready.cli import complete
from rackready.model.host_list import host_list
from rackready.model.near import CORRECT, folded
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.model.site import Site


_COMMA = re.compile(r",(?![^\[]*\])")
"""A comma between names, not one inside a bracket."""


def written(text: str) -> list[str]:
    """Return the names and host lists of an option, not expanded."""
    return [part.strip() for part in _COMMA.split(text) if part.strip()]


def _not_empty(context: typer.Context, parameter: typer.CallbackParam, value: str) -> str:
    """Return the value. Raises RackreadyError for one that was given and is empty: it would mean every node."""
    given = context.get_parameter_source(str(parameter.name))
    if not written(value) and given is not None and given.name == "COMMANDLINE":
        raise RackreadyError(
            "--limit",
            expected="names of nodes, comma-separated",
            actual="nothing",
            next_step="Name them; without --limit, all nodes are meant.",
        )
    return value


Limit = Annotated[
    str,
    typer.Option(
        "--limit",
        help="Only these nodes: names or host lists, comma-separated.",
        autocompletion=complete.node_list,
        callback=_not_empty,
    ),
]


def names_of(limit: str, option: str = "--limit") -> list[str]:
    """Return the names in an option: names and host lists, comma-separated. Raises RackreadyError."""
    from rackready.model.base import expand_names  # noqa: PLC0415 - `--help` loads no pydantic

    try:
        return [name for part in written(limit) for name in expand_names(part)]
    except ValueError as error:
        expected = "names or host lists such as gpu[01-32], comma-separated"
        raise RackreadyError(f"{option} {limit}", expected=expected, actual=error, next_step="Correct it.") from error


def choose(site: Site, limit: str) -> list[str]:
    """Return the site's nodes, or those that ``--limit`` names. Raises RackreadyError for an unknown name."""
    known = [node.name for node in site.nodes()]
    wanted = set(named([limit], known, "--limit")) if limit else known
    return [name for name in known if name in wanted]


def named(given: Sequence[str], known: Sequence[str], option: str) -> list[str]:
    """Return the nodes that an option names, each once and in its order. Raises RackreadyError for an unknown name.

    ``given``: each use of the option, with names or host lists as in ``--limit``.
    """
    wanted = dict.fromkeys(name for item in given for name in names_of(item, option))
    unknown = sorted(wanted.keys() - set(known))
    if unknown or not wanted:
        raise RackreadyError(
            f"{option} {','.join(given)}".rstrip(),
            expected=f"some of {folded(known, *unknown)}",
            actual=host_list(unknown) or "nothing",
            next_step=CORRECT,
        )
    return list(wanted)
