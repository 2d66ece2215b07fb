"""`rackready hostkey accept`: show both keys and the BMC's serial, ask, pin, record; rebuild a lost known_hosts."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
import pytest
import yaml

from rackready.drivers.hostkey_accept import HOST_KEY
from rackready.drivers.ssh import first_contact, session
from rackready.drivers.ssh.pins import fingerprint, pin, pinned, text_of
from rackready.ledger.lock import ControllerLock
from rackready.ledger.store import Ledger
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.stacks.fake_rack import FakeRack
from tests.unit.drivers.jump_server import USER, serve_jump

Call = Callable[..., tuple[int, str, str]]
EVIDENCE = (
    "A new host key can mean that the node was reinstalled: its fingerprint decides which of its evidence still "
    "counts. `rackready deploy` reads it first."
)
OLD = text_of(paramiko.ECDSAKey.generate(bits=256))


@pytest.fixture
def rack(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRack]:
    """Four nodes that are on, two switches that do not answer, and no scheduler."""
    del call
    monkeypatch.setattr(first_contact, "_BANNER_S", 5.0)
    made = FakeRack(tmp_path / "rack", 4, net=83)
    overlay = made.site() | {
        "switches": [{"name": f"leaf0{k}", "address": f"127.83.3.{k}", "port": made.ssh_port} for k in (1, 2)]
    }
    path = EnvPaths(tmp_path, "sim").overlay
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(overlay), encoding="utf-8")
    for node in made.nodes:
        made.set_power(node, "On")
    yield made
    made.stop()


def known(tmp_path: Path) -> Path:
    return EnvPaths(tmp_path, "sim").known_hosts


def where(rack: FakeRack, name: str) -> str:
    return f"[{rack.node(name).address}]:{rack.ssh_port}"


def key(rack: FakeRack, name: str) -> str:
    return text_of(rack.node(name).host_key)


def answered(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal(words))


def test_the_fingerprint_is_what_ssh_keygen_prints() -> None:
    """From `ssh-keygen -lf` of OpenSSH 9.2.

    It prints `256 SHA256:ZkAslGjFiUHdGf/WUL8rQvkib4PTvQatUV0OUQSncCA no comment (ED25519)` for this key.
    """
    public = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
    assert fingerprint(public) == "ssh-ed25519 SHA256:ZkAslGjFiUHdGf/WUL8rQvkib4PTvQatUV0OUQSncCA"
    assert fingerprint("ssh-ed25519 AAAA=B") == "ssh-ed25519 (damaged, no key)"


def test_a_changed_key_is_shown_with_both_fingerprints_and_the_serial_and_pinned(
    call: Call, rack: FakeRack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(known(tmp_path), where(rack, "node03"), OLD)
    answered(monkeypatch, "y\n")
    code, out, err = call("hostkey", "accept", "node03")
    old, new = fingerprint(OLD), fingerprint(key(rack, "node03"))
    assert (code, out.splitlines()) == (
        0,
        [
            f"node03 {rack.node('node03').address}:{rack.ssh_port}",
            f"  pinned: {old}",
            f"  shown:  {new}",
            "  BMC:    serial FAKE-0003, as in the site file",
            f"node03: pinned {new} in place of {old}",
            EVIDENCE,
        ],
    )
    assert "Pin the key that node03 shows? [y/N]" in out + err
    assert pinned(known(tmp_path), where(rack, "node03")) == key(rack, "node03")
    ledger = Ledger.read_only(EnvPaths(tmp_path, "sim").database)
    entry = ledger.entries("node03")[-1]
    assert (entry.operation, entry.status, entry.observed) == (
        HOST_KEY,
        "done",
        {"pinned": old, "shown": new, "serial": "FAKE-0003"},
    )


def test_no_means_no(call: Call, rack: FakeRack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin(known(tmp_path), where(rack, "node03"), OLD)
    answered(monkeypatch, "n\n")
    code, out, _ = call("hostkey", "accept", "node03")
    assert (code, out.splitlines()[-1]) == (1, "node03: left as it was")
    assert pinned(known(tmp_path), where(rack, "node03")) == OLD
    assert not EnvPaths(tmp_path, "sim").database.file.exists()


def test_without_a_terminal_it_is_refused_unless_yes(call: Call, rack: FakeRack, tmp_path: Path) -> None:
    pin(known(tmp_path), where(rack, "node03"), OLD)
    code, out, err = call("hostkey", "accept", "node03")
    assert (code, out.splitlines()[0]) == (2, f"node03 {rack.node('node03').address}:{rack.ssh_port}")
    text = (
        "hostkey accept node03 - Expected: an answer at a terminal, or --yes Actual: no terminal. "
        "Nothing was pinned: compare the keys, then add --yes.\n"
    )
    assert err == text
    assert pinned(known(tmp_path), where(rack, "node03")) == OLD
    code, out, _ = call("hostkey", "accept", "node03", "--yes", "--output", "json")
    document = json.loads(out)
    assert Path(document.pop("log")).stat().st_mode & 0o777 == 0o600
    assert (code, document) == (
        0,
        {
            "hosts": [
                {
                    "name": "node03",
                    "kind": "node",
                    "address": rack.node("node03").address,
                    "port": rack.ssh_port,
                    "pinned": fingerprint(OLD),
                    "shown": fingerprint(key(rack, "node03")),
                    "serial": {"expected": "FAKE-0003", "actual": "FAKE-0003"},
                    "outcome": "accepted",
                    "message": f"node03: pinned {fingerprint(key(rack, 'node03'))} in place of {fingerprint(OLD)}",
                }
            ]
        },
    )


def test_a_bmc_of_another_machine_stops_it(
    call: Call, rack: FakeRack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rack.node("node03").serial = "OTHER-1"
    pin(known(tmp_path), where(rack, "node03"), OLD)
    answered(monkeypatch, "y\n")
    code, _, err = call("hostkey", "accept", "node03")
    assert code == 1
    assert err.startswith("log: ")
    assert err.partition("\n")[2] == (
        f"node03 BMC {rack.node('node03').bmc}:{rack.bmc_port}: answers for another machine - "
        "Expected: serial FAKE-0003 Actual: system OTHER-1, chassis OTHER-1. "
        "No key was accepted: correct serial or bmc.address of node03 in the site file, or the cabling of its BMC.\n"
    )
    assert pinned(known(tmp_path), where(rack, "node03")) == OLD


def test_without_the_bmc_only_a_person_accepts(
    call: Call, rack: FakeRack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (rack.folder / "node03-bmc").write_text("wrong", encoding="utf-8")
    code, _, err = call("hostkey", "accept", "node03", "--yes")
    assert code == 1
    assert err.partition("\n")[2].startswith(
        f"node03: its BMC - Expected: serial FAKE-0003 Actual: node03 BMC {rack.node('node03').bmc}:{rack.bmc_port}: "
    )
    step = (
        "--yes accepts no key without it: fix the BMC, or compare the fingerprint on the node's console and accept "
        "it at a terminal.\n"
    )
    assert err.endswith(step)
    assert not known(tmp_path).exists()
    answered(monkeypatch, "y\n")
    code, out, _ = call("hostkey", "accept", "node03")
    assert code == 0
    assert "  BMC:    not read: node03 BMC " in out
    assert pinned(known(tmp_path), where(rack, "node03")) == key(rack, "node03")


def test_a_lost_file_is_rebuilt_for_the_whole_site_and_one_dead_host_holds_back_no_other(
    call: Call, rack: FakeRack, tmp_path: Path
) -> None:
    """node02 is off, node04 left for good, node01's pin survived; nobody answers for the switches."""
    rack.set_power(rack.node("node02"), "Off")
    Ledger.open(EnvPaths(tmp_path, "sim").database).set_state("node04", NodeState.RETIRED, "sold")
    pin(known(tmp_path), where(rack, "node01"), key(rack, "node01"))
    code, out, _ = call("hostkey", "accept", "--all", "--yes", "--output", "json")
    rows = {row["name"]: row for row in json.loads(out)["hosts"]}
    assert code == 1
    outcomes = {
        "node01": "unchanged",
        "node02": "error",
        "node03": "accepted",
        "leaf01": "error",
        "leaf02": "error",
        "scheduler": "error",
    }
    assert {name: row["outcome"] for name, row in rows.items()} == outcomes
    assert rows["node01"]["message"] == f"node01: pinned already, {fingerprint(key(rack, 'node01'))}"
    address = f"node02 {rack.node('node02').address}:{rack.ssh_port}"
    assert rows["node02"]["message"].startswith(f"{address}: SSH - Expected: a TCP connection within 10 s Actual: ")
    assert sorted(line.split()[0] for line in known(tmp_path).read_text().splitlines()) == [
        where(rack, "node01"),
        where(rack, "node03"),
    ]
    assert known(tmp_path).stat().st_mode & 0o777 == 0o600


