"""A driver's session on a simulated command line, in this process, judged as the one over SSH judges."""

from __future__ import annotations

from typing import Protocol

from rackready.drivers.switch.cli_session import judged
from rackready.drivers.switch.session import SwitchUnreachableError


class Line(Protocol):
    """A simulated command line."""

    def login(self) -> None:
        """Begin a new login."""

    def type(self, command: str) -> str:
        """Answer one line. Raises ConnectionError where the login ends."""


class LineSession:
    """One login on a line."""

    def __init__(self, line: Line) -> None:
        self.line = line
        line.login()

    def run(self, command: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        """Type one line."""
        del timeout_s
        try:
            text = self.line.type(command)
        except ConnectionError as error:
            raise SwitchUnreachableError("leaf01", f"`{command}`", actual="connection lost") from error
        return judged("leaf01", command, text)

    def feed(self, command: str, text: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        """Write a file, where the line has files."""
        del timeout_s
        try:
            answer: str = self.line.write(command, text)  # type: ignore[attr-defined]
        except ConnectionError as error:
            raise SwitchUnreachableError("leaf01", f"`{command}`", actual="connection lost") from error
        return (1 if answer else 0), answer

    def close(self) -> None:
        """End the login."""
        self.line.login()
