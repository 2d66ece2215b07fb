"""Names the environment in the commands that a message tells people to run.

Most messages are made where nothing knows which environment the command was called for. Here all of them pass.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

DEFAULT = "sim"
_COMMAND = re.compile(r"`rackready (?P<words>[a-z][^`\n]*)`")
WITHOUT = frozenset({"schema", "setup", "comment", "help", "image", "size model", "import netbox", "sim faults"})
"""Commands, and groups of commands, that have no ``--env``."""
_COMPLETE = frozenset({"--env", "--site", "--help"})
"""Options of commands that need no environment, or name their site."""

_called_for = ""
"""The environment of this call, as a next step has to name it; empty where a command means it without a name."""


def remember(arguments: Sequence[str]) -> None:
    """Take the environment of a call from its words, or from $ENV as the option ``--env`` does."""
    global _called_for  # noqa: PLW0603 - a process calls one command after another
    outside = os.environ.get("ENV") or DEFAULT
    joined = [word.partition("=")[2] for word in arguments if word.startswith("--env=")]
    apart = [value for option, value in pairwise(arguments) if option == "--env"]
    name = [outside, *joined, *apart][-1]
    # `make deploy ENV=prod` sets $ENV for this process alone: in the reader's shell the default is another one.
    plain = name == outside == DEFAULT or any(word.partition("=")[0] == "--site" for word in arguments)
    _called_for = "" if plain else shlex.quote(name)


def with_env(text: str) -> str:
    """Return a text whose commands name the environment of this call where it is not the default."""
    return _COMMAND.sub(_named, text) if _called_for and "`rackready " in text else text


def in_document(value: Any) -> Any:  # noqa: ANN401 - any value of a JSON document
    """Return a document of which each text is ``with_env``."""
    if isinstance(value, dict):
        return {key: in_document(item) for key, item in value.items()}
    if isinstance(value, list):
        return [in_document(item) for item in value]
    return with_env(value) if isinstance(value, str) else value


def _named(found: re.Match[str]) -> str:
    words = found["words"].split()
    known = any(word.partition("=")[0] in _COMPLETE for word in words)
    return found[0] if known or {words[0], " ".join(words[:2])} & WITHOUT else f"{found[0][:-1]} --env {_called_for}`"
