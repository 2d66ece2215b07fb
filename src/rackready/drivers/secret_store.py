"""Where a new password is kept while a device gets it: beside the old one, in the same kind of place.

A new one is first ``pending``: a file ``<file>.pending``, or the key ``<key>_pending`` beside the old one in the same
encrypted file. It takes the old one's place when a login with it has worked. Each step replaces a file as a whole, so
that a kill at any moment leaves the old state or the new one, and both passwords until the last step. Encrypted files
are never decrypted on a disk: sops gets values by a pipe, and works on a copy of the encrypted file. The next change
removes a copy that a kill left.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rackready import files
from rackready.design import secret_sops, secret_vault, vault_edit
from rackready.design.secret_error import SecretUnreadableError, content, value_at
from rackready.design.secret_places import place_of
from rackready.design.secrets import reveal
from rackready.model.base import SecretRef
from rackready.model.problems import RackreadyError
from rackready.paths import leave_out_of_git, private_dir

_MARK = r"[0-9a-f]{8}"
_NEW = rf"\d+\.{_MARK}\.new"
"""Ends of names that ``rackready.files`` gives to a file until it is whole."""


class SecretUnwritableError(RackreadyError):
    """A new secret cannot be kept where the old one is."""


def store_of(ref: SecretRef) -> Store | None:
    """Return the store of a secret's place; None for a place that cannot be written."""
    if ref.file is not None:
        return FileStore(ref, ref.file)
    if ref.encrypted is not None:
        return SopsStore(ref, ref.encrypted[0]) if ref.sops is not None else VaultStore(ref, ref.encrypted[0])
    return None


class Store:
    """A secret's place and that of its pending successor. Methods raise SecretUnreadableError and OSError."""

    suffix = "_pending"

    def __init__(self, ref: SecretRef, file: Path) -> None:
        self.ref, self.file = ref, file
        self.pending = ref.beside(self.suffix)

    @property
    def pending_name(self) -> str:
        """The pending secret's place, in words."""
        return str(self.pending)

    def exists(self) -> bool:
        """Whether there is a secret."""
        return _there(self.ref)

    def has_pending(self) -> bool:
        """Whether a change is under way."""
        return _there(self.pending)

    def written(self) -> int | str:
        """Return a mark of the secret's present version, which tells nothing of the secret."""
        raise NotImplementedError

    def prepare(self, make: Callable[[], str]) -> None:
        """Write a new secret as pending, unless one is there."""
        with _locked(self.file.parent):
            self._sweep()
            if not self.has_pending():
                self._put(make())

    def promote(self, since: int | str | None = None) -> None:
        """Put the pending secret in the place of the old one.

        ``since``: the mark (``written``) of the old one when the change began. Raises SecretUnwritableError where it
        has another by now: what somebody else wrote there, such as another device's password, is not replaced.
        """
        with _locked(self.file.parent):
            self._sweep()
            if since is not None and self.written() != since:
                raise self._unwritable(
                    f"it was changed by somebody else meanwhile; the device has the password in {self.pending_name}",
                    "Find out whose secret is there and copy it to a place of its own, then put the pending one there.",
                )
            self._take()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold this place alone for a whole change: another one of the same place waits, in any process.

        The lock is a file beside the secret, since the secret's own is replaced; its holder removes
        it. Each place has its own, so that changes of other places in the folder go on.
        """
        self._make_folder()
        digest = hashlib.sha256(repr(place_of(self.ref)).encode()).hexdigest()[:8]
        lock = self.file.resolve().with_name(f".{self.file.resolve().name}.{digest}.lock")
        descriptor = _only_of(lock)
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
            os.close(descriptor)

    def require_writable(self) -> None:
        """Raise SecretUnwritableError or SecretUnreadableError where a new secret could not be kept."""

    def _make_folder(self) -> None:
        """Make the folder if it is missing."""

    def _sweep(self) -> None:
        """Remove what a killed run left beside the file. Under the folder's lock nobody else works on one of these."""
        left = re.compile("|".join(self._half(re.escape(self.file.name))))
        for path in self.file.parent.iterdir():
            if left.fullmatch(path.name):
                path.unlink(missing_ok=True)

    def _half(self, name: str) -> list[str]:
        """Return patterns of names that only a run under the lock gives. ``name``: the file's, as a pattern."""
        raise NotImplementedError

    def _put(self, value: str) -> None:
        raise NotImplementedError

    def _take(self) -> None:
        raise NotImplementedError

    def _unwritable(self, actual: str, step: str) -> SecretUnwritableError:
        return SecretUnwritableError(
            f"secret in {self.ref}", expected="a place for a new password", actual=actual, next_step=step
        )


