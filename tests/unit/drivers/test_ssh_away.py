"""A Slurm controller or a switch that is away: refused after seconds, with host, port and next step."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace

import paramiko
import pytest

from rackready.drivers.scheduler.base import SchedulerError
from rackready.drivers.scheduler.remote import connect_slurm
from rackready.drivers.ssh import first_contact
from rackready.drivers.ssh.pins import pin
from rackready.drivers.ssh.session import DIAL_S
from rackready.drivers.switch import configure
from rackready.drivers.switch.configure import open_session
from rackready.drivers.switch.session import SwitchAwayError, SwitchSilentError
from rackready.model.site import SlurmHandover, Switch
from rackready.paths import EnvPaths
from tests.unit.cli.keys import put_key

CHECK = "Check its power, its network and its address in the site file, then run again."


class Network:
    """No host answers, or all refuse; the clock runs only while somebody waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.asked = 0.0, 0
        self.refuses = False
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self.wait)
        monkeypatch.setattr(first_contact, "time", clock)
        monkeypatch.setattr(configure, "time", clock)
        monkeypatch.setattr(socket, "create_connection", self.dial)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def dial(self, _address: tuple[str, int], timeout: float) -> socket.socket:
        self.asked += 1
        if self.refuses:
            raise ConnectionRefusedError(111, "Connection refused")
        self.now += timeout
        raise TimeoutError("timed out")


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    return Network(monkeypatch)


@pytest.fixture
def paths(tmp_path: Path) -> EnvPaths:
    return EnvPaths(tmp_path, "lab")


def slurm(tmp_path: Path) -> SlurmHandover:
    put_key(tmp_path / "keys" / "key")
    values = {"kind": "slurm", "controller": "192.0.2.5", "private_key": str(tmp_path / "keys" / "key")}
    return SlurmHandover.model_validate(values)


def leaf(monkeypatch: pytest.MonkeyPatch) -> Switch:
    monkeypatch.setenv("LEAF_PASSWORD", "x")
    values = {"name": "leaf01", "os": "cumulus_nvue", "model": "sn5600", "address": "192.0.2.21"}
    return Switch.model_validate(values | {"username": "cumulus", "password": {"env": "LEAF_PASSWORD"}})


@pytest.mark.parametrize("known", [False, True], ids=["first contact", "its key is pinned"])
def test_a_slurm_controller_that_is_away_costs_seconds(
    network: Network, paths: EnvPaths, tmp_path: Path, *, known: bool
) -> None:
    if known:
        pin(paths.known_hosts, "192.0.2.5", "ssh-ed25519 AAAA")
    with pytest.raises(SchedulerError) as caught:
        connect_slurm(slurm(tmp_path), paths)
    assert str(caught.value) == (
        "Slurm controller 192.0.2.5:22: SSH - Expected: a TCP connection within 10 s Actual: no answer (time-out). "
        + CHECK
    )
    assert network.now == DIAL_S


@pytest.mark.parametrize("known", [False, True], ids=["first contact", "its key is pinned"])
def test_a_switch_that_is_away_costs_seconds(
    network: Network, paths: EnvPaths, monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    if known:
        pin(paths.known_hosts, "192.0.2.21", "ssh-ed25519 AAAA")
    with pytest.raises(SwitchSilentError) as caught:
        open_session(paths, leaf(monkeypatch))
    assert str(caught.value) == (
        f"leaf01 192.0.2.21:22: SSH - Expected: a TCP connection within 10 s Actual: no answer (time-out). {CHECK}"
    )
    assert network.now == DIAL_S


def test_a_slurm_controller_that_says_nothing_is_not_asked_for_a_minute(
    network: Network, paths: EnvPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> str:
        network.wait(15.0)
        raise paramiko.SSHException("Error reading SSH protocol banner")

    monkeypatch.setattr(first_contact, "dial", lambda *_: socket.socket())
    monkeypatch.setattr(first_contact, "_key_of", silent)
    with pytest.raises(SchedulerError) as caught:
        connect_slurm(slurm(tmp_path), paths)
    assert str(caught.value) == (
        "Slurm controller 192.0.2.5:22: SSH - Expected: an answer within 15 s Actual: Error reading SSH protocol "
        f"banner. {CHECK}"
    )
    assert network.now == 15.0


def test_a_port_that_refuses_is_asked_again_for_as_long(
    network: Network, paths: EnvPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What boots refuses for a moment, before its sshd runs."""
    network.refuses = True
    with pytest.raises(SwitchSilentError, match="Connection refused"):
        open_session(paths, leaf(monkeypatch))
    assert network.now == DIAL_S
    assert network.asked == DIAL_S + 1


def test_a_switch_that_takes_connections_and_says_nothing_is_asked_for_a_minute(
    network: Network, paths: EnvPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(paths.known_hosts, "192.0.2.21", "ssh-ed25519 AAAA")

    def silent(_target: object) -> object:
        network.wait(15.0)
        raise SwitchSilentError("leaf01", "SSH", expected="an answer within 15 s", actual="no answer (time-out)")

    monkeypatch.setattr(configure, "driver_for", lambda *_: SimpleNamespace(connect=silent))
    with pytest.raises(SwitchSilentError) as caught:
        open_session(paths, leaf(monkeypatch))
    assert not isinstance(caught.value, SwitchAwayError)
    assert network.now >= first_contact.PATIENCE_S
