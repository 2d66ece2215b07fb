"""`rackready certificate show`, `export` and `verify FILE`: what they print, write and refuse."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rackready.handover.dsse import PAYLOAD_TYPE, Key, key_id, key_line, public_pem, sign
from rackready.handover.keys import Keys
from rackready.handover.returned import HAND_BACK
from rackready.ledger.store import Ledger
from rackready.model.outcome import Finding, Outcome, Verdict
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.unit.handover import certified

Call = Callable[..., tuple[int, str, str]]
OTHER = Key(Ed25519PrivateKey.from_private_bytes(b"x" * 32))


@pytest.fixture
def keys(call: Call, tmp_path: Path) -> Keys:
    """The keys of an environment in which node01 is certified."""
    _ = call
    return certified.certify(tmp_path)


@pytest.fixture
def bundle(call: Call, keys: Keys, tmp_path: Path) -> Path:
    path = tmp_path / "node01.bundle.json"
    assert call("certificate", "export", "node01", "--format", "bundle", "--out", str(path))[0] == 0
    assert keys.folder.is_dir()
    return path


def void_of(call: Call, *words: str) -> list[str]:
    code, out, _ = call("certificate", "show", *words, "--output", "json")
    found = json.loads(out)
    assert code == (1 if found["void"] else 0)
    assert found["counts"] is (code == 0)
    return list(found["void"])


def test_show_tells_subject_signer_and_every_bound_with_its_source(call: Call, keys: Keys, tmp_path: Path) -> None:
    code, out, _ = call("certificate", "show", "node01")
    lines = out.splitlines()
    subject = hashlib.sha256(
        json.dumps(certified.seen(tmp_path).identity(), sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()
    assert (code, lines[0]) == (0, "certificate of node01: counts")
    assert f"  subject    node01, fingerprint sha256 {subject}" in lines
    assert f"  signer     {key_id(keys.signer().public)}" in lines
    assert "  predicate  https://github.com/rackready/rackready/node-certificate/v1" in lines
    assert "  gpus           G0, G1" in lines
    assert (
        "          host_to_device: 54.5 (node01/gpu1) to 55.25 GB/s (node01/gpu0), 2 values; "
        "floor at least 52 GB/s [PCIe 5.0 x16, 82 %]"
    ) in lines
    code, out, _ = call("certificate", "show", "node01", "--output", "json")
    document = json.loads(out)
    assert (code, document["node"], document["counts"], document["void"]) == (0, "node01", True, [])
    assert document["statement"]["subject"][0]["digest"]["sha256"] == subject


def test_show_says_why_a_certificate_is_void_by_the_records(call: Call, keys: Keys, tmp_path: Path) -> None:
    paths = keys.paths
    assert void_of(call, "node01") == []
    with Ledger.open(paths.database) as ledger:
        ledger.set_state("node01", NodeState.QUARANTINED, "gpu1 lost")
    (state,) = void_of(call, "node01")
    assert state == (
        "node01: state - Expected: certified or ready Actual: quarantined (gpu1 lost). "
        "Run `rackready deploy`: it measures again what is void, and certifies the node."
    )
    with Ledger.open(paths.database) as ledger:
        ledger.set_state("node01", NodeState.READY, "")
    certified.measure(tmp_path, found=certified.seen(tmp_path, driver="580.999"))
    (drift,) = void_of(call, "node01")
    assert drift == (
        "node01: certificate - Expected: made for the node as it is now Actual: driver was 580.173.02, is 580.999. "
        "It does not count any more. Validate and certify the node again."
    )
    code, out, _ = call("certificate", "show", "node01")
    assert (code, out.splitlines()[:2]) == (1, ["certificate of node01: VOID", f"  void: {drift}"])


def test_a_damaged_file_is_told_what_it_lacks(call: Call, tmp_path: Path) -> None:
    kind = "https://github.com/rackready/rackready/node-certificate/v1"
    head = {"_type": "https://in-toto.io/Statement/v1", "predicateType": kind}
    whole = {"name": "n", "digest": {"sha256": hashlib.sha256(b"{}").hexdigest()}}
    (tmp_path / "key.pem").write_bytes(public_pem(OTHER.public))
    envelopes = {
        "a DSSE envelope Actual: damaged (ValueError ": {"payloadType": PAYLOAD_TYPE, "payload": "é", "signatures": []},
        "an in-toto statement Actual: other content ('predicate')": sign(
            json.dumps({**head, "subject": [whole]}).encode(), OTHER
        ),
        "site, gateSet, campaign, issued, rackready, fingerprint, gates, declaredSkips Actual: no site, gateSet, "
        "campaign, issued, rackready, gates, declaredSkips": sign(
            json.dumps({**head, "subject": [whole], "predicate": {"fingerprint": {}}}).encode(), OTHER
        ),
    }
    for expected, envelope in envelopes.items():
        (tmp_path / "c.json").write_text(json.dumps(envelope))
        for command in ("show", "verify"):
            words = ("certificate", command, str(tmp_path / "c.json"), "--key", str(tmp_path / "key.pem"))
            code, _, error = call(*words)
            assert (code, f"certificate - Expected: {expected}" in " ".join(error.split())) == (2, True), error


def test_show_says_that_a_return_from_a_tenant_is_open(call: Call, keys: Keys) -> None:
    with Ledger.open(keys.paths.database) as ledger:
        ledger.begin("node01", HAND_BACK, "lease ended", {})
    (why,) = void_of(call, "node01")
    assert why.startswith("node01: return from its tenant - Expected: ended: scrubbed, rebooted, and its gates passed")


def test_show_says_that_a_gate_failed_since(call: Call, keys: Keys, tmp_path: Path) -> None:
    lost = Finding(where="node01 gpu1", what="GPU lost", expected="2", actual="1", next_step="See the runbook.")
    certified.measure(tmp_path, verdicts={certified.MEASURED: Verdict(outcome=Outcome.FAIL, findings=[lost])})
    (why,) = void_of(call, "node01")
    assert why == (
        f"node01: {certified.MEASURED} - Expected: pass Actual: fail. "
        "node01 gpu1: GPU lost - Expected: 2 Actual: 1. See the runbook."
    )
    assert keys.folder.is_dir()


def test_a_bundle_is_shown_and_verified_without_any_environment(
    call: Call, bundle: Path, keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public, subject = tmp_path / "public.pem", tmp_path / "node01.fingerprint.json"
    assert call("certificate", "export", "node01", "--format", "key", "--out", str(public))[0] == 0
    assert call("certificate", "export", "node01", "--format", "subject", "--out", str(subject))[0] == 0
    signer = key_id(keys.signer().public)
    monkeypatch.setenv("RACKREADY_ROOT", str(tmp_path / "elsewhere"))
    code, out, _ = call("certificate", "show", str(bundle), "--key", str(public))
    assert (code, out.splitlines()[0]) == (0, "certificate of node01: counts")
    words = ("certificate", "verify", str(bundle), "--key", str(public))
    code, out, _ = call(*words)
    assert (code, out.splitlines()[0].partition(", issued ")[0]) == (0, f"{bundle}: signed by {signer}, about node01")
    assert out.splitlines()[1:] == [
        "Whether it is about a machine that you have is not verified: give its fingerprint with --subject."
    ]
    code, out, _ = call(*words, "--subject", str(subject))
    assert (code, len(out.splitlines())) == (0, 1)
    code, out, _ = call(*words, "--output", "json")
    assert (code, json.loads(out)["signer"]) == (0, signer)


def test_export_writes_files_that_others_may_read_and_says_how_to_verify(call: Call, bundle: Path) -> None:
    code, out, _ = call("certificate", "export", "node01", "--out", str(bundle))
    assert (code, bundle.stat().st_mode & 0o777) == (0, 0o644)
    assert out.splitlines() == [
        str(bundle),
        (
            f"Verify it with cosign 3: cosign verify-blob-attestation --bundle {bundle} --key KEY.pem "
            "--insecure-ignore-tlog --type https://github.com/rackready/rackready/node-certificate/v1 SUBJECT.json"
        ),
    ]
    code, out, _ = call(
        "certificate", "export", "node01", "--out", str(bundle), "--format", "envelope", "--output", "json"
    )
    assert (code, json.loads(out)["format"], "payload" in json.loads(bundle.read_text())) == (0, "envelope", True)


def test_keys_are_listed_as_the_site_file_takes_them(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("certificate", "keys")
    none = "signs    none yet: the first certificate makes it, 0 certificates"
    assert (code, out.splitlines()) == (0, [none])
    found = certified.certify(tmp_path)
    own = found.signer().public
    (found.folder / "node02.json").write_text("{}")
    retired = f"certificates: {{retired_keys: [{key_line(OTHER.public)} of 2026]}}\n"
    site = tmp_path / "inventories/sim/site.yml"
    site.write_text(site.read_text(encoding="utf-8") + retired, encoding="utf-8")
    code, out, _ = call("certificate", "keys")
    assert (code, out.splitlines()) == (
        0,
        [
            f"signs    {key_id(own)}, 1 certificates",
            f"         {key_line(own)} ({found.file})",
            f"retired  {key_id(OTHER.public)}, 0 certificates",
            f"         {key_line(OTHER.public)} (certificates.retired_keys)",
            "unknown  a key that is neither, or damaged, 1 certificates",
        ],
    )
    (found.folder / "gone01.json").write_text("{}")
    code, out, _ = call("certificate", "keys", "--output", "json")
    assert [row["role"] for row in json.loads(out)["keys"]] == ["signs", "retired", "unknown"]


# what is refused ------------------------------------------------------------------------------------------------------


def edited(document: dict[str, Any]) -> None:
    envelope = document["dsseEnvelope"]
    payload = base64.b64decode(envelope["payload"]).replace(b"54.5", b"59.5")
    envelope["payload"] = base64.b64encode(payload).decode()


def resigned(document: dict[str, Any]) -> None:
    document["dsseEnvelope"] = sign(base64.b64decode(document["dsseEnvelope"]["payload"]), OTHER)


@pytest.mark.parametrize("change", [edited, resigned], ids=["edited by hand", "signed by another key"])
def test_verify_refuses_what_the_key_did_not_sign(
    call: Call, keys: Keys, bundle: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    document = json.loads(bundle.read_text())
    change(document)
    bundle.write_text(json.dumps(document))
    own = key_id(keys.signer().public)
    named = document["dsseEnvelope"]["signatures"][0]["keyid"]
    text = (
        f"{bundle}: certificate - Expected: signed by key {own} Actual: no valid signature of it (key ids: {named}). "
        "Certify the node again; a key that you replaced belongs in certificates.retired_keys."
    )
    assert call("certificate", "verify", str(bundle)) == (2, "", f"{text}\n")
    assert void_of(call, str(bundle)) == [text]
    code, out, _ = call("certificate", "show", str(bundle))
    assert (code, f"  signer     unknown; the envelope names {named}" in out.splitlines()) == (1, True)


def test_verify_refuses_another_key_than_the_given_one(call: Call, keys: Keys, bundle: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(public_pem(OTHER.public))
    code, _, err = call("certificate", "verify", str(bundle), "--key", str(other))
    assert (code, err) == (
        2,
        (
            f"{bundle}: certificate - Expected: signed by key {key_id(OTHER.public)} Actual: no valid signature of it "
            f"(key ids: {key_id(keys.signer().public)}). "
            "Certify the node again; a key that you replaced belongs in certificates.retired_keys.\n"
        ),
    )


def test_verify_refuses_the_subject_of_another_node(call: Call, bundle: Path, tmp_path: Path) -> None:
    certified.certify(tmp_path, "node02")
    own, other = tmp_path / "node01.json", tmp_path / "node02.json"
    assert call("certificate", "export", "node01", "--format", "subject", "--out", str(own))[0] == 0
    assert call("certificate", "export", "node02", "--format", "subject", "--out", str(other))[0] == 0
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (own, other)]
    assert call("certificate", "verify", str(bundle), "--subject", str(other)) == (
        2,
        "",
        (
            f"{other}: another subject - Expected: a certificate of sha256 {digests[1]} Actual: one of node01, sha256 "
            f"{digests[0]}. Compare the fingerprints: the certificate is of another node, or of another state of it.\n"
        ),
    )


def test_show_refuses_the_certificate_of_another_node_in_its_place(call: Call, keys: Keys) -> None:
    (keys.folder / "node02.json").write_bytes((keys.folder / "node01.json").read_bytes())
    assert void_of(call, "node02") == [
        "node02: certificate - Expected: one of node02 Actual: one of node01. Validate and certify the node again."
    ]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("verify", "x.json", "--limit", "node01"),
            (
                "certificate verify x.json - Expected: only --key, --subject, --env and --output with a file "
                "Actual: --limit node01. Remove it."
            ),
        ),
        (
            ("verify", "--key", "k.pem"),
            "certificate verify - Expected: a file with --key Actual: none. Give the file, or remove the option.",
        ),
        (
            ("show", "node77"),
            (
                "node77 - Expected: a file, or one of node01, node02, node03, node04 Actual: neither. Correct the "
                "name, or choose the environment with --env."
            ),
        ),
    ],
    ids=["limit with a file", "key without a file", "no such node"],
)
def test_words_that_do_not_fit_are_refused(call: Call, words: tuple[str, ...], text: str) -> None:
    assert call("certificate", *words) == (2, "", f"{text}\n")


def test_a_node_without_certificate_is_refused(call: Call, tmp_path: Path) -> None:
    file = EnvPaths(tmp_path, "sim").state / "certificates/node01.json"
    text = f"node01: certificate - Expected: {file} Actual: no such file. Validate and certify the node again.\n"
    assert call("certificate", "show", "node01") == (2, "", text)
    assert call("certificate", "export", "node01", "--out", str(tmp_path / "x")) == (2, "", text)
