"""The generic config updater: patches, checkpoints, rollback, as sonic-utilities @691b1bbc4 generic_config_updater.

Order of its steps (PatchApplier.apply): simulate, check operations, refuse empty tables, sort with the YANG models,
write entry by entry, compare. It takes no lock, and stops where it is when it is killed. Its pause after each write is
one second; the rack's hardware state has a shorter one. What the sort does is not modelled: entries go in by table.
"""

from __future__ import annotations

import copy
import json
import time
from typing import Any

from ... import paths, store
from . import db, yang
from .db import Config

_CHECKPOINTS = "/etc/sonic/checkpoints"
_NEVER_REMOVED = ("/PFC_WD/GLOBAL/POLL_INTERVAL", "/PFC_WD/GLOBAL", "/LOOPBACK_INTERFACE/Loopback0")
_SPEEDS = {"800000", "400000", "200000", "100000", "50000", "40000", "25000", "10000"}
"""supported_speeds of a port of SN5600: its breakout modes in platform.json."""
_FECS = {"none", "rs", "fc", "auto"}
_WATCHED_SKUS = ("ACS-SN5600", "Mellanox-SN5600")
"""Start of the HwSKUs of SN5600 for which changes of PFC_WD are allowed (gcu_field_operation_validators.conf.json)."""
_WATCHDOG_FIELDS = {"", "action", "detection_time", "global/poll_interval", "pfc_stat_history", "restoration_time"}
"""Fields of PFC_WD that may change (same file)."""
_BACKEND = ("BUFFER_PG", "BUFFER_PROFILE", "FLEX_COUNTER_TABLE")
_FIRST = ("VLAN", "DSCP_TO_TC_MAP", "TC_TO_PRIORITY_GROUP_MAP", "TC_TO_QUEUE_MAP", "MAP_PFC_PRIORITY_TO_QUEUE")
Patch = list[dict[str, Any]]


class GcuError(Exception):
    """The command fails with this message and exit code 2."""


def apply_patch(patch: Patch, *, dry: bool) -> None:
    """Apply a patch to CONFIG_DB, or only check it. Raises GcuError; what was written until then stays."""
    old = db.read()
    target = simulate(_with_tables(patch, old), old)
    _check(old, target)
    if not dry:
        _write(old, target)


def replace(target: Config) -> None:
    """Bring CONFIG_DB to a whole configuration, under the same checks. Raises GcuError."""
    old = db.read()
    _check(old, target)
    _write(old, target)


def _with_tables(patch: Patch, old: Config) -> Patch:
    """Return the patch with tables added that it refers to and that are missing (append_emptytables_if_required)."""
    out: Patch = []
    seen = set(old)
    for operation in patch:
        table = _parts(operation["path"])[0]
        if table not in seen and len(_parts(operation["path"])) > 1:
            out.append({"op": "add", "path": f"/{table}", "value": {}})
        seen.add(table)
        out.append(operation)
    return out


def _parts(path: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in path.strip("/").split("/")]


def simulate(patch: Patch, old: Config) -> Config:
    """Return a configuration after a patch (RFC 6902: add, replace, remove). Raises GcuError for a missing target."""
    out = copy.deepcopy(old)
    for operation in patch:
        node: Any = out
        *head, last = _parts(operation["path"])
        for part in head:
            if part not in node:
                raise GcuError(f"member '{part}' not found in {{...}}")
            node = node[part]
        if operation["op"] != "add" and last not in node:
            raise GcuError(f"can't {operation['op']} a non-existent object '{last}'")
        if operation["op"] == "remove":
            node.pop(last)
        else:
            node[last] = copy.deepcopy(operation["value"])
    return out


def _check(old: Config, target: Config) -> None:
    operations = difference(old, target)
    for operation in operations:
        _permitted(operation, target)
    empty = [table for table, entries in target.items() if not entries]
    if empty:
        raise GcuError(
            "given patch is not valid because it will result in empty tables which is not allowed in ConfigDb. "
            f"Table: {', '.join(empty)}"
        )
    if any(not yang.modelled(_parts(operation["path"])[0]) for operation in operations):
        raise GcuError("Given patch is not valid because it has changes to tables without YANG models")
    if found := yang.problem(target):
        raise GcuError(f"Given patch will produce invalid config. Error: Data Loading Failed\n{found}")


