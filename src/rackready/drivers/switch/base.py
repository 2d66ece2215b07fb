"""The contract of a switch driver, and the data that it reads back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Protocol

from rackready.design.day0 import Day0
from rackready.design.switches import SwitchConfig
from rackready.drivers.ssh.target import SshTarget
from rackready.drivers.switch.counters import PortCounters
from rackready.model.outcome import Finding
from rackready.model.problems import Message, RackreadyError


class SwitchError(RackreadyError):
    """A switch could not be reached, refused something, or is not as declared.

    ``findings``: what differs, where it was read back; the text has the same in words.
    """

    def __init__(
        self, where: object = "", what: object = "", *, findings: Iterable[Finding] = (), **fields: object
    ) -> None:
        super().__init__(where, what, **fields)
        self.findings = tuple(findings)
        if self.findings:
            self.messages = tuple(
                Message(item.where, item.what, item.expected, item.actual, item.next_step) for item in self.findings
            )


class SwitchBusyError(SwitchError):
    """Somebody else has an unfinished change on the switch."""


class SwitchRevertedError(SwitchError):
    """The change was applied, did not verify, and was rolled back."""


class SwitchUncertainError(SwitchError):
    """The switch does not show whether the change was kept."""


class RevisionState(StrEnum):
    """Where a revision of a switch's configuration stands."""

    CANDIDATE = "candidate"
    """Loaded, nothing applied."""
    UNCONFIRMED = "unconfirmed"
    """Applied; the switch reverts it unless it is confirmed in time."""
    APPLIED = "applied"
    OTHER = "other"
    """Past or failed: no change is in progress."""


@dataclass(frozen=True, slots=True)
class Revision:
    """One revision of a switch's configuration."""

    id: str
    state: RevisionState
    user: str


@dataclass(frozen=True, slots=True)
class PortState:
    """State of one switch port. ``vlan``: access VLAN, None when it has none; ``mtu`` in bytes."""

    admin_up: bool
    link_up: bool
    mtu: int
    vlan: int | None
    speed: int | None = None
    """Rate of the link, Gb/s; None: not reported, as of a port that is down."""
    fec: str | None = None
    """FEC in use: rs, fc or off; None: not reported."""
    watchdog: bool | None = None
    """Whether the PFC watchdog guards the port's lossless queues; None: not reported."""


@dataclass(frozen=True, slots=True)
class RoceState:
    """RoCE state of a switch. ``dscp_priority``: DSCP to switch priority; ``pfc``: lossless priorities.

    ``mode``: lossless, lossy, or off.
    """

    mode: str
    pfc: frozenset[int]
    trusts_dscp: bool
    dscp_priority: dict[int, int] = field(default_factory=dict)
    ecn: frozenset[int] | None = None
    """Priorities whose packets the switch marks in congestion; None: not reported."""
    thresholds: tuple[int, int] | None = None
    """ECN thresholds in bytes, as far as the switch tells: they may be rounded. None: not reported."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """What a port hears by LLDP (IEEE 802.1AB), as the neighbour sent it. ``port_type``: ifname, mac or local."""

    system: str
    """System name; agents in a NIC's firmware send none."""
    chassis: str
    port: str
    port_type: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class SwitchState:
    """State of a switch: its ports and RoCE."""

    ports: dict[str, PortState]
    roce: RoceState
    port_roce: dict[str, RoceState] = field(default_factory=dict)
    """RoCE of ports on which it is not the switch's."""
    adaptive: frozenset[str] | None = None
    """Ports with adaptive routing; None: not reported."""
    gateway_mtu: dict[int, int] | None = None
    """VLAN -> MTU in bytes with which the switch routes from and to it; None: not reported."""

    def roce_at(self, port: str) -> RoceState:
        """Return the RoCE state of one port."""
        return self.port_roce.get(port, self.roce)


