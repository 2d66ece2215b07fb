"""Cumulus Linux 5 through NVUE's command line.

Sources: NVIDIA NVUE reference, config commands (`nv config apply --confirm <time>`; a bare number counts minutes, so a
unit is always given; `nv config patch <file>` updates the pending configuration from a YAML file, named by its full
path), and the syntax change of release 5.15 (`qos roce enable on` became `qos roce state enabled`). Neighbours: Cumulus
Linux 5 user guide, Link Layer Discovery Protocol: lldpd speaks for every port, and `sudo lldpcli` reads it. NVUE's own
`nv show interface PORT lldp neighbor` shows one port at a time, in a JSON that no document describes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

import yaml

from rackready.design.day0 import Day0
from rackready.design.switches import SwitchConfig
from rackready.drivers.ssh.target import SshTarget
from rackready.drivers.switch import lldpd, nvue_counters
from rackready.drivers.switch.base import (
    Neighbour,
    Revision,
    RevisionState,
    Session,
    SwitchBusyError,
    SwitchDriver,
    SwitchError,
    SwitchState,
)
from rackready.drivers.switch.counters import PortCounters
from rackready.drivers.switch.nvue_owned import expand_unsets, stale, unset_commands, within, written
from rackready.drivers.switch.nvue_text import (
    Tokens,
    compact,
    document,
    expand_commands,
    in_force,
    is_no_difference,
    parse_adaptive,
    parse_ports,
    parse_revisions,
    parse_roce,
    read_json,
    sets_value,
    touched,
)
from rackready.drivers.switch.session import BashSession
from rackready.render.environment import render

_STATE_SYNTAX_SINCE = (5, 15)
_APPLY_S = 180.0
_WORTH_A_DOCUMENT = 2
_PATCH = (
    'document=$(mktemp --suffix=.yaml) && trap \'rm -f "$document"\' EXIT && cat >"$document" && nv config patch '
    '"$document"'
)
"""Reads the document from standard input; on the switch it exists, for its user only, while NVUE reads it."""

_SINCE_5_15 = {"ip": "ipv4", "on": "state enabled", "yes": "enabled", "profiles": True}
_BEFORE_5_15 = {"ip": "ip", "on": "enable on", "yes": "on", "profiles": False}
"""Words that release 5.15 changed: NVUE reference ("In Cumulus Linux 5.14 and earlier ..."), and BFD profiles, which
are new in 5.15. Routing follows NVIDIA's generated configurations (nv-config-manager, SuperPOD; ERA guide)."""


def render_config(config: SwitchConfig, *, roce_state_syntax: bool = True) -> str:
    """Return the commands of one switch, one per line, in a fixed order and without a time stamp.

    ``roce_state_syntax``: ``nv set qos roce state enabled`` (Cumulus Linux 5.15 and later) rather than ``enable on``.
    """
    words = _SINCE_5_15 if roce_state_syntax else _BEFORE_5_15
    return render("switches/cumulus_nvue/root.j2", switch=config, roce_state_syntax=roce_state_syntax, **words)


_PASSWORD_REVERT_S = 300