class FileStore(Store):
    """A file that holds only the secret."""

    suffix = ".pending"

    @property
    def _beside(self) -> Path:
        return self.file.with_name(self.file.name + self.suffix)

    @property
    def pending_name(self) -> str:
        """The pending file."""
        return str(self._beside)

    def exists(self) -> bool:
        """Whether the file exists; one that is empty or unreadable is an error later."""
        return self.file.exists()

    def has_pending(self) -> bool:
        """Whether the pending file exists."""
        return self._beside.exists()

    def written(self) -> int:
        """Return when the file was written, in ns since 1970; 0 when there is none."""
        return self.file.stat().st_mtime_ns if self.file.exists() else 0

    def prepare(self, make: Callable[[], str]) -> None:
        """Write a new secret as pending, unless one is there."""
        self._make_folder()
        super().prepare(make)

    def _make_folder(self) -> None:
        """Make the folder if it is missing, left out of git; so is ``inventories/ENV/secrets`` in any case."""
        folder = self.file.parent
        made = not folder.exists()
        if made:
            private_dir(folder)
        if made or (folder.name == "secrets" and folder.parent.parent.name == "inventories"):
            leave_out_of_git(folder)

    def _half(self, name: str) -> list[str]:
        return [rf"\.{name}{re.escape(self.suffix)}\.{_NEW}"]

    def _put(self, value: str) -> None:
        files.create(self._beside, f"{value}\n".encode())

    def _take(self) -> None:
        self._beside.replace(self.file)
        _sync(self.file.parent)


class _Encrypted(Store):
    """A key in an encrypted file."""

    @property
    def keys(self) -> list[str]:
        """The keys from the outermost."""
        assert self.ref.encrypted is not None  # noqa: S101 - chosen by store_of
        return self.ref.encrypted[1]

    def _half(self, name: str) -> list[str]:
        return [rf"\.{name}\.{_NEW}"]

    def _replace(self, before: bytes, data: bytes) -> None:
        """Put a changed file in the place of the one that was read. Raises SecretUnwritableError if that changed."""
        if self.file.read_bytes() != before:
            raise self._unwritable(
                f"{self.file} was changed by somebody else meanwhile", "Nothing was written; run again."
            )
        files.replace(self.file, data, mode=self.file.stat().st_mode & 0o777)
        _sync(self.file.parent)


class SopsStore(_Encrypted):
    """A key in a file of sops."""

    def require_writable(self) -> None:
        """Raise SecretUnwritableError or SecretUnreadableError where a new secret could not be kept."""
        secret_sops.run(self.ref, ["--version", "--disable-version-check"], oldest=secret_sops.OLDEST_TO_WRITE)
        secret_sops.decrypt(self.ref)
        self._index(self.keys)

    def written(self) -> str:
        """Return a digest of the encrypted value; sops keeps it as it is while the value stays the same."""
        return hashlib.sha256(secret_sops.stored(self.ref).encode()).hexdigest()

    def _half(self, name: str) -> list[str]:
        copy = rf"\.\d+-{_MARK}\.{name}"
        return [*super()._half(name), copy, rf"\.{copy}\.{_NEW}"]

    def _put(self, value: str) -> None:
        self._edit([(self._index([*self.keys[:-1], f"{self.keys[-1]}{self.suffix}"]), value)], {self.pending: value})

    def _take(self) -> None:
        value = reveal(self.pending)
        pending = self._index([*self.keys[:-1], f"{self.keys[-1]}{self.suffix}"])
        self._edit([(self._index(self.keys), value), (pending, None)], {self.ref: value})

    def _index(self, keys: list[str]) -> str:
        if any(key.isdecimal() for key in keys):
            raise self._unwritable("a place in a list", "Use a key of a mapping.")
        return "".join(f"[{json.dumps(key)}]" for key in keys)

    def _edit(self, steps: list[tuple[str, str | None]], proof: dict[SecretRef, str]) -> None:
        """Change a copy, decrypt it to see that it holds the value, and put it in the file's place."""
        copy = self.file.with_name(f".{os.getpid()}-{secrets.token_hex(4)}.{self.file.name}")
        try:
            before = content(self.ref, self.file)
            files.create(copy, before)
            for index, value in steps:
                words = ["unset", str(copy), index] if value is None else ["set", "--value-stdin", str(copy), index]
                given = secret_sops.run(
                    self.ref,
                    words,
                    stdin=b"" if value is None else json.dumps(value).encode(),
                    oldest=secret_sops.OLDEST_TO_WRITE,
                )
                if given.exit_code != 0:
                    raise self._unwritable(
                        f"`sops {words[0]}` ends with {given.exit_code}",
                        f"Run `sops edit {self.file}` by hand, change a value, and see what sops reports.",
                    )
            for ref, value in proof.items():
                assert ref.encrypted is not None  # noqa: S101 - of this file
                of_copy = SecretRef(sops=f"{copy}#{'.'.join(ref.encrypted[1])}")
                if secret_sops.read(of_copy, secret_sops.decrypt(of_copy)) != value:
                    raise self._unwritable("sops keeps another value", "Nothing was changed; update sops.")
            self._replace(before, copy.read_bytes())
        finally:
            copy.unlink(missing_ok=True)


