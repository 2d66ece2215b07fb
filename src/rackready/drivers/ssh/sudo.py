"""Commands as root for a user that is not root, by sudo (sudo(8)), with a password or without one.

The password is the first line of standard input. sudo reads it only where it asks for one, so a second line marks where
the command's own input begins: a shell skips everything before it. ``-k`` makes sudo ignore what it remembers of an
earlier password.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rackready.design.secrets import reveal
from rackready.drivers.ssh import errors
from rackready.model.base import SecretRef

_NOISE = "sudo: unable to resolve host"
"""sudo warns so where the host's own name has no address, and goes on."""
_SKIP = 'while IFS= read -r l && [ "$l" != "$0" ]; do :; done; exec "$@"'


@dataclass(frozen=True, slots=True)
class Sudo:
    """How a user becomes root; ``password`` is None where sudo asks for none. The password is read at each use."""

    password: SecretRef | None = None

    def command(self, argv: list[str]) -> tuple[str, str]:
        """Return the shell line that runs a command as root, and what to send before the command's own input.

        Raises SecretUnreadableError.
        """
        if self.password is None:
            return shlex.join(["sudo", "-n", "-H", "--", *argv]), ""
        mark = f"rackready-{secrets.token_hex(12)}"
        line = shlex.join(["sudo", "-k", "-S", "-p", "", "-H", "--", "sh", "-c", _SKIP, mark, *argv])
        return line, f"{reveal(self.password)}\n{mark}\n"

    def trial(self) -> tuple[str, str]:
        """Return the shell line that becomes root and does nothing more, and what to send to it.

        Without the mark: sudo would read it as a second password, and pam_faillock(8) counts each wrong one.
        Raises SecretUnreadableError.
        """
        if self.password is None:
            return self.command(["true"])
        return shlex.join(["sudo", "-k", "-S", "-p", "", "-H", "--", "true"]), f"{reveal(self.password)}\n"

    def refused(self, where: str, user: str, shown: str) -> errors.SudoError:
        """Return the error for a host on which sudo does not make ``user`` root; ``shown`` is what sudo printed."""
        lines = [line.strip().rstrip(".") for line in shown.splitlines() if not line.startswith(_NOISE)]
        actual = "; ".join(filter(None, lines)) or "no answer"
        wanted = f"sudo with the password in {self.password}" if self.password else "sudo without a password"
        step = f"Allow {user} in sudoers on the host, or correct access.user and access.sudo_password in the site file."
        return errors.SudoError(where, "sudo", f"{user} becomes root by {wanted}", actual, step)


def as_user(user: str, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the words with which root runs a command as a user, in that user's home."""
    return ("sudo", "-n", "-H", "-u", user, "--", *argv)
