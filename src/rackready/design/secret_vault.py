"""Secrets in files of Ansible Vault, by Ansible's own library, with the passwords that Ansible itself would use.

A file is encrypted as a whole, or values in a YAML file are (`!vault`). Passwords come from the files and scripts that
ANSIBLE_VAULT_PASSWORD_FILE, ANSIBLE_VAULT_IDENTITY_LIST, or ansible.cfg name. Nothing asks at a terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import yaml

from rackready.design import secret_program
from rackready.design.secret_error import SecretUnreadableError, as_text, content, unreadable, value_at
from rackready.model.base import SecretRef

if TYPE_CHECKING:
    from ansible.parsing.vault import VaultLib

HEAD = b"$ANSIBLE_VAULT;"


class Sealed(str):
    """An encrypted value of a YAML file (`!vault`)."""

    __slots__ = ()


class Loader(yaml.SafeLoader):
    """Reads `!vault` as a sealed text."""


def _sealed(loader: yaml.SafeLoader, node: yaml.Node) -> Sealed:
    return Sealed(loader.construct_scalar(node) if isinstance(node, yaml.ScalarNode) else "")


Loader.add_constructor("!vault", _sealed)
Loader.add_constructor("!vault-encrypted", _sealed)


class _ScriptError(Exception):
    """The script of a vault password did not end in time."""


def read(ref: SecretRef, document: tuple[bool, dict[str, Any]]) -> str:
    """Return the secret of a reference from the document that ``decrypt`` gave. Raises SecretUnreadableError."""
    whole, found = document
    file, keys = _place(ref)
    value = value_at(ref, found, keys)
    if isinstance(value, Sealed):
        return as_text(ref, _open(ref, file, value.encode()).decode("utf-8", "replace").removesuffix("\n"))
    value = as_text(ref, value)
    if not whole:
        raise unreadable(
            ref,
            "an encrypted value (`!vault`)",
            "plain text",
            "Encrypt it with `ansible-vault encrypt_string`, and change this secret.",
        )
    return value


def decrypt(ref: SecretRef) -> tuple[bool, dict[str, Any]]:
    """Return whether a file is encrypted as a whole, and its document. Raises SecretUnreadableError."""
    file, _ = _place(ref)
    data = content(ref, file)
    whole = data.startswith(HEAD)
    return whole, _document(ref, file, _open(ref, file, data) if whole else data, whole=whole)


def _document(ref: SecretRef, file: Path, data: bytes, *, whole: bool) -> dict[str, Any]:
    where = ""
    try:
        found = yaml.load(data, Loader=Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        found = None  # the error is not chained: it quotes the file
    if isinstance(found, dict):
        return found
    actual = f"a file that cannot be parsed{where}" if found is None else "another form of document"
    step = f"Correct it with `ansible-vault edit {file}`." if whole else f"Correct {file}."
    raise unreadable(ref, "a YAML mapping", actual, step)


def _place(ref: SecretRef) -> tuple[Path, list[str]]:
    assert ref.encrypted is not None  # noqa: S101 - callers come with a reference to an encrypted file
    return ref.encrypted


def _open(ref: SecretRef, file: Path, data: bytes) -> bytes:
    """Decrypt. Raises SecretUnreadableError, without Ansible's words: they may quote what they read."""
    return opened(ref, file, data)[0]


def opened(ref: SecretRef, file: Path, data: bytes) -> tuple[bytes, str, Any]:
    """Return plain text, and id and secret of the vault password that opened it. Raises SecretUnreadableError."""
    from ansible.errors import AnsibleError  # noqa: PLC0415 - only a site with a vault needs it
    from ansible.parsing.vault import AnsibleVaultFormatError  # noqa: PLC0415

    lib = passwords(ref)
    label = _label(data)
    wanted = f" for vault id {label}" if label else ""
    try:
        plain, ident, secret = lib.decrypt_and_get_vault_id(data)
    except (AnsibleVaultFormatError, ValueError):
        step = f"Take {file} from its last good commit."
        failure = unreadable(ref, "a file of Ansible Vault", "a damaged one", step)
    except AnsibleError:
        step = f"Correct the password{wanted}, or take {file} from its last good commit."
        tried = f"none of {len(lib.secrets)} vault passwords opens it, or the file was changed"
        failure = unreadable(ref, f"a vault password{wanted} that opens it", tried, step)
    else:
        return bytes(plain), str(ident), secret
    raise failure


