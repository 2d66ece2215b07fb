"""Secrets in files and in the environment: read, and refused in words that name the place and never the content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rackready.design.secrets import SecretUnreadableError, reveal
from rackready.model.base import SecretRef


def test_reveal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "s"
    secret.write_text("pass word\n", encoding="utf-8")
    assert reveal(SecretRef(file=secret, env=None)) == "pass word"
    monkeypatch.setenv("RR_TEST_SECRET", "x")
    assert reveal(SecretRef(file=None, env="RR_TEST_SECRET")) == "x"
    with pytest.raises(SecretUnreadableError, match="Expected: a readable file Actual: no such file"):
        reveal(SecretRef(file=tmp_path / "none", env=None))
    secret.write_text("", encoding="utf-8")
    with pytest.raises(SecretUnreadableError, match="Actual: empty file"):
        reveal(SecretRef(file=secret, env=None))


PUT = "Put the secret there (mode 0600) and run again."


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda _path: None, f"a readable file Actual: no such file. {PUT}"),
        (
            lambda path: path.symlink_to("elsewhere/s"),
            "a readable file Actual: a link to elsewhere/s, which does not exist. Correct the link, or replace it.",
        ),
        (lambda path: path.mkdir(), "a readable file Actual: a folder. Name a file in the site file."),
        (lambda path: path.write_bytes(b"\xff\xfe"), f"a text in UTF-8 Actual: other bytes. {PUT}"),
        (lambda path: path.write_bytes(b"\n"), f"a value Actual: empty file. {PUT}"),
        (
            lambda path: path.write_bytes(b"\xef\xbb\xbfpass"),
            "the secret alone Actual: a byte order mark before it. Save it without one, as plain UTF-8.",
        ),
    ],
    ids=["absent", "broken link", "folder", "bytes", "empty", "byte order mark"],
)
def test_a_secret_that_cannot_be_read_says_why_and_no_class_of_python(
    make: Callable[[Path], object], words: str, tmp_path: Path
) -> None:
    make(tmp_path / "s")
    with pytest.raises(SecretUnreadableError) as caught:
        reveal(SecretRef(file=tmp_path / "s"))
    assert str(caught.value) == f"secret in file {tmp_path}/s - Expected: {words}"


def test_a_secret_that_this_user_may_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refused)
    with pytest.raises(SecretUnreadableError) as caught:
        reveal(SecretRef(file=tmp_path / "s"))
    assert str(caught.value) == (
        f"secret in file {tmp_path}/s - Expected: a readable file Actual: this user may not read it. "
        "Correct its owner or its mode (0600), or run as another user."
    )