class CumulusNvue(SwitchDriver):
    """Cumulus Linux 5.x, NVUE."""

    changes_passwords: ClassVar[bool] = True
    """Five failed logins lock a user (NVUE reference, User Account)."""
    login_pause_s: ClassVar[float] = 16.0
    """NVUE reference, User Account: since 5.15, a user must wait 15 s after a failed login."""

    def __init__(self, name: str, session: Session) -> None:
        super().__init__(name, session)
        self._loaded: list[str] = []
        self._before: frozenset[str] = frozenset()

    @classmethod
    def connect(cls, target: SshTarget) -> BashSession:
        """Return a session: the login shell is bash."""
        return BashSession(target, "cumulus_linux")

    @staticmethod
    def counters_command(ports: Sequence[str]) -> str:
        """Return the command line that prints the counters of these ports."""
        return nvue_counters.script(ports)

    @staticmethod
    def parse_counters(text: str, exit_code: int | None) -> dict[str, PortCounters]:
        """Return the counters by port. Raises FormatError."""
        return nvue_counters.parse(text, exit_code)

    @classmethod
    def day0(cls, facts: Day0) -> str:
        """Return the script for zero touch provisioning."""
        return render("switches/cumulus_nvue/day0.j2", switch=facts)

    def wanted(self, config: SwitchConfig) -> list[str]:
        """Return the `nv set` commands, in the syntax of the switch's release."""
        return render_config(config, roce_state_syntax=self._release() >= _STATE_SYNTAX_SINCE).splitlines()

    def missing(self, commands: list[str], revision: str | None = None) -> list[str]:
        """Return those of the commands that are not in the applied configuration (or that revision) yet."""
        have = self._settings(revision)
        return [
            command
            for command in commands
            if not in_force(expand_commands(command), have) or within(have, expand_unsets(command))
        ]

    def values(self, commands: list[str]) -> dict[str, tuple[str, str]]:
        """Return command -> (the value that it sets, the applied value), of leaves with one value."""
        leaves = {command: sorted(expand_commands(command)) for command in commands if not self.removes(command)}
        have = self._settings(None) if leaves else set()
        applied = {tokens[:-1]: tokens[-1] for tokens in have if sets_value(tokens)}
        return {
            command: (settings[0][-1], applied.get(settings[0][:-1], "none"))
            for command, settings in leaves.items()
            if len(settings) == 1 and sets_value(settings[0])
        }

    def touched(self, commands: list[str], ports: Collection[str]) -> set[str]:
        """Return the ports that the commands name. A command that names no interface (QoS, VLANs) is about all.

        One that clears an interface that the site no longer names is about none.
        """
        return {port for command in commands for port in touched(command, frozenset(ports))}

    def unwanted(self, wrote: list[list[str]], commands: list[str]) -> list[str]:
        """Return the `nv unset` commands for ports and VLANs that rackready wrote and the site no longer names."""
        have = self._settings(None)
        return unset_commands(have, stale(have, written(wrote), expand_commands("\n".join(commands))))

    def removes(self, command: str) -> bool:
        """Whether a command is an `nv unset`."""
        return command.startswith("nv unset ")

    def still_apart(self, commands: list[str], wanted: list[str]) -> list[str]:
        """Return those `nv unset` commands whose branch contains nothing that is wanted."""
        settings = expand_commands("\n".join(wanted))
        return [
            command for command in commands if self.removes(command) and not within(settings, expand_unsets(command))
        ]

    def only_holds(self, revision: str, commands: list[str]) -> bool:
        """Whether a revision differs from what is applied by some of these commands and nothing else."""
        wanted = expand_commands("\n".join(commands))
        applied, there = self._settings(None), self._settings(revision)
        gone = applied - there
        replaced = {tokens[:-1] for tokens in wanted}
        taken_out = within(gone, expand_unsets("\n".join(commands)))
        return there - applied <= wanted and all(tokens[:-1] in replaced for tokens in gone - taken_out)

    def revisions(self) -> list[Revision]:
        """Return every revision that the switch keeps, oldest first."""
        return parse_revisions(self._json("nv config revision -o json"))

    def load(self, commands: list[str]) -> None:
        """Load a candidate. Raises SwitchError that names a refused command; the candidate is dropped then."""
        self._loaded, self._before = commands, frozenset(revision.id for revision in self.revisions())
        if self._patched([command for command in commands if not self.removes(command)]):
            commands = [command for command in commands if self.removes(command)]
        for command in compact(commands):
            code, output = self.session.run(command)
            if code != 0 or "Error:" in output:
                self.discard()
                raise SwitchError(
                    self.name,
                    f"`{command}` refused",
                    expected="accepted",
                    actual=_shown(output),
                    next_step="Nothing was applied; the release may be too old for it.",
                )

    def _patched(self, settings: list[str]) -> bool:
        """Load settings as one document, in the time of one command, and return whether the switch accepted it.

        A refused document is dropped; its commands are then sent one by one, so that the error names the wrong one.
        """
        if len(compact(settings)) < _WORTH_A_DOCUMENT:
            return False
        code, output = self.session.feed(_PATCH, document(expand_commands("\n".join(settings))))
        if code == 0 and "Error:" not in output:
            return True
        self.discard()
        return False

    def compare(self) -> str:
        """Return what the candidate would change, as NVUE prints it; empty when nothing."""
        text = self._ask("nv config diff")
        return "" if is_no_difference(text) else text.strip()

    def commit(self, revert_after_s: int) -> None:
        """Apply the candidate; without `confirm` the switch reverts it after that many seconds."""
        self._ask(f"nv config apply -y --confirm {revert_after_s}s", timeout_s=_APPLY_S)

    def confirm(self) -> None:
        """Keep what is applied."""
        self._ask("nv config apply --confirm-yes", timeout_s=_APPLY_S)

    def save(self) -> None:
        """Write what is applied to the start-up configuration (before 5.9 apply does not)."""
        self._ask("nv config save")

    def rollback(self) -> None:
        """Revert now what was applied and not confirmed."""
        self._ask("nv config apply --confirm-no", timeout_s=_APPLY_S)

    def how_to_drop(self, revision: str) -> str:
        """Return the command with which an operator drops that candidate."""
        return f"nv config delete {revision}"

    def discard(self, revision: str | None = None) -> None:
        """Drop the candidate (or that revision).

        NVIDIA's documents disagree on a detached candidate: the NVUE reference says that it is discarded, the user
        guide of Cumulus Linux 5 that it stays under its number. One that stays is deleted: later runs would take it
        for the change of somebody else.
        """
        if revision is not None:
            self._ask(f"nv config delete {revision}")
            return
        self._ask("nv config detach")
        for left in self.revisions():
            new = left.state is RevisionState.CANDIDATE and left.id not in self._before
            if new and self.only_holds(left.id, self._loaded):
                self._ask(f"nv config delete {left.id}")

    def read_back(self) -> SwitchState:
        """Return ports and RoCE as the switch has them now."""
        applied = self._settings(None)
        ports = parse_ports(self._json("nv show interface -o json"), applied)
        roce = parse_roce(self._json("nv show qos roce -o json"))
        return SwitchState(ports, roce, adaptive=parse_adaptive(applied))

    def sessions(self) -> dict[str, str]:
        """Return BGP neighbour -> state in the default VRF.

        `nv show vrf default router bgp neighbor -o json` has an object per neighbour, with `session-state` (user guide
        of Cumulus Linux 5.15, "Troubleshooting BGP"). `state` beside it says whether the neighbour is enabled.
        """
        found = self._json("nv show vrf default router bgp neighbor -o json")
        rows = found.items() if isinstance(found, dict) else ()
        key = "session-state"
        return {name: str(row[key]).lower() for name, row in rows if isinstance(row, dict) and key in row}

    def set_password(self, user: str, password: str) -> None:
        """Apply a hashed password, which the switch itself makes; it awaits `keep_password`.

        Sources: NVUE reference, User Account: `hashed-password` takes Linux crypt format; openssl-passwd(1ssl) reads
        the password from a pipe. `nv show` shows no hash. Raises SwitchError, SwitchBusyError.
        """
        unfinished = {RevisionState.CANDIDATE, RevisionState.UNCONFIRMED}
        pending = [one.id for one in self.revisions() if one.state in unfinished]
        if pending:
            raise SwitchBusyError(
                self.name,
                f"revision {pending[0]} is not finished",
                expected="no other change in progress",
                next_step=f"Nothing was changed. Finish it, or drop it: `{self.how_to_drop(pending[0])}`.",
            )
        code, made = self.session.feed("openssl passwd -6 -stdin", f"{password}\n")
        if code != 0 or not made.startswith("$6$"):
            raise SwitchError(
                self.name,
                "`openssl passwd -6 -stdin`",
                expected="a hash",
                actual=f"exit {code}, no hash",
                next_step="Nothing was changed; run it on the switch to see more.",
            )
        tree = {"system": {"aaa": {"user": {user: {"hashed-password": made.strip()}}}}}
        code, _ = self.session.feed(_PATCH, yaml.safe_dump([{"set": tree}], sort_keys=True))
        if code != 0:
            self._ask("nv config detach")
            raise SwitchError(
                self.name,
                f"`nv config patch` with a password for {user}",
                expected="success",
                actual=f"exit {code}",
                next_step=f"Nothing was changed. Run `nv show system aaa user {user}` on the switch.",
            )
        self.commit(_PASSWORD_REVERT_S)

    def keep_password(self) -> bool:
        """Confirm and save the change, if it still waits; return whether it did."""
        waits = any(one.state is RevisionState.UNCONFIRMED for one in self.revisions())
        if waits:
            self.confirm()
            self.save()
        return waits

    def restore_password(self, user: str, password: str) -> None:
        """Let the switch take the change back."""
        del user, password
        self.rollback()

    def neighbours(self) -> dict[str, list[Neighbour]]:
        """Return port -> its neighbours, as Cumulus Linux's own lldpd reports them."""
        return lldpd.neighbours(self.session, self.name)

    def known_as(self) -> frozenset[str]:
        """Return the names and chassis ids that its lldpd sends."""
        return lldpd.known_as(self.session, self.name)

    def _settings(self, revision: str | None) -> set[Tokens]:
        option = "" if revision is None else f" -r {revision}"
        command = f"nv config show{option} -o commands"
        try:
            return expand_commands(self._ask(command))
        except ValueError as error:
            raise SwitchError(
                self.name,
                f"`{command}`",
                expected="commands whose quotes are closed",
                actual=str(error),
                next_step="Run it on the switch; look at texts of several lines, such as `system message`.",
            ) from error

    def _release(self) -> tuple[int, ...]:
        system = self._json("nv show system -o json")
        text = f"{system.get('product-release', '')} {system.get('build', '')} {system.get('version', '')}"
        match = re.search(r"(\d+)\.(\d+)", text)
        if match is None:
            raise SwitchError(
                self.name,
                "`nv show system`",
                expected="a release of Cumulus Linux 5",
                actual=_shown(text),
                next_step="Correct the switch's os in the site file.",
            )
        return int(match[1]), int(match[2])

    def _json(self, command: str) -> Any:  # noqa: ANN401 - NVUE's own JSON
        return read_json(self.name, command, self._ask(command))

    def _ask(self, command: str, *, timeout_s: float = 60.0) -> str:
        code, output = self.session.run(command, timeout_s=timeout_s)
        if code != 0:
            raise SwitchError(
                self.name,
                f"`{command}`",
                expected="success",
                actual=f"exit {code}, {_shown(output)}",
                next_step="Log in to the switch and run it to see more.",
            )
        return output


def _shown(text: str) -> str:
    return " ".join(text.split())[:300] or "no output"
