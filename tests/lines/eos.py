"""A simulated Arista EOS command line, written from what real switches print, before the driver that reads it.

Sessions and their JSON before and since 4.32: napalm issue 2166 (both captured), cnaas-nms issue 395 (log of a
reverted commit); five pending sessions: pyeapi issue 184. A line below a section that is typed at its level enters the
section as EOS does; `end` and `exit` leave a session pending, and `commit timer` runs on after the login ends
(clabmgr's observations of cEOS 4.35). Configuration lines: AVD's golden files (eos_cli_config_gen), Arista's manual on
QoS as quoted by a guide to RoCE for EOS 4.36 (maps, profile, watchdog and its ranges, output of `show
priority-flow-control`); neighbours of an interface are shown with its short name (netlab), those of one group and AS in
one line (vEOS 4.27.2F). Defaults are not shown, 300/300/3 of BFD neither (dantte-lp/pulumi-eos, test on cEOS).
LLDP: tests/lines/lldp.py. It runs without a line, and `no lldp run` ends it (AVD, lldp.j2). Its own names: napalm,
test/eos/mocked_data/test_get_facts.
Refusals begin with `% `; `! ` is a warning.

`python -m tests.lines.eos` is the same line on a terminal.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.lines import lldp
from tests.lines.eos_shown import shown
from tests.lines.grammar import Config, Grammar, RefusedError, Rule, Tree

_DEFAULT_TC = {0: 1, 1: 0, **{block: block for block in range(2, 8)}}
"""Default traffic class of a block of eight DSCPs (Arista, "Quality of Service", default DSCP map)."""
_NAME = r"[\w.:-]+"


def _default_dscp(line: str) -> bool:
    dscp, traffic_class = map(int, re.findall(r"\d+", line))
    return _DEFAULT_TC[dscp // 8] == traffic_class


def _default_queue(line: str) -> bool:
    traffic_class, queue = map(int, re.findall(r"\d+", line))
    return traffic_class == queue


def _default_bfd(line: str) -> bool:
    return line == "interval 300 min-rx 300 multiplier 3 default"


def _within(low: float, high: float) -> Callable[[str], None]:
    def check(line: str) -> None:
        if not low <= float(line.rsplit(" ", 1)[1]) <= high:
            raise RefusedError("% Invalid input")

    return check


def _thresholds(line: str) -> None:
    low, high = (int(number) for number in re.findall(r"threshold (\d+)", line))
    if low > high:
        raise RefusedError("% Minimum threshold must not exceed maximum threshold")


def _always(_line: str) -> bool:
    return True


_WATCHDOG = "priority-flow-control pause watchdog"
_PFC = (
    Rule("priority-flow-control on", "priority-flow-control on"),
    Rule("priority-flow-control priority [0-7] (no-drop|drop)", "priority-flow-control priority [0-7]"),
)
GRAMMAR: Grammar = {
    "": (
        Rule(r"hostname \S+", "hostname"),
        Rule(r"vlan (?:[2-9]|[1-9]\d{1,2}|[1-3]\d{3}|40[0-8]\d|409[0-4])", opens="vlan"),
        Rule(r"interface (?:Ethernet\d+/[1-8]|Loopback\d+|Vlan\d+|Management1)", opens="interface"),
        Rule(rf"qos profile {_NAME}", opens="profile"),
        Rule(r"qos map dscp (?:\d|[1-5]\d|6[0-3]) to traffic-class [0-7]", r"qos map dscp \d+", hidden=_default_dscp),
        Rule(
            r"qos map traffic-class [0-6] to tx-queue [0-6]",
            r"qos map traffic-class \d+",
            hidden=_default_queue,
        ),
        Rule(rf"{_WATCHDOG} default timeout [\d.]+", rf"{_WATCHDOG} default timeout", check=_within(0.01, 60)),
        Rule(
            rf"{_WATCHDOG} default recovery-time [\d.]+", rf"{_WATCHDOG} default recovery-time", check=_within(0.01, 60)
        ),
        Rule(
            rf"{_WATCHDOG} default polling-interval [\d.]+",
            rf"{_WATCHDOG} default polling-interval",
            check=_within(0.005, 30),
        ),
        Rule(rf"{_WATCHDOG} action (?:drop|no-drop|errdisable)", rf"{_WATCHDOG} action"),
        Rule("lldp run", hidden=_always, negative=True),
        Rule("ip routing ipv6 interfaces"),
        Rule("ip routing"),
        Rule("ipv6 unicast-routing"),
        Rule(rf"ip prefix-list {_NAME}", opens="prefix-list"),
        Rule(rf"route-map {_NAME} (?:permit|deny) \d+", opens="route-map"),
        Rule(r"router bfd", opens="bfd"),
        Rule(r"router bgp \d+", opens="bgp"),
    ),
    "vlan": (Rule(r"name \S+", "name"),),
    "interface": (
        Rule(r"description .+", "description"),
        Rule("shutdown", hidden=lambda _line: False),
        Rule(r"mtu (?:6[8-9]|[7-9]\d|[1-9]\d{2}|[1-8]\d{3}|9[01]\d{2}|920\d|921[0-4])", "mtu"),
        Rule(r"speed (?:800g-8|400g-[48]|200g-[24]|100g-[124]|auto)", "speed"),
        Rule(r"error-correction encoding (?:reed-solomon|fire-code)", "error-correction encoding", negative=True),
        Rule("switchport", hidden=_always, negative=True),
        Rule(r"switchport mode (?:access|trunk)", "switchport mode", hidden=lambda line: line.endswith("access")),
        Rule(r"switchport access vlan \d+", "switchport access vlan", hidden=lambda line: line.endswith(" 1")),
        Rule(r"switchport trunk allowed vlan \S+", "switchport trunk allowed vlan"),
        Rule(r"qos trust (?:dscp|cos)", "qos trust"),
        Rule(rf"service-profile {_NAME}", "service-profile"),
        Rule(r"ip address [\d.]+/\d+", "ip address"),
        Rule("ipv6 enable"),
        *_PFC,
    ),
    "profile": (*_PFC, Rule(r"qos trust (?:dscp|cos)", "qos trust"), Rule(r"(?:uc-)?tx-queue [0-7]", opens="queue")),
    "queue": (
        Rule("priority strict", "priority", hidden=_always, negative=True),
        Rule(r"bandwidth percent (?:[1-9]\d?|100)", "bandwidth percent"),
        Rule(
            r"random-detect ecn minimum-threshold \d+ kbytes maximum-threshold \d+ kbytes"
            r"(?: max-mark-probability (?:[1-9]\d?|100))?(?: weight \d+)?",
            "random-detect ecn",
            check=_thresholds,
        ),
    ),
    "prefix-list": (Rule(r"seq \d+ permit [\d.]+/\d+(?: (?:eq|ge|le) \d+)*", r"seq \d+"),),
    "route-map": (Rule(rf"match ip address prefix-list {_NAME}", "match ip address prefix-list"),),
    "bfd": (Rule(r"interval \d+ min-rx \d+ multiplier \d+ default", "interval", hidden=_default_bfd),),
    "bgp": (
        Rule(r"router-id [\d.]+", "router-id"),
        Rule("bgp default ipv4-unicast", hidden=_always, negative=True),
        Rule("bgp bestpath as-path multipath-relax", hidden=_always, negative=True),
        Rule(r"maximum-paths \d+ ecmp \d+", "maximum-paths"),
        Rule(rf"neighbor {_NAME} peer group(?: {_NAME})?"),
        Rule(rf"neighbor {_NAME} bfd"),
        Rule(rf"neighbor {_NAME} remote-as \d+", rf"neighbor {_NAME} remote-as"),
        Rule(r"neighbor interface \S+ peer-group \S+ remote-as \d+", r"neighbor interface \S+"),
        Rule(rf"redistribute connected route-map {_NAME}", "redistribute connected"),
        Rule("address-family ipv4", opens="family"),
    ),
    "family": (
        Rule(rf"neighbor {_NAME} activate"),
        Rule(rf"neighbor {_NAME} next-hop address-family ipv6 originate"),
    ),
}


@dataclass
class _Session:
    config: Config
    state: str = "pending"
    user: str = "admin"


@dataclass
class EosLine:
    """The switch.

    ``since_4_32``: how it shows a commit timer; ``hides_timer``: not at all; ``odd``: a shape that nobody has seen,
    ``odd_from`` such a command on.
    ``dies_at``: the login ends after (``dies_before``: before) that command, counted from 0. ``refuses``: commands
    that its authorization refuses. ``ignores``: lines of ports that it takes and its hardware does not.
    """

    name: str = "leaf01"
    since_4_32: bool = True
    odd: bool = False
    odd_from: str = ""
    hides_timer: bool = False
    paging: bool = False
    dies_at: int | None = None
    dies_before: int | None = None
    refuses: str = ""
    ignores: str = ""
    links_down: frozenset[str] = frozenset()
    heard: dict[str, list[lldp.Heard]] = field(default_factory=dict)
    mac: str = "00:1c:73:00:01:01"
    l2_mtu: int = 10178
    commit_takes_s: float = 1.0
    uptime: float = 5000.0
    running: Config = field(default_factory=lambda: Config(GRAMMAR))
    startup: Tree = field(default_factory=dict)
    sessions: dict[str, _Session] = field(default_factory=dict)
    timer: tuple[str, float, Config] | None = None
    sent: list[str] = field(default_factory=list)
    inside: str | None = None

    def __post_init__(self) -> None:
        """Begin as a switch does after its first configuration: a name, a management port, ports without lines."""
        if not self.running.tree:
            ports: Tree = {f"interface Ethernet{cage}/1": {} for cage in range(1, 65)}
            management: Tree = {"interface Management1": {"ip address 192.0.2.21/24": {}}}
            self.running.tree = {f"hostname {self.name}": {}, **ports, **management}
            self.startup = self.running.copy().tree

    @property
    def prompt(self) -> str:
        """Return the prompt."""
        return f"{self.name}(config-s-{self.inside[:6]})#" if self.inside else f"{self.name}#"

    def login(self) -> None:
        """Begin a new login: what an earlier one left pending stays."""
        self.inside = None

    def wait(self, seconds: float) -> None:
        """Let time pass: a commit that nobody confirmed is reverted."""
        self.uptime += seconds
        if self.timer is not None and self.uptime >= self.timer[1]:
            self._revert()

    def reboot(self) -> None:
        """Boot from the start-up configuration; sessions and timers are gone."""
        self.running = Config(GRAMMAR, self.startup).copy()
        self.sessions, self.timer, self.inside, self.uptime = {}, None, None, 0.0

    def write(self, path: str, text: str) -> str:
        """Refuse a file: nothing of ours sends one."""
        del text
        return f"{path} refused"

    def type(self, command: str) -> str:
        """Answer one line. Raises ConnectionError where the login ends."""
        number = len(self.sent)
        self.sent.append(command)
        if self.dies_before == number:
            raise ConnectionError(command)
        self.wait(0.1)
        self.odd = self.odd or bool(self.odd_from and re.match(self.odd_from, command))
        try:
            text = self._answer(command.strip())
        except RefusedError as refused:
            text = f"{refused}\n"
        if self.dies_at == number:
            raise ConnectionError(command)
        if self.paging and text.count("\n") > 22:
            return "\n".join(text.splitlines()[:22]) + "\n --More-- "
        return text

    def _answer(self, command: str) -> str:
        if self.refuses and re.match(self.refuses, command):
            raise RefusedError(f"% Authorization denied for command '{command}'")
        if command.startswith("show "):
            return self._show(command)
        if command.startswith("terminal "):
            self.paging = self.paging and command != "terminal length 0"
            return (
                "Pagination disabled.\n"
                if "length" in command
                else f"Width set to {command.rsplit(maxsplit=1)[-1]} columns.\n"
            )
        return self._exec(command) if self.inside is None else self._configure(self.inside, command)

    def _exec(self, command: str) -> str:
        if command == "write memory":
            self.startup = self.running.copy().tree
            return "Copy completed successfully.\n"
        match = re.fullmatch(r"configure session (\S+)(?: (commit|abort)(?: timer (\d\d):(\d\d):(\d\d))?)?", command)
        if match is None:
            raise RefusedError("% Invalid input")
        return self._session(*match.groups())

    def _configure(self, name: str, command: str) -> str:
        config = self.sessions[name].config
        if command == "end" or (command == "exit" and not config.path):
            self.inside = None
        elif command == "exit":
            config.path.pop()
        elif command == "abort":
            return self._session(name, "abort", None, None, None)
        else:
            config.type(re.sub(r"^neighbor interface Ethernet", "neighbor interface Et", command))
        return ""

    def _session(self, name: str, verb: str | None, *timer: str | None) -> str:
        if verb is None:
            self._enter(name)
        elif verb == "abort":
            self._abort(name)
        else:
            hours, minutes, seconds = (int(part or 0) for part in timer)
            self._commit(name, None if timer[0] is None else hours * 3600 + minutes * 60 + seconds)
        return ""

    def _enter(self, name: str) -> None:
        there = self.sessions.get(name)
        if there is None or there.state != "pending":
            if sum(session.state == "pending" for session in self.sessions.values()) >= 5:
                raise RefusedError(
                    "% Maximum number of pending sessions has been reached. Please commit or abort previous sessions "
                    "before creating a new one."
                )
            self.sessions[name] = _Session(self.running.copy())
        self.inside = name

    def _abort(self, name: str) -> None:
        if self.timer is not None and self.timer[0] == name:
            self._revert()
        elif name not in self.sessions:
            raise RefusedError(f"% Cannot abort session {name}: it does not exist")
        self.sessions[name].state = "aborted"
        self.inside = None

    def _commit(self, name: str, seconds: int | None) -> None:
        session = self.sessions.get(name)
        if session is None or session.state not in {"pending", "committed", "pendingCommitTimer"}:
            raise RefusedError(f"% Cannot commit session {name}: it does not exist")
        if self.timer is not None:
            if self.timer[0] != name:
                raise RefusedError("% Another session has a commit timer running")
            self.timer = None
            session.state = "completed"
            return
        self.wait(self.commit_takes_s)
        before, self.running = self.running, session.config.copy()
        session.state = "completed"
        if seconds is not None:
            self.timer = (name, self.uptime + seconds, before)
            session.state = "committed" if self.since_4_32 else "pendingCommitTimer"

    def _revert(self) -> None:
        assert self.timer is not None
        name, _, self.running = self.timer
        self.timer = None
        self.sessions[name].state = "completed"

    def _show(self, command: str) -> str:
        match = re.fullmatch(r"show session-config named (\S+)( diffs)?", command)
        if match and match[1] in self.sessions:
            config = self.sessions[match[1]].config
            return self._diff(match[1], config) if match[2] else self._config(config, "show session-config")
        answers: dict[str, Callable[[], object]] = {
            "show running-config": lambda: self._config(self.running, command),
            "show configuration sessions detail | json": self._sessions,
            "show interfaces | json": lambda: {"interfaces": self._interfaces()},
            "show interfaces status | json": lambda: {
                "interfaceStatuses": {port: self._status(port) for port in self.ports()}
            },
            "show priority-flow-control": self._pfc,
            "show bgp neighbors vrf all | json": lambda: {"vrfs": {"default": {"peerList": self._peers()}}},
            "show lldp neighbors detail | json": self._lldp,
            "show hostname | json": lambda: {"fqdn": f"{self.name}.dc.example", "hostname": self.name},
            "show version | json": lambda: {"modelName": "DCS-7060X6-64PE", "systemMacAddress": self.mac},
        }
        if command not in answers:
            raise RefusedError("% Invalid input")
        shown = answers[command]()
        return shown if isinstance(shown, str) else json.dumps(shown, indent=4) + "\n"

    def _config(self, config: Config, command: str) -> str:
        head = [f"! Command: {command}", f"! device: {self.name} (DCS-7060X6-64PE, EOS-4.36.0F)", "!"]
        lines = shown(list(config.lines(3)))
        body = [row for line in lines for row in ([line] if line[0] == " " else ["!", line])]
        return "\n".join([*head, *body, "!", "end", ""])

    def _diff(self, name: str, config: Config) -> str:
        there = difflib.unified_diff(
            self._config(self.running, "").splitlines(),
            self._config(config, "").splitlines(),
            "system:/running-config",
            f"session:/{name}-session-config",
            lineterm="",
        )
        return "\n".join(there)

    def _sessions(self) -> dict[str, object]:
        if self.odd:
            return {"configurationSessions": [{"name": name} for name in self.sessions]}
        shown: dict[str, object] = {
            "sessions": {
                name: {"state": one.state, "commitUser": "", "description": "", "instances": {}}
                for name, one in self.sessions.items()
            },
            "maxSavedSessions": 1,
            "maxOpenSessions": 5,
            "mergeOnCommit": False,
            "saveToStartupConfigOnCommit": False,
        }
        if self.timer is not None and self.since_4_32 and not self.hides_timer:
            shown |= {"commitTimerSessionName": self.timer[0], "commitTimerExpireTime": self.timer[1]}
        return shown

    def ports(self) -> list[str]:
        """Return the names of the Ethernet ports."""
        return [line.split()[1] for line in self.running.tree if line.startswith("interface Ethernet")]

    def lines(self, port: str) -> list[str]:
        """Return the lines of a port that the hardware follows."""
        here = list(self.running.tree[f"interface {port}"])
        return [line for line in here if not (self.ignores and re.match(self.ignores, line))]

    def _interfaces(self) -> dict[str, object]:
        """Return ports and VLANs; a VLAN's interface has 1500 bytes unless it is configured (EOS manual, `mtu`)."""
        vlans = [line.split()[1] for line in self.running.tree if line.startswith("interface Vlan")]
        mtu = {vlan: int(_value(self.lines(vlan), "mtu", "1500")) for vlan in vlans}
        shown = {vlan: {"name": vlan, "interfaceStatus": "connected", "mtu": mtu[vlan]} for vlan in vlans}
        return {port: self._interface(port) for port in self.ports()} | shown

    def _interface(self, port: str) -> dict[str, object]:
        lines = self.lines(port)
        routed = "no switchport" in lines
        mtu = int(_value(lines, "mtu", "1500"))
        up = self._link(port) == "connected"
        return {
            "name": port,
            "interfaceStatus": self._link(port),
            "lineProtocolStatus": "up" if up else "down",
            "forwardingModel": "routed" if routed else "bridged",
            "description": _value(lines, "description", ""),
            "mtu": mtu if routed else self.l2_mtu,
        }

    def _link(self, port: str) -> str:
        if "shutdown" in self.lines(port):
            return "disabled"
        return "notconnect" if port in self.links_down else "connected"

    def _status(self, port: str) -> dict[str, object]:
        lines = self.lines(port)
        access = {"interfaceMode": "bridged", "interfaceForwardingModel": "bridged"}
        routed = {"interfaceMode": "routed", "interfaceForwardingModel": "routed"}
        vlan = {"vlanId": int(_value(lines, "switchport access vlan", "1"))}
        return {
            "vlanInformation": routed if "no switchport" in lines else access | vlan,
            "linkStatus": self._link(port),
            "lineProtocolStatus": "up",
        }

    def _lldp(self) -> dict[str, object]:
        """Without LLDP, a document without neighbours: the answer of a switch that hears nobody looks the same."""
        off = "no lldp run" in self.running.tree
        return lldp.eos(() if off else self.ports(), {} if off else self.heard)

    def _peers(self) -> list[dict[str, str]]:
        """Every neighbour of a link answers; an interface is part of a link-local address (netlab's outputs)."""
        bgp = next((below for line, below in self.running.tree.items() if line.startswith("router bgp ")), {})
        links = [match[1] for line in bgp if (match := re.match(r"neighbor interface Et(\S+) ", line))]
        up = [port for port in links if self._link(f"Ethernet{port}") == "connected"]
        numbered = [match[1] for line in bgp if (match := re.match(r"neighbor ([\d.]+) remote-as", line))]
        names = [f"fe80::1%Et{port}" for port in up] + numbered
        return [{"peerAddress": name, "state": "Established"} for name in names]

    def _pfc(self) -> str:
        rows = [
            "Port       Enabled  Priorities  Active  Note",
            "---------  -------  ----------  ------  -------------",
        ]
        for port in self.ports():
            lines = self.lines(port)
            profile = _value(lines, "service-profile", "")
            lines = lines + list(self.running.tree.get(f"qos profile {profile}", {}))
            no_drop = [re.match(r"priority-flow-control priority (\d) no-drop", line) for line in lines]
            numbers = [match[1] for match in no_drop if match]
            on = "priority-flow-control on" in lines
            state = ["Yes" if on else "No", ",".join(numbers) if on else "", "Yes" if on else "No"]
            rows.append(f"{port:<9}  {state[0]:<7}  {state[1]:<10}  {state[2]:<6}  DCBX disabled")
        return "\n".join([*rows, ""])


def _value(lines: list[str], key: str, default: str) -> str:
    return next((line[len(key) + 1 :] for line in lines if line.startswith(f"{key} ")), default)


def main() -> None:
    """Be the line on a terminal until it ends."""
    line = EosLine()
    sys.stdout.write(line.prompt)
    sys.stdout.flush()
    for typed in sys.stdin:
        sys.stdout.write(line.type(typed.strip()) + line.prompt)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