def sealed_like(ref: SecretRef, file: Path, before: bytes, plain: bytes) -> bytes:
    """Return a plain text encrypted with the password and vault id of what was there. Raises SecretUnreadableError."""
    from ansible.parsing.vault import VaultLib  # noqa: PLC0415

    label = _label(before)
    _, _, secret = opened(ref, file, before)
    return bytes(VaultLib().encrypt(plain, secret, label or None))


def _label(data: bytes) -> str:
    """Return the vault id in the header of a sealed text; "" for one without."""
    return b"".join(data.split(b"\n", 1)[0].split(b";")[3:4]).decode("ascii", "replace").strip()


def passwords(ref: SecretRef) -> VaultLib:
    """Return Ansible's library with the passwords that Ansible would use. Raises SecretUnreadableError."""
    from ansible.config.manager import ConfigManager  # noqa: PLC0415
    from ansible.parsing.vault import VaultLib  # noqa: PLC0415

    settings = ConfigManager()
    sources = [_split(item) for item in settings.get_config_value("DEFAULT_VAULT_IDENTITY_LIST") or []]
    one = settings.get_config_value("DEFAULT_VAULT_PASSWORD_FILE")
    sources += [(str(settings.get_config_value("DEFAULT_VAULT_IDENTITY") or "default"), str(one))] if one else []
    if not sources:
        raise unreadable(
            ref,
            "a vault password (ANSIBLE_VAULT_PASSWORD_FILE, or vault_password_file in ansible.cfg)",
            "none",
            "Name the file or script that gives it, then run again.",
        )
    return VaultLib([(ident, _password(ref, ident, source)) for ident, source in sources])


def _split(item: str) -> tuple[str, str]:
    """Return vault id and source of an identity: ``label@source`` or ``source``."""
    label, at, source = item.partition("@")
    return (label or "default", source) if at else ("default", label)


def _password(ref: SecretRef, ident: str, source: str) -> Any:  # noqa: ANN401 - a VaultSecret
    from ansible.errors import AnsibleError  # noqa: PLC0415
    from ansible.parsing.dataloader import DataLoader  # noqa: PLC0415
    from ansible.parsing.vault import ScriptVaultSecret, get_file_vault_secret  # noqa: PLC0415

    if source in {"prompt", "prompt_ask_vault_pass"}:
        step = "Name a file or a script: a run continues without anyone at the terminal."
        raise unreadable(ref, f"a file or script for vault id {ident}", "prompt", step)
    try:
        secret = get_file_vault_secret(filename=source, vault_id=ident, loader=DataLoader())
        if isinstance(secret, ScriptVaultSecret):
            secret._run = _bounded  # noqa: SLF001 - Ansible's own waits without end
        secret.load()
    except _ScriptError:
        failure = _no_password(ref, source, f"none within {secret_program.LIMIT_S:.0f} s, it was ended")
    except (AnsibleError, OSError):
        missing = not Path(source).expanduser().exists()
        step = "Put it there, or name another (ANSIBLE_VAULT_PASSWORD_FILE, ansible.cfg)." if missing else ""
        failure = _no_password(ref, source, "no such file" if missing else "it gives none", step)
    else:
        return secret
    raise failure


def _no_password(ref: SecretRef, source: str, actual: str, step: str = "") -> SecretUnreadableError:
    step = step or f"Run or read {source} by hand, then run again."
    return unreadable(ref, f"a vault password from {source}", actual, step)


def _bounded(command: Sequence[str]) -> tuple[bytes, bytes, Any]:
    given = secret_program.run(command)
    if given.exit_code is None:
        raise _ScriptError
    return given.stdout, given.stderr, SimpleNamespace(returncode=given.exit_code)
