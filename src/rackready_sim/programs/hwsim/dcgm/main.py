"""dcgmi's command line."""

from __future__ import annotations

import json
import sys
import time

from .. import machine, store
from ..machine import Gpu
from . import diag, engine, findings

_NOT_CONNECTED = 235
_GENERIC = 253
_WATCHED = {"g": "watched", "s": "watched_switches"}
"""Groups that the host engine knows by a letter -> key of the time since which they are watched.

dcgmi also accepts i, c and a, for which the host engine has no group.
"""
_SETTLE_S = 60
_SLOW = ("Memory system", "PCIe system")
"""Health systems whose watches have no data in their first minute: those with a star in `dcgmi health --help`."""


def main(argv: list[str], version: str) -> int:
    """Run one subcommand against the local host engine."""
    if not argv or argv[0] in {"-h", "--help"}:
        sys.stdout.write("Usage: dcgmi subsystem\n")
        return 0
    if argv[0] in {"--version", "-v"}:
        sys.stdout.write(
            f"\ndcgmi  version: {version}\n\n" if argv[0] == "--version" else f"Version : {version}\nBuild ID : 1\n"
        )
        return 0
    if not engine.reachable():
        sys.stdout.write(
            "Error: unable to establish a connection to the specified host: localhost\n"
            "Error: Unable to connect to host engine. Host engine connection invalid/disconnected.\n"
        )
        return _NOT_CONNECTED
    known = {"diag": diag.main, "discovery": _discovery, "health": _health, "group": _group, "modules": _group}
    if argv[0] not in known:
        sys.stdout.write(f"ERROR: Invalid subsystem: {argv[0]}\n")
        return 255
    return known[argv[0]](argv[1:], version)


def seen() -> list[Gpu]:
    """Return the GPUs that the host engine sees."""
    return [gpu for gpu in machine.gpus() if gpu.part["uuid"] in store.runtime().get("dcgm", {}).get("gpus", [])]


def _discovery(_argv: list[str], _version: str) -> int:
    gpus = seen()
    rule = f"+{'-' * 8}+{'-' * 70}+"
    lines = [
        f"{len(gpus)} GPU{'s' if len(gpus) != 1 else ''} found (Active).",
        rule,
        f"| GPU ID | {'Device Information':<69}|",
        rule,
    ]
    for gpu in gpus:
        rows = [f"Name: {gpu.part['name']}", f"PCI Bus ID: {gpu.bus_id}", f"Device UUID: {gpu.part['uuid']}"]
        lines += [f"| {gpu.index if at == 0 else '':<7}| {row:<69}|" for at, row in enumerate(rows)]
        lines.append(rule)
    switches = store.hardware()["nvswitches"]
    small = f"+{'-' * 11}+"
    lines += [
        f"{len(switches)} NvSwitches found.",
        small,
        "| Switch ID |",
        small,
        *[f"| {item['index']:<10}|" for item in switches],
        small,
    ]
    lines += ["0 ConnectX found.", "+----------+", "| ConnectX |", "+----------+", "+----------+", "0 CPUs found."]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _group(_argv: list[str], _version: str) -> int:
    sys.stdout.write("Successfully performed the request.\n")
    return 0


def _health(argv: list[str], _version: str) -> int:
    checks = "-c" in argv or "--check" in argv
    group = next((argv[at + 1] for at, word in enumerate(argv[:-1]) if word in {"-g", "--group"}), "g")
    if group not in _WATCHED:
        sys.stdout.write(
            f"Error: Unable to {'check' if checks else 'set'} health watches. Return: The Group is not found\n"
        )
        return _GENERIC
    if not checks:
        with store.change() as runtime:
            runtime["dcgm"].setdefault(_WATCHED[group], time.time())
        sys.stdout.write("Health monitor systems set successfully.\n")
        return 0
    since = store.runtime().get("dcgm", {}).get(_WATCHED[group])
    if since is None:
        sys.stdout.write("Error: Health watches not enabled. Please enable watches. \n")
        return _GENERIC
    settled = time.time() - since >= _SETTLE_S
    found_in = {
        gpu.index: {name: rows for name, rows in incidents(gpu).items() if settled or name not in _SLOW}
        for gpu in (seen() if group == "g" else [])
    }
    overall = "Failure" if any(found_in.values()) else "Healthy"
    if "-j" in argv or "--json" in argv:
        body: dict[str, object] = {"Overall Health": {"value": overall}}
        bad = {str(index): _entity(rows) for index, rows in found_in.items() if rows}
        if bad:
            body["GPU"] = {"children": bad}
        sys.stdout.write(
            json.dumps({"body": body, "header": ["Health Monitor Report"]}, indent=3, sort_keys=True) + "\n"
        )
        return 0
    rule = f"+{'-' * 27}+{'-' * 50}+"
    lines = [
        rule,
        f"| {'Health Monitor Report':<77}|",
        f"+{'=' * 27}+{'=' * 50}+",
        f"| {'Overall Health':<26}| {overall:<49}|",
    ]
    for index, found in found_in.items():
        lines += [f"| {f'GPU {index}':<26}| {row.text[:49]:<49}|" for rows in found.values() for row in rows]
    sys.stdout.write("\n".join([*lines, rule]) + "\n")
    return 0


def incidents(gpu: Gpu) -> dict[str, list[findings.Warning_]]:
    """Return the results of a GPU's watches, by health system."""
    rom = (
        []
        if gpu.part.get("inforom", {}).get("valid", True)
        else [findings.Warning_(f"A corrupt InfoROM has been detected in GPU {gpu.index}.", 82, 4, 3)]
    )
    found = {
        "Memory system": findings.memory(gpu),
        "PCIe system": findings.pcie(gpu),
        "Driver": findings.watched(gpu),
        "InfoROM system": rom,
    }
    return {name: rows for name, rows in found.items() if rows}


def _entity(found: dict[str, list[findings.Warning_]]) -> dict[str, object]:
    children = {
        name: {"overflow": [", ".join(row.text for row in rows)], "value": "Failure"} for name, rows in found.items()
    }
    return {"children": {"Errors": {"children": children}}, "value": "Failure"}
