"""Checks a ledger's SQLite file without changing it: is it whole, of this version, and writable."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from rackready.ledger.schema import metadata


def not_writable(path: Path) -> str:
    """Return why SQLite could not write there, "" when it can. It needs the folder, too, for its journal."""
    for place in (path, path.parent):
        if not os.access(place, os.W_OK):
            return f"{place} - Expected: writable by user {os.geteuid()} Actual: read-only. {_unlock(place)}"
    return ""


def _unlock(place: Path) -> str:
    """Return the step that makes a place writable again."""
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        return (
            "Its file system is mounted read-only: mount it read-write, or find out why the kernel made it so (dmesg)"
        )
    return f"Run as its owner, or: chmod u+w {place}"


def damage(path: Path) -> str:
    """Return the fault of a ledger file, "" when there is none. It is opened read-only."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=10)) as connection:
            checked = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if checked != "ok":
                return str(checked)
            have = {
                table: {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
                for table in metadata.tables
            }
    except sqlite3.Error as error:
        return str(error)
    lacking = [
        f"{table}.{column.name}"
        for table in metadata.tables
        for column in metadata.tables[table].columns
        if column.name not in have[table]
    ]
    return f"made by another version, it lacks {', '.join(lacking[:3])}" if lacking else ""
