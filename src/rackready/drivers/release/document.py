"""The release document of a node: it names every object, and its SHA-256 is the release."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rackready.drivers.release.error import ReleaseError
from rackready.drivers.release.objects import Blob
from rackready.drivers.release.wheels import Wheel

VERSION = 1


@dataclass(frozen=True, slots=True)
class Parts:
    """The objects of which a release is made. Code, wheels and files are the same for many nodes."""

    node: str
    python: str
    code: Blob
    wheels: Sequence[Wheel]
    files: Sequence[Blob]
    variables: Blob


def document(parts: Parts) -> dict[str, Any]:
    """Return the release document."""
    return {
        "version": VERSION,
        "node": parts.node,
        "code": parts.code.document(),
        "wheels": [wheel.document() for wheel in parts.wheels],
        "files": [blob.document() for blob in parts.files],
        "variables": parts.variables.document(),
        "ansible_core": next(wheel.version for wheel in parts.wheels if wheel.name == "ansible-core"),
        "python": parts.python,
    }


def canonical(data: Mapping[str, Any]) -> bytes:
    """Return data as JSON in one form: sorted keys, no blanks."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def blobs_of(data: bytes, where: object) -> dict[str, Blob]:
    """Return what a release document names, by a word for each. Raises ReleaseError when it is no such document."""
    try:
        found = json.loads(data)
        if canonical(found) != data or found["version"] != VERSION:
            raise ValueError("another form or version")  # noqa: TRY301 - one message for all
        out = {"code": _blob(found["code"]), "variables": _blob(found["variables"])}
        out |= {f"wheel {item['file']}": _blob(item) for item in found["wheels"]}
        return out | {f"file {number}": _blob(item) for number, item in enumerate(found["files"], 1)}
    except (ValueError, KeyError, TypeError) as error:
        raise ReleaseError(
            where,
            "release document",
            expected=f"a canonical document of version {VERSION}",
            actual=f"{type(error).__name__} {error}",
            next_step="Run `rackready release build`.",
        ) from error


def _blob(data: Mapping[str, Any]) -> Blob:
    return Blob(str(data["sha256"]), int(data["size"]))
