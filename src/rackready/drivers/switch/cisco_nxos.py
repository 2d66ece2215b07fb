"""Cisco NX-OS on Nexus 9000: a whole configuration in a file, `configure replace FILE commit-timeout N`.

Sources: Cisco, "Performing Configuration Replace" (a failure, a mismatch or the end of the timer restores; never
best-effort, which does not); NX-API reference and a capture of 9.3(1) for what it prints. Published nowhere are the
answer to `configure replace commit` and a running timer in `show config-replace status`. So what is under way is read
from what is ours, a file on bootflash, and from the running configuration: it is confirmed once it outlives the timer,
and the way back is the timer itself. No checkpoint is made: a switch has room for ten (firewall.cx), others need them.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from rackready.design.switches import SwitchConfig
from rackready.drivers.ssh.target import SshTarget
from rackready.drivers.switch import cli_tree, lldp_json, nxos_edit, nxos_read
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
from rackready.drivers.switch.cli_tree import Path
from rackready.drivers.switch.counters import PortCounters
from rackready.format_error import FormatError

_OURS = re.compile(r"rackready-[0-9a-f]{8}\.cfg")
_REPLACE_S = 600.0
_DONE = "Configure replace completed successfully"
_VALID = "Patch validation completed successful"
_TIMER_S = 120
"""The timer of a run that was interrupted: what apply.py asks for."""
_MARGIN_S = 10.0
_POLL_S = 5.0


class CiscoNxos(CommandLineDriver):
    """NX-OS. ``sleep``: how it waits for the end of a timer."""

    template = "switches/cisco_nxos/root.j2"
    sends_port_names: ClassVar[bool] = False
    sleep: Callable[[float], None] = staticmethod(time.sleep)
    keys: ClassVar[re.Pattern[str]] = re.compile(
        r"(?:description|shutdown|mtu|switchport(?: mode| access vlan)?(?=$| \S+$)|ip address|ip redirects|bfd interval"
        r"|priority-flow-control mode|service-policy type (?:qos input|queuing output|network-qos)|set qos-group"
        r"|pause pfc-cos|bandwidth remaining percent|random-detect|priority level|ip prefix-list \S+ seq \d+"
        r"|match ip address prefix-list|router-id|remote-as|redistribute direct|maximum-paths)"
    )
    defaults: ClassVar[re.Pattern[str]] = re.compile(
        r"interface \S+ / (?:no shutdown|switchport|switchport mode access)$"
    )
    physical: ClassVar[re.Pattern[str]] = re.compile(r"interface (?P<port>Ethernet\S+)$")
    kept: ClassVar[re.Pattern[str]] = re.compile(r"(?:interface breakout|feature) ")
    """Features and split ports stay: others may use them."""

    def __init__(self, name: str, session: Session) -> None:
        super().__init__(name, session)
        self._mine = ""
        self._seen = ""
        self._patch: list[str] = []
        self._until = 0.0

    @classmethod
    def connect(cls, target: SshTarget) -> CommandLineSession:
        """Return a session with its command line, in which nothing asks for a confirmation (napalm does the same)."""
        session = CommandLineSession(target, "cisco_nxos")
        session.run("terminal dont-ask")
        return session

    @staticmethod
    def counters_command(ports: Sequence[str]) -> str:
        """Return the command that prints the counters of PFC: the others have no published form."""
        return f"show interface {','.join(ports)} | json"

    @staticmethod
    def parse_counters(text: str, exit_code: int | None) -> dict[str, PortCounters]:
        """Raise FormatError: no published output has drops, marks and pauses by priority."""
        del text, exit_code
        message = "rackready does not read counters by priority of Cisco NX-OS: no published output has their form"
        raise FormatError(message)

    def wanted(self, config: SwitchConfig) -> list[str]:
        """Return the lines of a configuration. Raises SwitchError for a FEC that the driver does not set."""
        for port in config.ports:
            if port.fec in {"fc", "off"}:
                raise SwitchError(
                    self.name,
                    f"FEC of {port.name}",
                    expected="rs, or none given: the switch chooses by its optics",
                    actual=port.fec,
                    next_step="Remove fec from the site file, or set it on the switch.",
                )
        return super().wanted(config)

    def _done(self, path: Path, wanted: set[Path], have: set[Path], values: dict[Path, str]) -> bool:
        """Whether a line is there. A routed port is shut down by default, a bridged one is not."""
        routed = (path[0], "no switchport") in wanted | have or not self.physical.match(path[0])
        if path[-1] == "no shutdown" and routed:
            return path in have
        return super()._done(path, wanted, have, values)

    def running(self) -> str:
        """Return the running configuration."""
        return self.ask("show running-config")

    def candidate_text(self, revision: str) -> str:
        """Return the configuration in a file of ours; while it runs, what runs."""
        if any(one.id == revision and one.state is RevisionState.UNCONFIRMED for one in self.revisions()):
            return self.running()
        return self.ask(f"show file bootflash:{revision}")

    def revisions(self) -> list[Revision]:
        """Return our files: unconfirmed where the switch runs one, else loaded only.

        Raises SwitchUncertainError where somebody's replacement may be under way.
        """
        names = nxos_read.files(self.ask("dir bootflash:"), _OURS)
        if not names:
            nxos_read.free(self.name, self.ask("show config-replace status"))
        return [Revision(name, self._state(name), "") for name in names]

    def _state(self, name: str) -> RevisionState:
        return RevisionState.UNCONFIRMED if self._runs(name) else RevisionState.CANDIDATE

    def _runs(self, name: str) -> bool:
        there = set(self._parsed(self.ask(f"show file bootflash:{name}")))
        now = self._paths(None)
        return bool(there) and self._covers(now, there) and self._covers(there, now)

    def _covers(self, have: set[Path], wanted: set[Path]) -> bool:
        values = self._values(have)
        lines = [path for path in cli_tree.leaves(wanted) if not cli_tree.removes(path)]
        return all(self._done(path, wanted, have, values) for path in lines)

    def only_holds(self, revision: str, commands: list[str]) -> bool:
        """Whether a file is ours: one that does not run changes nothing, whatever it holds."""
        del commands
        return _OURS.fullmatch(revision) is not None

    def load(self, commands: list[str]) -> None:
        """Write the running configuration, with the lines, to a file of ours, and have the switch validate it.

        Raises SwitchError for a port that is not split yet, and for what the switch refuses; the file is gone then.
        """
        self._refuse_splits(commands)
        for left in self.revisions():
            if left.state is RevisionState.CANDIDATE:
                self.discard(left.id)
        text = self.running()
        self._seen = _plain(text)
        self._mine = f"rackready-{secrets.token_hex(4)}.cfg"
        after = nxos_edit.edited(text, (cli_tree.split(command) for command in commands), self._key)
        code, said = self.session.feed(f"bootflash:{self._mine}", after, timeout_s=_REPLACE_S)
        if code != 0:
            raise SwitchError(
                self.name,
                f"copying {self._mine} to bootflash",
                expected="accepted",
                actual=shown(said),
                next_step="Nothing was changed. Switch SCP on: `feature scp-server`.",
            )
        _, said = self.session.run(f"configure replace bootflash:{self._mine} verify-only", timeout_s=_REPLACE_S)
        self._patch = re.findall(r"^`(.+?) *`$", said.replace("\r", ""), re.MULTILINE)
        if _VALID not in said:
            self.discard()
            raise self._refused(f"`configure replace bootflash:{self._mine} verify-only`", said)

    def _refuse_splits(self, commands: list[str]) -> None:
        for command in commands:
            if command.startswith("interface breakout "):
                raise SwitchError(
                    self.name,
                    "a port that is not split yet",
                    expected=command,
                    actual="not configured",
                    next_step="Split it alone, before rackready runs: its lines vanish, and some models boot for it.",
                )

    def _refused(self, what: str, said: str) -> SwitchError:
        lines = re.findall(r"Syntax error while parsing '(.*)'", said)
        refused = f"refused `{'`, `'.join(lines[:3])}`" if lines else shown(said)
        return SwitchError(
            self.name,
            what,
            expected="accepted",
            actual=refused,
            next_step="Nothing was applied; see `show config-replace log exec`.",
        )

    def compare(self) -> str:
        """Return the patch that the switch computed; empty when it would change nothing."""
        return "\n".join(line for line in self._patch if line not in {"config t", "exit"})

    def commit(self, revert_after_s: int) -> None:
        """Replace the configuration by the file, with a timer.

        Raises SwitchBusyError when somebody changed the switch since it was read: the file would undo that.
        """
        if _plain(self.running()) != self._seen:
            self.discard()
            raise SwitchBusyError(
                self.name,
                "its configuration changed while ours was prepared",
                expected="no other change in progress",
                next_step="Nothing was changed; run again.",
            )
        command = f"configure replace bootflash:{self._mine} commit-timeout {revert_after_s}"
        _, said = self.session.run(command, timeout_s=_REPLACE_S)
        self._until = time.monotonic() + revert_after_s + _MARGIN_S
        if _DONE not in said:
            raise self._refused(f"`{command}`", said)

    def confirm(self) -> None:
        """Confirm, and return when the configuration has outlived the timer.

        A confirmation that the switch refuses may come too late: the configuration shows it. Raises
        SwitchUncertainError when the switch went back.
        """
        name = self._running_file("the confirmation")
        self.session.run("configure replace commit", timeout_s=_REPLACE_S)
        self._outlive()
        if not self._runs(name):
            raise self._unsure(f"the confirmation of {name}", "the switch went back to what it ran before")
        self.discard(name)

    def _outlive(self) -> None:
        left = self._until - time.monotonic() if self._until else _TIMER_S + _MARGIN_S
        self.sleep(max(left, 0.0))

    def save(self) -> None:
        """Write the running configuration to the start-up one, never while a commit waits for its confirmation."""
        if any(one.state is RevisionState.UNCONFIRMED for one in self.revisions()):
            raise self._unsure("saving", "a replacement waits for its confirmation")
        said = self.ask("copy running-config startup-config", timeout_s=_REPLACE_S)
        if "Copy complete" not in said:
            raise SwitchError(
                self.name,
                "`copy running-config startup-config`",
                expected="Copy complete",
                actual=shown(said),
                next_step="Log in and run it.",
            )

    def rollback(self) -> None:
        """Wait until the timer takes the replacement back. Raises SwitchUncertainError when it does not."""
        names = [one.id for one in self.revisions() if one.state is RevisionState.UNCONFIRMED]
        for name in names:
            deadline = _TIMER_S * 2
            while self._runs(name) and deadline > 0:
                self.sleep(_POLL_S)
                deadline -= int(_POLL_S)
            if self._runs(name):
                raise self._unsure(f"the way back from {name}", "the switch still runs it")
            self.discard(name)

    def _running_file(self, what: str) -> str:
        names = [one.id for one in self.revisions() if one.state is RevisionState.UNCONFIRMED]
        if len(names) != 1:
            raise self._unsure(what, f"{len(names)} files of ours run")
        return names[0]

    def how_to_drop(self, revision: str) -> str:
        """Return the command with which an operator drops a file."""
        return f"delete bootflash:{revision} no-prompt"

    def discard(self, revision: str | None = None) -> None:
        """Delete a file (ours)."""
        self.ask(self.how_to_drop(revision or self._mine))

    def read_back(self) -> SwitchState:
        """Return ports and RoCE as the switch has them now."""
        interfaces = nxos_read.rows(self.name, self.ask_json("show interface"))
        statuses = nxos_read.rows(self.name, self.ask_json("show interface status"))
        table = self.ask("show interface priority-flow-control")
        return SwitchState(
            nxos_read.ports(self.name, interfaces, statuses), nxos_read.roce(self.name, table, self._paths(None))
        )

    def sessions(self) -> dict[str, str]:
        """Return BGP neighbour -> state."""
        return nxos_read.sessions(self.ask_json("show ip bgp summary"))

    def neighbours(self) -> dict[str, list[Neighbour]]:
        """Return port -> its neighbours. Raises SwitchError where `feature lldp` is not configured."""
        if not re.search(r"^feature lldp\s*$", self.running(), re.MULTILINE):
            raise self.lldp_is_off("feature lldp", "not configured")
        command = "show lldp neighbors detail"
        code, output = self.session.run(f"{command} | json")
        if code != 0 and output.strip() == lldp_json.NOBODY:
            return {}
        if code != 0:
            raise self.refusal(f"{command} | json", output)
        return self.parsed(command, self.document(command, output), lldp_json.of_nxos)

    def known_as(self) -> frozenset[str]:
        """Return its name, and the addresses of its ports: each sends its own as chassis id (napalm, nxos)."""
        interfaces = nxos_read.rows(self.name, self.ask_json("show interface"))
        name = self.parsed("show hostname", self.ask_json("show hostname"), nxos_read.hostname)
        return nxos_read.addresses(interfaces) | {name, name.partition(".")[0]}

    def known_ports(self) -> dict[str, str]:
        """Return short name of a port -> its name: older releases send Eth1/1 (napalm, nxos_ssh)."""
        ports = re.findall(r"^interface (Ethernet\S+)", self.running(), re.MULTILINE)
        return {lldp_json.short_name(port): port for port in ports}

    def _unsure(self, what: str, actual: str) -> SwitchUncertainError:
        return SwitchUncertainError(
            self.name,
            what,
            expected="confirmed or reverted",
            actual=actual,
            next_step="Run again: the switch is observed first.",
        )


def _plain(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.strip() and not line.startswith("!"))
