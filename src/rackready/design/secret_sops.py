"""Secrets in files that sops encrypted: the operator's own `sops` decrypts them, into a pipe and never to a disk.

sops's own messages are not shown: that of a wrong MAC has a digest of the plain text, and that of a malformed file may
quote it. Exit codes: getsops/sops 3.13.3, cmd/sops/codes/codes.go. `sops decrypt` and `sops set` are subcommands since
3.9.0, `sops set --value-stdin` since 3.11.0 (its CHANGELOG).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from rackready.design import secret_program
from rackready.design.secret_error import SecretUnreadableError, as_text, content, unreadable, value_at
from rackready.design.secret_program import Given
from rackready.model.base import SecretRef

OLDEST, OLDEST_TO_WRITE = (3, 9, 0), (3, 11, 0)
_NO_KEY, _MAC, _MAC_MISSING, _TREE = 128, 51, 52, 25
_CIPHER = "ENC[AES256_GCM,"
"""What an encrypted value begins with (getsops/sops, aes/cipher.go)."""
_OTHER_FORMS = {".env", ".ini"}


def read(ref: SecretRef, documents: tuple[dict[str, Any], dict[str, Any]]) -> str:
    """Return the secret of a reference from the documents that ``decrypt`` gave. Raises SecretUnreadableError."""
    encrypted, decrypted = documents
    file, keys = _place(ref)
    stored = value_at(ref, encrypted, keys)
    value = as_text(ref, value_at(ref, decrypted, keys))
    if not (isinstance(stored, str) and stored.startswith(_CIPHER)):
        raise unreadable(
            ref,
            "an encrypted value",
            "plain text in an encrypted file (unencrypted_suffix, encrypted_regex or the like of sops)",
            f"Correct the rule for {file} in .sops.yaml, encrypt again, and change this secret.",
        )
    return value


def decrypt(ref: SecretRef) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the whole file of a reference, as it lies and decrypted. Raises SecretUnreadableError."""
    file, _ = _place(ref)
    encrypted = _as_it_lies(ref, file, content(ref, file))
    given = run(ref, ["decrypt", "--output-type", "json", str(file)])
    if given.exit_code != 0:
        raise _refused(ref, file, given)
    try:
        found = json.loads(given.stdout)
    except ValueError:
        found = None  # the error is not chained: it holds the plain text
    if not isinstance(found, dict):
        raise unreadable(ref, "a mapping", "another form of document", f"Write {file} as a mapping.")
    return encrypted, found


def stored(ref: SecretRef) -> str:
    """Return the encrypted value of a reference as it lies; "" where there is none. Raises SecretUnreadableError."""
    file, keys = _place(ref)
    found: Any = _as_it_lies(ref, file, content(ref, file))
    for key in keys:
        found = found.get(key, "") if isinstance(found, dict) else ""
    return str(found)


def run(ref: SecretRef, words: Sequence[str], *, stdin: bytes = b"", oldest: tuple[int, ...] = OLDEST) -> Given:
    """Run the operator's sops. Raises SecretUnreadableError when it is missing, too old or does not end."""
    version = tuple(int(part) for part in program(ref)[1].split("."))
    if version < oldest:
        wanted = ".".join(map(str, oldest))
        raise unreadable(
            ref, f"sops {wanted} or newer", ".".join(map(str, version)), "Install a newer sops, then run again."
        )
    given = _run(ref, words, stdin)
    if given.exit_code is None:
        raise unreadable(
            ref,
            f"an answer of sops within {secret_program.LIMIT_S:.0f} s",
            "none, it was ended",
            f"Run `sops {words[0]}` by hand to see what it waits for: a key service, or a passphrase at a terminal.",
        )
    return given


def program(ref: SecretRef) -> tuple[str, str]:
    """Return path and version of the sops on the PATH. Raises SecretUnreadableError."""
    path = shutil.which("sops")
    if path is None:
        raise unreadable(
            ref,
            "the program sops on the PATH",
            "none",
            "Install sops 3.9.0 or newer (github.com/getsops/sops), then run again.",
        )
    stat = os.stat(path)  # noqa: PTH116 - the identity of a program
    key = (path, stat.st_ino, stat.st_mtime_ns)
    if key not in _versions:
        given = _run(ref, ["--disable-version-check", "--version"], b"")
        told = re.search(rb"^sops (\d+\.\d+\.\d+)", given.stdout, re.MULTILINE)
        if told is None:
            raise unreadable(ref, "a sops that tells its version", f"{path} does not", "Install sops from its makers.")
        _versions[key] = told[1].decode()
    return path, _versions[key]


_versions: dict[tuple[str, int, int], str] = {}


def _run(ref: SecretRef, words: Sequence[str], stdin: bytes) -> Given:
    try:
        return secret_program.run(["sops", *words], stdin=stdin)
    except OSError as error:
        raise unreadable(
            ref, "sops starts", error.strerror or error.__class__.__name__, "Run `sops --version` by hand."
        ) from error


def _refused(ref: SecretRef, file: Path, given: Given) -> SecretUnreadableError:
    """Return the error of an exit code."""
    if given.exit_code == _NO_KEY:
        wrong = b"did not match any of the recipients" in given.stderr or b"no identity matched" in given.stderr
        actual = "the keys here are of other recipients" if wrong else "no key here opens it"
        step = "Name your age key (SOPS_AGE_KEY_FILE), or have your recipient added with `sops updatekeys`."
        return unreadable(ref, "a key for this file", actual, step)
    if given.exit_code in {_MAC, _MAC_MISSING, _TREE}:
        step = f"Take {file} from its last good commit, and change it with `sops edit` only."
        return unreadable(ref, "the file as sops wrote it", "changed since (its MAC or a value does not verify)", step)
    step = f"Run `sops decrypt {file} >/dev/null` by hand to see its own message, which may quote the file."
    return unreadable(ref, "sops decrypts it", f"exit code {given.exit_code}", step)


def _place(ref: SecretRef) -> tuple[Path, list[str]]:
    assert ref.encrypted is not None  # noqa: S101 - callers come with a reference to an encrypted file
    return ref.encrypted


def _as_it_lies(ref: SecretRef, file: Path, data: bytes) -> dict[str, Any]:
    """Return the document as it lies on the disk, encrypted. Raises SecretUnreadableError for one that is not."""
    if file.suffix in _OTHER_FORMS:
        step = "Convert it: `sops decrypt --output-type yaml`, then encrypt that."
        raise unreadable(ref, "a YAML, JSON or binary file of sops", f"a {file.suffix} file", step)
    if not data.strip():
        raise unreadable(ref, "a file that sops encrypted", "an empty file", f"Write it with `sops edit {file}`.")
    actual = ""
    try:
        found = yaml.load(data, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        actual = "a file that cannot be parsed" + (f" (line {mark.line + 1})" if mark is not None else "")
        found = None  # the error is not chained: it quotes the file
    sops = found.get("sops") if isinstance(found, dict) else None
    if isinstance(found, dict) and isinstance(sops, dict) and "mac" in sops:
        return found
    step = f"Encrypt it (`sops encrypt --in-place {file}`), and change each secret in it: it lay there in plain text."
    raise unreadable(ref, "a file that sops encrypted", actual or "no metadata of sops: a file in plain text", step)
