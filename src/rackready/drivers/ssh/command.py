"""Commands on an open SSH connection, each with a time limit."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import paramiko

from rackready.drivers.ssh import errors

LOGGED = 400
"""Characters of a command that the log keeps."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Done:
    """A command that came to its end."""

    exit_code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Shell:
    """A host's shell without a terminal; ``step`` is the next step in the message of a command without an end."""

    client: paramiko.SSHClient
    where: str
    step: str

    def run(self, command: str, *, timeout_s: float, stdin: str | None = None, combine: bool = False) -> Done:
        """Run one command to its end; ``combine`` puts standard error into standard output.

        Raises SshCommandError when its end was not seen: what it did is not known then.
        """
        begun = time.monotonic()
        try:
            done = self._run(command, timeout_s, stdin, combine=combine)
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise errors.unfinished(self.where, command, timeout_s, errors.reason(error), self.step) from error
        log_command(self.where, command, done.exit_code, time.monotonic() - begun)
        return done

    def _run(self, command: str, timeout_s: float, stdin: str | None, *, combine: bool) -> Done:
        written, out, err = self.client.exec_command(command, timeout=timeout_s)
        if combine:
            out.channel.set_combine_stderr(combine)
        if stdin is not None:
            written.write(stdin)
            written.channel.shutdown_write()
        text, trouble = out.read().decode("utf-8", "replace"), err.read().decode("utf-8", "replace")
        code = out.channel.recv_exit_status()
        if code < 0:  # the connection broke, so the output may be a part only
            raise EOFError("no exit status")
        return Done(code, text, trouble)


def log_command(where: str, command: str, exit_code: int, seconds: float) -> None:
    """Log how a command ended; its input and output, which may hold secrets, are not logged."""
    _log.debug("%s: %s: exit %d in %.1f s", where, " ".join(command.split())[:LOGGED], exit_code, seconds)
