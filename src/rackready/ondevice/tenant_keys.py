"""Keys that let somebody in on a node: where sshd looks for them, which there are, and how one is removed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from . import safe_files
from .network_mounts import NETWORK
from .safe_files import Spot
from .tenants import Machine, Tenants

LONGEST = 1 << 20
"""Longest file of keys that is read, bytes. Judgement: some thousand keys."""
TOKENS = "%%, %h, %u, %U"
"""Tokens of AuthorizedKeysFile (sshd_config(5))."""
_KEY = re.compile(r"((?:ssh|ecdsa|sk)-\S+)\s+(AAAA\S+)")

User = Any
"""An entry of pwd."""


def key_of(line: str) -> str:
    """Return type and key of a line of authorized_keys, empty where there is none.

    Options are passed over as sshd does it: to the first blank outside of quotes (openssh, auth2-pubkeyfile.c).
    """
    text = line.strip()
    found = _KEY.match(text)
    if found is None:
        found = _KEY.match(text[_options_end(text) :].lstrip())
    return f"{found[1]} {found[2]}" if found else ""


def _options_end(text: str) -> int:
    quoted, place = False, 0
    while place < len(text) and (quoted or text[place] not in " \t"):
        if text[place : place + 2] == '\\"':
            place += 1
        elif text[place] == '"':
            quoted = not quoted
        place += 1
    return place


def patterns(node: Machine) -> list[str]:
    """Return where sshd looks for authorized keys; nothing when it does not say so (sshd_config(5))."""
    said = re.search(r"^authorizedkeysfile (.*)", node.run("sshd", "-T")[1], re.MULTILINE)
    return [word for word in said[1].split() if word != "none"] if said else []


def unknown_token(node: Machine) -> str:
    """Return a pattern with a token that is not known here, empty where there is none."""
    return next((text for text in patterns(node) if re.search(r"%[^huU%]|%$", text.replace("%%", ""))), "")


def files(node: Machine) -> list[tuple[User, str]]:
    """Return (user, path) of each file that sshd would read, but those on file systems that lie elsewhere."""
    wanted = patterns(node)
    away = [row[1] for row in node.mounts() if row[2] in NETWORK]
    out: dict[str, User] = {}
    for user in node.users():
        values = {"%h": user.pw_dir, "%u": user.pw_name, "%U": str(user.pw_uid), "%%": "%"}
        for pattern in wanted:
            text = re.sub("%[huU%]", lambda found: values[found[0]], pattern)  # noqa: B023 - used at once
            path = text if text.startswith("/") else f"{user.pw_dir.rstrip('/')}/{text}"
            if not any(mount != "/" and f"{path}/".startswith(f"{mount}/") for mount in away):
                out.setdefault(path, user)
    return [(user, path) for path, user in out.items()]


@contextmanager
def spot_of(node: Machine, tenants: Tenants, path: str) -> Iterator[Any]:
    """Yield the place of a file of keys, None where there is none, or none of this node's own.

    A tenant's link is the place itself.
    """
    with ExitStack() as stack:
        try:
            found = stack.enter_context(safe_files.place(str(node.root), path, tenants.trusts))
            # Judged when it is open: opening a home may have mounted it (autofs(5)).
            there = safe_files.status_of(found.folder, found.name) is not None and node.owns(found.folder)
        except (FileNotFoundError, NotADirectoryError, PermissionError):  # root is refused by network file systems only
            there = False
        yield found if there else None


def traces(node: Machine, tenants: Tenants, keep: list[str]) -> Iterator[Any]:
    """Yield the keys that are not kept, of every user of the node, and links and files that cannot be keys."""
    kept = {key for line in keep for key in [key_of(line)] if key}
    for user, path in files(node):
        named = f"{node.shown(path)} ({user.pw_name})"
        with spot_of(node, tenants, path) as spot:
            if spot is None:
                continue
            if spot.link:
                yield "key", f"{named}: a link", lambda it=path: _unlink(node, tenants, it)
                continue
            try:
                lines = key_lines(spot)
            except OSError as error:
                yield "key", f"{named}: {error}", lambda it=path: _unlink(node, tenants, it)
                continue
        for line in lines:
            if key_of(line) not in kept:
                what = f"{named}: {node.shown(line.split()[-1])[:60]}"
                yield "key", what, lambda it=path, text=line: _without(node, tenants, it, text)


def key_lines(spot: Spot) -> list[str]:
    """Return the lines of a file that are neither empty nor comments. Raises OSError."""
    lines = safe_files.text_of(spot, LONGEST).splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def lets_in(node: Machine, tenants: Tenants, login: str, keep: list[str]) -> bool:
    """Return whether a key that is kept lets a user in."""
    kept = {key_of(line) for line in keep} - {""}
    for user, path in files(node):
        if user.pw_name == login:
            with spot_of(node, tenants, path) as spot:
                if spot is not None and not spot.link and any(key_of(line) in kept for line in _or_none(spot)):
                    return True
    return False


def _or_none(spot: Spot) -> list[str]:
    try:
        return key_lines(spot)
    except OSError:
        return []


def _unlink(node: Machine, tenants: Tenants, path: str) -> None:
    with spot_of(node, tenants, path) as spot:
        if spot is not None:
            safe_files.remove(spot.folder, spot.name)


def _without(node: Machine, tenants: Tenants, path: str, text: str) -> None:
    with spot_of(node, tenants, path) as spot:
        if spot is None or spot.link:
            raise OSError("became a link")
        lines = safe_files.text_of(spot, LONGEST).splitlines()
        safe_files.replace_text(spot, "".join(f"{line}\n" for line in lines if line != text))
