"""Commands that read a text use the same connection as the terminal; without an exit code the effect is unknown."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from rackready.drivers.ssh.sudo import Sudo
from rackready.drivers.switch.session import BashSession, SwitchUnreachableError
from rackready.model.base import SecretRef


class Channel:
    """One command's channel: what was told to it, and the exit code that it gives."""

    def __init__(self, code: int) -> None:
        self.code, self.ended, self.combined = code, False, False

    def set_combine_stderr(self, combine: bool) -> None:  # noqa: FBT001 - paramiko's signature
        self.combined = combine

    def shutdown_write(self) -> None:
        self.ended = True

    def recv_exit_status(self) -> int:
        return self.code


class Stream(io.BytesIO):
    """A command's input or output."""

    def __init__(self, channel: Channel, content: bytes = b"") -> None:
        super().__init__(content)
        self.channel = channel

    def write(self, text: str) -> int:  # type: ignore[override]
        return super().write(text.encode())


class Client:
    """paramiko's client of a switch that answers every command alike."""

    def __init__(self, code: int = 0, output: bytes = b"") -> None:
        self.channel = Channel(code)
        self.sent: list[str] = []
        self.input = Stream(self.channel)
        self.output = output
        self.trouble = b""

    def exec_command(self, command: str, timeout: float) -> tuple[Stream, Stream, Stream]:
        assert timeout > 0
        self.sent.append(command)
        return self.input, Stream(self.channel, self.output), Stream(self.channel, self.trouble)


def session(client: Client | None) -> BashSession:
    made = BashSession.__new__(BashSession)
    made._where = "leaf01 (192.0.2.1:22)"
    made._sudo = Sudo(SecretRef(env="SWITCH_PASSWORD"))
    made._connection = SimpleNamespace(remote_conn_pre=client)  # type: ignore[assignment]
    return made


def test_text_reaches_the_command_and_its_words_and_code_come_back() -> None:
    client = Client(1, b"Error: no\n")
    assert session(client).feed("cat", "- set: {}\n") == (1, "Error: no\n")
    assert (client.sent, client.input.getvalue(), client.channel.ended, client.channel.combined) == (
        ["cat"],
        b"- set: {}\n",
        True,
        True,
    )


@pytest.mark.parametrize("client", [Client(-1), None])
def test_without_an_exit_code_what_it_did_is_not_known(client: Client | None) -> None:
    with pytest.raises(
        SwitchUnreachableError,
        match=r"leaf01 \(192.0.2.1:22\): `cat` - Expected: an end within 60 s Actual: .*\. Run again: what it did is ",
    ):
        session(client).feed("cat", "x")


@pytest.mark.parametrize(("code", "shown"), [(0, "{}"), (1, "{}sorry, try again")])
def test_a_program_runs_as_root_with_the_logins_password_and_its_errors_stay_apart(
    monkeypatch: pytest.MonkeyPatch, code: int, shown: str
) -> None:
    monkeypatch.setenv("SWITCH_PASSWORD", "s3cret")
    client = Client(code, b"{}")
    client.trouble = b"sorry, try again"
    assert session(client).as_root(["lldpcli", "show", "neighbors"]) == (code, shown)
    assert client.input.getvalue().startswith(b"s3cret\nrackready-")
    assert client.sent[0].startswith("sudo -k -S -p '' -H -- sh -c ")
    assert client.sent[0].endswith(" lldpcli show neighbors")
    assert "s3cret" not in client.sent[0]
    assert not client.channel.combined
