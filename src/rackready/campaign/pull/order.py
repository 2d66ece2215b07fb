"""Orders: what a node is to apply or to check, signed with the key of the site's certificates."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rackready import files
from rackready.drivers.release.objects import release_folder
from rackready.handover import dsse
from rackready.handover.dsse import Signer
from rackready.paths import EnvPaths, private_dir

FORM = dsse.Form("application/vnd.rackready.order+json", "order", "Run the phase again: it writes another one.")
VERSION = 1
APPLY, CHECK = "apply", "check"


@dataclass(frozen=True, slots=True)
class PullOrder:
    """One order for one node. Nodes refuse a sequence below one that they have seen."""

    site: str
    env: str
    node: str
    machine: str
    sequence: int
    issued: int
    expires: int
    release: str
    release_size: int
    mode: str
    phase: str
    phases: Sequence[str]
    """Phases that nodes apply themselves, in their order: the timer checks the newest order of each."""
    playbook: str
    extra: Mapping[str, Any]
    limit_s: int

    def payload(self) -> bytes:
        """Return what is signed."""
        return json.dumps({"version": VERSION, **asdict(self)}, sort_keys=True, separators=(",", ":")).encode()


def _orders(paths: EnvPaths) -> Path:
    return release_folder(paths) / "orders"


def _standing(paths: EnvPaths) -> Path:
    """Return the folder of the newest order of each phase: it tells what nodes may still ask for. It is not served."""
    return release_folder(paths) / "standing"


def write(paths: EnvPaths, order: PullOrder, signer: Signer) -> None:
    """Put an order in the place of the node's present one, whole or not at all. Raises SignatureError, and OSError."""
    envelope = dsse.sign(order.payload(), signer, FORM)
    text, standing_ = json.dumps(envelope).encode(), private_dir(private_dir(_standing(paths)) / order.node)
    files.replace(standing_ / f"{order.phase}.json", text, mode=0o644)  # first: what is served is on record here
    files.replace(private_dir(_orders(paths)) / f"{order.node}.json", text, mode=0o644)


def standing(paths: EnvPaths, node: str) -> list[PullOrder]:
    """Return the newest order of each phase that was written for a node, and its present one."""
    found = [present(paths, node), *map(_read, sorted((_standing(paths) / node).glob("*.json")))]
    return [order for order in found if order is not None]


def present(paths: EnvPaths, node: str) -> PullOrder | None:
    """Return the node's present order, None where there is none that can be read.

    The signature is not looked at: the file is the controller's own, and only tells where it stopped.
    """
    return _read(_orders(paths) / f"{node}.json")


def _read(path: Path) -> PullOrder | None:
    try:
        envelope = json.loads(path.read_text(encoding="utf-8"))
        content = json.loads(base64.b64decode(envelope["payload"], validate=True))
        content.pop("version")
        content.setdefault("phases", [content["phase"]])  # an order that was written before this field
        return PullOrder(**content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
