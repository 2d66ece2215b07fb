"""SONiC's CONFIG_DB as lines, what `sonic-db-cli` prints, and JSON patches. Pure.

A command is one line: ``set TABLE|KEY FIELD VALUE``, ``set TABLE|KEY`` (an entry without fields), ``remove TABLE|KEY
FIELD`` or ``remove TABLE|KEY``. The value is the rest of the line.

Sources: sonic-swss-common @85a39d80 common/redisreply.cpp (`sonic-db-cli` prints a hash as Python does, with `-j` as
JSON); sonic-utilities @691b1bbc4 generic_config_updater (a patch is RFC 6902 on the tables of `sonic-cfggen -d
--print-data`; a patch that leaves an empty table is refused).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rackready import printed_json
from rackready.format_error import FormatError

Config = dict[str, dict[str, dict[str, Any]]]
"""Table -> key -> field -> value. A value is a text, or a list of texts."""
SET, REMOVE = "set", "remove"
PORT_RESET = {"admin_status": "down", "mtu": "9100"}
"""Fields of a port that cannot be without a value, and SONiC's default.

Sources: sonic-buildimage @086b03bd70 sonic-port.yang (admin_status), sonic-swss @e6b0c5b5d cfgmgr/portmgr.h (9100).
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One command. ``field`` is empty for a whole entry."""

    verb: str
    table: str
    key: str
    field: str = ""
    value: str = ""

    def __str__(self) -> str:
        """Return the command."""
        head = f"{self.verb} {self.table}|{self.key}"
        if not self.field:
            return head
        return f"{head} {self.field} {self.value}" if self.verb == SET else f"{head} {self.field}"


def parse_line(command: str) -> Line:
    """Return a command's parts. Raises FormatError for any other text."""
    verb, _, rest = command.partition(" ")
    entry, _, setting = rest.partition(" ")
    table, bar, key = entry.partition("|")
    field, _, value = setting.partition(" ")
    if verb not in {SET, REMOVE} or not (table and bar and key) or (verb == SET and field and not value):
        raise FormatError(f"no command of SONiC: {command[:80]!r}")
    return Line(verb, table, key, field, value if verb == SET else "")


def is_line(command: str) -> bool:
    """Whether a text is a command of SONiC: the ledger may have those of another system that the switch ran before."""
    try:
        parse_line(command)
    except FormatError:
        return False
    return True


def lines_of(config: Config) -> list[str]:
    """Return the commands that set a configuration, in its order. Raises FormatError for a value of two lines."""
    out = []
    for table, entries in config.items():
        for key, fields in entries.items():
            if not fields:
                out.append(str(Line(SET, table, key)))
            for field, value in fields.items():
                if "\n" in value or "\r" in value or not value:
                    raise FormatError(f"{table}|{key} {field}: a value of one line is needed, not {value!r}")
                out.append(str(Line(SET, table, key, field, value)))
    return out


def missing(commands: Iterable[str], have: Config) -> list[str]:
    """Return the commands that would change a configuration."""
    return [command for command in commands if not _holds(parse_line(command), have)]


def _holds(line: Line, have: Config) -> bool:
    entry = have.get(line.table, {}).get(line.key)
    if line.verb == SET:
        return entry is not None and (not line.field or entry.get(line.field) == line.value)
    if entry is None or not line.field:
        return entry is None
    return entry.get(line.field) == _reset(line)


def _reset(line: Line) -> str | None:
    return PORT_RESET.get(line.field) if line.table == "PORT" else None


def overlay(have: Config, commands: Iterable[str]) -> Config:
    """Return the configuration after these commands."""
    out = copy.deepcopy(have)
    for line in map(parse_line, commands):
        if line.verb == SET:
            entry = out.setdefault(line.table, {}).setdefault(line.key, {})
            if line.field:
                entry[line.field] = line.value
        else:
            _take_out(out, line)
    return out


def _take_out(out: Config, line: Line) -> None:
    entries = out.get(line.table, {})
    entry = entries.get(line.key)
    if entry is None:
        return
    reset = _reset(line)
    if line.field and reset is not None:
        entry[line.field] = reset
    elif line.field:
        entry.pop(line.field, None)
    if not line.field or not entry:  # in Redis a hash without fields does not exist
        entries.pop(line.key)
    if not entries:
        out.pop(line.table)


