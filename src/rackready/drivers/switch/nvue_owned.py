"""Settings on a switch that rackready owns: those that it wrote and did not remove. Pure, on NVUE's set commands.

A setting is owned when the ledger records it as written and it still has that value; a value that somebody changed
since is theirs. A port that the ledger does not know (it was lost, or is another controller's) is owned when its
description carries our mark.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from rackready.design.switches import MARK
from rackready.drivers.switch.nvue_text import Tokens, expand_commands, expand_names, list_position, sets_value

_PORT = frozenset(
    {
        *(("type",), ("description",), ("bridge", "domain", "*", "access")),
        *(("link", "state"), ("link", "mtu"), ("link", "speed"), ("link", "fec")),
        *(("qos", "pfc-watchdog", "state"), ("qos", "congestion-control", "profile")),
        *(("router", "adaptive-routing", "state"), ("router", "adaptive-routing", "enable")),
    }
)
"""Settings that interfaces.j2 writes for a port, without values."""
_NAME = 3
"""Position of a port's name in `nv set interface NAME ...`."""


def expand_unsets(text: str) -> set[Tokens]:
    """Return the branches that `nv unset` commands remove, as `nv set` names them, ranges expanded."""
    out: set[Tokens] = set()
    for line in text.splitlines():
        tokens = tuple(shlex.split(line.strip(), comments=True))
        if tokens[:2] != ("nv", "unset"):
            continue
        tokens = ("nv", "set", *tokens[2:])
        at = list_position(tokens)
        out |= (
            {tokens} if at is None else {(*tokens[:at], name, *tokens[at + 1 :]) for name in expand_names(tokens[at])}
        )
    return out


def within(settings: Iterable[Tokens], branches: Iterable[Tokens]) -> set[Tokens]:
    """Return those of the settings that are in one of the branches."""
    heads = tuple(branches)
    return {tokens for tokens in settings if any(tokens[: len(head)] == head for head in heads)}


def written(runs: Iterable[Iterable[str]]) -> set[Tokens]:
    """Return the settings that earlier runs, oldest first, wrote and did not remove again."""
    out: set[Tokens] = set()
    for commands in runs:
        text = "\n".join(commands)
        added = expand_commands(text)
        replaced = {_leaf(tokens) for tokens in added}
        out -= within(out, expand_unsets(text))
        out = {tokens for tokens in out if _leaf(tokens) not in replaced} | added
    return out


def _leaf(tokens: Tokens) -> Tokens:
    return tokens[:-1] if sets_value(tokens) else tokens


def stale(applied: set[Tokens], wrote: set[Tokens], wanted: set[Tokens]) -> set[Tokens]:
    """Return our settings on the switch that the site no longer names.

    A split port stays split: taking a breakout back needs two applies (Cumulus Linux, "Switch Port Attributes"), and
    the sub-ports may be in use by others.
    """
    kept = {_leaf(tokens) for tokens in wanted}
    ours = {tokens for tokens in (applied & wrote) | _marked(applied, wrote, wanted) if "breakout" not in tokens}
    found = {tokens for tokens in ours if _leaf(tokens) not in kept}
    return {tokens for tokens in found if not _serves_others(tokens, applied - found)}


def _marked(applied: set[Tokens], wrote: set[Tokens], wanted: set[Tokens]) -> set[Tokens]:
    """Return our settings of ports that carry our mark, where neither the site nor the ledger names the port."""
    known = {tokens[_NAME] for tokens in wrote | wanted if tokens[2] == "interface"}
    ports = {
        tokens[_NAME]
        for tokens in applied
        if tokens[2] == "interface" and tokens[4:5] == ("description",) and tokens[-1].endswith(MARK)
    } - known
    return {
        tokens
        for tokens in applied
        if tokens[2] == "interface" and tokens[_NAME] in ports and _shape(tokens[4:-1]) in _PORT
    }


def _shape(path: Tokens) -> Tokens:
    return (*path[:2], "*", *path[3:]) if path[:2] == ("bridge", "domain") else path


def _serves_others(tokens: Tokens, others: set[Tokens]) -> bool:
    """Whether a port or address that is not ours uses a VLAN of ours."""
    if tokens[2:4] != ("bridge", "domain") or tokens[-2] != "vlan":
        return False
    vlan = tokens[-1]
    ports = [other for other in others if other[2] == "interface"]
    return any(
        other[_NAME] == f"vlan{vlan}" or (other[-2] in {"access", "untagged", "vlan"} and other[-1] == vlan)
        for other in ports
    )


def unset_commands(applied: set[Tokens], found: set[Tokens]) -> list[str]:
    """Return the `nv unset` commands for these settings: the largest branches that contain nothing else, sorted."""
    heads = {_branch(applied, found, tokens) for tokens in found}
    return sorted(shlex.join(("nv", "unset", *head[2:])) for head in heads)


def _floor(tokens: Tokens, longest: int) -> int:
    """Return the words of the largest branch that can be ours alone: a port, a tenant's VRF, a profile of ours."""
    if tokens[2] == "interface" or (tokens[2] == "vrf" and tokens[_NAME] != "default"):
        return _NAME + 1
    return _NAME + 2 if tokens[2:4] == ("qos", "congestion-control") else longest


def _branch(applied: set[Tokens], found: set[Tokens], tokens: Tokens) -> Tokens:
    leaf = _leaf(tokens)
    floor = _floor(tokens, len(leaf))
    return next(
        (leaf[:length] for length in range(floor, len(leaf)) if within(applied, [leaf[:length]]) <= found), leaf
    )
