"""Names the environment in the commands that a message tells people to run.

Most messages are made where nothing knows which environment the command was called for. Here all of them pass.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rackready.model import commands
from rackready.model.commands import DEFAULT

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
    _called_for = "" if plain else name


def with_env(text: str) -> str:
    """Return a text whose commands name the environment of this call where it is not the default."""
    return commands.with_env(text, _called_for)


def in_document(value: Any) -> Any:  # noqa: ANN401 - any value of a JSON document
    """Return a document of which each text is ``with_env``."""
    return commands.in_document(value, _called_for)
