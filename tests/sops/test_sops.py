"""Secrets in files that a real sops encrypts for age: read, refused, and written without a plain copy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rackready.design import secret_sops
from rackready.design.secrets import forget, reveal
from rackready.drivers.secret_store import SecretUnwritableError, SopsStore, store_of
from rackready.model.base import SecretRef
from tests.unit.design.secret_places import CANARY, refused

TOOLS = Path(__file__).resolve().parents[2] / ".rackready/tools/sops"
DOCUMENT = {"bmc": {"node01": CANARY, "number": 5}, "open_unencrypted": "shown"}


class Desk:
    """A folder with an age key and files that are encrypted for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recipient = self.key("key")
        self.file = self.encrypted("secrets.sops.yml")

    def key(self, name: str) -> str:
        """Make an age key; return its recipient."""
        done = self.run("age-keygen", "-o", str(self.folder / name))
        return done.stderr.rpartition(": ")[2].strip()

    def encrypted(self, name: str, document: str = "") -> Path:
        plain, file = self.folder / f"plain-{name}", self.folder / name
        plain.write_text(document or json.dumps(DOCUMENT), encoding="utf-8")
        file.write_text(self.run("sops", "encrypt", "--age", self.recipient, str(plain)).stdout, encoding="utf-8")
        plain.unlink()
        return file

    @staticmethod
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)

    def at(self, key: str, file: Path | None = None) -> SecretRef:
        return SecretRef(sops=f"{file or self.file}#{key}")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    if not (TOOLS / "sops").exists():
        pytest.skip("no sops: `make setup-sops` builds it")
    forget()
    monkeypatch.setenv("PATH", f"{TOOLS}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("SOPS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SOPS_AGE_KEY_FILE", str(tmp_path / "key"))
    return Desk(tmp_path)


def test_yaml_json_and_binary_files_are_read(desk: Desk) -> None:
    assert reveal(desk.at("bmc.node01")) == CANARY
    assert reveal(desk.at("bmc.node01", desk.encrypted("secrets.json"))) == CANARY
    assert reveal(desk.at("data", desk.encrypted("token.sops", CANARY))) == CANARY


def test_no_plain_text_is_left_on_the_disk(desk: Desk) -> None:
    reveal(desk.at("bmc.node01"))
    assert [path for path in desk.folder.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()] == []


def test_without_a_key_and_with_that_of_another_it_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.key("other")
    where = f"secret in sops file {desk.file}#bmc.node01 - Expected: a key for this file Actual: "
    step = ". Name your age key (SOPS_AGE_KEY_FILE), or have your recipient added with `sops updatekeys`."
    monkeypatch.setenv("SOPS_AGE_KEY_FILE", str(desk.folder / "other"))
    assert refused(lambda: reveal(desk.at("bmc.node01"))) == f"{where}the keys here are of other recipients{step}"
    monkeypatch.delenv("SOPS_AGE_KEY_FILE")
    assert refused(lambda: reveal(desk.at("bmc.node01"))) == f"{where}no key here opens it{step}"


@pytest.mark.parametrize("change", ["a value that is shown", "a cipher"])
def test_a_file_that_somebody_changed_is_refused(desk: Desk, change: str) -> None:
    text = desk.file.read_text(encoding="utf-8")
    if change == "a cipher":
        place = text.index("data:") + 5
        text = text[:place] + ("B" if text[place] == "A" else "A") + text[place + 1 :]
    else:
        text = text.replace("shown", "showm")
    desk.file.write_text(text, encoding="utf-8")
    assert refused(lambda: reveal(desk.at("bmc.node01"))) == (
        f"secret in sops file {desk.file}#bmc.node01 - Expected: the file as sops wrote it Actual: changed since (its "
        f"MAC or a value does not verify). Take {desk.file} from its last good commit, and change it with `sops edit` "
        "only."
    )


def test_a_plain_value_and_a_plain_file_are_refused(desk: Desk) -> None:
    assert "plain text in an encrypted file" in refused(lambda: reveal(desk.at("open_unencrypted")))
    plain = desk.folder / "plain.sops.yml"
    plain.write_text(f"bmc: {{node01: {CANARY}}}\n", encoding="utf-8")
    assert "no metadata of sops" in refused(lambda: reveal(desk.at("bmc.node01", plain)))


def test_the_program_is_a_real_one(desk: Desk) -> None:
    assert shutil.which("sops") == str(TOOLS / "sops")
    assert desk.run("sops", "--disable-version-check", "--version").stdout.startswith("sops 3.13.3")


def test_a_new_secret_is_pending_first_and_takes_the_old_ones_place(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = store_of(desk.at("bmc.node01"))
    assert place is not None
    place.require_writable()
    ciphers = desk.file.read_text(encoding="utf-8").splitlines()
    before = place.written()
    place.prepare(lambda: 'new"-one')
    place.prepare(lambda: "another, which is not taken: one is pending")
    assert (place.has_pending(), reveal(place.pending), reveal(place.ref)) == (True, 'new"-one', CANARY)
    assert place.written() == before, "sops keeps the cipher of a value that stays"
    with monkeypatch.context() as patched:
        patched.setattr(SopsStore, "_replace", None)
        with pytest.raises(TypeError):
            place.promote()
    assert (reveal(place.pending), reveal(place.ref)) == ('new"-one', CANARY)
    place.promote()
    assert (place.has_pending(), reveal(place.ref)) == (False, 'new"-one')
    assert place.written() != before
    after = desk.file.read_text(encoding="utf-8").splitlines()
    assert [line for line in ciphers if "number" in line or "recipient" in line] == [
        line for line in after if "number" in line or "recipient" in line
    ]
    assert sorted(path.name for path in desk.folder.iterdir()) == ["key", "secrets.sops.yml"]


def test_a_key_that_is_not_there_yet_is_made(desk: Desk) -> None:
    place = store_of(desk.at("bmc.node02"))
    assert place is not None
    assert (place.exists(), place.has_pending()) == (False, False)
    place.prepare(lambda: "first")
    place.promote()
    assert (place.exists(), reveal(place.ref), reveal(desk.at("bmc.node01"))) == (True, "first", CANARY)


def test_an_older_sops_and_a_list_are_refused_before_anything_is_written(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = desk.file.read_bytes()
    place = store_of(desk.at("list.0"))
    assert place is not None
    with pytest.raises(SecretUnwritableError) as caught:
        place.require_writable()
    assert str(caught.value) == (
        f"secret in sops file {desk.file}#list.0 - Expected: a place for a new password Actual: a place in a list. Use "
        "a key of a mapping."
    )
    monkeypatch.setattr(secret_sops, "program", lambda _ref: ("sops", "3.10.2"))
    assert "Expected: sops 3.11.0 or newer Actual: 3.10.2." in refused(place.require_writable)
    assert desk.file.read_bytes() == before
