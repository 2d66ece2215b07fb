"""What a reader sees of a text that is not ours: control characters move a terminal's cursor or change what stands before them, others show nothing at all."""

from __future__ import annotations

import re
import unicodedata

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""General categories (Unicode, 4.5): control, format, surrogate, private use, line and paragraph separator."""
_LOOKED_AT = re.compile("\r\n|[^\t\n\x20-\x7e]")
_FILLERS = frozenset("\u115f\u1160\u3164\uffa0")
"""Letters by their category that show nothing (Hangul fillers)."""


def visible(text: str) -> str:
    r"""Return the text with a visible escape (``\x1b``, ``\u202e``) for each character that shows nothing. Tabs and ends of lines stay."""
    return text if text.isprintable() else _LOOKED_AT.sub(_seen, text)


def readable(text: str) -> str:
    """Return a text that a person says for others. Raises ValueError where it holds what nobody sees, or no letter and no digit at all."""
    for letter in text:
        if letter not in "\t\n\r" and unseen(letter):
            raise ValueError("Expected: characters that can be seen")
    if text and not any(letter.isalnum() and letter not in _FILLERS for letter in text):
        raise ValueError("Expected: words, with a letter or a digit")
    return text


def unseen(letter: str) -> bool:
    """Whether a character shows nothing: a control character (line breaks and tabs too), or one that formats others."""
    return unicodedata.category(letter) in _UNSEEN


def _seen(found: re.Match[str]) -> str:
    letter = found[0]
    if letter == "\r\n":
        return "\n"
    return letter.encode("unicode_escape").decode() if unseen(letter) else letter
