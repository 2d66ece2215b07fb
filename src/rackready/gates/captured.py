"""Reads outputs that were captured elsewhere, with their manifest, from a folder or a tar archive. Whatever is wrong is said at once; then nothing is taken."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from rackready.model.evidence import CapturedOutput, Manifest
from rackready.model.problems import RackreadyError

MANIFEST = "manifest.json"
_LIMIT = 32 << 20
"""Bytes of one file: what a command may print over SSH."""


class CaptureRefusedError(RackreadyError):
    """What was captured cannot be taken; the text lists every reason."""

    def __init__(self, source: Path, problems: list[str]) -> None:
        self.problems = problems
        count = len(problems)
        lines = [f"{source}: {count} problem{'s' if count != 1 else ''}; nothing was imported.", *(f"  {problem}" for problem in problems)]
        super().__init__("\n".join(lines))


@dataclass(frozen=True, slots=True)
class Capture:
    """A manifest with its files. ``digest``: SHA-256 of the manifest."""

    source: Path
    manifest: Manifest
    digest: str
    files: dict[str, str]


def read(source: Path) -> Capture:
    """Return what was captured: a folder with manifest.json, that file itself, or a tar archive of such a folder. Raises CaptureRefusedError."""
    try:
        take = _archive(source) if source.is_file() and tarfile.is_tarfile(source) else _folder(source.parent if source.is_file() else source)
        name = source.name if source.is_file() and source.suffix == ".json" else MANIFEST
        raw = take(name)
    except (OSError, KeyError, tarfile.TarError) as error:
        raise CaptureRefusedError(source, [f"{MANIFEST} - Expected: a folder, manifest or tar archive that has it Actual: {_why(error)}."]) from error
    try:
        manifest = Manifest.model_validate(json.loads(raw))
    except json.JSONDecodeError as error:
        raise CaptureRefusedError(source, [f"{name} - Expected: JSON Actual: damaged at line {error.lineno} column {error.colno}."]) from error
    except ValidationError as error:
        raise CaptureRefusedError(source, [f"{name}: {_path(item['loc'])} - {item['msg']}." for item in error.errors()]) from error
    files, problems = _files(manifest, take)
    if problems:
        raise CaptureRefusedError(source, problems)
    return Capture(source, manifest, hashlib.sha256(raw).hexdigest(), files)


def _path(loc: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")


def _files(manifest: Manifest, take: Callable[[str], bytes]) -> tuple[dict[str, str], list[str]]:
    files: dict[str, str] = {}
    problems: list[str] = []
    for number, item in enumerate(manifest.outputs):
        for field in ("file", "stderr_file", "fingerprint", "fingerprint_after"):
            name = getattr(item, field)
            if name is None or name in files:
                continue
            try:
                files[name] = take(name).decode(errors="replace")
            except (OSError, KeyError, tarfile.TarError) as error:
                problems.append(f"outputs[{number}].{field}: {name} - Expected: a file beside the manifest Actual: {_why(error)}.")
    return files, problems


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error).strip("'") or error.__class__.__name__


def _folder(folder: Path) -> Callable[[str], bytes]:
    """Return a reader of files below a folder, and only of those."""

    def take(name: str) -> bytes:
        path = folder / _plain(name)
        if not path.resolve().is_relative_to(folder.resolve()) or path.stat().st_size > _LIMIT:
            raise KeyError(f"it lies elsewhere, or is larger than {_LIMIT >> 20} MiB")
        return path.read_bytes()

    return take


def _archive(source: Path) -> Callable[[str], bytes]:
    """Return a reader of an archive's members; nothing is unpacked. They may all lie in one folder, as ``tar`` of a folder makes it."""
    with tarfile.open(source) as archive:
        members = {str(PurePosixPath(member.name)): member for member in archive.getmembers() if member.isfile()}
    top = next((str(PurePosixPath(name).parent) for name in members if PurePosixPath(name).name == MANIFEST), ".")

    def take(name: str) -> bytes:
        member = members[str(PurePosixPath(top) / _plain(name))]
        if member.size > _LIMIT:
            raise KeyError(f"larger than {_LIMIT >> 20} MiB")
        with tarfile.open(source) as again:
            file = again.extractfile(member)
            if file is None:
                raise KeyError("not a plain file")
            return file.read()

    return take


def _plain(name: str) -> str:
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts:
        raise KeyError("a path that leads elsewhere")
    return str(parts)


def by_run(outputs: list[CapturedOutput]) -> dict[tuple[str, str], list[CapturedOutput]]:
    """Return (gate, run) -> its outputs, in the order of the manifest; the run of a node's own is called like the node."""
    out: dict[tuple[str, str], list[CapturedOutput]] = {}
    for item in outputs:
        out.setdefault((item.gate, item.run or item.node), []).append(item)
    return out
