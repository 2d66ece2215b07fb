"""A switch system that nobody has: a candidate of lines, a timed revert, no shell. Read by test_made_up_switch.

Its command line has four verbs: `show running|candidate|changes|ports|counters`, `set LINE`, `unset LINE`, and
`commit in N|keep|back|drop`. A refusal begins with `% `.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from rackready.design.qos import QosFacts, QosProblem
from rackready.design.switch_systems import SwitchSystem
from rackready.design.switches import SwitchConfig
from rackready.drivers.ssh.target import SshTarget
from rackready.drivers.switch.base import (
    PortState,
    Revision,
    RevisionState,
    RoceState,
    Session,
    SwitchDriver,
    SwitchError,
    SwitchState,
)
from rackready.drivers.switch.counters import PortCounters

LINES: dict[str, Line] = {}
"""Switch -> its command line: what answers at the other end."""


class Line:
    """The switch itself."""

    def __init__(self) -> None:
        self.running: list[str] = ["banner hello"]
        self.candidate: list[str] | None = None
        self.before: list[str] | None = None
        self.asked: list[str] = []

    def run(self, command: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        """Answer one command; 1 where the text is a refusal."""
        del timeout_s
        self.asked.append(command)
        text = self._answer(command)
        return (1 if text.startswith("% ") else 0), text

    def feed(self, command: str, text: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        """It reads nothing from standard input."""
        raise NotImplementedError(command, text, timeout_s)

    def as_root(self, argv: Sequence[str], *, timeout_s: float = 60.0) -> tuple[int, str]:
        """It has no root."""
        raise NotImplementedError(argv, timeout_s)

    def close(self) -> None:
        """Nothing to end."""

    def _answer(self, command: str) -> str:
        verb, _, rest = command.partition(" ")
        if verb in {"set", "unset"}:
            lines = list(self.running if self.candidate is None else self.candidate)
            if verb == "unset":
                lines.remove(rest)
            else:
                lines = [line for line in lines if line.rsplit(" ", 1)[0] != rest.rsplit(" ", 1)[0]] + [rest]
            self.candidate = lines
            return ""
        if verb == "commit":
            return self._commit(rest)
        if command.startswith("show counters "):
            return json.dumps(dict.fromkeys(rest.split()[1:], 7))
        shown = {
            "show running": "\n".join(self.running),
            "show candidate": "\n".join(self.running if self.candidate is None else self.candidate),
            "show changes": ("confirm " if self.before is not None else "")
            + ("candidate" if self.candidate is not None else ""),
        }
        return shown.get(command, "% unknown command")

    def _commit(self, what: str) -> str:
        if what.startswith("in "):
            self.before, self.running, self.candidate = self.running, self.candidate or self.running, None
        elif what == "back":
            self.running, self.before = self.before or self.running, None
        elif what == "keep":
            self.before = None
        else:
            self.candidate = None
        return ""


class Acme(SwitchDriver):
    """The driver: `port 1/2 vlan 901` in place of another system's words."""

    @classmethod
    def connect(cls, target: SshTarget) -> Session:
        """Return the command line of a switch."""
        return LINES[target.where.split()[0]]

    @staticmethod
    def counters_command(ports: Sequence[str]) -> str:
        """Return the command that prints the counters."""
        return f"show counters {' '.join(ports)}"

    @staticmethod
    def parse_counters(text: str, exit_code: int | None) -> dict[str, PortCounters]:
        """Return the counters: frames that were marked, nothing else."""
        assert exit_code == 0
        none = (0,) * 8
        return {port: PortCounters(none, none, marked, none, 0) for port, marked in json.loads(text).items()}

    def wanted(self, config: SwitchConfig) -> list[str]:
        """Return the lines of a configuration."""
        qos = config.qos
        lossless = [f"roce lossless {priority}" for priority, on in enumerate(qos.pfc) if on]
        dscp = [f"roce dscp {one} {priority}" for one, priority in qos.dscp_to_priority.items()]
        ports = [
            line
            for port in config.ports
            for line in (f"port {port.name} vlan {port.vlan}", f"port {port.name} mtu {port.mtu}")
        ]
        return [f"set {line}" for line in [*lossless, *dscp, *ports]]

    def unwanted(self, wrote: list[list[str]], commands: list[str]) -> list[str]:
        """Return what removes lines of earlier runs."""
        ours = {line.removeprefix("set ") for run in wrote for line in run if line.startswith("set ")}
        kept = {line.removeprefix("set ") for line in commands}
        return [f"unset {line}" for line in self._lines("running") if line in ours - kept]

    def removes(self, command: str) -> bool:
        """Whether it removes a line."""
        return command.startswith("unset ")

    def still_apart(self, commands: list[str], wanted: list[str]) -> list[str]:
        """Return the removals of lines that nobody wants."""
        return [line for line in commands if self.removes(line) and line.replace("unset", "set", 1) not in wanted]

    def missing(self, commands: list[str], revision: str | None = None) -> list[str]:
        """Return the commands whose line is not there, or not gone."""
        there = set(self._lines("running" if revision is None else "candidate"))
        return [line for line in commands if (line.partition(" ")[2] in there) == self.removes(line)]

    def touched(self, commands: list[str], ports: Collection[str]) -> set[str]:
        """Return the ports that the lines name; a line of the switch touches all."""
        words = [line.split() for line in commands]
        return {two[2] for two in words if two[1] == "port"} or set(ports if commands else ())

    def only_holds(self, revision: str, commands: list[str]) -> bool:
        """Whether the candidate has some of these lines more than what runs, and no other."""
        del revision
        more = set(self._lines("candidate")) - set(self._lines("running"))
        return more <= {line.removeprefix("set ") for line in commands}

    def revisions(self) -> list[Revision]:
        """Return what is under way."""
        words = self._ask("show changes").split()
        states = {"confirm": RevisionState.UNCONFIRMED, "candidate": RevisionState.CANDIDATE}
        return [Revision(word, states[word], "") for word in words]

    def load(self, commands: list[str]) -> None:
        """Load them one by one."""
        for command in commands:
            self._ask(command)

    def compare(self) -> str:
        """Return the lines that a commit would bring."""
        return "\n".join(sorted(set(self._lines("candidate")) ^ set(self._lines("running"))))

    def commit(self, revert_after_s: int) -> None:
        """Apply, with a way back."""
        self._ask(f"commit in {revert_after_s}")

    def confirm(self) -> None:
        """Keep."""
        self._ask("commit keep")

    def save(self) -> None:
        """Nothing to do: what is kept is saved."""

    def rollback(self) -> None:
        """Revert."""
        self._ask("commit back")

    def how_to_drop(self, revision: str) -> str:
        """Return the command that drops the candidate."""
        del revision
        return "commit drop"

    def discard(self, revision: str | None = None) -> None:
        """Drop the candidate."""
        del revision
        self._ask("commit drop")

    def read_back(self) -> SwitchState:
        """Return ports and RoCE, read from the lines."""
        found: dict[tuple[str, ...], str] = {}
        for line in self._lines("running"):
            *head, value = line.split()
            found[tuple(head)] = value
        names = [head[1] for head in found if head[0] == "port" and head[2] == "mtu"]
        ports = {
            name: PortState(
                admin_up=True,
                link_up=True,
                mtu=int(found["port", name, "mtu"]),
                vlan=int(found.get(("port", name, "vlan"), 0)),
            )
            for name in names
        }
        dscp = {int(head[2]): int(value) for head, value in found.items() if head[:2] == ("roce", "dscp")}
        lossless = frozenset({int(found["roce", "lossless"])} if ("roce", "lossless") in found else ())
        return SwitchState(
            ports, RoceState("lossless" if lossless else "off", lossless, trusts_dscp=True, dscp_priority=dscp)
        )

    def _lines(self, what: str) -> list[str]:
        return self._ask(f"show {what}").splitlines()

    def _ask(self, command: str) -> str:
        code, text = self.session.run(command)
        if code:
            raise SwitchError(f"{self.name}: `{command}` - Expected: accepted Actual: {text}")
        return text


def _limits(qos: QosFacts) -> list[QosProblem]:
    if qos.priority == 3:
        return []
    return [QosProblem("priority", "ACME has one lossless queue", "3", str(qos.priority), "Use 3.")]


SYSTEM = SwitchSystem("acme_switch:Acme", "acme", "{port}.{place}", _limits)
