"""`rackready release` as a user calls it: build, list, show, verify, and every kind of tampering."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackready.campaign.release_index import INDEX
from rackready.drivers.release import code
from rackready.drivers.release.document import canonical
from rackready.drivers.release.objects import Blob
from rackready.drivers.ssh.pins import pin
from rackready.handover.dsse import load_key, sign
from rackready.handover.keys import keys_of
from tests.unit.release.world import NODES, SECRET, Index, host_key, loaded, pin_keys, write_site, write_vars

Call = Callable[..., tuple[int, str, str]]
Change = Callable[[Path, dict[str, Any]], None]


@pytest.fixture
def root(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a site repository whose nodes pull; the command line works in it."""
    del call
    Index(monkeypatch)
    monkeypatch.setattr(code, "archive", lambda: b"roles and playbooks")
    write_site(tmp_path)
    pin_keys(tmp_path)
    return tmp_path


def document(call: Call, *words: str, wanted: int = 0) -> dict[str, Any]:
    exit_code, out, _ = call(*words, "--output", "json")
    assert exit_code == wanted, out
    found: dict[str, Any] = json.loads(out)
    return found


def test_a_build_says_what_it_made_and_a_second_one_makes_nothing(root: Path, call: Call) -> None:
    first = document(call, "release", "build")
    assert [row["name"] for row in first["nodes"]] == NODES
    assert len({row["release"] for row in first["nodes"]}) == 4
    assert {row["python"] for row in first["nodes"]} == {"3.11"}
    assert first["nodes"][0]["machine"].startswith("SHA256:")
    assert (first["objects"]["kept"], first["refused"]) == (0, [])
    assert first["objects"]["new_bytes"] > first["nodes"][0]["bytes"] > 1000
    second = document(call, "release", "build")
    assert second["objects"] == {"new": 0, "kept": first["objects"]["new"], "new_bytes": 0}
    assert (second["index"], second["nodes"]) == (first["index"], first["nodes"])
    assert [path.stem for path in (root / ".rackready/sim/release/releases").iterdir()] == [first["index"]]


def test_as_text(root: Path, call: Call) -> None:
    exit_code, out, told = call("release", "build")
    assert exit_code == 0
    assert "fetching 20 wheels for Python 3.11 on x86_64" in told
    lines = out.splitlines()
    assert "node01" in out
    assert lines[-2].startswith("objects: 30 new (0.1 MiB), 0 kept")
    name = lines[-1].split()[1].rstrip(":")
    assert lines[-1] == f"index {name}: 4 nodes, {next((root / '.rackready/sim/release/releases').iterdir())}"
    exit_code, out, _ = call("release", "list")
    assert (exit_code, name in out, "SHA256:" in out) == (0, True, True)
    exit_code, out, _ = call("release", "show")
    assert out.startswith(f"index {name}: 4 nodes of lab, signed by SHA256:")
    exit_code, out, _ = call("release", "verify")
    assert (exit_code, out) == (0, f"index {name}: good. 30 objects\n")


def test_only_some_nodes(root: Path, call: Call) -> None:
    found = document(call, "release", "build", "--limit", "node02,node03")
    assert [row["name"] for row in found["nodes"]] == ["node02", "node03"]
    assert [row["name"] for row in document(call, "release", "show")["nodes"]] == ["node02", "node03"]
    assert [row["name"] for row in document(call, "release", "show", "--limit", "node03")["nodes"]] == ["node03"]
    assert root.is_dir()


def test_a_node_without_pinned_key_ends_with_one(root: Path, call: Call) -> None:
    known = root / ".rackready/sim/known_hosts"
    known.write_text("".join(known.read_text(encoding="utf-8").splitlines(keepends=True)[1:]), encoding="utf-8")
    found = document(call, "release", "build", wanted=1)
    assert [row["name"] for row in found["nodes"]] == NODES[1:]
    assert found["refused"][0]["name"] == "node01"
    assert "node01 192.0.2.11:22: SSH host key not pinned" in found["refused"][0]["message"]
    known.unlink()
    found = document(call, "release", "build", wanted=1)
    assert (found["index"], len(found["refused"])) == (None, 4)


