"""Commands that run a script of ondevice/ in a node's python3 and return its JSON document."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

from rackready import printed_json
from rackready.format_error import FormatError
from rackready.gates.base import Command, Output
from rackready.gates.formats import printed


def command(key: str, node: str, script: ModuleType, *arguments: str, timeout_s: float = 60, stage: int = 0) -> Command:
    """Return the command that runs an ondevice script on a node. It leaves no file there."""
    return Command(
        key=key, node=node, argv=("python3", "-", *arguments), stdin=source(script), timeout_s=timeout_s, stage=stage
    )


@cache
def source(script: ModuleType) -> str:
    """Return the text of a script, as it is sent."""
    return inspect.getsource(script)


def document(output: Output, wanted: str, shape: type[printed.Shape] | None = None) -> dict[str, Any]:
    """Return the document that a script printed. Raise FormatError if it is incomplete or of another format or shape.

    An ``error`` document, which reports why there is no other, has no shape.
    """
    found = printed_json.load(output.stdout.strip())
    if not isinstance(found, dict) or found.get("format") != wanted:
        message = f"no document of format {wanted}"
        raise FormatError(message)
    if "error" not in found and found.get("complete") is not True:
        message = "the document is not complete"
        raise FormatError(message)
    if "error" not in found and output.exit_code != 0:
        message = f"a complete document, but exit code {output.exit_code}"
        raise FormatError(message)
    if shape is not None and "error" not in found:
        printed.require_shape(found, shape)
    return found


def sealed(found: dict[str, Any], digest: Callable[[dict[str, Any]], str]) -> dict[str, Any]:
    """Return the document if its digest matches its contents. Raise FormatError if a part of it was lost."""
    held = {key: value for key, value in found.items() if key not in {"format", "digest", "complete"}}
    if found.get("digest") != digest(held):
        raise FormatError("its digest is not that of its contents")
    return found
