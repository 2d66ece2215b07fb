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
            raise SecretUnreadableError(
                f"secret in {ref}", expected="a value", actual="not set", next_step=f"Export {ref.env} and run again."
            )
        return value
    try:
        value = ref.file.read_text(encoding="utf-8").removesuffix("\n") if ref.file is not None else ""
    except (OSError, UnicodeDecodeError) as error:
        raise SecretUnreadableError(
            f"secret in {ref}",
            expected="a readable file",
            actual=error.__class__.__name__,
            next_step="Put the secret there (mode 0600) and run again.",
        ) from error
    if not value:
        raise SecretUnreadableError(
            f"secret in {ref}",
            expected="a value",
            actual="empty file",
            next_step="Put the secret there (mode 0600) and run again.",
        )
    return value