def test_a_site_that_pushes_is_refused(root: Path, call: Call) -> None:
    write_site(root, pull=None)
    exit_code, _, told = call("release", "build")
    assert exit_code == 2
    assert "release build - Expected: pull in the site file Actual: none. Add it (docs/howto/pull.md)" in told


def test_show_has_the_document_and_no_variables(root: Path, call: Call) -> None:
    write_vars(root, "group_vars/nodes.yml", f"my_token: {SECRET}\n")
    built = document(call, "release", "build")
    found = document(call, "release", "show", built["index"][:8])
    assert SECRET not in json.dumps(found)
    row = found["nodes"][0]
    assert (row["name"], row["release"]) == ("node01", built["nodes"][0]["release"])
    assert {"code", "wheels", "files", "variables", "ansible_core", "python", "machine"} <= set(row)


def test_indexes_are_listed_the_newest_first(root: Path, call: Call) -> None:
    first = document(call, "release", "build")["index"]
    write_vars(root, "group_vars/nodes.yml", "x: 1\n")
    second = document(call, "release", "build")["index"]
    assert [row["index"] for row in document(call, "release", "list")["indexes"]] == [second, first]
    (root / "inventories/sim/group_vars/nodes.yml").unlink()
    assert document(call, "release", "build")["index"] == first
    assert [row["index"] for row in document(call, "release", "list")["indexes"]] == [first, second], (
        "what was built again"
    )


def test_without_a_build_there_is_nothing_to_verify(root: Path, call: Call) -> None:
    assert document(call, "release", "list") == {"indexes": []}
    exit_code, _, told = call("release", "verify")
    assert exit_code == 2
    assert "release - Expected: an index of releases Actual: none. Run `rackready release build`." in told
    name = document(call, "release", "build")["index"]
    exit_code, _, told = call("release", "verify", "zzz")
    assert exit_code == 2
    assert (
        f"release zzz - Expected: one index (known: {name[:12]}) Actual: none. Run `rackready release build`." in told
    )
    assert root.is_dir()


def rewrite(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


def of(built: dict[str, Any], root: Path, *keys: Any) -> Path:
    """Return the file of an object that the document of node02 names."""
    folder = root / ".rackready/sim/release/objects/sha256"
    found = json.loads((folder / built["nodes"][1]["release"]).read_bytes())
    for key in keys:
        found = found[key]
    return folder / str(found["sha256"])


def flip(path: Path) -> None:
    data = path.read_bytes()
    rewrite(path, data[:-1] + bytes([data[-1] ^ 1]))


def index_of(root: Path) -> Path:
    return next((root / ".rackready/sim/release/releases").iterdir())


def payload(root: Path, change: Callable[[dict[str, Any]], None]) -> bytes:
    found: dict[str, Any] = json.loads(base64.b64decode(json.loads(index_of(root).read_bytes())["payload"]))
    change(found)
    return canonical(found)


def resealed(root: Path, _built: dict[str, Any]) -> None:
    """Sign an index in which two nodes have changed places."""

    def swap(found: dict[str, Any]) -> None:
        nodes = found["nodes"]
        nodes["node01"]["release"], nodes["node02"]["release"] = nodes["node02"]["release"], nodes["node01"]["release"]

    data, old = payload(root, swap), index_of(root)
    site, paths = loaded(root)
    old.unlink()
    (old.parent / f"{Blob.of(data).sha256}.json").write_bytes(
        canonical(sign(data, keys_of(site, paths).signer(), INDEX))
    )


def unsigned(root: Path, _built: dict[str, Any]) -> None:
    envelope = json.loads(index_of(root).read_bytes())
    envelope["payload"] = base64.b64encode(payload(root, lambda found: found["nodes"].pop("node04"))).decode()
    rewrite(index_of(root), canonical(envelope))


def foreign(root: Path, _built: dict[str, Any]) -> None:
    data = payload(root, lambda found: found["nodes"].pop("node04"))
    rewrite(index_of(root), canonical(sign(data, load_key(root / "foreign"), INDEX)))


def renamed(root: Path, _built: dict[str, Any]) -> None:
    index_of(root).rename(index_of(root).with_name(f"{'0' * 64}.json"))


def other_type(root: Path, _built: dict[str, Any]) -> None:
    envelope = json.loads(index_of(root).read_bytes())
    rewrite(index_of(root), canonical({**envelope, "payloadType": "application/vnd.in-toto+json"}))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda root, built: flip(of(built, root, "code")), "object of a release - Expected: 19 bytes with SHA-256"),
        (lambda root, built: flip(of(built, root, "wheels", 3)), "object of a release - Expected:"),
        (lambda root, built: flip(of(built, root, "files", 0)), "object of a release - Expected:"),
        (lambda root, built: flip(of(built, root, "variables")), "object of a release - Expected:"),
        (lambda root, built: of(built, root, "wheels", 0).unlink(), "Actual: no file. Run `rackready release build`"),
        (lambda root, built: rewrite(of(built, root, "code"), b"short"), "Actual: 5 bytes."),
        (
            lambda root, built: flip(of(built, root, "code").with_name(built["nodes"][1]["release"])),
            "object of a release - Expected:",
        ),
        (resealed, "Expected: the release of node01 Actual: that of node02. Run `rackready release build`."),
        (unsigned, "index of releases - Expected: signed by key SHA256:"),
        (foreign, "Actual: no valid signature of it (key ids: SHA256:"),
        (renamed, "index of releases - Expected: SHA-256 000000000000, as its name says Actual: "),
        (other_type, "Expected: payload of type application/vnd.rackready.release-index+json Actual: application/vnd"),
        (lambda root, _built: rewrite(index_of(root), b"{"), "index of releases - Expected: a readable index Actual: "),
        (lambda root, _built: rewrite(index_of(root), b"[]"), "Expected: a DSSE envelope Actual: damaged"),
    ],
)
def test_every_kind_of_tampering_is_found_and_the_next_build_mends_it(
    root: Path, call: Call, change: Change, text: str
) -> None:
    built = document(call, "release", "build")
    assert document(call, "release", "verify")["good"] is True
    change(root, built)
    found = document(call, "release", "verify", wanted=1)
    assert found["good"] is False
    assert [fault for fault in found["faults"] if text in fault], found["faults"]
    document(call, "release", "build")
    assert document(call, "release", "verify", built["index"])["good"] is True


