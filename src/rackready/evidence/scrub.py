"""Takes secrets out of captured output before it is stored."""

from __future__ import annotations

import re

HIDDEN = "[scrubbed]"

_PEM = re.compile(r"-----BEGIN (?P<kind>[A-Z ]*PRIVATE KEY)-----.*?(?:-----END (?P=kind)-----|\Z)", re.DOTALL)
_NCCL_ENVIRONMENT = re.compile(r'("env"\s*:\s*)\[(?:[^\[\]"]|"(?:[^"\\]|\\.)*")*\]?')
"""nccl-tests' JSON document holds the whole environment of its process."""
_NAMED = re.compile(
    r"(?i)\b(?P<name>[\w.-]*(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|credential)[\w.-]*)(?P<sign>\"?\s*[=:]\s*\"?)(?P<value>[^\s\"',;&]+)"
)
_URL = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)[^/\s:@]+:[^/\s@]+@")


def scrub(text: str) -> str:
    """Return the text without private keys, environment dumps, named secrets and passwords in URLs."""
    text = _PEM.sub(HIDDEN, text)
    text = _NCCL_ENVIRONMENT.sub(rf'\g<1>["{HIDDEN}"]', text)
    text = _NAMED.sub(rf"\g<name>\g<sign>{HIDDEN}", text)
    return _URL.sub(rf"\g<scheme>{HIDDEN}@", text)
