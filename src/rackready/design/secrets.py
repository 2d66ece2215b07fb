"""Reads a secret from the place that the site file names.

An encrypted file is decrypted once in a process, into memory, and again when it changes. Programs that read a secret by
a file's name (lookups of Ansible) get one that is in memory only: its pages are never on a disk.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rackready.design import secret_sops, secret_vault
from rackready.design.secret_error import SecretUnreadableError, unopened, unreadable
from rackready.model.base import SecretRef

__all__ = ["SecretUnreadableError", "forget", "handed_down", "in_memory", "readable", "reveal"]

VARIABLE = "RACKREADY_SECRETS"
"""Variable of a child's environment: JSON, place of a secret to the file in its parent's memory."""

_WRITE = "Put the secret there (mode 0600) and run again."
_BOM = "\ufeff"
"""Editors of Windows write it: a password that begins with it is another password."""
_lock = threading.Lock()
_documents: dict[tuple[Any, ...], Any] = {}
_in_memory: dict[tuple[str, str], Path] = {}


def reveal(ref: SecretRef) -> str:
    """Return the secret. Raises SecretUnreadableError that names the place, never the content."""
    if ref.env is not None:
        value = os.environ.get(ref.env, "")
        if not value:
            raise unreadable(ref, "a value", "not set", f"Export {ref.env} and run again.")
        return value
    if ref.sops is not None:
        return secret_sops.read(ref, _once(ref, secret_sops.decrypt))
    if ref.vault is not None:
        return secret_vault.read(ref, _once(ref, secret_vault.decrypt))
    value = _text(ref, ref.file) if ref.file is not None else ""
    if not value:
        raise unreadable(ref, "a value", "empty file", _WRITE)
    return value


def _text(ref: SecretRef, file: Path) -> str:
    """Return the text of a file without its last line end. Raises SecretUnreadableError."""
    try:
        value = file.read_text(encoding="utf-8").removesuffix("\n")
    except OSError as error:
        raise unopened(ref, file, error, _WRITE) from error
    except UnicodeDecodeError:  # it holds the bytes, so it is not chained
        value = None
    if value is None:
        raise unreadable(ref, "a text in UTF-8", "other bytes", _WRITE)
    if value.startswith(_BOM):
        raise unreadable(ref, "the secret alone", "a byte order mark before it", "Save it without one, as plain UTF-8.")
    return value


def readable(ref: SecretRef) -> SecretRef:
    """Return a place from which a program can read the secret by name: a file, or a variable of the environment.

    What a parent process handed down (``handed_down``) comes first. Raises SecretUnreadableError.
    """
    given = json.loads(os.environ.get(VARIABLE, "{}"))
    if str(ref) in given:
        return SecretRef(file=Path(given[str(ref)]))
    return ref if ref.encrypted is None else in_memory(ref)


def in_memory(ref: SecretRef) -> SecretRef:
    """Return a file from which a program can read the secret. Raises SecretUnreadableError.

    A secret that is in no file of its own gets one in this process's memory (memfd_create(2)): programs of the same
    user can open it while this process runs, and it is never on a disk.
    """
    if ref.file is not None:
        return ref
    value = reveal(ref)
    with _lock:
        key = (str(ref), value)
        if key not in _in_memory:
            descriptor = os.memfd_create("rackready-secret", os.MFD_CLOEXEC)
            os.write(descriptor, value.encode())
            _in_memory[key] = Path(f"/proc/{os.getpid()}/fd/{descriptor}")
        return SecretRef(file=_in_memory[key])


def handed_down(refs: Iterable[SecretRef | None]) -> dict[str, str]:
    """Return environment variables with which a child process finds secrets that are in no file of their own.

    The variable holds places alone: a child needs neither the keys of encrypted files nor our environment. Raises
    SecretUnreadableError.
    """
    places = {str(ref): str(in_memory(ref).file) for ref in refs if ref is not None and ref.file is None}
    return {VARIABLE: json.dumps(places)} if places else {}


def forget() -> None:
    """Drop what was decrypted: a file is about to be written."""
    with _lock:
        _documents.clear()


def _once(ref: SecretRef, decrypt: Callable[[SecretRef], Any]) -> Any:  # noqa: ANN401 - a document
    assert ref.encrypted is not None  # noqa: S101 - callers come with a reference to an encrypted file
    file = ref.encrypted[0]
    with _lock:  # threads that need the same file wait for the one that decrypts it
        try:
            stat = file.stat()
        except OSError:
            return decrypt(ref)
        key = (decrypt, file.resolve(), stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if key not in _documents:
            _documents[key] = decrypt(ref)
        return _documents[key]
