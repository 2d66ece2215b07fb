"""Secrets in files of sops: what is read, how often, and each refusal. `make test-sops` asks a real sops."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rackready.design import secret_program
from rackready.design.secrets import forget, readable, reveal
from rackready.model.base import SecretRef
from tests.unit.design.secret_places import AS_ENCRYPTED, CANARY, FakeSops, refused

DECRYPTED = {"bmc": {"node01": CANARY, "number": 5, "open_unencrypted": CANARY}}
NO_KEY = "Failed to get the data key required to decrypt the SOPS file."
MORE = "- | identity did not match any of the recipients: incorrect"


@pytest.fixture
def sops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSops:
    forget()
    found = FakeSops(tmp_path / "bin", monkeypatch)
    found.prints(json.dumps(DECRYPTED))
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.sops.yml"
    path.write_text(AS_ENCRYPTED, encoding="utf-8")
    return path


def at(file: Path, key: str) -> SecretRef:
    return SecretRef(sops=f"{file}#{key}")


def test_a_file_is_decrypted_once_and_again_when_it_changed(sops: FakeSops, file: Path) -> None:
    assert [reveal(at(file, "bmc.node01")) for _ in range(3)] == [CANARY] * 3
    wanted = f"decrypt --output-type json {file}"
    assert sops.asked() == ["--disable-version-check --version", wanted]
    file.write_text(AS_ENCRYPTED + "# changed\n", encoding="utf-8")
    reveal(at(file, "bmc.node01"))
    assert sops.asked()[2:] == [wanted]


def test_a_lookup_of_ansible_reads_it_from_memory(sops: FakeSops, file: Path) -> None:
    place = readable(at(file, "bmc.node01")).file
    assert place is not None
    assert place.read_text(encoding="utf-8") == CANARY
    assert str(place.readlink()) == "/memfd:rackready-secret (deleted)"
    assert readable(at(file, "bmc.node01")).file == place
    assert not [item for item in sops.folder.parent.rglob("*") if item.name not in {"document", "asked"} and _has(item)]


def _has(path: Path) -> bool:
    return path.is_file() and path.name != "secrets.sops.yml" and CANARY.encode() in path.read_bytes()


REFUSED = {
    "no key": (
        f"echo '{NO_KEY}' >&2; exit 128",
        (
            "a key for this file Actual: no key here opens it. Name your age key (SOPS_AGE_KEY_FILE), or have your "
            "recipient added with `sops updatekeys`."
        ),
    ),
    "the key of another": (
        f"echo '{NO_KEY} {MORE}' >&2; exit 128",
        (
            "a key for this file Actual: the keys here are of other recipients. Name your age key (SOPS_AGE_KEY_FILE), "
            "or have your recipient added with `sops updatekeys`."
        ),
    ),
    "wrong MAC": (
        f"echo 'MAC mismatch. File has 43, computed {CANARY}' >&2; exit 51",
        (
            "the file as sops wrote it Actual: changed since (its MAC or a value does not verify). Take THAT from its "
            "last good commit, and change it with `sops edit` only."
        ),
    ),
    "a changed value": (
        "echo 'Error decrypting tree: message authentication failed' >&2; exit 25",
        (
            "the file as sops wrote it Actual: changed since (its MAC or a value does not verify). Take THAT from its "
            "last good commit, and change it with `sops edit` only."
        ),
    ),
    "another trouble": (
        f"echo 'yaml: {CANARY}' >&2; exit 4",
        (
            "sops decrypts it Actual: exit code 4. Run `sops decrypt THAT >/dev/null` by hand to see its own message, "
            "which may quote the file."
        ),
    ),
    "no JSON": (
        f"echo '{CANARY}'",
        "a mapping Actual: another form of document. Write THAT as a mapping.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_sops_refuses_is_told_without_its_words(sops: FakeSops, file: Path, case: str) -> None:
    body, text = REFUSED[case]
    sops.answers(body)
    found = refused(lambda: reveal(at(file, "bmc.node01")))
    assert found == f"secret in sops file {file}#bmc.node01 - Expected: {text.replace('THAT', str(file))}"


KEYS = {
    "bmc.node02": "a value at bmc.node02 Actual: bmc has no node02. Correct the key in the site file, or add the "
    "secret.",
    "switch.leaf01": "a value at switch.leaf01 Actual: the file has no switch. Correct the key in the site file, or "
    "add the secret.",
    "bmc.node01.deeper": "a value at bmc.node01.deeper Actual: bmc.node01 has no keys. Correct the key in the site "
    "file, or add the secret.",
    "bmc.number": "a text Actual: a number. Quote it in the file: a number loses zeros.",
    "bmc": "a text Actual: a mapping. Correct the key or the file.",
    "bmc.open_unencrypted": "an encrypted value Actual: plain text in an encrypted file (unencrypted_suffix, "
    "encrypted_regex or the like of sops). Correct the rule for THAT in .sops.yaml, encrypt again, and change this "
    "secret.",
}


@pytest.mark.usefixtures("sops")
@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_leads_to_no_secret_is_refused(file: Path, key: str) -> None:
    found = refused(lambda: reveal(at(file, key)))
    assert found == f"secret in sops file {file}#{key} - Expected: {KEYS[key].replace('THAT', str(file))}"


ENCRYPT = " Encrypt it (`sops encrypt --in-place THAT`), and change each secret in it: it lay there in plain text."
FILES = {
    "empty": ("\n", "a file that sops encrypted Actual: an empty file. Write it with `sops edit THAT`."),
    "plain": (
        f"bmc: {{node01: {CANARY}}}\n",
        "a file that sops encrypted Actual: no metadata of sops: a file in plain text." + ENCRYPT,
    ),
    "only called so": (
        f"bmc: {{node01: {CANARY}}}\nsops: yes\n",
        "a file that sops encrypted Actual: no metadata of sops: a file in plain text." + ENCRYPT,
    ),
    "malformed": (
        f"bmc:\n  node01: [{CANARY}\n",
        "a file that sops encrypted Actual: a file that cannot be parsed (line 3)." + ENCRYPT,
    ),
    "a text": (CANARY, "a file that sops encrypted Actual: no metadata of sops: a file in plain text." + ENCRYPT),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_in_plain_text_is_refused_before_sops_is_asked(sops: FakeSops, file: Path, case: str) -> None:
    written, text = FILES[case]
    file.write_text(written, encoding="utf-8")
    found = refused(lambda: reveal(at(file, "bmc.node01")))
    assert found == f"secret in sops file {file}#bmc.node01 - Expected: {text.replace('THAT', str(file))}"
    assert sops.asked() == []


def test_a_missing_file_and_other_forms_are_refused(sops: FakeSops, tmp_path: Path) -> None:
    none, ini = tmp_path / "none.yml", tmp_path / "secrets.ini"
    ini.write_text(f"[bmc]\nnode01 = {CANARY}\n", encoding="utf-8")
    assert refused(lambda: reveal(at(none, "a"))) == (
        f"secret in sops file {none}#a - Expected: a readable file Actual: no such file. Put {none} there, or "
        "correct the reference in the site file."
    )
    assert refused(lambda: reveal(at(ini, "a"))) == (
        f"secret in sops file {ini}#a - Expected: a YAML, JSON or binary file of sops Actual: a .ini file. Convert it: "
        "`sops decrypt --output-type yaml`, then encrypt that."
    )
    assert sops.asked() == []


def test_sops_that_is_missing_old_or_silent_is_refused(
    sops: FakeSops, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = f"secret in sops file {file}#bmc.node01 - Expected: "
    sops.answers("exit 0", version="3.8.1")
    assert refused(lambda: reveal(at(file, "bmc.node01"))) == (
        f"{where}sops 3.9.0 or newer Actual: 3.8.1. Install a newer sops, then run again."
    )
    monkeypatch.setattr(secret_program, "LIMIT_S", 0.5)
    sops.answers("sleep 600 & wait")
    assert refused(lambda: reveal(at(file, "bmc.node01"))) == (
        f"{where}an answer of sops within 0 s Actual: none, it was ended. Run `sops decrypt` by hand to see what it "
        "waits for: a key service, or a passphrase at a terminal."
    )
    (sops.folder / "sops").unlink()
    monkeypatch.setenv("PATH", str(sops.folder))
    assert refused(lambda: reveal(at(file, "bmc.node01"))) == (
        f"{where}the program sops on the PATH Actual: none. Install sops 3.9.0 or newer (github.com/getsops/sops), "
        "then run again."
    )
