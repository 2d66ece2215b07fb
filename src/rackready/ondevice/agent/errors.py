"""How imaging ends other than well."""

from __future__ import annotations


class ImagingError(Exception):
    """An end with a code for programs and a message for people.

    Whether it is a refusal or a failure depends on whether anything had been written by then.
    """

    def __init__(self, code: str, what: str, *, expected: str = "", actual: str = "", next_step: str = "") -> None:
        values = f" - Expected: {expected} Actual: {actual}." if expected else ""
        self.code = code
        self.message = f"{what}{values} {next_step}".rstrip()
        super().__init__(self.message)
