"""Shell completion of gate ids and their inputs, environments, profiles, nodes and topics.

It contacts no machine, loads no gate and prints no error: an error would appear in the line that the user types. For
an unreadable file completion offers nothing, and the command itself reports the reason.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import typer

from rackready.model.problems import RackreadyError
from rackready.paths import project_root

VARIABLE = "_RACKREADY_COMPLETE"
"""Environment variable of the shell's completion function; typer chooses its name."""
_LARGEST_SITE = 256 * 1024
"""Largest site file whose nodes are offered, bytes. Larger ones take too long: a person waits."""
_MOST_NODES = 2_000


def typed() -> list[str] | None:
    """Return the words that the shell wants completed, or None for an ordinary call."""
    if VARIABLE not in os.environ:
        return None
    line = os.environ.get("COMP_WORDS", os.environ.get("_TYPER_COMPLETE_ARGS", ""))
    try:
        words = shlex.split(line)
    except ValueError:  # a quotation that is still open
        words = line.split()
    return words[1:]


def gates(incomplete: str) -> list[str]:
    """Offer gate ids that begin with, or contain, the typed text."""
    from rackready.cli import documents  # noqa: PLC0415

    try:
        return [gate_id for gate_id in documents.gate_titles() if gate_id.startswith(incomplete)]
    except (RackreadyError, OSError):
        return []


def commands() -> dict[str, str]:
    """Return command -> what it does, as zsh and fish show it beside the name."""
    from rackready.cli import documents  # noqa: PLC0415

    try:
        return documents.commands()
    except (RackreadyError, OSError):
        return {}


def environments(incomplete: str) -> list[str]:
    """Offer environments: folders of inventories/ with a site file."""
    try:
        return sorted(path.parent.name for path in (project_root() / "inventories").glob(f"{incomplete}*/site.yml"))
    except OSError:
        return []


def gate_inputs(incomplete: str) -> list[str]:
    """Offer the inputs of the gate on the line as ``NAME=``, without those that are given already."""
    from rackready.cli import documents  # noqa: PLC0415

    words = typed() or []  # the parser stops at an option without a value, before it reads arguments
    try:
        inputs = documents.gate_inputs()
    except (RackreadyError, OSError):
        return []
    gate_id = next((word for word in words if word in inputs), "")
    given = {word.partition("=")[0] for word in words if "=" in word and word != incomplete}
    return [f"{name}=" for name in inputs.get(gate_id, ()) if name.startswith(incomplete) and name not in given]


def platforms(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer server profiles."""
    return _profiles(ctx, ("platform",), incomplete)


def machines(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer server and GPU profiles."""
    return _profiles(ctx, ("platform", "gpu"), incomplete)


def gate_sets(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer gate sets."""
    return _profiles(ctx, ("gate_sets",), incomplete)


def _profiles(ctx: typer.Context, families: tuple[str, ...], incomplete: str) -> list[str]:
    """Offer profiles of rackready and of the environment's site, by the names of their files."""
    packaged = Path(__file__).resolve().parents[1] / "profiles"
    folders = [packaged]
    try:
        folders.append(project_root() / "inventories" / _env(ctx) / "profiles")
        places = [folder / family for folder in folders for family in families]
        found = {file.stem for place in places for file in place.glob("*.yml")}
    except OSError:
        return []
    return sorted(name for name in found if name.startswith(incomplete))


def topics(incomplete: str) -> list[str]:
    """Offer topics of `rackready help`. Keys inside a section are offered once the section is typed (``racks.``)."""
    from rackready.cli import documents  # noqa: PLC0415

    try:
        terms = [name.replace(" ", "-") for term in documents.terms() for name in term.names]
        every = [
            "concepts",
            "exit-codes",
            *terms,
            *documents.runbooks(),
            *documents.gate_titles(),
            *documents.findings(),
            *(key for key in documents.site_keys() if "." in incomplete or "." not in key),
        ]
    except (RackreadyError, OSError):
        return []
    return [name for name in dict.fromkeys(every) if name.startswith(incomplete)]


def nodes(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the nodes in the environment's site file."""
    try:
        file = project_root() / "inventories" / _env(ctx) / "site.yml"
        return [name for name in _nodes(file) if name.startswith(incomplete)]
    except (OSError, ValueError):
        return []


def node_list(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer nodes for the last name in a comma-separated list, without those before it."""
    before, comma, last = incomplete.rpartition(",")
    given = set(before.split(","))
    return [f"{before}{comma}{name}" for name in nodes(ctx, last) if name not in given]


def _env(ctx: typer.Context) -> str:
    return str(ctx.params.get("env") or os.environ.get("ENV") or "sim")


def not_installed(error: Exception) -> RackreadyError:
    """Return the message for completion that cannot be installed: the shell's files are in the user's home folder."""
    home = os.environ.get("HOME")
    why = getattr(error, "strerror", None) or str(error).rstrip(".")
    return RackreadyError(
        "--install-completion",
        expected="a home folder that can be written to",
        actual=f"HOME={home or 'not set'}, {why}",
        next_step="Set HOME, or add the output of `rackready --show-completion` to a file that your shell reads.",
    )


def _nodes(file: Path) -> list[str]:
    """Return node names. Raises ValueError if the file is not a site file."""
    import yaml  # noqa: PLC0415 - only this needs it

    from rackready.model.base import expand_names  # noqa: PLC0415

    if file.stat().st_size > _LARGEST_SITE:
        return []
    try:
        document = yaml.load(file.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe loaders
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    names = (name for text in _written(document) if "{" not in text for name in expand_names(text))
    return list(islice(names, _MOST_NODES))


def _written(document: Any) -> Iterator[str]:  # noqa: ANN401 - whatever the file holds
    """Yield node names as written, with the rack's name filled in; nothing for other documents."""
    from rackready.model.base import expand_names  # noqa: PLC0415

    if not isinstance(document, dict):
        return
    templates = _mapping(_mapping(document.get("templates")).get("racks"))
    for rack in map(_mapping, _list(document.get("racks"))):
        whole = {**_mapping(templates.get(str(rack.get("template")))), **rack}
        for name in expand_names(str(whole.get("name", ""))):
            yield from (
                str(_mapping(node).get("name", "")).replace("{rack}", name) for node in _list(whole.get("nodes"))
            )


def _list(value: Any) -> list[Any]:  # noqa: ANN401 - whatever the file holds
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever the file holds
    return value if isinstance(value, dict) else {}
