"""A release on the node: its document, its objects, its folder, and what is removed again."""

from __future__ import annotations

import errno
import hashlib
import json
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from .fetch import get_object
from .order import PullOrder, is_object
from .places import Config, Places, replace_file
from .problem import PullProblem, disk_full
from .unpack import unpack

VERSION = 1
_STEP = "Run the phase again on the controller: it writes the release again."
_LARGEST = 1 << 30
_SPARE = 64 << 20
"""Bytes that stay free beside a release."""
_GROWTH = 5
"""A release takes this many times the room of its objects when it is unpacked."""
_PYTHON = re.compile(r"3\.\d{1,2}\Z")
_WHEEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,250}\.whl\Z")

Objects = dict[str, int]
"""SHA-256 -> size."""


def prepared(places: Places, config: Config, order: PullOrder) -> dict[str, Any]:
    """Return the release's document after its objects were fetched and unpacked. Raises PullProblem."""
    try:
        fetch_all(places, config, {order.release: order.release_size})
        document = _document(places, config, order)
        wanted = _objects(document, order)
        fetch_all(places, config, wanted, unpacked=_unpacked(document) if _is_new(places, order) else 0)
        if _is_new(places, order):
            wheels = [places.objects / item["sha256"] for item in document["wheels"]]
            unpack(config.node, places.objects / document["code"]["sha256"], wheels, places.releases / order.release)
        _prune(places, order, [order.release, *wanted])
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            said = f"{error.strerror or error} ({error.filename or places.state})"
            step = f"Look at the node's disk below {places.state}."
            raise PullProblem("disk", f"{config.node}: disk", "a disk that can be written", said, step) from error
        raise disk_full(config.node, places.state, "room for the release", "no space left on device") from error
    return document


def fetch_all(places: Places, config: Config, wanted: Objects, *, unpacked: int = 0) -> None:
    """Fetch the objects that are not here whole; ``unpacked``: bytes that are needed beside them."""
    missing = {sha256: size for sha256, size in wanted.items() if not _is_whole(places.objects / sha256, sha256, size)}
    free, needed = shutil.disk_usage(places.state).free, sum(missing.values()) + unpacked
    if (missing or unpacked) and needed + _SPARE > free:
        expected, said = f"{_mib(needed + _SPARE)} for the release", f"{_mib(free)} free"
        raise disk_full(config.node, places.state, expected, said)
    for sha256, size in sorted(missing.items()):
        get_object(config.url, config.node, sha256, size, places.objects / sha256)


def _is_new(places: Places, order: PullOrder) -> bool:
    return not (places.releases / order.release).is_dir()


def _is_whole(path: Path, sha256: str, size: int) -> bool:
    """Whether an object is here as it must be; what is not is removed."""
    try:
        if path.stat().st_size == size and digest(path) == sha256:
            return True
        path.unlink()
    except FileNotFoundError:
        pass
    return False


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while data := stream.read(1 << 20):
            found.update(data)
    return found.hexdigest()


def _document(places: Places, config: Config, order: PullOrder) -> dict[str, Any]:
    where = f"{config.node}: release {order.release[:12]}"
    try:
        found = json.loads((places.objects / order.release).read_bytes())
    except ValueError as error:
        raise PullProblem("release-damaged", where, "JSON", "something else", _STEP) from error
    if not isinstance(found, dict) or found.get("version") != VERSION:
        said = f"version {found.get('version')}" if isinstance(found, dict) else "something else"
        step = "Run the phase again on the controller: it installs the agent again."
        raise PullProblem("version", where, f"version {VERSION}", said, step)
    if found.get("node") != config.node:
        raise PullProblem("other-node", where, f"node {config.node}", f"a release for {found.get('node')}", _STEP)
    wrong = _malformed(found)
    if wrong:
        raise PullProblem(
            "release-damaged", where, "a release as version 1 has it", f"wrong: {', '.join(wrong)}", _STEP
        )
    return found


def _malformed(found: dict[str, Any]) -> list[str]:
    wheels, given = found.get("wheels"), found.get("files")
    good = {
        "code": is_object(found.get("code"), _LARGEST),
        "wheels": isinstance(wheels, list) and all(_is_wheel(item) for item in wheels),
        "files": isinstance(given, list) and all(is_object(item, _LARGEST) for item in given),
        "variables": is_object(found.get("variables"), 1 << 26),
        "python": isinstance(found.get("python"), str) and _PYTHON.match(found["python"]) is not None,
    }
    return [name for name, is_good in good.items() if not is_good]


def _is_wheel(item: Any) -> bool:  # noqa: ANN401 - JSON
    return is_object(item, _LARGEST) and isinstance(item.get("file"), str) and _WHEEL.match(item["file"]) is not None


def _objects(document: dict[str, Any], order: PullOrder) -> Objects:
    items = [document["code"], *document["wheels"], *document["files"], document["variables"], order.extra]
    return {item["sha256"]: item["size"] for item in items}


def _unpacked(document: dict[str, Any]) -> int:
    return _GROWTH * sum(int(item["size"]) for item in [document["code"], *document["wheels"]])


def _mib(count: int) -> str:
    return f"{-(-count // (1 << 20))} MiB"


def _prune(places: Places, order: PullOrder, objects: list[str]) -> None:
    """Keep this release, those that orders of other phases name, and one before them; remove all others."""
    file = places.state / "kept.json"
    kept: list[dict[str, Any]] = [{"release": order.release, "phase": order.phase, "objects": sorted(objects)}]
    before: list[dict[str, Any]] = []
    for item in _kept(file):
        is_other = item.get("phase") in order.phases and item["phase"] not in {one["phase"] for one in kept}
        (kept if is_other else before).append(item)
    releases, _ = _names(kept)
    kept += [item for item in before if item["release"] not in releases][:1]
    replace_file(file, json.dumps(kept).encode())
    names, needed = _names(kept)
    for folder in places.releases.iterdir():
        if folder.name not in names:
            shutil.rmtree(folder, ignore_errors=True)
    for object_ in places.objects.iterdir():
        if object_.name not in needed:
            with suppress(OSError):
                object_.unlink()


def _kept(file: Path) -> list[dict[str, Any]]:
    try:
        found = json.loads(file.read_bytes())
        _names(found)
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return list(found)


def _names(kept: list[dict[str, Any]]) -> tuple[set[str], set[str]]:
    """Return the releases and the objects of the list."""
    return {str(item["release"]) for item in kept}, {str(name) for item in kept for name in item["objects"]}
