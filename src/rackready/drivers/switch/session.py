"""Commands on a switch that logs in to bash, in a terminal over SSH (netmiko), with true exit codes."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

import paramiko
from netmiko.exceptions import NetmikoBaseException

from rackready.drivers.ssh import errors
from rackready.drivers.ssh.command import Done, Shell, log_command
from rackready.drivers.ssh.sudo import Sudo
from rackready.drivers.ssh.target import PasswordLogin, SshTarget
from rackready.drivers.ssh.terminal import open_terminal
from rackready.drivers.switch.base import SwitchError

_BEGIN, _END = "__rb", "__rc="
_DONE = re.compile(rf"^{_BEGIN}\r?\n(?P<output>.*?){_END}(?P<code>\d+)", re.DOTALL | re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_AGAIN = "Run again: what it did is observed first."


class SwitchUnreachableError(SwitchError):
    """No session, or it broke: what the last command did is not known."""


class SwitchSilentError(SwitchUnreachableError):
    """Nothing answered: the switch may be booting."""


class SwitchAwayError(SwitchSilentError):
    """Its SSH port takes no connection: it is off or elsewhere, or has just begun to boot."""

    code = SwitchSilentError.code


class SwitchLoginError(SwitchUnreachableError):
    """The switch refuses user or password."""


class BashSession:
    """One session; ``platform`` is netmiko's name of the command line. Raises SwitchUnreachableError."""

    def __init__(self, target: SshTarget, platform: str) -> None:
        self._where = target.where
        self._sudo = Sudo(target.login.ref if isinstance(target.login, PasswordLogin) else None)
        try:
            self._connection = open_terminal(target, platform)
        except errors.NoConnectionError as error:
            raise SwitchAwayError.of(error.messages) from error
        except errors.SshTimeoutError as error:
            raise SwitchSilentError.of(error.messages) from error
        except errors.SshLoginError as error:
            raise SwitchLoginError.of(error.messages) from error
        except errors.SshError as error:
            raise SwitchUnreachableError.of(error.messages) from error

    def run(self, command: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        """Run one command; return its exit code and output. Raises SwitchUnreachableError when its end was not seen."""
        begun = time.monotonic()
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
            unfinished = errors.unfinished(self._where, command, timeout_s, errors.reason(error), _AGAIN)
            raise SwitchUnreachableError.of(unfinished.messages) from error
        code, output = split_output(self._where, command, str(raw))
        log_command(self._where, command, code, time.monotonic() - begun)
        return code, output

    def feed(self, command: str, text: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        """Run one command beside the terminal, on the same connection; return its exit code and output.

        Raises SwitchUnreachableError as ``run`` does.
        """
        done = self._beside(command, text, timeout_s, combine=True)
        return done.exit_code, done.stdout

    def _beside(self, command: str, text: str, timeout_s: float, *, combine: bool) -> Done:
        client = self._connection.remote_conn_pre
        try:
            if client is None:
                raise errors.unfinished(self._where, command, timeout_s, "the connection is closed", _AGAIN)
            return Shell(client, self._where, _AGAIN).run(command, timeout_s=timeout_s, stdin=text, combine=combine)
        except errors.SshError as error:
            raise SwitchUnreachableError.of(error.messages) from error

    def as_root(self, argv: Sequence[str], *, timeout_s: float = 60.0) -> tuple[int, str]:
        """Run one program by sudo, beside the terminal: the login's password is the one that sudo asks for.

        Raises SwitchUnreachableError as ``run`` does, and SecretUnreadableError.
        """
        line, typed = self._sudo.command(list(argv))
        done = self._beside(line, typed, timeout_s, combine=False)
        return done.exit_code, done.stdout if done.exit_code == 0 else f"{done.stdout}{done.stderr}"

    def close(self) -> None:
        """End the session; one that broke is dropped."""
        try:
            self._connection.disconnect()
        except (NetmikoBaseException, paramiko.SSHException, OSError, EOFError):
            self._connection.remote_conn = None


def split_output(where: str, command: str, raw: str) -> tuple[int, str]:
    """Return exit code and output from what a terminal showed for one command.

    Raises SwitchUnreachableError when its end is missing.
    """
    match = _DONE.search(raw.replace("\r\n", "\n").replace("\r", "\n"))
    if match is None:
        shown = " ".join(raw.split())[-200:] or "nothing"
        raise SwitchUnreachableError(
            where,
            f"`{command}`",
            expected="its output and exit code",
            actual=shown,
            next_step="The login shell must be bash; check the user's shell.",
        )
    return int(match["code"]), _COLOUR.sub("", match["output"])
