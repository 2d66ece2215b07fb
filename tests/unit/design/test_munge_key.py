"""The munge key in base64: read, and refused before any node gets a wrong one, in words without its content."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from rackready.design.munge_key import munge_key
from rackready.design.secrets import SecretUnreadableError
from rackready.model.base import SecretRef

KEY = bytes(range(128, 256))
"""As long as a key of mungekey(8), and no UTF-8."""
STEP = (
    "On the Slurm controller, as root, run `base64 -w0 /etc/munge/munge.key`, put what it prints there (mode 0600), "
    "and run again."
)


def test_a_key_is_what_base64_encodes(tmp_path: Path) -> None:
    file = tmp_path / "munge"
    file.write_bytes(base64.b64encode(KEY) + b"\n")
    assert munge_key(SecretRef(file=file)) == KEY


@pytest.mark.parametrize(
    ("content", "expected", "actual"),
    [
        (KEY, "", "other bytes, as in munge.key itself"),
        (KEY.hex().encode(), "", "hexadecimal digits only: decoded as base64 they are another key"),
        (base64.encodebytes(KEY), "", "a text that is not base64, or has several lines"),
        (b"not base64!", "", "a text that is not base64, or has several lines"),
        ("schlüssel".encode(), "", "a text that is not base64, or has several lines"),
        (base64.b64encode(KEY[:31]), "a munge key of at least 32 bytes, in base64", "31 bytes"),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, content: bytes, expected: str, actual: str) -> None:
    file = tmp_path / "munge"
    file.write_bytes(content)
    with pytest.raises(SecretUnreadableError) as caught:
        munge_key(SecretRef(file=file))
    wanted = expected or "the cluster's munge key in base64, on one line"
    assert str(caught.value) == f"secret in file {file} - Expected: {wanted} Actual: {actual}. {STEP}"
    assert caught.value.__cause__ is caught.value.__context__ is None, "it would quote the content"


def test_a_file_that_is_not_there_is_said_as_of_any_secret(tmp_path: Path) -> None:
    with pytest.raises(SecretUnreadableError, match="Actual: no such file"):
        munge_key(SecretRef(file=tmp_path / "none"))
