"""Errors of UFM, and their messages for the operator."""

from __future__ import annotations

from rackready.model.problems import RackreadyError


class UfmError(RackreadyError):
    """UFM did not do what was requested."""


class UfmLoginError(UfmError):
    """UFM refused the token, or the user or password."""


class UfmTlsError(UfmError):
    """UFM's certificate is not trusted."""


class UfmUnreachableError(UfmError):
    """UFM does not answer in time."""


class UfmAnswerError(UfmError):
    """An answer of UFM has a shape that rackready does not know, or is not whole."""


def unknown(resource: str, expected: str, actual: object) -> UfmAnswerError:
    """Return the refusal of an answer. ``resource``: path below the base, without secrets."""
    return UfmAnswerError(
        f"UFM {resource}",
        expected=expected,
        actual=str(actual)[:200],
        next_step="Run again; if it stays, report this text with the version of UFM.",
    )