def _permitted(operation: dict[str, Any], target: Config) -> None:
    path, op = operation["path"], operation["op"]
    if op == "remove" and path in _NEVER_REMOVED:
        raise GcuError(f"Given patch operation is invalid. Operation: {op} is illegal on field: {path}")
    table, *rest = _parts(path)
    sku = target.get("DEVICE_METADATA", {}).get("localhost", {}).get("hwsku", "")
    bad = table == "BUFFER_POOL"
    if table == "PFC_WD":
        bad = not sku.startswith(_WATCHED_SKUS) or not set(_fields(operation)) <= _WATCHDOG_FIELDS
    if table == "PORT" and op != "remove" and rest[1:2] == ["speed"]:
        bad = operation["value"] not in _SPEEDS
    elif table == "PORT" and op != "remove" and rest[1:2] == ["fec"]:
        bad = operation["value"] not in _FECS
    if bad:
        kind = {"PORT": "port_config", "PFC_WD": "rdma_config"}.get(table, "rdma_config")
        function = f"generic_config_updater.field_operation_validators.{kind}_update_validator"
        raise GcuError(f"Modification of {table} table is illegal- validating function {function} returned False")


def _fields(operation: dict[str, Any]) -> list[str]:
    """Return the fields that a validator sees in an operation (field_operation_validators.py, _get_fields_in_patch).

    Ports' names are left out of the path, but not of a value: so a whole table of ports is refused.
    """
    parts = _parts(operation["path"])[1:]
    path = "/".join(part for part in parts if not any(char.isdigit() for char in part)).lower()
    value = operation.get("value")
    if not isinstance(value, dict):
        return [path]
    return [f"{path}/{key}" if path else key for key in value]


def difference(old: Config, target: Config) -> Patch:
    """Return the operations between two configurations: whole tables and entries, or fields."""
    out: Patch = []
    _nodes(old, target, "", out)
    return out


def _nodes(old: Any, target: Any, path: str, out: Patch) -> None:  # noqa: ANN401 - JSON
    for name in sorted({*old, *target}):
        here = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
        if name not in target:
            out.append({"op": "remove", "path": here})
        elif name not in old:
            out.append({"op": "add", "path": here, "value": target[name]})
        elif isinstance(old[name], dict):
            _nodes(old[name], target[name], here, out)
        elif old[name] != target[name]:
            out.append({"op": "replace", "path": here, "value": target[name]})


def _write(old: Config, target: Config) -> None:
    state = store.hardware()
    stop, pause = state.get("gcu_stop_after"), float(state.get("gcu_pause_s", 0.01))
    for done, (table, key) in enumerate(_changes(old, target)):
        if stop is not None and done >= stop:
            raise GcuError("There is no possible sorting")
        with db.change() as config:
            entry = target.get(table, {}).get(key)
            if entry is None:
                config.get(table, {}).pop(key, None)
            else:
                config.setdefault(table, {})[key] = entry
            if not config.get(table, {}):
                config.pop(table, None)
        time.sleep(pause)
    new = db.read()
    if any(new.get(table) != target.get(table) for table in {*new, *target} - set(_BACKEND)):
        raise GcuError("after applying patch to config, there are still some parts not updated")


def _changes(old: Config, target: Config) -> list[tuple[str, str]]:
    found = {
        (table, key)
        for table in {*old, *target}
        for key in {*old.get(table, {}), *target.get(table, {})}
        if old.get(table, {}).get(key) != target.get(table, {}).get(key)
    }
    return sorted(found, key=lambda one: (one[0] not in _FIRST, one))


def checkpoint(name: str) -> None:
    """Keep CONFIG_DB under a name."""
    folder = paths.at(_CHECKPOINTS)
    folder.mkdir(parents=True, exist_ok=True)
    store.write(folder / f"{name}.cp.json", db.dumps(db.read()))


def rollback(name: str, *, dry: bool) -> None:
    """Return to a checkpoint. Raises GcuError."""
    path = paths.at(_CHECKPOINTS) / f"{name}.cp.json"
    if not path.exists():
        raise GcuError(f"Checkpoint '{name}' does not exist")
    target = json.loads(path.read_text())
    if dry:
        _check(db.read(), target)
    else:
        replace(target)


def delete(name: str) -> None:
    """Delete a checkpoint. Raises GcuError."""
    path = paths.at(_CHECKPOINTS) / f"{name}.cp.json"
    if not path.exists():
        raise GcuError(f"Checkpoint '{name}' does not exist")
    path.unlink()


def names() -> list[str]:
    """Return the names of all checkpoints."""
    return [path.name.removesuffix(".cp.json") for path in paths.at(_CHECKPOINTS).glob("*.cp.json")]
