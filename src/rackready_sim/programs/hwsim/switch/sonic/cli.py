"""The programs `config`, `show`, `pfcwd`, `sonic-cfggen` and `sonic-db-cli`.

Sources: sonic-utilities @691b1bbc4 config/main.py (texts, exit codes: 2 for a failure that click reports, 1 aborted)
and pfcwd/main.py (interval),
sonic-swss-common @85a39d80 sonic-db-cli/sonic-db-cli.cpp and common/redisreply.cpp.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

from ... import paths, store
from .. import apply
from . import bgp, databases, db, gcu
from .gcu import GcuError

_DONE = {
    "apply-patch": "Patch applied successfully.",
    "rollback": "Config rolled back successfully.",
    "checkpoint": "Checkpoint created successfully.",
    "delete-checkpoint": "Checkpoint deleted successfully.",
}
_FAILED = {
    "apply-patch": "Failed to apply patch due to: {}",
    "rollback": "Failed to rollback config",
    "checkpoint": "Failed to create a config checkpoint",
    "delete-checkpoint": "Failed to delete config checkpoint",
}
_WATCHDOG_TIMES = ("detection_time", "restoration_time")
_LEAST_MS, _MOST_MS = 100, 1000


def config(argv: list[str]) -> int:
    """Run `config`."""
    if os.geteuid():
        sys.stderr.write("Root privileges are required for this operation\n")
        return 1
    verb, words = (argv or [""])[0], [word for word in argv[1:] if not word.startswith("-")]
    flags = {word for word in argv[1:] if word.startswith("-")}
    if verb == "save":
        print("Running command: /usr/local/bin/sonic-cfggen -d --print-data > /etc/sonic/config_db.json")
        store.write(paths.at(db.SAVED), db.dumps(db.read()))
        return 0
    if verb == "reload":
        return _reload(flags)
    if verb == "list-checkpoints":
        print(json.dumps(gcu.names(), indent=4))
        return 0
    if verb not in _DONE or not words:
        sys.stderr.write(f"Usage: config [OPTIONS] COMMAND [ARGS]...\n\nError: No such command '{verb}'.\n")
        return 2
    return _updater(verb, words[0], dry=bool(flags & {"-d", "--dry-run"}))


def _updater(verb: str, name: str, *, dry: bool) -> int:
    acts: dict[str, Callable[[], None]] = {
        "apply-patch": lambda: gcu.apply_patch(json.loads(Path(name).read_text()), dry=dry),
        "rollback": lambda: gcu.rollback(name, dry=dry),
        "checkpoint": lambda: gcu.checkpoint(name),
        "delete-checkpoint": lambda: gcu.delete(name),
    }
    if dry:
        print("** DRY RUN EXECUTION **")
    try:
        acts[verb]()
    except (GcuError, OSError, ValueError, LookupError) as error:
        sys.stderr.write(f"{_FAILED[verb].format(error)}\n")
        sys.stderr.write(f"Usage: config {verb} [OPTIONS]\nTry 'config {verb} -h' for help.\n\nError: {error}\n")
        return 2
    finally:
        apply.follow()
    print(_DONE[verb])
    return 0


def _reload(flags: set[str]) -> int:
    if not flags & {"-y", "--yes"}:
        print("Aborted!")
        return 1
    print("Acquired lock on /etc/sonic/reload.lock\nStopping SONiC target ...")
    db.load()
    bgp.start()
    apply.follow()
    print("Restarting SONiC target ...\nReleased lock on /etc/sonic/reload.lock")
    return 0


def pfcwd(argv: list[str]) -> int:
    """Run `pfcwd interval MS`: it writes PFC_WD|GLOBAL itself, without the updater and its rules."""
    number = argv[1] if len(argv) > 1 and argv[1].isdigit() else ""
    if argv[:1] != ["interval"] or not number or not _LEAST_MS <= int(number) <= _MOST_MS:
        sys.stderr.write("Usage: pfcwd interval [OPTIONS] POLL_INTERVAL\n\nError: Invalid value for 'POLL_INTERVAL'\n")
        return 2
    if os.geteuid():
        sys.stderr.write("Root privileges are required for this operation\n")
        return 1
    with db.change() as found:
        table = found.setdefault("PFC_WD", {})
        times = [int(fields[name]) for fields in table.values() for name in _WATCHDOG_TIMES if name in fields]
        if min(times, default=_MOST_MS) < int(number):
            sys.stderr.write(f"unable to use polling interval = {number}ms, value is bigger than one of the times\n")
            return 1
        table.setdefault("GLOBAL", {})["POLL_INTERVAL"] = number
    return 0


def cfggen(argv: list[str]) -> int:
    """Run `sonic-cfggen -d --print-data`."""
    if "-d" not in argv or "--print-data" not in argv:
        sys.stderr.write("usage: sonic-cfggen [-h] [-d] [--print-data]\n")
        return 2
    sys.stdout.write(db.dumps(db.read()))
    return 0


def show(argv: list[str]) -> int:
    """Run `show runningconfiguration all` or `show pfc counters`."""
    if argv[:2] == ["runningconfiguration", "all"]:
        return cfggen(["-d", "--print-data"])
    if argv[:2] == ["pfc", "counters"]:
        for way in ("Rx", "Tx"):
            print(f"{'Port ' + way:>12}" + "".join(f"{'PFC' + str(number):>8}" for number in range(8)))
            print("  ".join(["-" * 12, *["-" * 6] * 8]))
            for port in db.read()["PORT"]:
                found = databases.port_counters(port)
                counts = (found[f"SAI_PORT_STAT_PFC_{number}_{way.upper()}_PKTS"] for number in range(8))
                print(f"{port:>12}" + "".join(f"{int(count):>8,}" for count in counts))
            print()
        return 0
    sys.stderr.write(f"Usage: show [OPTIONS] COMMAND [ARGS]...\n\nError: No such command '{' '.join(argv)}'.\n")
    return 2


def db_cli(argv: list[str]) -> int:
    """Run `sonic-db-cli`. Without `-j` a hash is printed as Python prints a dict."""
    as_json = argv[:1] == ["-j"]
    words = argv[1:] if as_json else argv
    if as_json and store.hardware().get("db_cli_without_json"):
        print("usage: sonic-db-cli [-h] [-s] [-n NAMESPACE] db_or_op [cmd [cmd ...]]")
        return 255
    if len(words) < 3 or words[0] not in databases.ALL:  # noqa: PLR2004 - database, command, argument
        sys.stderr.write(f"Invalid database name input : '{' '.join(words[:1])}'\n")
        return 1
    entries = databases.ALL[words[0]]()
    command, key = words[1].upper(), words[2]
    if command == "KEYS":
        print("\n".join(name for name in entries if fnmatchcase(name, key)))
    elif command == "HGET":
        print(entries.get(key, {}).get(words[3], ""))
    elif command == "HGETALL":
        fields = entries.get(key, {})
        print(json.dumps(fields, separators=(",", ":")) if as_json else str(fields))
    else:
        return 1
    return 0
