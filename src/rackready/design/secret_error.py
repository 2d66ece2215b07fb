"""The error of a secret that cannot be read, and the way to a value in a decrypted document."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rackready.model.base import SecretRef
from rackready.model.problems import RackreadyError


class SecretUnreadableError(RackreadyError):
    """A secret is not where the site file says."""


def unreadable(ref: SecretRef, expected: str, actual: str, next_step: str) -> SecretUnreadableError:
    """Return the error of a place; none of its words comes from the content."""
    return SecretUnreadableError(f"secret in {ref}", expected=expected, actual=actual, next_step=next_step)


_RIGHTS = "Correct its owner or its mode (0600), or run as another user."


def unopened(ref: SecretRef, file: Path, error: OSError, absent: str) -> SecretUnreadableError:
    """Return the error of a file that cannot be read. ``absent``: the next step where it does not exist."""
    if isinstance(error, FileNotFoundError) and file.is_symlink():
        actual, step = f"a link to {file.readlink()}, which does not exist", "Correct the link, or replace it."
    elif isinstance(error, FileNotFoundError):
        actual, step = "no such file", absent
    elif isinstance(error, IsADirectoryError):
        actual, step = "a folder", "Name a file in the site file."
    elif isinstance(error, PermissionError):
        actual, step = "this user may not read it", _RIGHTS
    else:
        actual, step = error.strerror or error.__class__.__name__, absent
    return unreadable(ref, "a readable file", actual, step)


def content(ref: SecretRef, file: Path) -> bytes:
    """Return what an encrypted file contains. Raises SecretUnreadableError."""
    try:
        return file.read_bytes()
    except OSError as error:
        step = f"Put {file} there, or correct the reference in the site file."
        raise unopened(ref, file, error, step) from error


def value_at(ref: SecretRef, document: Any, keys: Sequence[str]) -> Any:  # noqa: ANN401 - a YAML document
    """Return what a document has at a key. Raises SecretUnreadableError that names keys of the reference only."""
    found, way = document, ""
    for key in keys:
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            actual = f"{way or 'the file'} has no {key}" if isinstance(found, dict | list) else f"{way} has no keys"
            raise unreadable(
                ref, f"a value at {'.'.join(keys)}", actual, "Correct the key in the site file, or add the secret."
            )
        way = f"{way}.{key}" if way else key
    return found


def as_text(ref: SecretRef, value: object) -> str:
    """Return a value that is a text and not empty. Raises SecretUnreadableError that tells its kind."""
    if isinstance(value, str) and value:
        return value
    kinds = {dict: "a mapping", list: "a list", bool: "true or false", type(None): "nothing", str: "an empty text"}
    actual = kinds.get(type(value), "a number")
    step = "Quote it in the file: a number loses zeros." if actual == "a number" else "Correct the key or the file."
    raise unreadable(ref, "a text", actual, step)
