"""UFM over HTTPS: logins, TLS, jobs, and everything that a client must not take for an answer."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path
from typing import Any

import pytest

from rackready.drivers.ufm import client as client_module
from rackready.drivers.ufm.client import UfmClient
from rackready.drivers.ufm.errors import UfmError
from rackready.drivers.ufm.read import read_version
from rackready.model.base import SecretRef
from rackready.model.problems import RackreadyError
from rackready_sim.tls import ensure_certificates
from rackready_sim.ufm.server import PASSWORD, TOKEN, USER, Ufm
from tests.unit.ufm.ufms import simulated, site_of, up


@pytest.fixture
def ufm() -> Ufm:
    return simulated(site_of())


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_POLL_S", 0.01)
    monkeypatch.setattr(client_module, "BUSY_S", 0.3)
    monkeypatch.setattr(client_module, "JOB_S", 0.3)


def version(ufm: Ufm, folder: Path, **access: Any) -> str:
    with up(ufm, folder, **access) as own, UfmClient(own) as client:
        return read_version(client.get("app/ufm_version"))


def refusal(ufm: Ufm, folder: Path, **access: Any) -> RackreadyError:
    with pytest.raises(RackreadyError) as caught:
        version(ufm, folder, **access)
    assert TOKEN not in str(caught.value)
    assert PASSWORD not in str(caught.value)
    return caught.value


def fingerprint(file: Path) -> str:
    pem = file.read_text(encoding="utf-8").partition("-----BEGIN PRIVATE KEY")[0]
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem.strip())).hexdigest()
    return ":".join(digest[at : at + 2] for at in range(0, 64, 2))


def password(folder: Path, text: str) -> dict[str, Any]:
    (folder / "password").write_text(text, encoding="utf-8")
    return {"token": None, "username": USER, "password": SecretRef(file=folder / "password")}


def test_a_token_and_a_password_have_their_own_paths(ufm: Ufm, tmp_path: Path) -> None:
    assert version(ufm, tmp_path) == "6.22.1-7"
    assert version(ufm, tmp_path, **password(tmp_path, PASSWORD)) == "6.22.1-7"


def test_a_wrong_password_names_the_place_of_the_right_one(ufm: Ufm, tmp_path: Path) -> None:
    error = refusal(ufm, tmp_path, **password(tmp_path, "wrong"))
    assert error.code == "ufm-login"
    assert f"Check the login in file {tmp_path / 'password'}" in str(error)


def test_only_a_trusted_certificate_is_accepted(ufm: Ufm, tmp_path: Path) -> None:
    ensure_certificates(tmp_path / "other", {"ufm": "127.0.0.1"})
    for access in ({"ca": None}, {"ca": tmp_path / "other/ca.pem"}):
        error = refusal(ufm, tmp_path, **access)
        assert error.code == "ufm-tls"
        assert "CERTIFICATE_VERIFY_FAILED" in str(error)
    assert ufm.requests == [], "nothing was sent, least of all the login"


def test_a_certificate_of_another_name_is_refused_unless_it_is_pinned(ufm: Ufm, tmp_path: Path) -> None:
    ensure_certificates(tmp_path, {"other": "192.0.2.7"})
    named = tmp_path / "other.pem"
    error = refusal(ufm, tmp_path, certificate=named)
    assert (error.code, "IP address mismatch" in str(error)) == ("ufm-tls", True)
    assert version(ufm, tmp_path, certificate=named, ca=None, certificate_sha256=fingerprint(named)) == "6.22.1-7"


def test_a_pinned_certificate_is_accepted_and_no_other(ufm: Ufm, tmp_path: Path) -> None:
    ensure_certificates(tmp_path, {"ufm": "127.0.0.1"})
    pin = fingerprint(tmp_path / "ufm.pem")
    assert version(ufm, tmp_path, ca=None, certificate_sha256=pin) == "6.22.1-7"
    seen = len(ufm.requests)
    wrong = pin[:-1] + ("0" if pin[-1] != "0" else "1")
    error = refusal(ufm, tmp_path, ca=None, certificate_sha256=wrong)
    assert error.code == "ufm-tls"
    assert "Fingerprints did not match" in str(error)
    assert len(ufm.requests) == seen


def test_a_ufm_that_starts_is_waited_for(ufm: Ufm, tmp_path: Path) -> None:
    ufm.busy = 3
    assert version(ufm, tmp_path) == "6.22.1-7"
    ufm.busy = 10_000
    error = refusal(ufm, tmp_path)
    assert (error.code, "HTTP 503" in str(error)) == ("ufm", True)


@pytest.mark.parametrize(
    ("set_up", "code", "words"),
    [
        ({"absent": {"app/ufm_version"}}, "ufm", "HTTP 404"),
        ({"cut": "app/ufm_version"}, "ufm-answer", "it ends early"),
        ({"page": True}, "ufm-answer", "<html>"),
        ({"version": "6.16.0-5"}, "ufm", "6.17 or newer Actual: 6.16.0-5"),
        ({"version": "latest"}, "ufm-answer", "ufm_release_version"),
    ],
)
def test_what_is_no_answer_is_refused(ufm: Ufm, tmp_path: Path, set_up: dict[str, Any], code: str, words: str) -> None:
    for name, value in set_up.items():
        setattr(ufm, name, value)
    error = refusal(ufm, tmp_path)
    assert error.code == code
    assert words in str(error)


def test_a_ufm_that_is_not_there_is_told_in_time(ufm: Ufm, tmp_path: Path) -> None:
    with up(ufm, tmp_path) as own:
        gone = own
    with UfmClient(gone) as client, pytest.raises(UfmError) as caught:
        client.get("app/ufm_version")
    assert caught.value.code == "ufm-unreachable"


ADD = ("POST", "resources/pkeys/add", {"pkey": "0x11"})


def test_a_job_is_waited_for(ufm: Ufm, tmp_path: Path) -> None:
    ufm.jobs, ufm.job_polls = True, 3
    with up(ufm, tmp_path) as own, UfmClient(own) as client:
        client.change(*ADD)
    assert ufm.polled == {"1": 3}


@pytest.mark.parametrize(
    ("status", "polls", "words"),
    [
        ("Completed With Errors", 1, "Completed With Errors: opensm did not take the partition"),
        ("Aborted", 2, "Aborted"),
        ("Completed", 10_000, "Running, after"),
    ],
)
def test_a_job_that_fails_or_does_not_end_is_an_error(
    ufm: Ufm, tmp_path: Path, status: str, polls: int, words: str
) -> None:
    ufm.jobs, ufm.job_status, ufm.job_polls = True, status, polls
    with up(ufm, tmp_path) as own, UfmClient(own) as client, pytest.raises(UfmError) as caught:
        client.change(*ADD)
    assert words in str(caught.value)


def test_a_change_is_requested_once_even_while_ufm_starts(ufm: Ufm, tmp_path: Path) -> None:
    ufm.busy = 5
    with up(ufm, tmp_path) as own, UfmClient(own) as client, pytest.raises(UfmError):
        client.change(*ADD)
    assert ufm.requests == [("POST", "resources/pkeys/add")]


def test_the_keys_of_the_subnet_manager_are_never_requested() -> None:
    root = Path(client_module.__file__).parent
    calls = [line for file in root.glob("*.py") for line in file.read_text(encoding="utf-8").splitlines()]
    assert [line for line in calls if "smconf" in line and ".get(" in line] == []
