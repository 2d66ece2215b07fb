"""Arista EOS: a named configuration session, committed with a timer, confirmed by committing it again.

Sources: EOS user manual, "Configure Session" (a session copies the running configuration, and its commit overwrites
what others changed since; at most five may be pending); JSON of pending sessions before and since 4.32: napalm issue
2166. A release whose JSON has neither form is not understood: nothing is reverted then (SUNET/cnaas-nms issue 395,
where a good change was).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import ClassVar

from rackready.drivers.ssh.target import SshTarget
from rackready.drivers.switch import cli_tree, eos_read, lldp_json
from rackready.drivers.switch.base import (
    Neighbour,
    Revision,
    RevisionState,
    Session,
    SwitchBusyError,
    SwitchError,
    SwitchState,
    SwitchUncertainError,
)
from rackready.drivers.switch.cli_driver import CommandLineDriver, shown
from rackready.drivers.switch.cli_session import CommandLineSession
from rackready.drivers.switch.counters import PortCounters
from rackready.format_error import FormatError

_OURS = "rackready-"
_COMMIT_S = 180.0
_HEAD = re.compile(r"^! (?:Command|device|boot system)\b.*$", re.MULTILINE)


class AristaEos(CommandLineDriver):
    """EOS. ``session.run`` answers one line of its command line."""

    template = "switches/arista_eos/root.j2"
    keys: ClassVar[re.Pattern[str]] = re.compile(
        r"(?:description|shutdown|mtu|speed|error-correction encoding|switchport(?: mode| access vlan)?(?=$| \S+$)"
        r"|qos trust|service-profile|ip address|qos map (?:dscp|traffic-class) \d+"
        r"|priority-flow-control (?:priority \d|pause watchdog (?:action|default \S+))"
        r"|priority(?= strict|$)|bandwidth percent|random-detect ecn|seq \d+|match ip address prefix-list|interval"
        r"|router-id|maximum-paths|neighbor interface \S+|neighbor \S+ remote-as|redistribute connected"
        r"|bgp bestpath as-path multipath-relax)"
    )
    defaults: ClassVar[re.Pattern[str]] = re.compile(
        r"(?:interface \S+ / (?:no shutdown|switchport|switchport mode access|no error-correction encoding)$"
        r"|qos profile \S+ / \S+ \d / priority strict$"
        r"|router bgp \d+ / bgp bestpath as-path multipath-relax$"
        r"|router bfd / interval 300 min-rx 300 multiplier 3 default$"
        r"|qos map (?:" + "|".join(eos_read.default_maps()) + ")$)"
    )
    """EOS shows no default (`show running-config`): no shutdown, switchport, its maps, strict queues, BFD's timers
    (300/300/3: dantte-lp/pulumi-eos, integration test of `router bfd` on cEOS)."""
    physical: ClassVar[re.Pattern[str]] = re.compile(r"interface (?P<port>Ethernet\S+)$")
    kept: ClassVar[re.Pattern[str]] = re.compile(r"interface \S+ / speed ")
    """A split cage stays split: its other lanes may be in use by others."""

    def __init__(self, name: str, session: Session) -> None:
        super().__init__(name, session)
        self._mine = ""
        self._seen = ""

    @classmethod
    def connect(cls, target: SshTarget) -> CommandLineSession:
        """Return a session with its command line."""
        return CommandLineSession(target, "arista_eos")

    @staticmethod
    def counters_command(ports: Sequence[str]) -> str:
        """Return the command that prints the counters of PFC: the others have no published form."""
        return f"show interfaces {','.join(ports)} | json"

    @staticmethod
    def parse_counters(text: str, exit_code: int | None) -> dict[str, PortCounters]:
        """Raise FormatError: no published output has drops, marks and pauses by priority."""
        del text, exit_code
        message = "rackready does not read counters by priority of Arista EOS: no published output has their form"
        raise FormatError(message)

    def spelled(self, text: str) -> str:
        """Return a configuration with a line for each neighbour, with the long name of its port."""
        return eos_read.neighbours_apart(text)

    def running(self) -> str:
        """Return the running configuration."""
        return self.ask("show running-config")

    def candidate_text(self, revision: str) -> str:
        """Return the configuration of a session; one that was committed with a timer runs already."""
        if any(one.id == revision and one.state is RevisionState.UNCONFIRMED for one in self.revisions()):
            return self.running()
        return self.ask(f"show session-config named {revision}")

    def revisions(self) -> list[Revision]:
        """Return the sessions. Raises SwitchUncertainError for an answer of unknown form."""
        return eos_read.sessions(self.name, self.ask_json("show configuration sessions detail"))

    def load(self, commands: list[str]) -> None:
        """Open a session and type the lines. Raises SwitchError that names a refused line; the session is aborted."""
        waiting = [one for one in self.revisions() if one.state is RevisionState.CANDIDATE]
        if len(waiting) >= eos_read.MOST_PENDING:
            names = ", ".join(one.id for one in waiting)
            raise SwitchBusyError(
                self.name,
                "pending configuration sessions",
                expected=f"fewer than {eos_read.MOST_PENDING}",
                actual=names,
                next_step=f"Abort those that nobody needs: `{self.how_to_drop(waiting[0].id)}`.",
            )
        self._seen = _plain(self.running())
        self._mine = f"{_OURS}{secrets.token_hex(4)}"
        self.ask(f"configure session {self._mine}")
        for line in [*cli_tree.typed(cli_tree.split(command) for command in commands), "end"]:
            code, output = self.session.run(line)
            if code != 0:
                self.session.run("end")
                self.discard()
                raise SwitchError(
                    self.name,
                    f"`{line}` refused",
                    expected="accepted",
                    actual=shown(output),
                    next_step="Nothing was applied; the model or its release may not have it.",
                )

    def compare(self) -> str:
        """Return what the session would change, as EOS prints it; empty when nothing."""
        text = self.ask(f"show session-config named {self._mine} diffs")
        return "\n".join(line for line in text.splitlines() if not line.startswith(("--- ", "+++ "))).strip()

    def commit(self, revert_after_s: int) -> None:
        """Commit the session with a timer.

        Raises SwitchBusyError when somebody changed the switch since it was loaded: the commit would undo that.
        Raises SwitchUncertainError when the switch does not show the timer.
        """
        if _plain(self.running()) != self._seen:
            self.discard()
            raise SwitchBusyError(
                self.name,
                "its configuration changed while ours was prepared",
                expected="no other change in progress",
                next_step="Nothing was changed; run again.",
            )
        hours, rest = divmod(revert_after_s, 3600)
        timer = f"{hours:02}:{rest // 60:02}:{rest % 60:02}"
        self.ask(f"configure session {self._mine} commit timer {timer}", timeout_s=_COMMIT_S)
        if self._unconfirmed() is None:
            raise SwitchUncertainError(
                self.name,
                f"`configure session {self._mine} commit timer {timer}`",
                expected="the timer in `show configuration sessions detail | json`",
                actual="no timer",
                next_step="Look at the running configuration. Run again: what it did is observed first.",
            )

    def confirm(self) -> None:
        """Commit the waiting session for good. Raises SwitchUncertainError when none waits, or it still does."""
        waiting = self._unconfirmed()
        if waiting is None or not waiting.startswith(_OURS):
            raise self._unsure(f"the confirmation of {self._mine or 'a session'}", waiting or "no session waits")
        self.ask(f"configure session {waiting} commit", timeout_s=_COMMIT_S)
        if self._unconfirmed() is not None:
            raise self._unsure(f"the confirmation of {waiting}", "its timer still runs")

    def save(self) -> None:
        """Write the running configuration to the start-up one, never while a commit waits for its confirmation."""
        if (waiting := self._unconfirmed()) is not None:
            raise self._unsure("saving", f"{waiting} waits for its confirmation")
        self.ask("write memory")

    def rollback(self) -> None:
        """Revert now what was committed and not confirmed."""
        waiting = self._unconfirmed()
        if waiting is None:
            return
        self.ask(f"configure session {waiting} abort", timeout_s=_COMMIT_S)
        if self._unconfirmed() is not None:
            raise self._unsure(f"the way back from {waiting}", "its timer still runs")

    def how_to_drop(self, revision: str) -> str:
        """Return the command with which an operator drops a session."""
        return f"configure session {revision} abort"

    def discard(self, revision: str | None = None) -> None:
        """Abort a session (ours)."""
        self.ask(self.how_to_drop(revision or self._mine))

    def read_back(self) -> SwitchState:
        """Return ports and RoCE as the switch has them now."""
        lines = set(self._parsed(self.running()))
        interfaces = eos_read.objects(self.name, self.ask_json("show interfaces"), "interfaces")
        statuses = eos_read.objects(self.name, self.ask_json("show interfaces status"), "interfaceStatuses")
        ports = eos_read.ports(self.name, interfaces, statuses, lines)
        roce = eos_read.roce(self.name, self.ask("show priority-flow-control"), lines)
        return SwitchState(ports, roce, gateway_mtu=eos_read.gateways(interfaces))

    def sessions(self) -> dict[str, str]:
        """Return BGP neighbour -> state in the default VRF."""
        return eos_read.neighbours(self.ask_json("show bgp neighbors vrf all"))

    def neighbours(self) -> dict[str, list[Neighbour]]:
        """Return port -> its neighbours. Raises SwitchError where `no lldp run` is configured (AVD, lldp.j2)."""
        if re.search(r"^no lldp run\s*$", self.running(), re.MULTILINE):
            raise self.lldp_is_off("lldp run", "`no lldp run`")
        command = "show lldp neighbors detail"
        return self.parsed(command, self.ask_json(command), lldp_json.of_eos)

    def known_as(self) -> frozenset[str]:
        """Return its names, and its own MAC address: the chassis id of EOS (napalm, test_get_facts)."""
        names = self.parsed("show hostname", self.ask_json("show hostname"), eos_read.names)
        return names | self.parsed("show version", self.ask_json("show version"), eos_read.chassis)

    def _unconfirmed(self) -> str | None:
        return next((one.id for one in self.revisions() if one.state is RevisionState.UNCONFIRMED), None)

    def _unsure(self, what: str, actual: str) -> SwitchUncertainError:
        return SwitchUncertainError(
            self.name,
            what,
            expected="confirmed or reverted",
            actual=actual,
            next_step="Run again: the switch is observed first.",
        )


def _plain(text: str) -> str:
    return _HEAD.sub("", text)
