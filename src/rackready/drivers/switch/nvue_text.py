"""Parsers and writers for NVUE's texts: set commands, revisions, the JSON of `nv show`. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from rackready.drivers.switch.base import PortState, Revision, RevisionState, RoceState, SwitchError

Tokens = tuple[str, ...]

_LONGEST = 400
"""The most characters of a command: a terminal of 511 columns wraps longer ones, so that echo mixes with output."""

_ITEM = re.compile(r"^(?P<stem>.*?)(?P<first>\d+)(?:-(?:[a-z]*)(?P<last>\d+))?$")


def expand_names(text: str) -> list[str]:
    """Return the single names of NVUE's ``swp1-4,swp7``, ``swp1-2,32`` or ``901-904``.

    A part that is only numbers has the stem of the part before it: `nv config show -o commands` of 5.15 prints
    ``interface swp1-2,32`` and ``interface vlan200,300``, but ``interface swp1s0-3,swp2s0-3``.
    """
    names: list[str] = []
    stem = ""
    for part in text.split(","):
        match = _ITEM.match(part)
        if match is None:
            names.append(part)
            continue
        stem = match["stem"] or stem
        last = match["last"] or match["first"]
        numbers = range(int(match["first"]), int(last) + 1)
        names += [f"{stem}{number}" for number in numbers] if match["last"] or not match["stem"] else [part]
    return names


def expand_commands(text: str) -> set[Tokens]:
    """Return the single settings of `nv set` commands: quotes resolved, ranges of interfaces and VLANs expanded.

    Raises ValueError where a quote is not closed.
    """
    out: set[Tokens] = set()
    for tokens in _split(text):
        if tokens[:2] != ("nv", "set"):
            continue
        position = list_position(tokens)
        if position is None:
            out.add(tokens)
        else:
            out |= {(*tokens[:position], name, *tokens[position + 1 :]) for name in expand_names(tokens[position])}
    return out


def _split(text: str) -> Iterator[Tokens]:
    """Yield the words of each command. A quoted value may have several lines, as a banner has.

    `nv config show -o commands` prints ``nv set system message post-login '####``, and the other lines of the banner
    below it (the core switch in NVIDIA's ERA guide).
    """
    held = ""
    for line in text.splitlines():
        if held and "'" not in line and '"' not in line:  # it closes no quote
            held += f"\n{line}"
            continue
        held = f"{held}\n{line}" if held else line
        try:
            tokens = tuple(shlex.split(held, comments=True))
        except ValueError:
            continue
        held = ""
        yield tokens
    if held:
        yield tuple(shlex.split(held, comments=True))


def in_force(wanted: set[Tokens], have: set[Tokens]) -> bool:
    """Whether a configuration has these settings.

    A breakout and a VLAN of a bridge may have more words than we set: ``link breakout 2x lanes-per-port 4`` is
    ``link breakout 2x``, too, and a VLAN with a VNI is shown as ``vlan 20 vni 20`` alone (a capture of 5.15).
    """
    return all(_may_have_more(one) and any(there[: len(one)] == one for there in have) for one in wanted - have)


def _may_have_more(tokens: Tokens) -> bool:
    return "breakout" in tokens or (tokens[2:4] == ("bridge", "domain") and tokens[5:-1] == ("vlan",))


def touched(command: str, ports: frozenset[str]) -> frozenset[str]:
    """Return the site's ports on which an `nv set` or `nv unset` changes something."""
    tokens = tuple(shlex.split(command, comments=True))
    if tokens[2:3] != ("interface",) or "adaptive-routing" in tokens:  # setting it on one port reloads switchd
        return ports
    named = frozenset(expand_names(tokens[3])) & ports if len(tokens) > 3 else ports  # noqa: PLR2004 - nv VERB interface NAMES
    return named or (frozenset() if tokens[1] == "unset" else ports)


def list_position(tokens: Tokens) -> int | None:
    """Return where a command names interfaces, VLANs, traffic classes or neighbours, which may be a list, or None."""
    if len(tokens) > 3 and tokens[2] == "interface":  # noqa: PLR2004 - nv set interface NAMES
        return 3
    bridge = tokens[2:4] == ("bridge", "domain")
    if len(tokens) > 6 and bridge and tokens[5] == "vlan":  # noqa: PLR2004 - nv set bridge domain D vlan IDS
        return 6
    if len(tokens) > 6 and tokens[2:4] == ("qos", "congestion-control") and tokens[5] == "traffic-class":  # noqa: PLR2004 - nv set qos congestion-control PROFILE traffic-class IDS
        return 6
    if len(tokens) > _NEIGHBOUR and tokens[2] == "vrf" and tokens[4:_NEIGHBOUR] == ("router", "bgp", "neighbor"):
        return _NEIGHBOUR
    return None


_NEIGHBOUR = 7
"""Position of a neighbour in `nv set vrf VRF router bgp neighbor NAMES`: `nv config show -o commands` joins
unnumbered ones (``neighbor swp59s0-5,swp61s0-5 type unnumbered``: a configuration in NVIDIA's ERA guide)."""


def compact(commands: list[str]) -> list[str]:
    """Return the commands with those that differ only in their interface (or VLAN) joined into one with a list.

    A real switch takes most of a second for each command. Neighbours stay apart: some are addresses.
    """
    groups: dict[tuple[Tokens, Tokens], list[str]] = {}
    for command in commands:
        tokens = tuple(shlex.split(command))
        position = None if tokens[2:3] == ("vrf",) else list_position(tokens)
        key = (tokens, ()) if position is None else (tokens[:position], tokens[position + 1 :])
        groups.setdefault(key, []).append("" if position is None else tokens[position])
    return [line for (head, tail), names in groups.items() for line in _joined(head, tail, names)]


def _joined(head: Tokens, tail: Tokens, names: list[str]) -> Iterator[str]:
    room = _LONGEST - len(shlex.join((*head, *tail)))
    chunk: list[str] = []
    for name in names:
        if chunk and len(",".join((*chunk, name))) > room:
            yield shlex.join((*head, ",".join(chunk), *tail))
            chunk = []
        chunk.append(name)
    yield shlex.join((*head, ",".join(chunk), *tail)) if chunk != [""] else shlex.join(head)


_VALUES = frozenset(
    {
        *("access", "action", "aspath-ignore", "autonomous-system", "description", "detect-multiplier", "ecn"),
        *("enable", "fec", "ip-prefix-list", "max-threshold", "min-rx-interval", "min-threshold", "min-tx-interval"),
        *("mode", "mtu", "peer-group", "probability", "profile", "remote-as", "route-map", "router-id", "speed"),
        *("state", "type"),
    }
)
"""Leaves with one value, of those that templates/switches/cumulus_nvue writes: another value replaces it."""


def sets_value(tokens: Tokens) -> bool:
    """Whether a whole `nv set` command sets a leaf with one value: its last word."""
    if tokens[2] == "interface":
        return tokens[-2] in _VALUES or tokens[-2] == "vrf" or tokens[4:-1] == ("vlan",)
    return tokens[-2] in _VALUES or tokens[2:-1] == ("nve", "vxlan", "source", "address")


def document(settings: Iterable[Tokens]) -> str:
    """Return the YAML document of single settings for `nv config patch`.

    It has the form of `nv config show`: `- set:` and the tree below it. A link's state is a branch of its own
    there (`state: {up: {}}`), other leaves with one value have a scalar.
    """
    root: dict[str, Any] = {}
    for tokens in sorted(settings):
        *path, last = tokens[2:]
        scalar = sets_value(tokens) and path[-2:] != ["link", "state"]
        node = root
        for word in path[:-1] if scalar else path:
            node = node.setdefault(word, {})
        if scalar:
            node[path[-1]] = int(last) if last.isdigit() else last
        else:
            node.setdefault(last, {})
    return str(yaml.safe_dump([{"set": root}], default_flow_style=False, width=_UNBROKEN))


_UNBROKEN = 10_000
"""Columns: no setting is that long, so each stays on its line."""


def read_json(where: str, command: str, output: str) -> Any:  # noqa: ANN401 - NVUE's own JSON
    """Return the JSON document in an output. Raises SwitchError that shows the output otherwise."""
    start = min((at for at in (output.find("{"), output.find("[")) if at >= 0), default=-1)
    try:
        return json.loads(output[start:]) if start >= 0 else json.loads(output or "{}")
    except json.JSONDecodeError as error:
        shown = " ".join(output.split())[:200] or "nothing"
        raise SwitchError(
            where,
            f"`{command}`",
            expected="JSON",
            actual=shown,
            next_step="Log in and run it; the NVUE service may be down (`systemctl status nvued`).",
        ) from error


_STATES = {
    "pending": RevisionState.CANDIDATE,
    "confirm": RevisionState.UNCONFIRMED,
    "applied": RevisionState.APPLIED,
}


def parse_revisions(document: dict[str, Any]) -> list[Revision]:
    """Return the numbered revisions of `nv config revision -o json`, oldest first."""
    numbered = sorted(
        (int(key), value) for key, value in document.items() if str(key).isdigit() and isinstance(value, dict)
    )
    return [
        Revision(
            str(number),
            _STATES.get(str(value.get("state", "")), RevisionState.OTHER),
            str(value.get("user") or value.get("owner") or ""),
        )
        for number, value in numbered
    ]


def is_no_difference(text: str) -> bool:
    """Whether `nv config diff` shows no difference."""
    return text.strip().lower().rstrip(".") in {"", "no config diff", "no differences", "{}", "[]", "null"}


def parse_ports(document: dict[str, Any], applied: set[Tokens]) -> dict[str, PortState]:
    """Return the switch ports of `nv show interface -o json`.

    Access VLANs and the watchdog are taken from the applied settings: NVUE shows the watchdog port by port only.
    """
    vlans = {
        tokens[3]: int(tokens[-1])
        for tokens in applied
        if tokens[2:3] == ("interface",) and tokens[-2:-1] == ("access",) and tokens[-1].isdigit()
    }
    watched = {
        tokens[3]
        for tokens in applied
        if tokens[2:3] == ("interface",) and tokens[4:-1] == ("qos", "pfc-watchdog", "state") and tokens[-1] in _YES
    }
    out = {}
    for name, value in document.items():
        link = value.get("link") or {}
        state = link.get("state")
        up = "up" in state if isinstance(state, (dict, list, str)) else False
        admin = link.get("admin-status", "up" if up else "down")
        out[name] = PortState(
            admin == "up",
            link.get("oper-status", "up" if up else "down") == "up",
            int(link.get("mtu") or 0),
            vlans.get(name),
            _speed(str(link.get("speed", ""))),
            _FEC.get(str(link.get("fec", ""))),
            watchdog=name in watched,
        )
    return out


_FEC = {"rs": "rs", "baser": "fc", "off": "off"}
"""NVUE's word to ours. It reports `auto` or nothing for a port without a link."""


def parse_adaptive(applied: set[Tokens]) -> frozenset[str]:
    """Return the ports with adaptive routing, from the applied settings: NVUE shows no operational state of it."""
    on = [tokens for tokens in applied if tokens[-3] == "adaptive-routing" and tokens[-1] in _YES]
    if not any(tokens[2] == "router" for tokens in on):
        return frozenset()
    return frozenset(tokens[3] for tokens in on if tokens[2] == "interface")


def _speed(text: str) -> int | None:
    """Return Gb/s of NVUE's `400G`; None of anything else, such as `auto` or `100M`."""
    match = re.fullmatch(r"(\d+)G", text)
    return int(match[1]) if match else None


def _marked(document: dict[str, Any]) -> frozenset[int] | None:
    """Return the switch priorities in the traffic classes with ECN; None if the switch reports no classes."""
    control, classes = document.get("congestion-control") or {}, document.get("tc-map") or {}
    if "enabled-tc" not in control or not classes:
        return None
    marked = set(re.findall(r"\d+", str(control["enabled-tc"])))
    return frozenset(int(row["switch-prio"]) for row in classes.values() if str(row["traffic-class"]) in marked)


def parse_roce(document: dict[str, Any]) -> RoceState:
    """Return the RoCE state of `nv show qos roce -o json`."""
    enabled = document.get("state", document.get("enable")) in {"enabled", "on", True}
    pfc = document.get("pfc") or {}
    both = pfc.get("rx-enabled") in _YES and pfc.get("tx-enabled") in _YES
    priorities = (
        frozenset(int(item) for item in re.findall(r"\d+", str(pfc.get("pfc-priority", "")))) if both else frozenset()
    )
    mapping: dict[int, int] = {}
    for row in (document.get("prio-map") or {}).values():
        mapping |= {int(dscp): int(row["switch-prio"]) for dscp in re.findall(r"\d+", str(row.get("dscp", "")))}
    trust = str((document.get("trust") or {}).get("trust-mode", ""))
    return RoceState(
        str(document.get("mode", "")) if enabled else "off",
        priorities,
        "dscp" in trust,
        mapping,
        _marked(document),
        _thresholds(document.get("congestion-control") or {}),
    )


_BYTES = {"B": 1, "KB": 1024, "MB": 1024**2}
"""NVUE's units: 150,000 bytes are its 146.48 KB, 1,500,000 its 1.43 MB (RoCE and QoS guides)."""


def _thresholds(control: dict[str, Any]) -> tuple[int, int] | None:
    """Return the ECN thresholds in bytes; None where one is absent, or in another form."""
    found = []
    for key in ("min-threshold", "max-threshold"):
        match = re.fullmatch(r"(\d+(?:\.\d+)?) (B|KB|MB)", str(control.get(key, "")))
        if match is None:
            return None
        found.append(round(float(match[1]) * _BYTES[match[2]]))
    return found[0], found[1]


_YES = frozenset({"enabled", "enable", "yes", "on", True})
