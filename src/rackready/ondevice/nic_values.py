"""Non-volatile parameters of a network card, as mlxconfig (mstconfig) prints them with `-e query`.

Sources: Mellanox/mstflint @b9d9e844, mlxconfig/mlxcfg_ui.cpp (printConfHeader, printSingleParam, printValue), and
outputs that Mellanox/nic-configuration-operator @8bfbeb3 keeps (pkg/nvconfig/utils_test.go).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEAD = "Configurations:"
_COLUMNS = ("Default", "Current", "Next Boot")
_ROW = re.compile(r"^[* ]?\s*(?:RO)?\s+([A-Z][A-Z0-9_]*(?:\[\d+\])?)\s+(\S.*?)\s*$")
_NUMBER = re.compile(r"(?:^|\()(\d+)\)?$")


@dataclass(frozen=True)
class Parameter:
    """One parameter: its value in force and that of the next boot, each as printed; empty: not readable."""

    current: str
    following: str

    def is_in_force(self, wanted: int) -> bool:
        """Return whether the card works with the value now. Some firmware does not tell: then the next boot counts."""
        return number(self.current or self.following) == wanted


def number(text: str) -> int | None:
    """Return the number of a printed value, such as 2 of ETH(2); None for texts without one (N/A, Array[0..7])."""
    match = _NUMBER.search(text)
    return int(match[1]) if match else None


def parse(text: str) -> dict[str, Parameter]:
    """Return every parameter of an output; firmware without default or current values has fewer columns."""
    found: dict[str, Parameter] = {}
    columns: list[str] = []
    for line in text.splitlines():
        if line.startswith(_HEAD):
            columns = [name for name in _COLUMNS if name in line]
            continue
        match = _ROW.match(line) if columns else None
        values = match[2].split() if match else []
        if match and len(values) == len(columns):
            row = dict(zip(columns, values))  # noqa: B905 - the node's Python may be 3.9; both have one length
            found[match[1]] = Parameter(row.get("Current", ""), row["Next Boot"])
    return found
