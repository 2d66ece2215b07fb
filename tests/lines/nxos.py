"""A simulated Cisco NX-OS command line (Nexus 9000), written from published outputs, before the driver that reads it.

Replacing a configuration: Cisco, "Performing Configuration Replace" (a whole running configuration, commit-timeout of
30 to 3600 s, a failure or the end of the timer restores); its output and `show config-replace log exec`: a capture of
9.3(1), Cisco's NX-API reference; `configure replace commit`: netcam's plug-in for NX-OS. Outputs of `show
config-replace status` are not published: the line prints the form of `show rollback status`, or one that nobody knows.
Configuration lines: Cisco's RoCE script (classes, ECN 950 to 3000 kbytes, watchdog), Nexus configurations with eBGP.
One strict queue is the one of the highest group: Cisco's QoS guide 10.5(x), "Configuring Queuing and Scheduling".
Tables: `show interface priority-flow-control` with its bitmap, JSON of `show interface` (napalm, ansible). Files come
by SCP, if the feature is on (netmiko). Defaults are not shown. LLDP: tests/lines/lldp.py; without its feature there is
no such command (netests). Each port has its own address, and sends it as chassis id (napalm,
test/nxos/mocked_data/test_get_lldp_neighbors_detail; `show interface` and `show hostname`: test_get_facts).

`python -m tests.lines.nxos` is the same line on a terminal.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, field

from tests.lines import lldp
from tests.lines.grammar import Config, Grammar, RefusedError, Rule, Tree

_NAME = r"[\w.-]+"
_DROPS = r"(?:[1-9]|[1-9]\d|100)"
_BFD = "bfd interval"
VERSION = "version 10.4(3) Bios:version 05.51"


def _always(_line: str) -> bool:
    return True


_QUEUE = (
    Rule(rf"bandwidth remaining percent (?:0|{_DROPS})", "bandwidth remaining percent"),
    Rule(
        r"random-detect minimum-threshold \d+ kbytes maximum-threshold \d+ kbytes"
        rf" drop-probability {_DROPS} weight \d+ ecn",
        "random-detect",
    ),
)
GRAMMAR: Grammar = {
    "": (
        Rule(r"version .+", "version"),
        Rule(r"hostname \S+", "hostname"),
        Rule(r"feature (?:bgp|bfd|interface-vlan|lldp|scp-server|nxapi)"),
        Rule(r"username .+"),
        Rule(r"vlan \d[\d,-]*", opens="vlan"),
        Rule("priority-flow-control watch-dog-interval on"),
        Rule(rf"class-map type qos match-(?:any|all) {_NAME}", opens="class-map"),
        Rule(rf"policy-map type qos {_NAME}", opens="policy-qos"),
        Rule(rf"policy-map type network-qos {_NAME}", opens="policy-network"),
        Rule(rf"policy-map type queuing {_NAME}", opens="policy-queuing"),
        Rule("system qos", opens="system-qos"),
        Rule(r"interface breakout module 1 port \d[\d,-]* map \d+g-\dx"),
        Rule(r"interface (?:Ethernet1/\d+(?:/\d)?|Vlan\d+|loopback\d+|mgmt0)", opens="interface"),
        Rule(rf"ip prefix-list {_NAME} seq \d+ permit [\d.]+/\d+", rf"ip prefix-list {_NAME} seq \d+"),
        Rule(rf"route-map {_NAME} permit \d+", opens="route-map"),
        Rule(r"router bgp \d+", opens="bgp"),
    ),
    "vlan": (Rule(r"name \S+", "name"),),
    "class-map": (Rule(r"match dscp [\d,-]+"),),
    "policy-qos": (Rule(rf"class {_NAME}", opens="qos-class"),),
    "qos-class": (Rule("set qos-group [0-7]", "set qos-group"),),
    "policy-network": (Rule("class type network-qos c-8q-nq(?:[1-7]|-default)", opens="network-class"),),
    "network-class": (Rule(r"mtu \d+", "mtu"), Rule("pause pfc-cos [0-7]", "pause pfc-cos")),
    "policy-queuing": (
        Rule("class type queuing c-out-8q-q(?:[1-6]|-default)", opens="queuing-class"),
        Rule("class type queuing c-out-8q-q7", opens="highest-class"),
    ),
    "queuing-class": _QUEUE,
    "highest-class": (*_QUEUE, Rule("priority level 1", "priority level")),
    "system-qos": (
        Rule(rf"service-policy type queuing output {_NAME}", "service-policy type queuing output"),
        Rule(rf"service-policy type network-qos {_NAME}", "service-policy type network-qos"),
    ),
    "interface": (
        Rule(r"description .+", "description"),
        Rule("switchport", hidden=_always, negative=True),
        Rule("switchport mode (?:access|trunk)", "switchport mode", hidden=lambda line: line.endswith("access")),
        Rule(r"switchport access vlan \d+", "switchport access vlan", hidden=lambda line: line.endswith(" 1")),
        Rule(r"switchport trunk allowed vlan \S+", "switchport trunk allowed vlan"),
        Rule(r"mtu (?:1[5-9]\d\d|[2-8]\d{3}|9[01]\d\d|920\d|921[0-6])", "mtu"),
        Rule("priority-flow-control mode (?:on|off|auto)", "priority-flow-control mode"),
        Rule("priority-flow-control watch-dog-interval on"),
        Rule(rf"service-policy type qos input {_NAME}", "service-policy type qos input"),
        Rule(r"ip address [\d.]+/\d+", "ip address"),
        Rule("ip redirects", hidden=_always, negative=True),
        Rule(rf"{_BFD} \d+ min_rx \d+ multiplier \d+", _BFD),
        Rule("vrf member management", "vrf member"),
        Rule("shutdown", negative=True),
    ),
    "route-map": (Rule(rf"match ip address prefix-list {_NAME}", "match ip address prefix-list"),),
    "bgp": (
        Rule(r"router-id [\d.]+", "router-id"),
        Rule("bestpath as-path multipath-relax"),
        Rule("address-family ipv4 unicast", opens="bgp-family"),
        Rule(r"neighbor [\d.]+", opens="bgp-neighbor"),
    ),
    "bgp-family": (
        Rule(rf"redistribute direct route-map {_NAME}", "redistribute direct"),
        Rule(r"maximum-paths (?:[1-9]|[1-9]\d|1[01]\d|12[0-8])", "maximum-paths"),
    ),
    "bgp-neighbor": (
        Rule(r"remote-as \d+", "remote-as"),
        Rule("bfd"),
        Rule("address-family ipv4 unicast", opens="neighbor-family"),
    ),
    "neighbor-family": (),
}
_DONE = "Configure replace completed successfully. Please run 'show config-replace log exec' to see if there is any "
_DONE += "configuration that requires reload to take effect.\n"


@dataclass
class NxosLine:
    """The switch. ``dies_at``, ``dies_before``, ``refuses``, ``ignores``: as for EOS.

    ``status``: what `show config-replace status` prints. ``deaf``: it accepts the confirmation and goes back
    nevertheless.
    """

    name: str = "leaf01"
    paging: bool = False
    dies_at: int | None = None
    dies_before: int | None = None
    refuses: str = ""
    ignores: str = ""
    deaf: bool = False
    status: str = ""
    links_down: frozenset[str] = frozenset()
    heard: dict[str, list[lldp.Heard]] = field(default_factory=dict)
    uptime: float = 5000.0
    running: Config = field(default_factory=lambda: Config(GRAMMAR))
    startup: Tree = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    timer: tuple[float, Config] | None = None
    sent: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin as a switch does after its first configuration."""
        if not self.running.tree:
            head: Tree = {VERSION: {}, f"hostname {self.name}": {}, "feature scp-server": {}, "vlan 1": {}}
            ports: Tree = {f"interface Ethernet1/{port}": {} for port in range(1, 65)}
            self.running.tree = head | ports | {"interface mgmt0": {"vrf member management": {}}}
            self.startup = self.running.copy().tree

    @property
    def prompt(self) -> str:
        """Return the prompt."""
        return f"{self.name}# "

    def login(self) -> None:
        """Begin a new login."""

    def split_ports(self, ways: int, speed: int, spans: str) -> None:
        """Split ports (``1,3-4``), as somebody does at day 0: the parents vanish, and one line lists the ports.

        So shows it a Nexus 9332PQ with 7.0(3)I1(2): `interface breakout module 1 port 10,18,20,25-26 map 10g-4x`.
        """
        self.running.tree[f"interface breakout module 1 port {spans} map {speed}g-{ways}x"] = {}
        for low, _, high in (span.partition("-") for span in spans.split(",")):
            for port in range(int(low), int(high or low) + 1):
                self.running.tree.pop(f"interface Ethernet1/{port}")
                self.running.tree |= {f"interface Ethernet1/{port}/{sub}": {} for sub in range(1, ways + 1)}
        self.startup = self.running.copy().tree

    def wait(self, seconds: float) -> None:
        """Let time pass: a replacement that nobody confirmed is taken back."""
        self.uptime += seconds
        if self.timer is not None and self.uptime >= self.timer[0]:
            self.running, self.timer = self.timer[1], None

    def reboot(self) -> None:
        """Boot from the start-up configuration; the timer is gone."""
        self.running, self.timer = Config(GRAMMAR, self.startup).copy(), None

    def type(self, command: str) -> str:
        """Answer one line. Raises ConnectionError where the login ends."""
        return self._count(command, lambda: self._answer(command.strip()))

    def write(self, path: str, text: str) -> str:
        """Take a file by SCP; return why not."""

        def take() -> str:
            if "feature scp-server" not in self.running.tree:
                return "SCP refused"
            self.files[path.removeprefix("bootflash:")] = text
            return ""

        return self._count(f"scp {path}", take)

    def _count(self, command: str, act) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001
        number = len(self.sent)
        self.sent.append(command)
        if self.dies_before == number:
            raise ConnectionError(command)
        self.wait(0.1)
        try:
            text: str = act()
        except RefusedError as refused:
            text = f"{refused}\n"
        if self.dies_at == number:
            raise ConnectionError(command)
        if self.paging and text.count("\n") > 22:
            return "\n".join(text.splitlines()[:22]) + "\n--More--"
        return text

    def _answer(self, command: str) -> str:
        if self.refuses and re.match(self.refuses, command):
            raise RefusedError("% Permission denied for the role")
        if command.startswith("show "):
            return self._show(command)
        if re.fullmatch(r"terminal (?:length \d+|width \d+|dont-ask)", command):
            self.paging = self.paging and command != "terminal length 0"
            return ""
        return self._confirm() if command == "configure replace commit" else self._exec(command)

    def _exec(self, command: str) -> str:
        pattern = r"configure replace bootflash:(\S+)(?: (verify-only)| commit-timeout (\d+))?"
        if match := re.fullmatch(pattern, command):
            return self._replace(match[1], verify=bool(match[2]), seconds=int(match[3] or 0))
        if command == "copy running-config startup-config":
            self.startup = self.running.copy().tree
            return "Copy complete, now saving to disk (please wait)...\nCopy complete.\n"
        if (match := re.fullmatch(r"delete bootflash:(\S+) no-prompt", command)) and match[1] in self.files:
            del self.files[match[1]]
            return ""
        if command == "dir bootflash:":
            return self._dir()
        raise RefusedError("                       ^\n% Invalid command at '^' marker.")

    def _confirm(self) -> str:
        if self.timer is None:
            raise RefusedError("ERROR: No config-replace is waiting for a commit")
        if not self.deaf:
            self.timer = None
        return ""

    def _replace(self, name: str, *, verify: bool, seconds: int) -> str:
        if name not in self.files:
            raise RefusedError("ERROR: File does not exist")
        if self.timer is not None:
            raise RefusedError("ERROR: Another config-replace is in progress")
        if seconds and not 30 <= seconds <= 3600:
            raise RefusedError("% Invalid number, range is (30:3600)")
        text = self.files[name]
        if VERSION not in text:
            raise RefusedError("ERROR: Version mismatch between user file and running configuration.")
        head = "\nVersion match between user file and running configuration.\nPre-check for User config PASSED\n"
        config, wrong = self._parsed(text)
        if verify:
            result = "failed" if wrong else "completed successful"
            patch = "".join(f"`{line}`\n" for line in self._patch(config))
            rule = "========================================================\n"
            body = f"Collecting Running-Config\nValidating Patch\n{rule}{patch}{''.join(wrong)}{rule}"
            return f"{head}{body}Patch validation {result}\n"
        if wrong:
            return (
                f"{head}ADVISORY: Config Replace operation started...\n{''.join(wrong)}\nConfigure replace failed. Use "
                "'show config-replace log exec' or 'show config-replace log verify' to see reasons for failure\n"
            )
        before, self.running = self.running, config
        if seconds:
            self.timer = (self.uptime + seconds, before)
        return f"{head}ADVISORY: Config Replace operation started...\nGenerating Rollback Patch\n\n{_DONE}"

    def _patch(self, config: Config) -> list[str]:
        """Return what would be typed, as the switch shows it: nothing when both are the same."""
        before, after = list(self.running.lines(2)), list(config.lines(2))
        gone = [f"no {line.strip()}" for line in before if line not in after]
        more = [line.strip() for line in after if line not in before]
        sections = [line for line in config.tree if config.tree[line] != self.running.tree.get(line)]
        changed = gone + more + [line for line in sections if line not in more]
        return ["config t ", *changed] if changed else []

    def _parsed(self, text: str) -> tuple[Config, list[str]]:
        config, wrong = Config(GRAMMAR), []
        for line in text.splitlines():
            if not line.strip() or line.startswith("!"):
                continue
            depth = (len(line) - len(line.lstrip())) // 2
            del config.path[depth:]
            try:
                config.type(line.strip())
            except RefusedError:
                wrong.append(f"Syntax error while parsing '{line.strip()}'\n")
        config.path.clear()
        return config, wrong

    def _dir(self) -> str:
        rows = [f"       {len(text)}    Nov 27 07:00:00 2026  {name}" for name, text in self.files.items()]
        return "\n".join(
            [
                "       4096    Nov 27 06:00:00 2026  .rpmstore/",
                *rows,
                "",
                "Usage for bootflash://sup-local",
                " 6593318912 bytes used",
                "",
            ]
        )

    def _show(self, command: str) -> str:
        if match := re.fullmatch(r"show file bootflash:(\S+)", command):
            return self.files.get(match[1], "ERROR: No such file\n")
        answers = {
            "show running-config": self._config,
            "show config-replace status": lambda: self.status,
            "show interface | json": lambda: _rows([self._interface(port) for port in self.ports()]),
            "show interface status | json": lambda: _rows([self._port_status(port) for port in self.ports()]),
            "show interface priority-flow-control": self._pfc,
            "show ip bgp summary | json": self._summary,
            "show hostname | json": lambda: json.dumps({"hostname": f"{self.name}.dc.example"}),
        }
        if "feature lldp" in self.running.tree:
            answers["show lldp neighbors detail | json"] = lambda: lldp.nxos(self.heard)
        if command not in answers:
            raise RefusedError("                       ^\n% Invalid command at '^' marker.")
        return answers[command]()

    def _config(self) -> str:
        head = ["", "!Command: show running-config", f"!Running configuration last done at: {self.uptime:.0f}", ""]
        return "\n".join([*head, *self.running.lines(2), ""])

    def ports(self) -> list[str]:
        """Return the names of the Ethernet ports."""
        found = [line.split()[1] for line in self.running.tree if line.startswith("interface Ethernet")]
        return [port for port in found if "/" in port]

    def lines(self, port: str) -> list[str]:
        """Return the lines of a port that the hardware follows."""
        here = list(self.running.tree[f"interface {port}"])
        return [line for line in here if not (self.ignores and re.match(self.ignores, line))]

    def _up(self, port: str) -> bool:
        lines = self.lines(port)
        return "no shutdown" in lines or ("shutdown" not in lines and "no switchport" not in lines)

    def _interface(self, port: str) -> dict[str, object]:
        up = self._up(port)
        return {
            "interface": port,
            "state": "up" if up and port not in self.links_down else "down",
            "admin_state": "up" if up else "down",
            "eth_hw_addr": f"5087.89a1.{int(port.split('/')[1]):04x}",
            "eth_mtu": _value(self.lines(port), "mtu", "1500"),
            "eth_mode": "routed" if "no switchport" in self.lines(port) else "access",
        }

    def _port_status(self, port: str) -> dict[str, object]:
        lines = self.lines(port)
        vlan = "routed" if "no switchport" in lines else _value(lines, "switchport access vlan", "1")
        return {"interface": port, "state": "connected" if self._up(port) else "disabled", "vlan": vlan}

    def _summary(self) -> str:
        """Nested tables, as NX-API prints them; without BGP, nothing."""
        bgp = next((below for line, below in self.running.tree.items() if line.startswith("router bgp ")), {})
        rows = [{"neighborid": line.split()[1], "state": "Established"} for line in bgp if line.startswith("neighbor ")]
        table: dict[str, object] = {"TABLE_neighbor": {"ROW_neighbor": rows}}
        for name in ("saf", "af", "vrf"):
            table = {f"TABLE_{name}": {f"ROW_{name}": table}}
        return json.dumps(table)

    def _pfc(self) -> str:
        rule = "============================================================"
        rows = [rule, "Port               Mode Oper(VL bmap)  RxPPP      TxPPP", rule, ""]
        bits = sum(1 << number for number in self._paused())
        for port in self.ports():
            on = "priority-flow-control mode on" in self.lines(port)
            oper = f"On  ({bits:x})" if on and bits else "Off"
            rows.append(f"{port:<18} {'On  ' if on else 'Auto'} {oper:<14} 0          0")
        return "\n".join([*rows, ""])

    def _paused(self) -> list[int]:
        tree = self.running.tree
        applied = _value(list(tree.get("system qos", {})), "service-policy type network-qos", "")
        classes = tree.get(f"policy-map type network-qos {applied}", {})
        return [int(line.rsplit(" ", 1)[1]) for one in classes.values() for line in one if line.startswith("pause ")]


def _rows(rows: list[dict[str, object]]) -> str:
    """NX-OS prints one row without a list."""
    return json.dumps({"TABLE_interface": {"ROW_interface": rows[0] if len(rows) == 1 else rows}})


def _value(lines: list[str], key: str, default: str) -> str:
    return next((line[len(key) + 1 :] for line in lines if line.startswith(f"{key} ")), default)


def main() -> None:
    """Be the line on a terminal until it ends."""
    line = NxosLine()
    sys.stdout.write(line.prompt)
    sys.stdout.flush()
    for typed in sys.stdin:
        sys.stdout.write(line.type(typed.strip()) + line.prompt)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
