"""Reads the cluster's munge key, which the site file names in base64, and refuses what is no such key."""

from __future__ import annotations

import base64
import binascii
import re

from rackready.design.secret_error import unreadable
from rackready.design.secrets import reveal
from rackready.model.base import SecretRef

LEAST_BYTES = 32
"""munged refuses a shorter key (dun/munge, src/libcommon/munge_defs.h, MUNGE_KEY_LEN_MIN_BYTES)."""
_HEX = re.compile(r"[0-9a-fA-F\s]+")
_EXPECTED = "the cluster's munge key in base64, on one line"
_NEXT = (
    "On the Slurm controller, as root, run `base64 -w0 /etc/munge/munge.key`, put what it prints there (mode 0600), "
    "and run again."
)


def munge_key(ref: SecretRef) -> bytes:
    """Return the key itself. Raises SecretUnreadableError, whose words never come from the content."""
    if _binary(ref):
        raise unreadable(ref, _EXPECTED, "other bytes, as in munge.key itself", _NEXT)
    text = reveal(ref)
    if _HEX.fullmatch(text):  # base64 of 32 random bytes has no other letter in one of 10^20 cases
        raise unreadable(ref, _EXPECTED, "hexadecimal digits only: decoded as base64 they are another key", _NEXT)
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):  # ValueError: letters beyond ASCII. Neither is chained: they may quote it
        key = None
    if key is None:
        raise unreadable(ref, _EXPECTED, "a text that is not base64, or has several lines", _NEXT)
    if len(key) < LEAST_BYTES:
        raise unreadable(ref, f"a munge key of at least {LEAST_BYTES} bytes, in base64", f"{len(key)} bytes", _NEXT)
    return key


def _binary(ref: SecretRef) -> bool:
    """Return whether a file has other bytes than text: it is most likely the key itself."""
    if ref.file is None:
        return False
    try:
        ref.file.read_bytes().decode()
    except OSError:  # reveal says it better
        return False
    except UnicodeDecodeError:
        return True
    return False