class VaultStore(_Encrypted):
    """A key in a file of Ansible Vault, which is encrypted as a whole or by value."""

    def require_writable(self) -> None:
        """Raise SecretUnwritableError or SecretUnreadableError where a new secret could not be kept."""
        self._edited(lambda text: vault_edit.insert_before(text, self.keys, self._name, lambda _column: '"x"'))

    @property
    def _name(self) -> str:
        return f"{self.keys[-1]}{self.suffix}"

    def written(self) -> str:
        """Return a digest of the encrypted value; in a file that is encrypted as a whole, of the value under its key.

        Other values of the file, which are changed at the same time, do not count.
        """
        data = content(self.ref, self.file)
        whole, document = secret_vault.decrypt(self.ref)
        value = str(value_at(self.ref, document, self.keys)).encode()
        if not whole:
            return hashlib.sha256(value).hexdigest()
        return hmac.new(secret_vault.opened(self.ref, self.file, data)[2].bytes, value, "sha256").hexdigest()

    def _put(self, value: str) -> None:
        rendered = self._rendered(value)
        self._replace(*self._edited(lambda text: vault_edit.insert_before(text, self.keys, self._name, rendered)))

    def _take(self) -> None:
        self._replace(*self._edited(lambda text: vault_edit.promote(text, self.keys, self._name)))

    def _rendered(self, value: str) -> vault_edit.Render:
        """Return how a value is written: quoted in a file that is encrypted as a whole, else encrypted itself."""
        data = content(self.ref, self.file)
        if data.startswith(secret_vault.HEAD):
            return lambda _column: json.dumps(value)
        old = value_at(self.ref, secret_vault.decrypt(self.ref)[1], self.keys)
        if not isinstance(old, secret_vault.Sealed):
            raise self._unwritable("a value in plain text", "Encrypt it with `ansible-vault encrypt_string` first.")
        lines = secret_vault.sealed_like(self.ref, self.file, old.encode(), value.encode()).decode().splitlines()

        def render(column: int) -> str:
            return "!vault |\n" + "".join(f"{' ' * (column + 2)}{line}\n" for line in lines)

        return render

    def _edited(self, change: Callable[[str], str]) -> tuple[bytes, bytes]:
        """Return the file before and after a change of its text."""
        data = content(self.ref, self.file)
        whole = data.startswith(secret_vault.HEAD)
        text = (secret_vault.opened(self.ref, self.file, data)[0] if whole else data).decode()
        actual = ""
        try:
            changed = change(text).encode()
        except vault_edit.EditError as error:
            actual, changed = str(error), b""
        if actual:
            raise self._unwritable(actual, f"Write {'.'.join(self.keys)} as a text under a mapping, then run again.")
        return data, secret_vault.sealed_like(self.ref, self.file, data, changed) if whole else changed


def _there(ref: SecretRef) -> bool:
    """Whether an encrypted file has a key. An unreadable file is an error, not an absence."""
    assert ref.encrypted is not None  # noqa: S101 - of an encrypted store
    document = secret_sops.decrypt(ref)[1] if ref.sops is not None else secret_vault.decrypt(ref)[1]
    try:
        value_at(ref, document, ref.encrypted[1])
    except SecretUnreadableError:
        return False
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock (flock(2)): providers of several racks write one file."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _only_of(lock: Path) -> int:
    """Return the descriptor of a lock file that is held and still lies there: its last holder removed it."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), lock.stat()):
                return descriptor
        os.close(descriptor)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
