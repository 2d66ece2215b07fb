"""mlxconfig: query and set a card's non-volatile parameters.

Text and exit codes: Mellanox/mstflint @b9d9e844, mlxconfig/mlxcfg_ui.cpp (printOpening, printConfHeader,
printSingleParam, setDevCfgWithParams), mlxcfg_generic_commander.cpp (messages), mlxcfg_status.h (3 is an error).
"""

from __future__ import annotations

import sys
from typing import Any

from .. import machine
from . import nv

_NAME, _VALUE = 56, 33
_ERROR, _ABORTED = 3, 2
_STAR = "The '*' shows parameters with next value different from default/current value.\n"
Nic = dict[str, Any]


class ToolError(Exception):
    """An error that the tool prints."""


def main(argv: list[str]) -> int:
    """Run the command; the device is a PCI address."""
    device, flags, words = _arguments(argv)
    command, rest = (words[0] if words else ""), words[1:]
    if command not in {"q", "query", "s", "set"}:
        sys.stdout.write("-E- invalid command.\n")
        return _ERROR
    try:
        nic = _open(device)
        if command.startswith("s"):
            return _set(nic, device, rest, yes="y" in flags)
        _query(nic, device, rest, verbose="e" in flags)
    except ToolError as error:
        sys.stdout.write(f"-E- {error}\n")
        return _ERROR
    return 0


def _arguments(argv: list[str]) -> tuple[str, set[str], list[str]]:
    known = {"-e": "e", "--enable_verbosity": "e", "-y": "y", "--yes": "y"}
    device, flags, words, queue = "", set(), [], list(argv)
    while queue:
        word = queue.pop(0)
        if word in {"-d", "--dev"}:
            device = queue.pop(0) if queue else ""
        elif word in known:
            flags.add(known[word])
        else:
            words.append(word)
    return device, flags, words


def _open(device: str) -> Nic:
    nic = next((item for item in machine.nics() if device and item["pci"].endswith(device)), None)
    if nic is None:
        raise ToolError(f"Failed to open device: {device}. No such device.")
    return nic


def _opening(device: str) -> str:
    rows = (
        ("Device type:", "ConnectX7"),
        ("Name:", "MCX75310AAS-NEA_Ax"),
        ("Description:", "NVIDIA ConnectX-7 HHHL Adapter card; 400GbE / NDR IB (default mode)"),
        ("Device:", device),
    )
    return "\nDevice #1:\n----------\n\n" + "".join(f"{key:<20}{value:<20}\n" for key, value in rows) + "\n"


def _head(*columns: str) -> str:
    return f"{'Configurations:':<{_NAME}}" + " ".join(f"{column:<{_VALUE}}" for column in columns) + "\n"


def _wanted(nic: Nic, asked: list[str]) -> list[str]:
    shown = nv.names(nic)
    for name in asked:
        if name not in nv.KINDS:
            raise ToolError(f"Unknown Parameter {name}")
        if name not in shown:
            raise ToolError(f"The Device doesn't support {name} parameter")
    return asked or shown


def _query(nic: Nic, device: str, asked: list[str], *, verbose: bool) -> None:
    sys.stdout.write(_opening(device))
    sys.stdout.write(_head("Default", "Current", "Next Boot") if verbose else _head("Next Boot"))
    differs = False
    for name in _wanted(nic, asked):
        kind = nv.KINDS[name]
        values = (kind.factory, nv.current(nic, name), nv.following(nic, name))
        star = verbose and (values[2] != values[0] or values[2] != values[1])
        differs |= star
        texts = [kind.text(value) for value in (values if verbose else values[2:])]
        sys.stdout.write(_row(name, texts, star=star))
    if differs:
        sys.stdout.write(_STAR)


def _row(name: str, texts: list[str], *, star: bool = False) -> str:
    return f"{'*' if star else ' '}       {name:<48}" + "".join(f"{text:<{_VALUE}}" for text in texts) + "\n"


def _set(nic: Nic, device: str, words: list[str], *, yes: bool) -> int:
    pairs = {name: value for name, _, value in (word.partition("=") for word in words)}
    _wanted(nic, list(pairs))
    values = {name: _number(name, text) for name, text in pairs.items()}
    sys.stdout.write(_opening(device) + _head("Next Boot", "New"))
    for name, value in values.items():
        kind = nv.KINDS[name]
        sys.stdout.write(_row(name, [kind.text(nv.following(nic, name)), kind.text(value)]))
    sys.stdout.write("\n Apply new Configuration? (y/n) [n] : ")
    if yes:
        sys.stdout.write("y\n")
    elif sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        sys.stdout.write("-E- Aborted by user.\n")
        return _ABORTED
    nv.set_next(nic, values)
    sys.stdout.write("Applying... Done!\n-I- Please reboot machine to load new configurations.\n")
    return 0


def _number(name: str, text: str) -> int:
    texts = {word.lower(): value for value, word in nv.KINDS[name].texts}
    if text.lower() in texts:
        return texts[text.lower()]
    if not text.isdigit() or (texts and int(text) not in texts.values()):
        raise ToolError(f"Cannot parse value for {name}: {text}")
    return int(text)
