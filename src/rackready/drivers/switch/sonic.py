"""SONiC through CONFIG_DB and its generic config updater (`config apply-patch`).

Sources: sonic-utilities @691b1bbc4 config/main.py (apply-patch, checkpoint, rollback, reload, save: 0 done, 2 refused
or failed, 1 aborted) and generic_config_updater. It applies a change field by field, each with a pause of one second,
and refuses some fields always; larger changes took minutes (sonic-buildimage issue 23945). So the timed revert is ours,
and its time grows with the patch.

Neighbours: sonic-buildimage @086b03bd70 dockers/docker-lldp: lldpd runs in the container `lldp`, which the host's own
`lldpcli` enters by `docker exec` (base_image_files/lldpcli; with a terminal, so not from here). lldpmgrd gives each
port that comes up its alias as port id, of the type local.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Sequence
from typing import ClassVar, TypeVar

from rackready.design.day0 import Day0
from rackready.design.switches import SwitchConfig
from rackready.drivers.ssh.target import SshTarget
from rackready.drivers.switch import lldpd, sonic_bgp, sonic_counters, sonic_owned, sonic_scripts, sonic_state
from rackready.drivers.switch.base import (
    Neighbour,
    Revision,
    RevisionState,
    Session,
    SwitchDriver,
    SwitchError,
    SwitchState,
    SwitchUncertainError,
)
from rackready.drivers.switch.counters import PortCounters
from rackready.drivers.switch.session import BashSession
from rackready.drivers.switch.sonic_refusals import refuse
from rackready.drivers.switch.sonic_text import (
    REMOVE,
    SET,
    Config,
    hashes_script,
    is_line,
    lines_of,
    missing,
    overlay,
    parse_config,
    parse_hashes,
    parse_line,
    patch,
)
from rackready.drivers.switch.sonic_wanted import metadata, wanted
from rackready.format_error import FormatError
from rackready.render.environment import render

_Read = TypeVar("_Read")
_LEAST_S, _EACH_S, _MOST_S = 300, 5, 3600
"""Time for a patch, s: sonic-mgmt @b4ba9de3c9 tests/common/gu_utils.py allows 600 to 3600 s; a field takes one second
and its checks. The five seconds per field are our choice."""
_ONE_WAY = frozenset({"/PFC_WD/GLOBAL", "/PFC_WD/GLOBAL/POLL_INTERVAL", "/LOOPBACK_INTERFACE/Loopback0"})
"""Paths that SONiC never removes (gu_common.py, validate_field_operation): whoever adds one has no way back."""

_LLDP = ("docker", "exec", "lldp")


def render_config(config: SwitchConfig, have: Config) -> str:
    """Return the commands of one switch, one per line, in a fixed order; ``have``: the tables that it has already."""
    return "".join(f"{line}\n" for line in lines_of(wanted(config, have)))


class Sonic(SwitchDriver):
    """Community SONiC, from 202205 on: the first release with `config apply-patch` and `config rollback`."""

    sends_port_names: ClassVar[bool] = False
    changes_passwords: ClassVar[bool] = True

    def __init__(self, name: str, session: Session) -> None:
        super().__init__(name, session)
        self._loaded: list[str] = []
        self._change = ""

    @classmethod
    def connect(cls, target: SshTarget) -> BashSession:
        """Return a session: the login shell is bash, and netmiko has no type of its own for community SONiC."""
        return BashSession(target, "linux")

    @classmethod
    def day0(cls, facts: Day0) -> str:
        """Return the script for zero touch provisioning."""
        return render("switches/sonic/day0.j2", switch=facts)

    @staticmethod
    def counters_command(ports: Sequence[str]) -> str:
        """Return the command line that prints the counters of these ports."""
        return sonic_counters.script(ports)

    @staticmethod
    def parse_counters(text: str, exit_code: int | None) -> dict[str, PortCounters]:
        """Return the counters by port. Raises FormatError."""
        return sonic_counters.parse(text, exit_code)

    def wanted(self, config: SwitchConfig) -> list[str]:
        """Return the commands. Raises SwitchError with everything that day 0 left out."""
        have = self._applied()
        refuse(config, have, lambda port: self._modes(have, port))
        return render_config(config, have).splitlines()

    def unwanted(self, wrote: list[list[str]], commands: list[str]) -> list[str]:
        """Return the commands that remove entries which rackready wrote and the site no longer names."""
        return sonic_owned.unwanted(self._applied(), wrote, commands)

    def removes(self, command: str) -> bool:
        """Whether a command removes an entry or a field."""
        return parse_line(command).verb == REMOVE

    def still_apart(self, commands: list[str], wanted: list[str]) -> list[str]:
        """Return the removals of entries and fields that are not wanted."""
        lines = [parse_line(command) for command in wanted]
        kept = {(line.table, line.key) for line in lines} | {(line.table, line.key, line.field) for line in lines}
        return [
            command
            for command in filter(is_line, commands)
            for line in [parse_line(command)]
            if line.verb == REMOVE
            and ((line.table, line.key, line.field) if line.field else (line.table, line.key)) not in kept
        ]

    def missing(self, commands: list[str], revision: str | None = None) -> list[str]:
        """Return those of the commands that are not in CONFIG_DB (or that change) yet."""
        have = self._applied()
        return missing(commands, have if revision is None else overlay(have, self._commands_of(revision)))

    def values(self, commands: list[str]) -> dict[str, tuple[str, str]]:
        """Return command -> (the value that it sets, the one in CONFIG_DB), of fields."""
        lines = {command: parse_line(command) for command in commands}
        have = self._applied() if lines else {}
        return {
            command: (line.value, str(have.get(line.table, {}).get(line.key, {}).get(line.field, "none")))
            for command, line in lines.items()
            if line.verb == SET and line.field
        }

    def touched(self, commands: list[str], ports: Collection[str]) -> set[str]:
        """Return the ports that the entries name. An entry that names none (maps, VLANs, BGP) is about all."""
        out: set[str] = set()
        for line in map(parse_line, commands):
            words = {*line.key.split("|"), line.field}
            named = {word for word in words if word.startswith("Ethernet")}
            out |= named & set(ports) if named else set(ports)
        return out

    def only_holds(self, revision: str, commands: list[str]) -> bool:
        """Whether a change has some of these commands and nothing else."""
        return set(self._commands_of(revision)) <= set(commands)

    def revisions(self) -> list[Revision]:
        """Return the changes of rackready that are neither kept nor reverted. SONiC has no others."""
        out = []
        for text in self._root(sonic_scripts.revisions(), "list changes").splitlines():
            name, user, state = text.split()
            out.append(Revision(name, RevisionState(state), user))
        return out

    def load(self, commands: list[str]) -> None:
        """Store a change on the switch and have SONiC check it.

        Raises SwitchError with SONiC's reason; the change is dropped then.
        """
        have = self._with_watchdog(commands)
        target = overlay(have, commands)
        operations = patch(have, target)
        self._refuse_one_way(patch(target, have))
        self._loaded, self._change = commands, f"{sonic_scripts.PREFIX}{uuid.uuid4().hex[:8]}"
        then = sonic_bgp.RESTART if sonic_bgp.needs_restart(commands) else ""
        text = json.dumps(operations, indent=1)
        self._root(sonic_scripts.load(self._change, text, commands, then), "store the change")
        code, output = self._run(sonic_scripts.dry_run(self._change), self._limit())
        if code != 0:
            self.discard()
            raise SwitchError(
                self.name,
                "`config apply-patch -d`",
                expected="accepted",
                actual=_shown(output),
                next_step="Nothing was applied; SONiC names the table or field that it refuses.",
            )

    def _with_watchdog(self, commands: list[str]) -> Config:
        """Return CONFIG_DB, after its table PFC_WD was made if these commands need it.

        SONiC refuses a patch that adds the whole table, and accepts one that adds a port to it.
        """
        have = self._applied()
        if "PFC_WD" in have or "PFC_WD" not in overlay(have, commands):
            return have
        self._root(sonic_scripts.poll_interval(), "`pfcwd interval`")
        return self._applied()

    def _refuse_one_way(self, back: list[dict[str, object]]) -> None:
        for operation in back:
            if operation["op"] == "remove" and operation["path"] in _ONE_WAY:
                raise SwitchError(
                    self.name,
                    f"{operation['path']} would be added",
                    expected="a change that SONiC can roll back",
                    actual="SONiC never removes it",
                    next_step="Add it once by hand (day 0), save with `sudo config save -y`, then run again.",
                )

    def compare(self) -> str:
        """Return the commands of the candidate that change something; empty when none."""
        return "\n".join(f"{'-' if self.removes(command) else '+'} {command}" for command in self.missing(self._loaded))

    def commit(self, revert_after_s: int) -> None:
        """Apply the candidate; the switch reverts it that long after the time that the patch may take.

        Raises SwitchError where SONiC refused it or stopped half-way: the change is rolled back then.
        """
        limit = self._limit()
        self._root(sonic_scripts.checkpoint(self._change), "`config checkpoint`")
        self._root(sonic_scripts.arm(self._change, limit + revert_after_s), "start the timed revert")
        code, output = self._run(sonic_scripts.apply(self._change), limit)
        if code == 0 and output.split()[:1] == ["0"]:
            return
        self.rollback()
        raise SwitchError(
            self.name,
            "`config apply-patch`",
            expected="exit 0",
            actual=_shown(output),
            next_step="The change was rolled back; SONiC's reason is in the text above and in its syslog.",
        )

    def confirm(self) -> None:
        """Keep what is applied. Raises SwitchUncertainError where the revert came first."""
        changes = self._unconfirmed()
        if not changes:
            raise self._not_kept(self._change or "of this run", "it was reverted")
        for change in changes:
            code, output = self._run(sonic_scripts.keep(change), _MOST_S)
            if code != 0:
                reasons = {3: "it was reverted", 4: "it was not applied whole"}
                raise self._not_kept(change, reasons.get(code, f"exit {code}, {_shown(output)}"))

    def _not_kept(self, change: str, actual: str) -> SwitchUncertainError:
        return SwitchUncertainError(
            self.name, f"change {change}", expected="kept", actual=actual, next_step="Run again."
        )

    def save(self) -> None:
        """Write CONFIG_DB to /etc/sonic/config_db.json, and delete our checkpoints."""
        self._root(sonic_scripts.save(), "`config save`")

    def rollback(self) -> None:
        """Revert now what was applied and not confirmed."""
        for change in self._unconfirmed():
            self._root(sonic_scripts.revert(change), "`config rollback`", _MOST_S)

    def how_to_drop(self, revision: str) -> str:
        """Return the command with which an operator drops that candidate."""
        return f"sudo rm {sonic_scripts.FOLDER}/{revision}.commands"

    def discard(self, revision: str | None = None) -> None:
        """Drop the candidate (or that change)."""
        change = revision or self._change
        if change:
            self._root(sonic_scripts.drop(change), "drop the change")

    def read_back(self) -> SwitchState:
        """Return ports and RoCE as the switch's daemons have them now."""
        text = self._root(hashes_script("APPL_DB", sonic_state.PATTERNS), "`sonic-db-cli`", 300)
        return self._parsed("`sonic-db-cli`", lambda: sonic_state.state_of(self._applied(), parse_hashes(text)))

    def sessions(self) -> dict[str, str]:
        """Return BGP neighbour -> state, from STATE_DB.

        bgpmon writes FRR's states there every 15 s (sonic-buildimage @086b03bd70 src/sonic-bgpcfgd/bgpmon/bgpmon.py).
        """
        text = self._root(hashes_script("STATE_DB", ["NEIGH_STATE_TABLE|*"]), "`sonic-db-cli`", 300)
        found = self._parsed("`sonic-db-cli`", lambda: parse_hashes(text))
        return {key.partition("|")[2]: fields.get("state", "none").lower() for key, fields in found.items()}

    def announced(self) -> frozenset[str]:
        """Return the prefixes that bgpd originates; none while its container does not answer. Raises SwitchError."""
        code, text = self.session.as_root(sonic_bgp.ANNOUNCED)
        if code != 0:
            return frozenset()
        return self._parsed("`show bgp ipv4 unicast json`", lambda: sonic_bgp.parse_announced(text))

    def set_password(self, user: str, password: str) -> None:
        """Set it with chpasswd(8), which reads it from a pipe: its users are those of Debian, and sudo asks nothing.

        Raises SwitchError.
        """
        code, _ = self.session.feed("sudo -n chpasswd", f"{user}:{password}\n")
        if code != 0:
            raise SwitchError(
                self.name,
                f"`sudo chpasswd` for {user}",
                expected="success",
                actual=f"exit {code}",
                next_step="Nothing was changed. Look at PASSW_HARDENING in CONFIG_DB; sudo must ask for no password.",
            )

    def neighbours(self) -> dict[str, list[Neighbour]]:
        """Return port -> its neighbours, as the lldpd in SONiC's container reports them."""
        return lldpd.neighbours(self.session, self.name, _LLDP)

    def known_as(self) -> frozenset[str]:
        """Return the names and chassis ids that its lldpd sends."""
        return lldpd.known_as(self.session, self.name, _LLDP)

    def known_ports(self) -> dict[str, str]:
        """Return alias -> port, of CONFIG_DB. Raises SwitchError for an alias that two ports have."""
        return self._parsed("PORT in CONFIG_DB", lambda: sonic_state.aliases(self._applied()))

    def _unconfirmed(self) -> list[str]:
        return [one.id for one in self.revisions() if one.state is RevisionState.UNCONFIRMED]

    def _limit(self) -> int:
        """Return the time that the loaded change may take, s."""
        return min(_MOST_S, _LEAST_S + _EACH_S * len(self._loaded))

    def _applied(self) -> Config:
        text = self._root("sonic-cfggen -d --print-data", "`sonic-cfggen -d --print-data`")
        return self._parsed("`sonic-cfggen -d --print-data`", lambda: parse_config(text))

    def _commands_of(self, revision: str) -> list[str]:
        return self._root(sonic_scripts.commands_of(revision), f"read change {revision}").splitlines()

    def _modes(self, have: Config, port: str) -> list[str]:
        """Return a port's breakout modes of platform.json; none where the switch has no such file."""
        platform = metadata(have).get("platform", "")
        code, text = self._run(f"cat '/usr/share/sonic/device/{platform}/platform.json'", 60)
        if code != 0:
            return []
        try:
            return list(json.loads(text)["interfaces"][port]["breakout_modes"])
        except (ValueError, LookupError, TypeError):
            return []

    def _parsed(self, what: str, read: Callable[[], _Read]) -> _Read:
        try:
            return read()
        except FormatError as error:
            raise SwitchError(
                self.name,
                what,
                expected="output of a known shape",
                actual=str(error),
                next_step="Log in to the switch and run it to see more.",
            ) from error

    def _root(self, script: str, what: str, timeout_s: float = 120) -> str:
        code, output = self._run(script, timeout_s)
        if code != 0:
            raise SwitchError(
                self.name,
                what,
                expected="success",
                actual=f"exit {code}, {_shown(output)}",
                next_step="Log in to the switch to see more; its user needs sudo without a password.",
            )
        return output

    def _run(self, script: str, timeout_s: float) -> tuple[int, str]:
        return self.session.feed("sudo -n sh -s", f"{script}\n", timeout_s=timeout_s)


def _shown(text: str) -> str:
    return " ".join(text.split())[-300:] or "no output"
