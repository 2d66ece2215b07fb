"""Serial numbers of a machine, and which of them a site file means."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, StringConstraints

SerialKind = Literal["any", "system", "sku", "chassis", "board"]
"""Which number ``serial`` of a node is. ``sku``: the Service Tag of Dell."""
_KINDS: tuple[SerialKind, ...] = get_args(SerialKind)[1:]
_NAMES = {"system": "system", "sku": "SKU", "chassis": "chassis", "board": "board"}
_SCIENTIFIC = re.compile(r"\d(?:\.\d+)?E\+\d+", re.ASCII | re.IGNORECASE)
"""How spreadsheets show a number of more than 11 digits: LibreOffice and Excel write 1.66022E+12 into the CSV."""
_PLACEHOLDERS = frozenset(
    {"tbd", "tba", "tbc", "todo", "n/a", "na", "nan", "none", "null", "nil", "unknown", "pending", "missing", "xxx"}
    | {
        "not specified",
        "not available",
        "default string",
        "to be filled by o.e.m.",
        "serial number",
        "system serial number",
    }
)
"""What people write where the number is not known yet, and firmware where nobody wrote one. Judgement."""


def wanted_serial(text: str) -> str:
    """Return what a serial number has to be where this text is none, else ""."""
    if _SCIENTIFIC.fullmatch(text):
        return "the number on the label. A spreadsheet changed it: format the column as text"
    if text.startswith("="):
        return "the number on the label, not a formula"
    if text.casefold() in _PLACEHOLDERS or not any(letter.isalnum() for letter in text):
        return "the number on the label; leave it out until it is known"
    if not text.isascii() or not text.isprintable() or text != text.strip(" \"'"):
        return "printable ASCII without blanks or quotes at its ends"
    return ""


def _is_serial(text: str) -> str:
    if wanted := wanted_serial(text):
        message = f"Expected: {wanted}"
        raise ValueError(message)
    return text


Serial = Annotated[str, StringConstraints(min_length=1), AfterValidator(_is_serial)]
"""Serial number of a machine, as on its label."""


@dataclass(frozen=True, slots=True)
class Serials:
    """The numbers that one machine reports, each with its kind."""

    found: tuple[tuple[SerialKind, str], ...] = ()

    @classmethod
    def of(cls, *found: tuple[SerialKind, object]) -> Serials:
        """Return these numbers without duplicates and without values that are not text."""
        texts = [(kind, value.strip()) for kind, value in found if isinstance(value, str) and value.strip()]
        return cls(tuple(dict.fromkeys(texts)))

    def also(self, other: Serials) -> Serials:
        """Return these numbers and those of another reading."""
        return Serials(tuple(dict.fromkeys((*self.found, *other.found))))

    def matches(self, wanted: str, kind: SerialKind = "any") -> bool:
        """Return whether one of the numbers of that kind is the wanted one."""
        return any(value == wanted and kind in {"any", own} for own, value in self.found)

    def __str__(self) -> str:
        """Return all numbers for messages: ``system MXFC4..., SKU 8XYZ123``."""
        parts = [f"{_NAMES[kind]} {value}" for kind in _KINDS for own, value in self.found if own == kind]
        return ", ".join(parts) or "none"


def wanted_text(serial: str, kind: SerialKind) -> str:
    """Return a site file's serial for messages: ``serial 8XYZ123 (SKU)``."""
    return f"serial {serial}" if kind == "any" else f"serial {serial} ({_NAMES[kind]})"
