"""A command line on a switch over SSH (netmiko), with a pinned host key and honest exit codes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import paramiko
from netmiko import ConnectHandler
from netmiko.exceptions import NetmikoAuthenticationException, NetmikoBaseException, NetmikoTimeoutException

from rackready.drivers.ssh import way_out
from rackready.drivers.switch.base import SwitchError

_BEGIN, _END = "__rb", "__rc="
_CONNECT_S = 15
_DONE = re.compile(rf"^{_BEGIN}\r?\n(?P<output>.*?){_END}(?P<code>\d+)", re.DOTALL | re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class SwitchUnreachableError(SwitchError):
    """No session, or it broke: what the last command did is not known."""


class SwitchSilentError(SwitchUnreachableError):
    """Nothing answered: the switch may be booting."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How one switch is reached. ``secret_place`` says where the password is kept, for messages."""

    name: str
    device_type: str
    host: str
    port: int
    username: str
    password: str
    secret_place: str
    known_hosts: Path

    def __repr__(self) -> str:
        return f"Endpoint({self.name}, {self.username}@{self.host}:{self.port})"


class NetmikoSession:
    """One session. Raises SwitchUnreachableError when it cannot be had or breaks."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._where = f"{endpoint.name} ({endpoint.host}:{endpoint.port})"
        try:
            self._connection = ConnectHandler(
                device_type=endpoint.device_type,
                host=endpoint.host,
                port=endpoint.port,
                username=endpoint.username,
                password=endpoint.password,
                ssh_strict=True,
                alt_host_keys=True,
                alt_key_file=str(endpoint.known_hosts),
                use_keys=False,
                allow_agent=False,
                conn_timeout=_CONNECT_S,
                auth_timeout=_CONNECT_S,
                banner_timeout=_CONNECT_S,
            )
        except NetmikoAuthenticationException as error:
            message = (
                f"{self._where}: log-in refused - Expected: the password of user {endpoint.username} in "
                f"{endpoint.secret_place}. Correct it and run again."
            )
            raise SwitchUnreachableError(message) from error
        except paramiko.BadHostKeyException as error:
            raise SwitchUnreachableError(_changed_key(self._where, endpoint.known_hosts)) from error
        except (NetmikoTimeoutException, paramiko.SSHException, OSError) as error:
            if "not found in known_hosts" in str(error) or "Host key" in str(error):
                raise SwitchUnreachableError(_changed_key(self._where, endpoint.known_hosts)) from error
            expected = f"an answer within {_CONNECT_S} s"
            message = (
                f"{self._where}: no SSH session - Expected: {expected} Actual: {_first_line(error)}. "
                "Check its power, management network and address."
            )
            raise SwitchSilentError(message) from error

    def run(self, command: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        """Run one command; return its exit code and output. Raises SwitchUnreachableError when no end of it was seen."""
        try:
            raw = self._connection.send_command(
                f"echo {_BEGIN}; {command}; echo {_END}$?",
                expect_string=rf"{_END}\d+",
                read_timeout=timeout_s,
                strip_prompt=False,
                strip_command=False,
                cmd_verify=False,
            )
        except (NetmikoBaseException, paramiko.SSHException, OSError, EOFError) as error:
            raise SwitchUnreachableError(_unseen(self._where, command, timeout_s, error)) from error
        return split_output(self._where, command, str(raw))

    def feed(self, command: str, text: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        """Run one command beside the terminal, on the same connection; return its exit code and output. Raises SwitchUnreachableError as ``run`` does."""
        try:
            client = self._connection.remote_conn_pre
            if client is None:
                raise EOFError("the connection is closed")  # noqa: TRY301 - told as any other loss of it
            stdin, out, _ = client.exec_command(command, timeout=timeout_s)
            out.channel.set_combine_stderr(True)
            stdin.write(text)
            stdin.channel.shutdown_write()
            output = out.read().decode("utf-8", "replace")
            code = out.channel.recv_exit_status()
            if code < 0:
                raise EOFError("no exit status")  # noqa: TRY301 - the same
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise SwitchUnreachableError(_unseen(self._where, command, timeout_s, error)) from error
        return code, output

    def close(self) -> None:
        """End the session; one that broke is simply dropped."""
        try:
            self._connection.disconnect()
        except (NetmikoBaseException, paramiko.SSHException, OSError, EOFError):
            self._connection.remote_conn = None


def split_output(where: str, command: str, raw: str) -> tuple[int, str]:
    """Return exit code and output of what a terminal showed for one command. Raises SwitchUnreachableError when its end is missing."""
    match = _DONE.search(raw.replace("\r\n", "\n").replace("\r", "\n"))
    if match is None:
        shown = " ".join(raw.split())[-200:] or "nothing"
        message = (
            f"{where}: `{command}` - Expected: its output and exit code Actual: {shown}. "
            "The login shell must be bash; check the user's shell."
        )
        raise SwitchUnreachableError(message)
    return int(match["code"]), _COLOUR.sub("", match["output"])


def _unseen(where: str, command: str, timeout_s: float, error: BaseException) -> str:
    return (
        f"{where}: `{command}` - Expected: an end within {timeout_s:.0f} s Actual: {_first_line(error)}. "
        "Run again: what it did is observed first."
    )


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), error.__class__.__name__)


def _changed_key(where: str, known_hosts: Path) -> str:
    return (
        f"{where}: host key - Expected: the one pinned in {known_hosts} Actual: another. "
        f"{way_out(where.split(' ', 1)[0])}"
    )
