"""Makes invisible and control characters of foreign text visible: they move a terminal's cursor or hide text."""

from __future__ import annotations

import re
import unicodedata

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""General categories (Unicode, 4.5): control, format, surrogate, private use, line and paragraph separator."""
_LOOKED_AT = re.compile("\r\n|[^\t\n\x20-\x7e]")
_FILLERS = frozenset("\u115f\u1160\u3164\uffa0")
"""Letters by category that are invisible (Hangul fillers)."""


def visible(text: str) -> str:
    r"""Return the text with an escape (``\x1b``, ``\u202e``) for each invisible character. Tabs and line ends stay."""
    return text if text.isprintable() else _LOOKED_AT.sub(_seen, text)


class UnreadableError(ValueError):
    """A person's words cannot be read. ``expected``: what is expected of them."""

    def __init__(self, expected: str) -> None:
        super().__init__(f"Expected: {expected}")
        self.expected = expected


def readable(text: str) -> str:
    """Return a person's words.

    Raises UnreadableError when they have invisible characters, or neither letter nor digit.
    """
    for letter in text:
        if letter not in "\t\n\r" and unseen(letter):
            raise UnreadableError("visible characters")
    if text and not any(letter.isalnum() and letter not in _FILLERS for letter in text):
        raise UnreadableError("words, with a letter or a digit")
    return text


def unseen(letter: str) -> bool:
    """Return whether a character is invisible: a control character (line breaks and tabs too) or a format character."""
    return unicodedata.category(letter) in _UNSEEN


def _seen(found: re.Match[str]) -> str:
    letter = found[0]
    if letter == "\r\n":
        return "\n"
    return letter.encode("unicode_escape").decode() if unseen(letter) else letter