def patch(have: Config, target: Config) -> list[dict[str, Any]]:
    """Return the JSON patch from one configuration to another: whole tables, entries or fields, sorted."""
    out: list[dict[str, Any]] = []
    for table in sorted({*have, *target}):
        if table not in target:
            out.append({"op": "remove", "path": _pointer(table)})
        elif table not in have:
            out.append({"op": "add", "path": _pointer(table), "value": target[table]})
        else:
            out += _entries(table, have[table], target[table])
    return out


def _entries(table: str, have: dict[str, Any], target: dict[str, Any]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for key in sorted({*have, *target}):
        if key not in target:
            out.append({"op": "remove", "path": _pointer(table, key)})
        elif key not in have:
            out.append({"op": "add", "path": _pointer(table, key), "value": target[key]})
        else:
            out += _fields(table, key, have[key], target[key])
    return out


def _fields(table: str, key: str, have: dict[str, Any], target: dict[str, Any]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for field in sorted({*have, *target}):
        path = _pointer(table, key, field)
        if field not in target:
            out.append({"op": "remove", "path": path})
        elif have.get(field) != target[field]:
            out.append({"op": "replace" if field in have else "add", "path": path, "value": target[field]})
    return out


def _pointer(*parts: str) -> str:
    """Return a JSON pointer (RFC 6901)."""
    return "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in parts)


def parse_config(text: str) -> Config:
    """Return what `sonic-cfggen -d --print-data` printed. Raises FormatError."""
    document = printed_json.load(text)
    if not isinstance(document, dict) or "PORT" not in document:
        raise FormatError("no CONFIG_DB: it has no table PORT")
    for table, entries in document.items():
        if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
            raise FormatError(f"table {table}: no entries with fields")
    return document


def parse_hash(text: str) -> dict[str, str]:
    """Return a hash as `sonic-db-cli` prints it: JSON with `-j`, else as Python prints a dict. Raises FormatError.

    Without `-j` a value with both kinds of quotation marks is printed without an escape: it is refused.
    """
    shown = text.strip()
    if not shown.startswith("{"):
        raise FormatError(f"no hash, but {shown[:80]!r}")
    try:
        found = printed_json.load(shown) if shown.startswith('{"') else ast.literal_eval(shown)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        try:
            found = ast.literal_eval(shown)  # {"it's": '...'}: as Python, with a first key in double quotes
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise FormatError(f"damaged hash {shown[:80]!r}") from error
    if not isinstance(found, dict) or not all(isinstance(item, str) for pair in found.items() for item in pair):
        raise FormatError(f"no hash of texts: {shown[:80]!r}")
    return found


_MARK = "== "


def hashes_script(database: str, patterns: Iterable[str]) -> str:
    """Return the script that prints every hash of a database whose key matches, each after a line with its key.

    It asks for JSON where the release has `-j`.
    """
    wanted = " ".join(f"'{pattern}'" for pattern in patterns)
    return (
        "set -f; j=-j; sonic-db-cli -j CONFIG_DB HGETALL 'DEVICE_METADATA|localhost' >/dev/null 2>&1 || j=\n"
        f"for p in {wanted}; do\n"
        f'k=$(sonic-db-cli {database} KEYS "$p") || exit 1\n'
        f'for n in $k; do echo "{_MARK}$n"; sonic-db-cli $j {database} HGETALL "$n" || exit 1; done; done\n'
        f'echo "{_MARK}"\n'
    )


def parse_hashes(text: str) -> dict[str, dict[str, str]]:
    """Return key -> hash of what the script printed. Raises FormatError where its end is missing."""
    found: dict[str, dict[str, str]] = {}
    key, ended = None, False
    for line in text.splitlines():
        if ended and line.strip():
            raise FormatError(f"text after the end: {line[:80]!r}")
        if line.rstrip() == _MARK.rstrip():
            ended = True
        elif line.startswith(_MARK):
            key = line.removeprefix(_MARK)
        elif key is not None and key not in found and line.strip():
            found[key] = parse_hash(line)
        elif line.strip():
            raise FormatError(f"unexpected line {line[:80]!r}")
    if not ended:
        raise FormatError(f"cut off after {key or 'nothing'}")
    return found
