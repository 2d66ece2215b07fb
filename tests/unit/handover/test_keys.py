"""Keys of certificates: in a file, in a real ssh-agent, retired; and what is refused of each."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from paramiko.agent import AgentKey
from pydantic import ValidationError

from rackready.handover.bundle import bundle
from rackready.handover.certificate import issue, on_file, read, statement
from rackready.handover.dsse import SignatureError, key_id, key_line
from rackready.handover.keys import Keys
from rackready.handover.policy import decide
from rackready.model.certificates import Certificates
from rackready.paths import EnvPaths
from tests.unit.handover.evidence import ENTRIES, NOW, fingerprint, good

ABOUT = {"site": "sim", "gateSet": "bringup", "campaign": "c1"}
AGENT, OTHER = (Ed25519PrivateKey.from_private_bytes(byte * 32) for byte in (b"a", b"b"))
AGENT_ID, OTHER_ID = (key_id(key.public_key()) for key in (AGENT, OTHER))
AGENT_LINE, OTHER_LINE = (key_line(key.public_key()) for key in (AGENT, OTHER))
HINT = "Start the agent and add the key (`ssh-add FILE`), or correct certificates.agent_key."


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A real ssh-agent without keys; the environment of this process names it."""
    socket = tmp_path / "agent.sock"
    said = subprocess.run(["ssh-agent", "-s", "-a", str(socket)], capture_output=True, text=True, check=True).stdout
    pid = int(said.partition("SSH_AGENT_PID=")[2].partition(";")[0])
    monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
    yield {**os.environ, "SSH_AUTH_SOCK": str(socket)}
    os.kill(pid, signal.SIGTERM)


def add(agent: dict[str, str], key: Ed25519PrivateKey, folder: Path) -> None:
    path = folder / "key"
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    subprocess.run(["ssh-add", "-q", str(path)], env=agent, check=True, capture_output=True)
    path.unlink()


def keys(folder: Path, **chosen: object) -> Keys:
    return Keys(EnvPaths(folder, "sim"), Certificates.model_validate(chosen))


def content(**about: str) -> dict[str, Any]:
    decision = decide("node01", ENTRIES, good(), {}, NOW)
    return statement(
        decision, fingerprint(), good(), about=ABOUT | about, issued=datetime(2026, 11, 21, 13, tzinfo=UTC)
    )


def test_a_key_in_an_agent_signs_what_its_public_key_alone_verifies(
    agent: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(agent, OTHER, tmp_path)
    add(agent, AGENT, tmp_path)
    chosen = keys(tmp_path, agent_key=AGENT_LINE)
    issue(chosen, content())
    assert not chosen.file.exists(), "no key file is made beside it"
    made = bundle(on_file(chosen, "node01"), chosen, "node01")["dsseEnvelope"]
    payload, signature = (base64.b64decode(text) for text in (made["payload"], made["signatures"][0]["sig"]))
    kind = made["payloadType"].encode()
    # DSSE protocol.md, by hand: the agent signed these bytes and nothing around them.
    AGENT.public_key().verify(signature, b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload))
    assert (len(signature), made["signatures"][0]["keyid"]) == (64, AGENT_ID)
    listed = subprocess.run(["ssh-add", "-l"], env=agent, capture_output=True, text=True, check=True).stdout
    assert AGENT_ID in listed, "ssh-add calls the key as the envelope does"
    monkeypatch.delenv("SSH_AUTH_SOCK")
    assert read(chosen, "node01").signer == AGENT_ID, "no agent is needed to verify"


def test_no_agent_an_empty_one_and_one_with_other_keys_are_refused(
    agent: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = keys(tmp_path, agent_key=AGENT_LINE)
    head = f"certificates.agent_key - Expected: {AGENT_ID} in the ssh-agent Actual: "
    socket = agent["SSH_AUTH_SOCK"]
    said = []
    for prepare in (
        lambda: None,
        lambda: add(agent, OTHER, tmp_path),
        lambda: monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "gone")),
        lambda: monkeypatch.delenv("SSH_AUTH_SOCK"),
    ):
        prepare()
        with pytest.raises(SignatureError) as caught:
            issue(chosen, content())
        said.append(str(caught.value))
    assert said == [
        f"{head}no ssh-agent at {socket}, or one without keys. {HINT}",
        f"{head}keys {OTHER_ID}. {HINT}",
        f"{head}no ssh-agent at {tmp_path / 'gone'}, or one without keys. {HINT}",
        f"{head}no ssh-agent (SSH_AUTH_SOCK is not set). {HINT}",
    ]
    assert not (chosen.folder / "node01.json").exists()