def test_variables_sealed_for_another_machine_do_not_open(root: Path, call: Call) -> None:
    document(call, "release", "build")
    (root / ".rackready/sim/pull.key").write_bytes(b"k" * 32)
    found = document(call, "release", "verify", wanted=1)
    assert len(found["faults"]) == 4
    assert found["faults"][0] == (
        "node01: sealed variables - Expected: sealed with the key of this node Actual: they do not open. "
        "Run `rackready release build`."
    )


def test_a_key_that_others_may_read_is_refused(root: Path, call: Call) -> None:
    document(call, "release", "build")
    (root / ".rackready/sim/pull.key").chmod(0o644)
    exit_code, _, told = call("release", "build")
    assert exit_code == 2
    assert "pull.key: key of the nodes' variables - Expected: 32 bytes, mode 0600 Actual: 32 bytes, mode 0644." in told


def test_verify_makes_no_key(root: Path, call: Call) -> None:
    document(call, "release", "build")
    key = root / ".rackready/sim/pull.key"
    key.unlink()
    exit_code, _, told = call("release", "verify")
    assert exit_code == 2
    assert "pull.key: key of the nodes' variables - Expected: 32 bytes, mode 0600 Actual: no file. Restore it;" in told
    assert not key.exists()


def test_an_index_of_an_old_key_is_told_in_the_list(root: Path, call: Call) -> None:
    document(call, "release", "build")
    (root / ".rackready/sim/secrets/signing").unlink()
    keys_of(*loaded(root)).signer()
    (row,) = document(call, "release", "list", wanted=1)["indexes"]
    assert "a key that you replaced belongs in certificates.retired_keys." in row["fault"]


def test_a_new_host_key_is_a_new_release(root: Path, call: Call) -> None:
    before = document(call, "release", "build")
    pin(root / ".rackready/sim/known_hosts", "192.0.2.11", host_key(9))
    after = document(call, "release", "build")
    assert [a["name"] for a, b in zip(after["nodes"], before["nodes"], strict=True) if a != b] == ["node01"]
