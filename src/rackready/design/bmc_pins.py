"""Pinned TLS certificates of BMCs: one line a node, its name and the SHA-256 of the certificate that it showed.

They stand in for ``bmc.fingerprint`` of a node whose site file states neither that nor ``bmc.ca``.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path
from typing import Any

from rackready import files
from rackready.model.problems import RackreadyError
from rackready.paths import private_dir

_LINE = re.compile(r"^(?P<node>[a-z][a-z0-9-]{0,62}) (?P<sha256>([0-9a-f]{2}:){31}[0-9a-f]{2})$")


class PinsDamagedError(RackreadyError):
    """A line of the pins is not a name and a SHA-256."""


def pins(path: Path) -> dict[str, str]:
    """Return node -> SHA-256 of its pinned certificate. Raises PinsDamagedError: a lost pin would trust anything."""
    if not path.exists():
        return {}
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        match = _LINE.match(line)
        if match is None:
            raise PinsDamagedError(
                f"{path} line {number}",
                expected="NODE SHA-256, as `rackready bmc trust` writes it",
                actual="another text",
                next_step="Remove that line, compare the certificate, then run `rackready bmc trust NODE`.",
            )
        found[match["node"]] = match["sha256"]
    return found


def pin(path: Path, node: str, sha256: str) -> None:
    """Pin a certificate for a node in place of any other. The file is replaced as a whole, under a lock."""
    private_dir(path.parent)
    lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lines = [f"{name} {value}" for name, value in sorted({**pins(path), node: sha256}.items())]
        files.replace(path, ("\n".join(lines) + "\n").encode())
    finally:
        os.close(lock)


def with_pins(document: dict[str, Any], pinned: dict[str, str]) -> dict[str, Any]:
    """Return an expanded site document with the pins of nodes whose BMC has no other trust stated."""
    racks = document.get("racks")
    if not pinned or not isinstance(racks, list):
        return document
    return {**document, "racks": [_of_rack(rack, pinned) for rack in racks]}


def _of_rack(rack: Any, pinned: dict[str, str]) -> Any:  # noqa: ANN401 - a YAML document
    nodes = rack.get("nodes") if isinstance(rack, dict) else None
    return {**rack, "nodes": [_of_node(node, pinned) for node in nodes]} if isinstance(nodes, list) else rack


def _of_node(node: Any, pinned: dict[str, str]) -> Any:  # noqa: ANN401 - a YAML document
    name, bmc = (node.get("name"), node.get("bmc")) if isinstance(node, dict) else (None, None)
    if not isinstance(name, str) or name not in pinned or not isinstance(bmc, dict):
        return node
    if bmc.get("fingerprint") is not None or bmc.get("ca") is not None:
        return node
    return {**node, "bmc": {**bmc, "fingerprint": pinned[name]}}