def test_a_locked_agent_is_refused(agent: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that hides or refuses the key: here its answer to a request to sign is a failure."""
    add(agent, AGENT, tmp_path)
    chosen = keys(tmp_path, agent_key=AGENT_LINE)
    asked = AgentKey.sign_ssh_data

    def gone_meanwhile(self: AgentKey, data: bytes, algorithm: str | None = None) -> Any:  # noqa: ANN401
        subprocess.run(["ssh-add", "-q", "-D"], env=agent, check=True, capture_output=True)
        return asked(self, data, algorithm)

    monkeypatch.setattr(AgentKey, "sign_ssh_data", gone_meanwhile)
    with pytest.raises(SignatureError) as caught:
        issue(chosen, content())
    assert str(caught.value) == (
        f"certificates.agent_key - Expected: {AGENT_ID} in the ssh-agent Actual: the ssh-agent refused: key cannot be "
        "used for signing. Unlock it or confirm the use of the key."
    )


# rotation -------------------------------------------------------------------------------------------------------------


def test_certificates_of_a_retired_key_still_count_and_new_ones_are_signed_by_the_present_key(
    agent: dict[str, str], tmp_path: Path
) -> None:
    old = keys(tmp_path)
    issue(old, content())
    first = key_id(old.signer().public)
    add(agent, AGENT, tmp_path)
    rotated = keys(tmp_path, agent_key=AGENT_LINE, retired_keys=[f"{key_line(old.signer().public)} of 2026"])
    assert read(rotated, "node01").signer == first
    assert issue(rotated, content(campaign="c2")).new is False, "nothing is signed again without need"
    assert issue(rotated, content(site="other")).new is True
    assert read(rotated, "node01").signer == AGENT_ID


def test_a_key_that_is_neither_present_nor_retired_is_refused(agent: dict[str, str], tmp_path: Path) -> None:
    old = keys(tmp_path)
    issue(old, content())
    rotated = keys(tmp_path, agent_key=AGENT_LINE, retired_keys=[OTHER_LINE])
    with pytest.raises(SignatureError) as caught:
        read(rotated, "node01")
    text = (
        f"node01: certificate - Expected: signed by key {AGENT_ID} or {OTHER_ID} Actual: no valid signature of it "
        f"(key ids: {key_id(old.signer().public)}). Certify the node again; a key that you replaced belongs in "
        "certificates.retired_keys."
    )
    assert str(caught.value) == text
    add(agent, AGENT, tmp_path)
    made = issue(rotated, content())
    assert (made.new, made.voided) == (True, text)


def test_a_retired_key_in_the_file_signs_nothing(tmp_path: Path) -> None:
    old = keys(tmp_path)
    issue(old, content())
    own = old.signer().public
    retired = keys(tmp_path, retired_keys=[key_line(own)])
    assert read(retired, "node01").signer == key_id(own)
    with pytest.raises(SignatureError) as caught:
        issue(retired, content(site="other"))
    assert str(caught.value) == (
        f"{retired.file}: signing key - Expected: one that is not retired Actual: {key_id(own)}, which is in "
        "certificates.retired_keys. Move it away: the next certificate makes a new one."
    )
    retired.file.rename(tmp_path / "old-key")
    assert read(retired, "node01").signer == key_id(own), "without a key, the retired ones verify"
    assert issue(retired, content(site="other")).new
    assert read(retired, "node01").signer not in {key_id(own), ""}


def test_reading_makes_no_key(tmp_path: Path) -> None:
    chosen = keys(tmp_path)
    (chosen.folder / "node01.json").write_text(
        json.dumps({"payloadType": "application/vnd.in-toto+json", "payload": "", "signatures": []})
    )
    with pytest.raises(SignatureError, match=r"signed by key \(none is known\) Actual: no valid signature"):
        read(chosen, "node01")
    assert not chosen.file.exists()


@pytest.mark.parametrize(
    "line",
    [
        "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQ",
        "ssh-ed25519",
        "ssh-ed25519 %%%",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5",
        "",
    ],
)
def test_what_is_no_ed25519_key_is_refused(line: str) -> None:
    text = (
        "is no Ed25519 public key - Expected: ssh-ed25519 AAAA..., as `rackready certificate keys` prints it "
        f"Actual: {line[:40]!r}"
    )
    with pytest.raises(ValidationError) as caught:
        Certificates.model_validate({"retired_keys": [line]})
    assert text in str(caught.value)


def test_a_key_that_signs_is_not_retired() -> None:
    with pytest.raises(ValidationError) as caught:
        Certificates.model_validate({"agent_key": AGENT_LINE, "retired_keys": [OTHER_LINE, f"{AGENT_LINE} old"]})
    text = "agent_key is one of retired_keys - Expected: a retired key signs nothing. Remove it from one."
    assert text in str(caught.value)