class Session(Protocol):
    """A command line on the switch.

    A switch that logs in to a shell returns true exit codes. For another one, its session returns 1 where the text is
    an error of that command line.
    """

    def run(self, command: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        """Run one command; return its exit code and its output as the terminal shows it, errors included."""

    def feed(self, command: str, text: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        """Run one command without a terminal, ``text`` as its standard input; return its exit code and its output."""

    def as_root(self, argv: Sequence[str], *, timeout_s: float = 60.0) -> tuple[int, str]:
        """Run one program as root; return its exit code and its output, with errors only if it failed."""

    def close(self) -> None:
        """End the session."""


class SwitchDriver(ABC):
    """One switch. Nothing takes effect before ``commit``, which reverts itself unless ``confirm`` follows in time.

    ``sends_port_names``: whether it sends the site's names of its ports by LLDP; ``known_ports`` translates others.
    """

    sends_port_names: ClassVar[bool] = True
    changes_passwords: ClassVar[bool] = False
    """Whether `set_password`, `keep_password` and `restore_password` are there."""
    login_pause_s: ClassVar[float] = 0.0
    """Time after a refused login before which the switch refuses a right one too, s."""

    def __init__(self, name: str, session: Session) -> None:
        self.name = name
        self.session = session

    @classmethod
    @abstractmethod
    def connect(cls, target: SshTarget) -> Session:
        """Return a session with the switch. Raises SwitchUnreachableError; SwitchSilentError where nothing answers."""

    @staticmethod
    @abstractmethod
    def counters_command(ports: Sequence[str]) -> str:
        """Return the command line that prints the counters of these ports."""

    @staticmethod
    @abstractmethod
    def parse_counters(text: str, exit_code: int | None) -> dict[str, PortCounters]:
        """Return port -> counters from what ``counters_command`` printed.

        Raises FormatError where they are not complete.
        """

    @classmethod
    def day0(cls, facts: Day0) -> str:
        """Return the file that a new switch fetches at its first boot; empty where the driver has none."""
        del facts
        return ""

    @abstractmethod
    def wanted(self, config: SwitchConfig) -> list[str]:
        """Return the commands of a configuration in the syntax of this switch's release."""

    @abstractmethod
    def unwanted(self, wrote: list[list[str]], commands: list[str]) -> list[str]:
        """Return the commands that remove what earlier runs ``wrote`` (oldest first) and ``commands`` no longer want.

        Settings that others made or changed are never removed.
        """

    @abstractmethod
    def removes(self, command: str) -> bool:
        """Whether a command removes something."""

    @abstractmethod
    def still_apart(self, commands: list[str], wanted: list[str]) -> list[str]:
        """Return the commands that remove something and change nothing that is wanted."""

    @abstractmethod
    def missing(self, commands: list[str], revision: str | None = None) -> list[str]:
        """Return those of the commands that are not in the applied configuration (or that revision) yet."""

    def values(self, commands: list[str]) -> dict[str, tuple[str, str]]:
        """Return command -> (the value that it sets, the applied value), for commands that set one.

        A driver that cannot tell returns none: the command itself then shows the difference.
        """
        del commands
        return {}

    def touched(self, commands: list[str], ports: Collection[str]) -> set[str]:
        """Return those of the site's ports on which these commands change something.

        A driver that cannot tell returns all: nodes in production behind them are drained before the change.
        """
        return set(ports) if commands else set()

    @abstractmethod
    def only_holds(self, revision: str, commands: list[str]) -> bool:
        """Whether a revision differs from the applied configuration by some of these commands and nothing else."""

    @abstractmethod
    def revisions(self) -> list[Revision]:
        """Return every revision that the switch keeps."""

    @abstractmethod
    def load(self, commands: list[str]) -> None:
        """Load a candidate."""

    @abstractmethod
    def compare(self) -> str:
        """Return the difference between the candidate and what is applied; empty when there is none."""

    @abstractmethod
    def commit(self, revert_after_s: int) -> None:
        """Apply the candidate; the switch reverts it after that time unless it is confirmed."""

    @abstractmethod
    def confirm(self) -> None:
        """Keep what was committed."""

    @abstractmethod
    def save(self) -> None:
        """Save what is applied as the start-up configuration."""

    @abstractmethod
    def rollback(self) -> None:
        """Revert what was committed and not confirmed."""

    @abstractmethod
    def how_to_drop(self, revision: str) -> str:
        """Return the command with which an operator drops that candidate."""

    @abstractmethod
    def discard(self, revision: str | None = None) -> None:
        """Drop the candidate (or that revision)."""

    @abstractmethod
    def read_back(self) -> SwitchState:
        """Return the switch's state now."""

    def sessions(self) -> dict[str, str]:
        """Return BGP neighbour (port of an unnumbered one, else its address) -> state, such as established.

        A driver that does not read them returns none: a routed fabric is then not verified, and refused.
        """
        return {}

    def announced(self) -> frozenset[str] | None:
        """Return the prefixes that the switch itself announces by BGP; None where the driver does not read them.

        A session proves none: it comes up without them. Raises SwitchError.
        """
        return None

    def neighbours(self) -> dict[str, list[Neighbour]] | None:
        """Return port -> its neighbours by LLDP; None where the driver cannot read them.

        A port without one is not in it. Raises SwitchError where the switch does not answer, or in an unknown form.
        """
        return None

    def known_as(self) -> frozenset[str]:
        """Return the names and chassis ids by which the switch's neighbours know it, beside its name in the site."""
        return frozenset()

    def known_ports(self) -> dict[str, str]:
        """Return name of a port in the switch's LLDP -> its name in the site, where they differ, as aliases do."""
        return {}

    def set_password(self, user: str, password: str) -> None:
        """Give a user a new password; this session goes on. It is in no command: commands are logged.

        Raises SwitchError, also where the driver cannot (``changes_passwords``).
        """
        del password
        raise SwitchError(self.name, f"the password of {user}", expected="a driver that changes passwords")

    def keep_password(self) -> bool:
        """Keep a password that was set, where the switch would take it back by itself.

        Return whether it stays. False: no change waited, so it was kept before, or was taken back just now.
        """
        return True

    def restore_password(self, user: str, password: str) -> None:
        """Set the old password again, over the session that set the new one."""
        self.set_password(user, password)

    def close(self) -> None:
        """End the session."""
        self.session.close()
