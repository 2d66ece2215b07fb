"""Encrypted files and the programs that open them, as tests need them; and a search for secrets in errors."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from rackready.design.secrets import SecretUnreadableError

CANARY = "canary-7Qd2-XyZ"
"""A secret that no message may show."""

REPLY = """#!/bin/sh
echo "$@" >>"{log}"
case "$*" in *--version*) echo "sops {version}"; exit 0;; esac
{body}
"""
"""A program in the place of sops. Its answers are those of sops 3.13.3, which `make test-sops` asks for real."""

AS_ENCRYPTED = """bmc:
    node01: ENC[AES256_GCM,data:iP2QG8sqKfXpJA==,iv:EuIjKzrw64fZhszdkO4YGlMXEmJznDk94e1nlX4CF8c=,tag:E3A/==,type:str]
    number: ENC[AES256_GCM,data:DA==,iv:CUypv7opbarX3yGGU4+4n6EZ+Qyx0TwehdjavEkFMt8=,tag:AITx+HhHKkGc/==,type:int]
    open_unencrypted: {canary}
sops:
    age: []
    lastmodified: "2026-11-28T08:35:28Z"
    mac: ENC[AES256_GCM,data:AEDj,iv:z9kX,tag:o5b5,type:str]
    version: 3.13.3
""".replace("{canary}", CANARY)
"""What sops 3.13.3 writes; ciphers are cut."""


def refused(work: Callable[[], object], *secrets: str) -> str:
    """Return the text of the refusal. No secret is in it, nor in what it was raised from."""
    with pytest.raises(SecretUnreadableError) as caught:
        work()
    shown = "".join(traceback.format_exception(caught.value))
    error: BaseException | None = caught.value
    while error is not None:
        shown += repr(error.args) + repr(vars(error))
        error = error.__cause__ or error.__context__
    for secret in (CANARY, *secrets):
        assert secret not in shown
    return str(caught.value)


class FakeSops:
    """A sops on the PATH that answers as it is told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.log = folder, folder / "asked"
        folder.mkdir()
        self.answers("exit 1")
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def answers(self, body: str, version: str = "3.13.3") -> None:
        program = self.folder / "sops.new"
        program.write_text(REPLY.format(log=self.log, body=body, version=version), encoding="utf-8")
        program.chmod(0o700)
        program.replace(self.folder / "sops")

    def prints(self, document: str) -> None:
        (self.folder / "document").write_text(document, encoding="utf-8")
        self.answers(f'cat "{self.folder}/document"')

    def asked(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
