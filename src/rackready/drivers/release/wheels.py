"""The wheels of a release: those of the controller's environment, for the node's Python and processor.

Where rackready runs from a checkout, `requirements.lock` says which hashes they may have. An installed package has no
lock: the hashes of the first download are recorded, and a later one must have the same.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from rackready import files
from rackready.drivers.release import pip
from rackready.drivers.release.closure import closure
from rackready.drivers.release.error import ReleaseError
from rackready.drivers.release.objects import Blob, Objects
from rackready.paths import EnvPaths, is_checkout, private_dir, setup_command, shipped

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Wheel:
    """One wheel as an object of the store."""

    name: str
    version: str
    file: str
    blob: Blob

    def document(self) -> dict[str, str | int]:
        """Return it as the release document has it."""
        return {"name": self.name, "version": self.version, "file": self.file, **self.blob.document()}


@dataclass
class Wheels:
    """The wheels of an environment's releases. Those that were fetched once are not fetched again.

    ``say`` is told before a download. ``lock``: the lock file, None without one.
    """

    paths: EnvPaths
    objects: Objects
    say: Callable[[str], None] = lambda _text: None
    lock: Path | None = field(default_factory=lambda: shipped() / "requirements.lock" if is_checkout() else None)

    def of(self, python: str, processor: str) -> list[Wheel]:
        """Return the wheels for a Python and a processor, fetched with pip if need be. Raises ReleaseError, OSError."""
        wanted = closure(python, processor)
        allowed = _allowed(wanted, self.lock)
        record = self.paths.state / "wheels" / f"{python}-{processor}.json"
        known = _recorded(record)
        hashes = {name: allowed[name] or _hash_of(known.get(name), wanted[name]) for name in wanted}
        there = {name: wheel for name, wheel in known.items() if self._usable(wheel, wanted, hashes)}
        missing = {name: version for name, version in wanted.items() if name not in there}
        if missing:
            self.say(f"fetching {len(missing)} wheels for Python {python} on {processor}")
            there |= self._fetched(missing, python, processor, hashes)
            private_dir(record.parent)
            kept = {**known, **there}
            files.replace(record, json.dumps([kept[name].document() for name in sorted(kept)], indent=1).encode())
        for name in wanted:
            self._count(there[name].blob)
        return [there[name] for name in wanted]

    def _usable(self, wheel: Wheel, wanted: Mapping[str, str], hashes: Mapping[str, frozenset[str]]) -> bool:
        return (
            wanted.get(wheel.name) == wheel.version
            and wheel.blob.sha256 in hashes[wheel.name]
            and self.objects.whole(wheel.blob)
        )

    def _fetched(
        self, missing: Mapping[str, str], python: str, processor: str, hashes: Mapping[str, frozenset[str]]
    ) -> dict[str, Wheel]:
        with tempfile.TemporaryDirectory(prefix="rackready-wheels-") as folder:
            pip.download(missing, hashes, python, processor, Path(folder))
            found = {wheel.name: wheel for wheel in map(self._stored, sorted(Path(folder).iterdir()))}
        for name, version in missing.items():
            wheel = found.get(name)
            if wheel is None or wheel.version != version:
                actual = f"{wheel.file}" if wheel else "another file"
                raise pip.not_found(f"{name}=={version}", python, processor, actual)
            if hashes[name] and wheel.blob.sha256 not in hashes[name]:
                raise pip.other_hash(f"{name}=={version}", hashes[name], wheel.blob.sha256)
        return {name: found[name] for name in missing}

    def _stored(self, path: Path) -> Wheel:
        try:
            name, version, _, _ = parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            return Wheel(path.name, "", path.name, Blob("", 0))
        return Wheel(canonicalize_name(name), str(version), path.name, self.objects.put(path.read_bytes()))

    def _count(self, blob: Blob) -> None:
        if blob.sha256 not in self.objects.new:
            self.objects.kept.add(blob.sha256)


def _recorded(record: Path) -> dict[str, Wheel]:
    """Return the wheels that were fetched before; none if the record is damaged."""
    try:
        rows: list[dict[str, Any]] = json.loads(record.read_text(encoding="utf-8"))
        found = [
            Wheel(str(row["name"]), str(row["version"]), str(row["file"]), Blob(str(row["sha256"]), int(row["size"])))
            for row in rows
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {wheel.name: wheel for wheel in found}


def _hash_of(known: Wheel | None, version: str) -> frozenset[str]:
    return frozenset({known.blob.sha256}) if known is not None and known.version == version else frozenset()


def _allowed(wanted: Mapping[str, str], lock: Path | None) -> dict[str, frozenset[str]]:
    """Return package -> hashes that its files may have; empty without a lock. Raises ReleaseError, OSError."""
    if lock is None:
        return dict.fromkeys(wanted, frozenset())
    pins = locked(lock.read_text(encoding="utf-8").splitlines())
    for name, version in wanted.items():
        pinned = pins.get(name, ("absent", frozenset()))[0]
        if pinned != version:
            raise ReleaseError(
                lock,
                f"Python package {name}",
                expected=f"{pinned}, as locked",
                actual=f"{version} is installed",
                next_step=f"Run `{setup_command()}`: nodes get what the controller runs.",
            )
    return {name: pins[name][1] for name in wanted}


def locked(lines: Iterable[str]) -> dict[str, tuple[str, frozenset[str]]]:
    """Return package -> version and hashes of a lock file."""
    out: dict[str, tuple[str, frozenset[str]]] = {}
    name = ""
    for line in lines:
        if pin := _PIN.match(line):
            name = canonicalize_name(pin[1])
            out[name] = (pin[2], frozenset())
        if name and (found := _HASH.findall(line)):
            version, before = out[name]
            out[name] = (version, before | frozenset(found))
    return out
