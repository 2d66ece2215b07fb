"""New secrets beside the old ones: files and Ansible Vault. `make test-sops` does the same with a real sops."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.vault import VaultLib, VaultSecret

from rackready.design import vault_edit
from rackready.design.secret_error import SecretUnreadableError
from rackready.design.secrets import forget, reveal
from rackready.design.vault_edit import EditError, promote
from rackready.drivers.secret_store import SecretUnwritableError, Store, store_of
from rackready.model.base import SecretRef
from tests.unit.design.secret_places import CANARY

PASSWORD = "open-sesame"
WHOLE = """# kept
bmc:
  node01: 'old-one'   # a comment
  node02: "two"
flow: {node03: three, node04: four}
"""


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    forget()
    monkeypatch.delenv("ANSIBLE_VAULT_IDENTITY_LIST", raising=False)
    (tmp_path / "password").write_text(PASSWORD, encoding="utf-8")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "password"))


def sealed(text: str) -> str:
    return VaultLib().encrypt(text, VaultSecret(PASSWORD.encode()), "prod").decode()


def opened(file: Path) -> str:
    secrets = [("default", VaultSecret(PASSWORD.encode()))]
    return bytes(VaultLib(secrets).decrypt(file.read_bytes())).decode()


def whole(folder: Path) -> Path:
    path = folder / "vault.yml"
    path.write_text(sealed(WHOLE), encoding="utf-8")
    return path


def by_value(folder: Path) -> Path:
    path = folder / "values.yml"
    block = "".join(f"    {line}\n" for line in sealed("old-one").splitlines())
    path.write_text(f"bmc:\n  # kept\n  node01: !vault |\n{block}  node02: shown\n", encoding="utf-8")
    path.chmod(0o640)
    return path


def store(file: Path, key: str = "bmc.node01") -> Store:
    found = store_of(SecretRef(vault=f"{file}#{key}"))
    assert found is not None
    return found


@pytest.mark.parametrize("make", [whole, by_value])
def test_a_new_secret_is_pending_first_and_takes_the_old_ones_place(tmp_path: Path, make: object) -> None:
    file = make(tmp_path)  # type: ignore[operator]
    place = store(file)
    place.require_writable()
    assert (place.exists(), place.has_pending(), reveal(place.ref)) == (True, False, "old-one")
    before = place.written()
    place.prepare(lambda: CANARY)
    place.prepare(lambda: "another, which is not taken: one is pending")
    assert (place.has_pending(), reveal(place.pending), reveal(place.ref)) == (True, CANARY, "old-one")
    place.promote()
    assert (place.has_pending(), reveal(place.ref)) == (False, CANARY)
    assert place.written() != before
    assert CANARY.encode() not in file.read_bytes()
    assert file.read_bytes().splitlines()[0].endswith(b";prod" if make is whole else b"bmc:")
    assert [path.name for path in tmp_path.iterdir() if path.name not in {"password", file.name}] == []


def test_nothing_else_in_a_file_changes(tmp_path: Path) -> None:
    file = whole(tmp_path)
    for key in ("bmc.node01", "flow.node03"):
        place = store(file, key)
        place.prepare(lambda: "new")
        place.promote()
    assert opened(file) == WHOLE.replace("'old-one'", '"new"').replace("three", '"new"')
    values = by_value(tmp_path)
    store(values).prepare(lambda: "new")
    store(values).promote()
    text = values.read_text(encoding="utf-8")
    assert text.startswith("bmc:\n  # kept\n  node01: !vault |\n    $ANSIBLE_VAULT;1.2;AES256;prod\n")
    assert text.endswith("\n  node02: shown\n")
    assert values.stat().st_mode & 0o777 == 0o640


def test_two_that_write_one_file_lose_nothing(tmp_path: Path) -> None:
    file = whole(tmp_path)
    keys = ["bmc.node01", "bmc.node02", "flow.node03", "flow.node04"]

    def change(key: str) -> None:
        store(file, key).prepare(lambda: f"new-{key}")
        store(file, key).promote()

    threads = [threading.Thread(target=change, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = yaml.safe_load(opened(file))
    assert found == {
        "bmc": {"node01": "new-bmc.node01", "node02": "new-bmc.node02"},
        "flow": {"node03": "new-flow.node03", "node04": "new-flow.node04"},
    }


@pytest.mark.parametrize("make", [whole, by_value])
def test_the_mark_of_a_secret_is_its_own_and_tells_nothing_of_it(tmp_path: Path, make: object) -> None:
    place = store(make(tmp_path))  # type: ignore[operator]
    before = place.written()
    assert before not in {hashlib.sha256(text).hexdigest() for text in (b"old-one", b"old-one\n")}
    if make is whole:
        store(place.file, "bmc.node02").prepare(lambda: "new")
        store(place.file, "bmc.node02").promote()
    place.prepare(lambda: CANARY)
    assert place.written() == before
    place.promote()
    assert place.written() != before


@pytest.mark.parametrize("make", [whole, by_value])
def test_what_somebody_else_wrote_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: object
) -> None:
    file = make(tmp_path)  # type: ignore[operator]
    insert = vault_edit.insert_before
    edited = sealed("bmc: {node01: by-hand}\n")

    def meanwhile(*given: Any) -> str:
        file.write_text(edited, encoding="utf-8")
        return insert(*given)

    monkeypatch.setattr(vault_edit, "insert_before", meanwhile)
    with pytest.raises(SecretUnwritableError) as caught:
        store(file).prepare(lambda: CANARY)
    assert str(caught.value) == (
        f"secret in vault file {file}#bmc.node01 - Expected: a place for a new password Actual: {file} was changed by "
        "somebody else meanwhile. Nothing was written; run again."
    )
    assert file.read_text(encoding="utf-8") == edited


def test_forms_that_cannot_be_changed_are_refused_with_nothing_written(tmp_path: Path) -> None:
    file = tmp_path / "vault.yml"
    file.write_text(sealed("a: &x {b: one}\nc: {<<: *x}\nlist: [one]\n"), encoding="utf-8")
    before = file.read_bytes()
    for key, why in {
        "list.0": "list.0 is not a key of a mapping",
        "none": "none is not a key of a mapping",
        "c.b": "c.b is not a key of a mapping",
    }.items():
        with pytest.raises(SecretUnwritableError) as caught:
            store(file, key).require_writable()
        assert str(caught.value) == (
            f"secret in vault file {file}#{key} - Expected: a place for a new password Actual: {why}. Write {key} as a "
            "text under a mapping, then run again."
        )
    assert file.read_bytes() == before
    values = by_value(tmp_path)
    with pytest.raises(SecretUnwritableError) as caught:
        store(values, "bmc.node02").prepare(lambda: CANARY)
    assert str(caught.value) == (
        f"secret in vault file {values}#bmc.node02 - Expected: a place for a new password Actual: a value in plain "
        "text. Encrypt it with `ansible-vault encrypt_string` first."
    )


def test_a_key_that_is_there_twice_is_refused() -> None:
    with pytest.raises(EditError, match=r"^its form does not allow to change one value alone$"):
        promote("b_pending: new\nb: one\nb: two\n", ["b"], "b_pending")
    with pytest.raises(EditError, match=r"^b_pending no longer stands before b$"):
        promote("b: one\nb_pending: new\n", ["b"], "b_pending")


def test_a_variable_of_the_environment_cannot_be_written() -> None:
    assert store_of(SecretRef(env="BMC_PASSWORD")) is None


def test_the_next_change_of_a_secret_removes_what_a_kill_left_of_it_alone(tmp_path: Path) -> None:
    plain, vault, sops = tmp_path / "bmc", whole(tmp_path), tmp_path / "s.yml"
    plain.write_text("old\n", encoding="utf-8")
    left = [".bmc.pending.7.0a1b2c3d.new", ".vault.yml.7.0a1b2c3d.new"]
    kept = [".bmc.7.0a1b2c3d.new", ".vault.yml.7.new", ".7-0a1b2c3d.other.yml", ".xbmc.pending.7.0a1b2c3d.new"]
    of_sops = [".7-0a1b2c3d.s.yml", "..7-0a1b2c3d.s.yml.8.0a1b2c3d.new", ".s.yml.7.0a1b2c3d.new"]
    for name in [*left, *kept, *of_sops]:
        (tmp_path / name).touch()
    places = [store_of(SecretRef(file=plain)), store(vault)]
    for place in places:
        assert place is not None
        place.prepare(lambda: "new")
    assert {path.name for path in tmp_path.glob(".*")} == {*kept, *of_sops}
    place = store_of(SecretRef(sops=f"{sops}#a"))
    assert place is not None
    with pytest.raises(SecretUnreadableError):  # there is no such file: it is swept all the same
        place.promote()
    assert {path.name for path in tmp_path.glob(".*")} == set(kept)
