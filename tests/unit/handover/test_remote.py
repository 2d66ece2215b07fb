"""The SSH session with the controller: opened again once when it was lost, for commands that only read; exact words."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import paramiko
import pytest

from rackready.drivers.scheduler import remote
from rackready.drivers.scheduler.base import SchedulerError, SchedulerNode
from rackready.drivers.scheduler.slurm import SlurmAdapter
from rackready.drivers.ssh import session
from rackready.drivers.ssh.pins import fingerprint
from rackready.model.site import SlurmHandover
from rackready.paths import EnvPaths
from tests.unit.cli.keys import put_key

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures/captured/slurm"
JOBS = (FIXTURES / "22.05.8_squeue_jobs.txt").read_bytes()
NODE = (FIXTURES / "22.05.8_scontrol_show_node_resumed.txt").read_bytes()


class Out(BytesIO):
    """A command's output, and its exit code."""

    def __init__(self, text: bytes, code: int = 0) -> None:
        super().__init__(text)
        self.channel = SimpleNamespace(recv_exit_status=lambda: code)


class Client:
    """One session. ``loses``: what happens to the next command; ``alive``: whether the transport outlives that."""

    def __init__(self, wire: Wire) -> None:
        self.wire, self.active, self.closed, self.keepalive = wire, False, False, 0

    def load_host_keys(self, _path: str) -> None: ...

    def set_missing_host_key_policy(self, policy: object) -> None:
        assert isinstance(policy, session._Policy)
        assert policy._new_key is session.NewKey.REFUSE

    def connect(self, _host: str, **_options: object) -> None:
        if self.wire.shut:
            raise ConnectionRefusedError(111, "Connection refused")
        self.active = True

    def get_transport(self) -> SimpleNamespace:
        return SimpleNamespace(
            is_active=lambda: self.active, set_keepalive=lambda seconds: setattr(self, "keepalive", seconds)
        )

    def exec_command(self, command: str, timeout: float) -> tuple[None, Out, Out]:
        assert timeout == 30.0
        self.wire.sent.append(command)
        error, self.wire.loses = self.wire.loses, None
        if error is not None:
            self.active = self.wire.alive
            if isinstance(error, Exception):
                raise error
            return None, Out(error, -1), Out(b"")
        return None, Out(JOBS if command.startswith("squeue") else NODE), Out(b"")

    def close(self) -> None:
        self.active, self.closed = False, True


class Wire:
    """What happens between us and the controller."""

    def __init__(self) -> None:
        self.clients: list[Client] = []
        self.sent: list[str] = []
        self.loses: Exception | bytes | None = None
        self.alive = self.shut = False

    def client(self) -> Client:
        self.clients.append(Client(self))
        return self.clients[-1]


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    made = Wire()
    monkeypatch.setattr(paramiko, "SSHClient", made.client)
    monkeypatch.setattr(session, "dial", lambda *_: None)
    monkeypatch.setattr(remote, "pin_at_first_contact", lambda *_, **__: "")
    return made


@pytest.fixture
def adapter(wire: Wire, tmp_path: Path) -> SlurmAdapter:
    del wire
    put_key(tmp_path / "keys" / "key")
    handover = SlurmHandover.model_validate(
        {"kind": "slurm", "controller": "192.0.2.5", "user": "op", "private_key": str(tmp_path / "keys" / "key")}
    )
    return remote.connect_slurm(handover, EnvPaths(tmp_path, "t"))


@pytest.mark.parametrize(
    "lost", [paramiko.SSHException("SSH session not active"), EOFError(), OSError("Socket is closed"), b"4711|ann|"]
)
def test_a_lost_session_is_opened_again_for_a_question(
    wire: Wire, adapter: SlurmAdapter, lost: Exception | bytes
) -> None:
    wire.loses = lost
    assert [job.id for job in adapter.jobs("node01")] == ["1"]
    assert [client.closed for client in wire.clients] == [True, False]
    assert [client.keepalive for client in wire.clients] == [15, 15]
    assert len(wire.sent) == 2
    adapter.close()
    assert wire.clients[1].closed, "the session that is open is the one that is ended"


def test_a_change_is_never_sent_twice(wire: Wire, adapter: SlurmAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    show = adapter.show

    def then_lose(node: str) -> SchedulerNode:
        found = show(node)
        wire.loses = EOFError()
        return found

    monkeypatch.setattr(adapter, "show", then_lose)
    with pytest.raises(SchedulerError) as caught:
        adapter.drain("node01", "x")
    change = "scontrol update NodeName=node01 State=DRAIN Reason='rackready: x'"
    assert str(caught.value) == (
        f"Slurm controller 192.0.2.5:22: `{change}` - Expected: an end within 30 s Actual: EOFError. "
        "Check that slurmctld runs."
    )
    assert (wire.sent.count(change), len(wire.clients)) == (1, 1)


def test_a_question_that_takes_too_long_is_not_asked_again_in_a_session_that_lives(
    wire: Wire, adapter: SlurmAdapter
) -> None:
    wire.loses, wire.alive = TimeoutError("timed out"), True
    with pytest.raises(SchedulerError) as caught:
        adapter.show("node01")
    assert str(caught.value) == (
        "Slurm controller 192.0.2.5:22: `scontrol show node node01 --oneliner` - Expected: an end within 30 s "
        "Actual: no answer (time-out). Check that slurmctld runs."
    )
    assert len(wire.clients) == 1


def test_a_controller_that_stays_away_is_said(wire: Wire, adapter: SlurmAdapter) -> None:
    wire.loses, wire.shut = EOFError(), True
    with pytest.raises(
        SchedulerError,
        match=r"^Slurm controller 192\.0\.2\.5:22: SSH - Expected: an answer within 30 s Actual: \[Errno 111\] ",
    ):
        adapter.show("node01")


def test_a_controller_with_another_host_key_is_refused_with_both_and_the_way_out(
    wire: Wire, adapter: SlurmAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned, shown = paramiko.ECDSAKey.generate(bits=256), paramiko.ECDSAKey.generate(bits=256)

    def other(*_: object, **__: object) -> None:
        raise paramiko.BadHostKeyException("192.0.2.5", shown, pinned)

    wire.loses = EOFError()
    monkeypatch.setattr(Client, "connect", other)
    with pytest.raises(SchedulerError) as caught:
        adapter.show("node01")
    assert str(caught.value) == (
        f"Slurm controller 192.0.2.5:22: SSH host key changed, no login was tried - Expected: {fingerprint(pinned)} "
        f"Actual: {fingerprint(shown)}. "
        "If the host was reinstalled or its pin was lost, `rackready hostkey accept scheduler` shows both keys "
        "and pins the new one. If not, find out who answers at its address."
    )
