"""Reads a secret from the place that the site file names."""

from __future__ import annotations

import os

from rackready.model.base import SecretRef
from rackready.model.problems import RackreadyError


class SecretUnreadableError(RackreadyError):
    """A secret is not where the site file says."""


def reveal(ref: SecretRef) -> str:
    """Return the secret. Raises SecretUnreadableError that names the place, never the content."""
    if ref.env is not None:
        value = os.environ.get(ref.env, "")
        if not value:
            message = f"secret in {ref} - Expected: a value Actual: not set. Export {ref.env} and run again."
            raise SecretUnreadableError(message)
        return value
    try:
        value = ref.file.read_text(encoding="utf-8").removesuffix("\n") if ref.file is not None else ""
    except (OSError, UnicodeDecodeError) as error:
        message = (
            f"secret in {ref} - Expected: a readable file Actual: {error.__class__.__name__}. "
            "Put the secret there (mode 0600) and run again."
        )
        raise SecretUnreadableError(message) from error
    if not value:
        message = (
            f"secret in {ref} - Expected: a value Actual: empty file. Put the secret there (mode 0600) and run again."
        )
        raise SecretUnreadableError(message)
    return value
