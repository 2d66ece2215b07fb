from __future__ import annotations

import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest

from rackready.drivers.ssh import first_contact
from rackready.drivers.ssh.errors import HostKeyChangedError, SshLoginError, SshTimeoutError
from rackready.drivers.ssh.first_contact import wait_and_pin
from rackready.drivers.ssh.pins import load_pins, pin, pinned
from rackready.drivers.ssh.target import KeyLogin, SshTarget
from tests.stacks.fake_rack import FakeRack

WAY_OUT = (
    "If the host was reinstalled or its pin was lost, `rackready hostkey accept node01` shows both keys and pins the "
    "new one. If not, find out who answers at its address."
)


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[FakeRack]:
    made = FakeRack(tmp_path / "rack", 1, net=79)
    yield made
    made.stop()


@pytest.fixture
def target(rack: FakeRack, tmp_path: Path) -> SshTarget:
    login = KeyLogin(rack.folder / "id_ed25519")
    return SshTarget("node01", rack.nodes[0].address, rack.ssh_port, "root", login, tmp_path / "known_hosts")


def text(key: paramiko.PKey) -> str:
    return f"{key.get_name()} {b64encode(key.asbytes()).decode()}"


def test_waits_until_the_host_is_up_and_pins_its_key(rack: FakeRack, target: SshTarget) -> None:
    node = rack.nodes[0]
    threading.Timer(1.0, rack.set_power, (node, "On")).start()
    facts = wait_and_pin(target, timeout_s=15)
    assert node.ssh is not None
    assert facts.boot_id == node.ssh.boot_id
    assert facts.host_key == text(node.host_key)
    assert target.known_hosts.read_text() == f"[{node.address}]:{rack.ssh_port} {facts.host_key}\n"
    assert target.known_hosts.stat().st_mode & 0o777 == 0o600


def test_openssh_reads_what_is_pinned(rack: FakeRack, target: SshTarget) -> None:
    rack.set_power(rack.nodes[0], "On")
    wait_and_pin(target, timeout_s=5)
    keys = paramiko.HostKeys(str(target.known_hosts))
    assert keys.check(target.host, rack.nodes[0].host_key)


def test_port_22_stands_without_its_number(target: SshTarget) -> None:
    assert replace(target, address="192.0.2.1", port=22).host == "192.0.2.1"
    assert replace(target, address="192.0.2.1", port=2222).host == "[192.0.2.1]:2222"


def test_silence_is_an_error_that_says_what_to_do(target: SshTarget) -> None:
    with pytest.raises(
        SshTimeoutError, match=r"SSH - Expected: an answer within 0 s Actual: .*refused.*console through its BMC"
    ):
        wait_and_pin(target, timeout_s=0.1)


def test_a_port_that_says_nothing_is_not_ssh(
    rack: FakeRack, target: SshTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_contact, "_BANNER_S", 0.2)
    with socket.create_server((rack.nodes[0].address, rack.ssh_port)), pytest.raises(SshTimeoutError):
        wait_and_pin(target, timeout_s=0.1)


def test_a_changed_host_key_is_refused_and_the_pin_stays(rack: FakeRack, target: SshTarget) -> None:
    old = text(paramiko.ECDSAKey.generate(bits=256))
    pin(target.known_hosts, target.host, old)
    rack.set_power(rack.nodes[0], "On")
    with pytest.raises(
        HostKeyChangedError,
        match=r"SSH host key changed, no login was tried - Expected: ecdsa\S+ SHA256:\S+ "
        r"Actual: ecdsa\S+ SHA256:\S+ If the host was reinstalled",
    ) as caught:
        wait_and_pin(target, timeout_s=5)
    assert str(caught.value).endswith(WAY_OUT)
    assert pinned(target.known_hosts, target.host) == old


def test_a_reinstalled_host_gets_its_new_key_pinned(rack: FakeRack, target: SshTarget) -> None:
    pin(target.known_hosts, target.host, text(paramiko.ECDSAKey.generate(bits=256)))
    rack.set_power(rack.nodes[0], "On")
    facts = wait_and_pin(target, timeout_s=5, reinstalled=True)
    assert pinned(target.known_hosts, target.host) == facts.host_key


def test_a_refused_key_is_an_error_that_names_it(
    rack: FakeRack, target: SshTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_contact, "_LOGIN_PATIENCE_S", 0.1)
    rack.set_power(rack.nodes[0], "On")
    other = FakeRack(tmp_path / "other", 0 + 1, net=80)
    stranger = replace(target, login=KeyLogin(other.folder / "id_ed25519"))
    try:
        with pytest.raises(
            SshLoginError,
            match=r"login refused - Expected: user root accepted with key .*id_ed25519 Actual: key refused\. Put its ",
        ):
            wait_and_pin(stranger, timeout_s=5)
    finally:
        other.stop()
    assert not target.known_hosts.exists()


def test_a_missing_private_key_is_named_before_anything_is_tried(target: SshTarget) -> None:
    lost = replace(target, login=KeyLogin(Path("/nowhere/key")))
    with pytest.raises(
        SshLoginError, match=r"private key /nowhere/key - Expected: an OpenSSH private key .*access\.private_key"
    ):
        wait_and_pin(lost, timeout_s=5)


def test_pins_of_other_hosts_stay(tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    pin(known, "[192.0.2.1]:22", "ssh-ed25519 AAAA")
    pin(known, "[192.0.2.2]:22", "ssh-ed25519 BBBB")
    pin(known, "[192.0.2.1]:22", "ssh-ed25519 CCCC")
    assert sorted(known.read_text().splitlines()) == [
        "[192.0.2.1]:22 ssh-ed25519 CCCC",
        "[192.0.2.2]:22 ssh-ed25519 BBBB",
    ]


def test_many_hosts_pin_at_once(tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    threads = [threading.Thread(target=pin, args=(known, f"192.0.2.{k}", f"ssh-ed25519 {k}")) for k in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(known.read_text().splitlines()) == 30


def test_a_damaged_line_pins_nothing_and_spoils_no_other(tmp_path: Path) -> None:
    known, good = tmp_path / "known_hosts", paramiko.ECDSAKey.generate(bits=256)
    known.write_bytes(
        b"192.0.2.1 ssh-ed25519 AAAA\n192.0.2.2 ssh-ed25519 \xff\n192.0.2.3\n\n192.0.2.4 " + text(good).encode() + b"\n"
    )
    client = paramiko.SSHClient()
    load_pins(client, known)
    assert list(client.get_host_keys()) == ["192.0.2.4"]
    assert client.get_host_keys()["192.0.2.4"][good.get_name()] == good
    assert pinned(known, "192.0.2.3") == ""
