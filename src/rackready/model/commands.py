"""Commands in messages, and the environment that they name: most messages are made where nothing knows it."""

from __future__ import annotations

import re
import shlex
from typing import Any

DEFAULT = "sim"
"""The environment of a command without ``--env`` and without $ENV."""
_COMMAND = re.compile(r"`rackready (?P<words>[a-z][^`\n]*)`")
WITHOUT = frozenset({"schema", "setup", "comment", "help", "image", "size model", "import netbox", "sim faults"})
"""Commands, and groups of commands, that have no ``--env``."""
_COMPLETE = frozenset({"--env", "--site", "--help"})
"""Options of commands that need no environment, or name their site."""


def repair(node: str = "NODE", reason: str = "...") -> str:
    """Return the whole command that records a repair, quoted: it needs the node and the reason.

    ``node``: its name; ``{node}`` in a step of a ``FindingKind``, which fills it in.
    """
    return f"`rackready repair {node} --reason '{reason}'`"


def with_env(text: str, env: str) -> str:
    """Return a text whose commands name an environment; empty: no name is needed."""
    if not env or "`rackready " not in text:
        return text
    return _COMMAND.sub(lambda found: _named(found, shlex.quote(env)), text)


def in_document(value: Any, env: str) -> Any:  # noqa: ANN401 - any value of a JSON document
    """Return a document of which each text is ``with_env``."""
    if not env:
        return value
    if isinstance(value, dict):
        return {key: in_document(item, env) for key, item in value.items()}
    if isinstance(value, list):
        return [in_document(item, env) for item in value]
    return with_env(value, env) if isinstance(value, str) else value


def outside(env: str) -> str:
    """Return the environment as a file for other readers has to name it: their shell has no $ENV of this process."""
    return "" if env == DEFAULT else env


def _named(found: re.Match[str], env: str) -> str:
    words = found["words"].split()
    known = any(word.partition("=")[0] in _COMPLETE for word in words)
    return found[0] if known or {words[0], " ".join(words[:2])} & WITHOUT else f"{found[0][:-1]} --env {env}`"
