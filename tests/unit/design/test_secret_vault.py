"""Secrets in files of Ansible Vault, by Ansible's own library: both forms, where passwords come from, each refusal."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.parsing.vault import VaultLib, VaultSecret

from rackready.design import secret_program
from rackready.design.secrets import forget, reveal
from rackready.model.base import SecretRef
from tests.unit.design.secret_places import CANARY, refused

PASSWORD, WRONG = "open-sesame", "wrong-word"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    forget()
    for name in ("ANSIBLE_VAULT_PASSWORD_FILE", "ANSIBLE_VAULT_IDENTITY_LIST", "ANSIBLE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def password(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(PASSWORD + "\n", encoding="utf-8")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(path))
    return path


def sealed(text: str, vault_id: str | None = None, password: str = PASSWORD) -> str:
    return VaultLib().encrypt(text, VaultSecret(password.encode()), vault_id).decode()


def whole(folder: Path, text: str = f"bmc: {{node01: {CANARY}, number: 5}}\n", **more: str) -> Path:
    path = folder / "vault.yml"
    path.write_text(sealed(text, **more), encoding="utf-8")
    return path


def by_value(folder: Path) -> Path:
    path = folder / "values.yml"
    block = "".join(f"    {line}\n" for line in sealed(CANARY).splitlines())
    path.write_text(f"bmc:\n  node01: !vault |\n{block}  open: {CANARY}\n", encoding="utf-8")
    return path


def at(file: Path, key: str = "bmc.node01") -> SecretRef:
    return SecretRef(vault=f"{file}#{key}")


@pytest.mark.usefixtures("password")
def test_both_forms_are_read(tmp_path: Path) -> None:
    assert reveal(at(whole(tmp_path))) == CANARY
    assert reveal(at(by_value(tmp_path))) == CANARY


def test_the_password_comes_from_a_script_ansible_cfg_or_the_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "vault-client"
    script.write_text(f'#!/bin/sh\n[ "$2" = prod ] && echo {PASSWORD}\n', encoding="utf-8")
    script.chmod(0o700)
    file = whole(tmp_path, vault_id="prod")
    monkeypatch.setenv("ANSIBLE_VAULT_IDENTITY_LIST", f"prod@{script}")
    assert reveal(at(file)) == CANARY
    monkeypatch.delenv("ANSIBLE_VAULT_IDENTITY_LIST")
    (tmp_path / "password").write_text(PASSWORD, encoding="utf-8")
    (tmp_path / "ansible.cfg").write_text("[defaults]\nvault_password_file = password\n", encoding="utf-8")
    forget()
    assert reveal(at(file)) == CANARY


@pytest.mark.usefixtures("password")
def test_a_file_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    real = VaultLib.decrypt_and_get_vault_id

    def counted(self: VaultLib, text: object) -> object:
        opened.append(text)
        return real(self, text)

    monkeypatch.setattr(VaultLib, "decrypt_and_get_vault_id", counted)
    file = whole(tmp_path)
    assert [reveal(at(file)) for _ in range(3)] == [CANARY] * 3
    assert len(opened) == 1


def test_without_a_password_or_with_the_wrong_one_it_stays_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = whole(tmp_path, vault_id="prod")
    where = f"secret in vault file {file}#bmc.node01 - Expected: "
    assert refused(lambda: reveal(at(file)), PASSWORD) == (
        f"{where}a vault password (ANSIBLE_VAULT_PASSWORD_FILE, or vault_password_file in ansible.cfg) Actual: none. "
        "Name the file or script that gives it, then run again."
    )
    wrong = tmp_path / "wrong"
    wrong.write_text(WRONG, encoding="utf-8")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(wrong))
    assert refused(lambda: reveal(at(file)), PASSWORD, WRONG) == (
        f"{where}a vault password for vault id prod that opens it Actual: none of 1 vault passwords opens it, or the "
        f"file was changed. Correct the password for vault id prod, or take {file} from its last good commit."
    )


SOURCES = {
    "none": "no such file",
    "empty": "it gives none",
    "fails": "it gives none",
    "hangs": "none within 0 s, it was ended",
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_of_passwords_that_gives_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setattr(secret_program, "LIMIT_S", 0.5)
    (tmp_path / "empty").write_text("\n", encoding="utf-8")
    for name, body in (("fails", f"echo {CANARY} >&2; exit 1"), ("hangs", "sleep 600 & wait")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o700)
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / source))
    file = whole(tmp_path)
    step = f"Run or read {tmp_path / source} by hand, then run again."
    if source == "none":
        step = "Put it there, or name another (ANSIBLE_VAULT_PASSWORD_FILE, ansible.cfg)."
    assert refused(lambda: reveal(at(file)), PASSWORD) == (
        f"secret in vault file {file}#bmc.node01 - Expected: a vault password from {tmp_path / source} Actual: "
        f"{SOURCES[source]}. {step}"
    )


def test_nothing_is_asked_at_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_VAULT_IDENTITY_LIST", "prod@prompt")
    file = whole(tmp_path)
    assert refused(lambda: reveal(at(file))) == (
        f"secret in vault file {file}#bmc.node01 - Expected: a file or script for vault id prod Actual: prompt. Name a "
        "file or a script: a run continues without anyone at the terminal."
    )


@pytest.mark.usefixtures("password")
def test_files_and_values_that_are_not_sealed_or_damaged_are_refused(tmp_path: Path) -> None:
    values, plain, damaged = by_value(tmp_path), tmp_path / "plain.yml", tmp_path / "damaged.yml"
    assert refused(lambda: reveal(at(values, "bmc.open"))) == (
        f"secret in vault file {values}#bmc.open - Expected: an encrypted value (`!vault`) Actual: plain text. Encrypt "
        "it with `ansible-vault encrypt_string`, and change this secret."
    )
    plain.write_text(f"bmc: [{CANARY}\n", encoding="utf-8")
    assert refused(lambda: reveal(at(plain))) == (
        f"secret in vault file {plain}#bmc.node01 - Expected: a YAML mapping Actual: a file that cannot be parsed "
        f"(line 2). Correct {plain}."
    )
    damaged.write_text("$ANSIBLE_VAULT;1.1;AES256\nzz\n", encoding="utf-8")
    assert refused(lambda: reveal(at(damaged))) == (
        f"secret in vault file {damaged}#bmc.node01 - Expected: a file of Ansible Vault Actual: a damaged one. Take "
        f"{damaged} from its last good commit."
    )
    whole_one = whole(tmp_path)
    assert refused(lambda: reveal(at(whole_one, "bmc.number"))) == (
        f"secret in vault file {whole_one}#bmc.number - Expected: a text Actual: a number. Quote it in the file: a "
        "number loses zeros."
    )
    inside = whole(tmp_path, f"bmc: [{CANARY}\n")
    forget()
    assert refused(lambda: reveal(at(inside))) == (
        f"secret in vault file {inside}#bmc.node01 - Expected: a YAML mapping Actual: a file that cannot be parsed "
        f"(line 2). Correct it with `ansible-vault edit {inside}`."
    )
