"""The signed index of a build: which node has which release. Makes it, lists, and verifies what it names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from rackready import files
from rackready.drivers.release import sealing
from rackready.drivers.release.build import Built
from rackready.drivers.release.document import blobs_of, canonical
from rackready.drivers.release.error import ReleaseError
from rackready.drivers.release.objects import Blob, Objects, objects_of, release_folder
from rackready.handover.dsse import Form, SignatureError, Signer, key_id, sign, verify
from rackready.model.problems import RackreadyError
from rackready.paths import EnvPaths, private_dir

INDEX = Form(
    "application/vnd.rackready.release-index+json",
    "index of releases",
    "Run `rackready release build`.",
    "Run `rackready release build`; a key that you replaced belongs in certificates.retired_keys.",
)
_BUILD = "Run `rackready release build`."
_MODE = 0o444


@dataclass(frozen=True, slots=True)
class Entry:
    """One node of an index: its release, and the machine that it is for."""

    node: str
    release: Blob
    machine: str


@dataclass(frozen=True, slots=True)
class Index:
    """A verified index. ``name``: SHA-256 (hex) of its payload, the name of its file."""

    name: str
    path: Path
    site: str
    key: str
    entries: tuple[Entry, ...]


def index_folder(paths: EnvPaths) -> Path:
    """Return the folder of the indexes: one file for each build that differs."""
    return release_folder(paths) / "releases"


def write(paths: EnvPaths, site: str, built: Built, signer: Signer) -> Path:
    """Sign and store the index of a build, and return its file. A build with the same releases has the same file.

    Raises ReleaseError for a build without any release, SignatureError and OSError.
    """
    if not built.releases:
        raise ReleaseError("release build", expected="a release of some node", actual="none", next_step="See above.")
    nodes = {
        name: {"release": found.blob.document(), "machine": found.machine} for name, found in built.releases.items()
    }
    payload = canonical({"version": 1, "env": paths.env, "site": site, "nodes": nodes})
    path = private_dir(index_folder(paths)) / f"{hashlib.sha256(payload).hexdigest()}.json"
    envelope = canonical(sign(payload, signer, INDEX))  # Ed25519: the same payload has the same signature
    files.settle(path, envelope, mode=_MODE)
    path.touch()  # newest first: what was built again is the newest
    return path


def indexes(paths: EnvPaths) -> list[Path]:
    """Return the files of all indexes, the newest first."""
    found = index_folder(paths).glob("*.json")
    return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name), reverse=True)


def chosen(paths: EnvPaths, name: str) -> Path:
    """Return the index whose name begins so; empty: the newest. Raises ReleaseError unless there is exactly one."""
    every = indexes(paths)
    found = [path for path in every if path.name.startswith(name)] if name else every[:1]
    if len(found) != 1:
        known = ", ".join(path.stem[:12] for path in every[:8]) or "none"
        raise ReleaseError(
            f"release {name}".strip(),
            expected=f"one index (known: {known})" if every else "an index of releases",
            actual=f"{len(found)} begin so" if name and found else "none",
            next_step="Give more of its name." if found else _BUILD,
        )
    return found[0]


def read(path: Path, keys: Sequence[Ed25519PublicKey]) -> Index:
    """Return an index that one of the keys signed and that has its own name. Raises SignatureError, ReleaseError."""
    try:
        envelope = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _damaged(path, "a readable index", str(error)) from error
    found = verify(envelope, keys, str(path), INDEX)
    name = hashlib.sha256(found.payload).hexdigest()
    if name != path.stem:
        raise _damaged(path, f"SHA-256 {path.stem[:12]}, as its name says", name[:12])
    document = json.loads(found.payload)
    entries = tuple(_entry(node, row) for node, row in sorted(document["nodes"].items()))
    return Index(name, path, str(document["site"]), key_id(found.key), entries)


def _entry(node: str, row: Mapping[str, Any]) -> Entry:
    release = row["release"]
    return Entry(node, Blob(str(release["sha256"]), int(release["size"])), str(row["machine"]))


def _damaged(path: Path, expected: str, actual: str) -> ReleaseError:
    return ReleaseError(path, "index of releases", expected=expected, actual=actual, next_step=_BUILD)


@dataclass(frozen=True, slots=True)
class Verification:
    """What a verification found: the index, and every fault, with the nodes that it concerns."""

    index: Index | None
    faults: tuple[RackreadyError, ...]
    objects: int


def verified(
    paths: EnvPaths, path: Path, keys: Sequence[Ed25519PublicKey], nodes: Sequence[str] | None
) -> Verification:
    """Verify an index, and every object of the releases of nodes (None: all): there, whole, and sealed for the node.

    Raises OSError and SealError when the controller's own key cannot be read.
    """
    try:
        index = read(path, keys)
    except (ReleaseError, SignatureError) as error:
        return Verification(None, (error,), 0)
    store, master = objects_of(paths), sealing.master_key(paths, make=False)
    seen: dict[Blob, RackreadyError | None] = {}
    faults: list[RackreadyError] = []
    for entry in index.entries:
        if nodes is None or entry.node in nodes:
            faults += _of_node(store, entry, sealing.node_key(master, entry.node, entry.machine), seen)
    return Verification(index, tuple(faults), len(seen))


def _of_node(
    store: Objects, entry: Entry, key: bytes, seen: dict[Blob, RackreadyError | None]
) -> Iterator[RackreadyError]:
    """Yield the faults of a node's release. A fault of an object that others share is yielded once."""
    try:
        seen.setdefault(entry.release, None)
        data = store.get(entry.release)
        parts = blobs_of(data, f"{entry.node}: {entry.release.sha256[:12]}")
        if json.loads(data)["node"] != entry.node:
            yield ReleaseError(
                entry.node,
                f"release {entry.release.sha256[:12]}",
                expected=f"the release of {entry.node}",
                actual=f"that of {json.loads(data)['node']}",
                next_step=_BUILD,
            )
        sealing.opened(key, entry.node, store.get(parts["variables"]))
    except ReleaseError as error:
        yield error
        return
    for blob in parts.values():
        if blob not in seen:
            seen[blob] = _fault(store, blob)
            if (found := seen[blob]) is not None:
                yield found


def _fault(store: Objects, blob: Blob) -> ReleaseError | None:
    try:
        store.get(blob)
    except ReleaseError as error:
        return error
    return None
