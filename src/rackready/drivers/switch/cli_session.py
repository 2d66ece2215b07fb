"""Command lines without a shell, in a terminal over SSH (netmiko): an error is a text, and the exit code follows it."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Sequence

import paramiko
from netmiko.exceptions import NetmikoBaseException
from scp import SCPClient, SCPException

from rackready.drivers.ssh import errors
from rackready.drivers.ssh.command import log_command
from rackready.drivers.ssh.target import SshTarget
from rackready.drivers.ssh.terminal import open_terminal
from rackready.drivers.switch.session import SwitchAwayError, SwitchSilentError, SwitchUnreachableError

_AGAIN = "Run again: what it did is observed first."
_PROMPT = r"[\r\n][\w.\-]+(?:\([^)\r\n]*\))?[#>]\s*$"
"""Prompts of both systems, in exec and in configuration modes: ``leaf01(config-s-rackre-if-Et1/1)#``."""
_REFUSED = re.compile(r"^(?:% |ERROR:|Error:|Syntax error)", re.MULTILINE)
"""EOS: every refusal begins with ``% ``, warnings with ``! ``. NX-OS: ``% Invalid command``, ``ERROR: ...``,
``Syntax error while parsing ...`` (napalm, nxos.py and eos.py; netmiko, cisco_nxos tests)."""
_MORE = "--More--"


def judged(where: str, command: str, output: str) -> tuple[int, str]:
    """Return the exit code that an output amounts to, and the output.

    What a ``show`` command prints is data: only its beginning can be a refusal. Raises SwitchUnreachableError for an
    output that waits for a key: its end was not seen.
    """
    text = output.replace("\r\n", "\n").replace("\r", "\n")
    if _MORE in text[-200:]:
        raise SwitchUnreachableError(
            where,
            f"`{command}`",
            expected="the whole output",
            actual=f"a pager ({_MORE})",
            next_step="Switch paging off for the user: `terminal length 0`.",
        )
    start = text.lstrip()
    refused = _REFUSED.match(start) if command.startswith("show ") else _REFUSED.search(start)
    return (1 if refused else 0), text


class CommandLineSession:
    """One login; ``platform`` is netmiko's name of the command line. Raises SwitchUnreachableError."""

    def __init__(self, target: SshTarget, platform: str) -> None:
        self._where = target.where
        try:
            self._connection = open_terminal(target, platform)
            if not self._connection.check_enable_mode():
                self._connection.enable()
        except errors.NoConnectionError as error:
            raise SwitchAwayError.of(error.messages) from error
        except errors.SshTimeoutError as error:
            raise SwitchSilentError.of(error.messages) from error
        except errors.SshError as error:
            raise SwitchUnreachableError.of(error.messages) from error
        except (NetmikoBaseException, paramiko.SSHException, OSError, EOFError, ValueError) as error:
            self.close()
            raise SwitchUnreachableError(
                self._where,
                "`enable`",
                expected="a login that may configure",
                actual=errors.reason(error),
                next_step="Give the user privilege 15 (EOS) or the role network-admin (NX-OS).",
            ) from error

    def run(self, command: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        """Run one command; return what it amounts to, and its output."""
        begun = time.monotonic()
        try:
            raw = self._connection.send_command(
                command, expect_string=_PROMPT, read_timeout=timeout_s, strip_prompt=True, strip_command=True
            )
        except (NetmikoBaseException, paramiko.SSHException, OSError, EOFError) as error:
            unfinished = errors.unfinished(self._where, command, timeout_s, errors.reason(error), _AGAIN)
            raise SwitchUnreachableError.of(unfinished.messages) from error
        code, output = judged(self._where, command, str(raw))
        log_command(self._where, command, code, time.monotonic() - begun)
        return code, output

    def feed(self, command: str, text: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        """Write a text to a file on the switch, by SCP on the same connection: ``command`` is the file's path.

        A refusal (its server is off) is exit code 1. Raises SwitchUnreachableError when the connection broke.
        """
        client = self._connection.remote_conn_pre
        transport = client.get_transport() if client is not None else None
        try:
            if transport is None:
                raise errors.unfinished(self._where, command, timeout_s, "the connection is closed", _AGAIN)
            with SCPClient(transport, socket_timeout=timeout_s) as files:
                files.putfo(io.BytesIO(text.encode()), command)
        except errors.SshError as error:
            raise SwitchUnreachableError.of(error.messages) from error
        except (SCPException, paramiko.SSHException, OSError, EOFError) as error:
            if transport is not None and transport.is_active():
                return 1, f"SCP refused: {errors.reason(error)}"
            unfinished = errors.unfinished(self._where, command, timeout_s, errors.reason(error), _AGAIN)
            raise SwitchUnreachableError.of(unfinished.messages) from error
        return 0, ""

    def as_root(self, argv: Sequence[str], *, timeout_s: float = 60.0) -> tuple[int, str]:
        """Refuse: these command lines have no shell, so no program runs on the switch."""
        del timeout_s
        return 1, f"{' '.join(argv)}: {self._where} has no shell"

    def close(self) -> None:
        """End the session; one that broke is dropped."""
        connection = getattr(self, "_connection", None)
        if connection is None:
            return
        try:
            connection.disconnect()
        except (NetmikoBaseException, paramiko.SSHException, OSError, EOFError):
            connection.remote_conn = None