def test_a_damaged_file_is_mended(call: Call, rack: FakeRack, tmp_path: Path) -> None:
    known(tmp_path).write_bytes(
        f"{where(rack, 'node01')} ecdsa-sha2-nistp256 AAAA=\xff\n".encode("latin-1")
        + b"192.0.2.9 ssh-ed25519 \xff\xfe\n"
    )
    code, _, err = call("hostkey", "accept", "node01", "--yes")
    assert (code, err.startswith("log: "), err.count("\n")) == (0, True, 1), err
    assert pinned(known(tmp_path), where(rack, "node01")) == key(rack, "node01")
    assert known(tmp_path).read_bytes().startswith(b"192.0.2.9 ssh-ed25519 \xff\xfe\n"), (
        "what is no business of this call stays as it was"
    )


@pytest.mark.parametrize(("words", "actual"), [((), "neither"), (("node01", "--all"), "both")])
def test_names_or_all(call: Call, words: tuple[str, ...], actual: str) -> None:
    code, _, err = call("hostkey", "accept", *words)
    assert (code, err) == (
        2,
        f"hostkey accept - Expected: names of hosts, or --all Actual: {actual}. Give one of them.\n",
    )


def test_the_jump_hosts_key_is_accepted_by_its_name(call: Call, rack: FakeRack, tmp_path: Path) -> None:
    """And nodes are looked at through it, which needs its key."""
    with serve_jump(tmp_path / "jump") as jump:
        hop = {"host": "127.0.0.1", "port": jump.port, "user": USER, "private_key": str(jump.client_key)}
        path = EnvPaths(tmp_path, "sim").overlay
        overlay = yaml.safe_load(path.read_text(encoding="utf-8"))
        overlay["access"]["proxy_jump"] = hop
        path.write_text(yaml.safe_dump(overlay), encoding="utf-8")
        code, _, err = call("hostkey", "accept", "node01", "--yes")
        assert code == 1
        assert f"{jump.where}: SSH host key not pinned, no login was tried" in " ".join(err.split())
        code, out, _ = call("hostkey", "accept", "jump", "--yes")
        assert (code, f"jump: pinned {fingerprint(jump.key)}" in out) == (0, True)
        assert pinned(known(tmp_path), f"[127.0.0.1]:{jump.port}") == jump.key
        assert call("hostkey", "accept", "node01", "--yes")[0] == 0
        assert jump.opened == [(rack.node("node01").address, rack.ssh_port)]
    session.close_jumps()


def test_an_unknown_name_is_refused(call: Call) -> None:
    code, _, err = call("hostkey", "accept", "node9", "node01")
    names = "node01, node02, node03, node04, leaf01, leaf02, scheduler"
    assert (code, err) == (2, f"node9 - Expected: some of {names} Actual: no such host. Correct the name.\n")


def test_nothing_is_pinned_beside_another_controller(call: Call, rack: FakeRack, tmp_path: Path) -> None:
    paths = EnvPaths(tmp_path, "sim")
    with ControllerLock(paths.lock, "rackready deploy", paths.database):
        code, _, err = call("hostkey", "accept", "node01", "--yes")
    assert code == 2
    assert "another controller works on this site" in err
    assert not known(tmp_path).exists()
    assert key(rack, "node01")
