"""Entries of CONFIG_DB that rackready owns on a switch: it wrote them, and their values are still the ones it wrote.

A port that the ledger does not know (it was lost, or is another controller's) is ours when its description has our
mark. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from rackready.design.switches import MARK
from rackready.drivers.switch.sonic_text import PORT_RESET, REMOVE, SET, Config, Line, is_line, parse_line

OWN = "rackready"
"""Start of the names of our maps, profiles and schedulers: those of others (AZURE) are never changed."""
_NAMED = frozenset(
    {
        "DSCP_TO_TC_MAP",
        "MAP_PFC_PRIORITY_TO_QUEUE",
        "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP",
        "SCHEDULER",
        "TC_TO_PRIORITY_GROUP_MAP",
        "TC_TO_QUEUE_MAP",
        "WRED_PROFILE",
    }
)
_STAYS = frozenset({"BUFFER_PG", "CABLE_LENGTH", "DEVICE_METADATA"})
"""Tables whose settings stay: headroom hangs on the first two, and a new AS number needs a restart of BGP."""
Token = tuple[str, str, str, str]
"""Table, key, field and value; an entry itself has neither field nor value."""


def tokens(config: Config) -> set[Token]:
    """Return every setting of a configuration."""
    out: set[Token] = set()
    for table, entries in config.items():
        for key, fields in entries.items():
            out.add((table, key, "", ""))
            out |= {(table, key, field, str(value)) for field, value in fields.items()}
    return out


def written(runs: Iterable[Iterable[str]]) -> set[Token]:
    """Return the settings that earlier runs, oldest first, wrote and did not remove again."""
    out: set[Token] = set()
    for commands in runs:
        for line in map(parse_line, filter(is_line, commands)):
            leaf = (line.table, line.key, line.field)
            if line.verb == REMOVE and not line.field:
                out = {token for token in out if token[:2] != leaf[:2]}
                continue
            out = {token for token in out if token[:3] != leaf}
            if line.verb == SET:
                out |= {(*leaf, line.value), (line.table, line.key, "", "")}
    return out


def unwanted(have: Config, runs: Iterable[Iterable[str]], commands: Iterable[str]) -> list[str]:
    """Return the commands that remove our settings which are no longer wanted, sorted."""
    wrote, applied, wanted = written(runs), tokens(have), written([list(commands)])
    kept = {token[:3] for token in wanted}
    ours = (wrote & applied) | _marked(applied, wrote | wanted)
    stale = {token for token in ours if token[:3] not in kept and not _stays(token)}
    stale -= _of_others(stale, applied)
    return sorted(str(line) for line in _removals(stale, applied))


def _stays(token: Token) -> bool:
    table, key, field, _ = token
    if table == "PORT":
        return field not in {*PORT_RESET, "description"}
    return table in _STAYS or (table == "LOOPBACK_INTERFACE" and "|" not in key)


def _marked(applied: set[Token], known: set[Token]) -> set[Token]:
    """Return the settings of ports that carry our mark and that neither the site nor the ledger names."""
    ports = {
        key
        for table, key, field, value in applied
        if (table, field) == ("PORT", "description") and value.endswith(MARK)
    } - {key for table, key, _, _ in known if table == "PORT"}
    ours = {token for token in applied if token[0] == "PORT" and token[1] in ports}
    for token in applied:
        table, key, _, value = token
        of_ours = ports.intersection(key.split("|"))
        if of_ours and (table == "VLAN_MEMBER" or value.startswith(OWN)):
            ours |= {token, *({(table, key, "", "")} if table == "VLAN_MEMBER" else set())}
    return ours


def _of_others(stale: set[Token], applied: set[Token]) -> set[Token]:
    """Return those of our settings that settings of others use: a VLAN with members, a map that a port names."""
    others = applied - stale
    used_values = {value for _, _, field, value in others if field}
    vlans = {key.split("|")[0] for table, key, _, _ in others if table in {"VLAN_MEMBER", "VLAN_INTERFACE"}}
    return {
        token
        for token in stale
        if (token[0] == "VLAN" and token[1] in vlans) or (token[0] in _NAMED and token[1] in used_values)
    }


def _removals(stale: set[Token], applied: set[Token]) -> list[Line]:
    out = []
    for table, key in sorted({token[:2] for token in stale}):
        ours = {token for token in stale if token[:2] == (table, key)}
        there = {token for token in applied if token[:2] == (table, key)}
        if table != "PORT" and {token[2] for token in there if token[2]} <= {token[2] for token in ours}:
            out.append(Line(REMOVE, table, key))
        else:
            out += [Line(REMOVE, table, key, token[2]) for token in ours if token[2]]
    return out
