"""Reader of captured outputs and their manifest, from a folder or tar archive. It reports all problems at once."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from rackready import printed_json
from rackready.drivers.process import OUTPUT_LIMIT
from rackready.format_error import FormatError
from rackready.gates.records.captured_archive import UnfitError, members
from rackready.model.evidence import CapturedOutput, Manifest
from rackready.model.problems import Message, RackreadyError
from rackready.model.wanted import given, path_text, steps, told

MANIFEST = "manifest.json"
_AGAIN = "Import the complete capture again."
_CORRECT = "Correct it: docs/howto/gates.md shows a manifest."


class CaptureRefusedError(RackreadyError):
    """A capture is refused; the text lists every reason."""

    def __init__(self, source: Path, problems: list[Message]) -> None:
        count = len(problems)
        lines = [
            f"{source}: {count} problem{'s' if count != 1 else ''}; nothing was imported.",
            *(f"  {problem}" for problem in problems),
        ]
        super().__init__("\n".join(lines))
        self.messages = tuple(problems)


@dataclass(frozen=True, slots=True)
class Capture:
    """A manifest with its files. ``digest``: SHA-256 of the manifest."""

    source: Path
    manifest: Manifest
    digest: str
    files: dict[str, str]


def read(source: Path) -> Capture:
    """Return the capture in a folder with manifest.json, in that file's folder, or in a tar archive of it.

    Raise CaptureRefusedError.
    """
    try:
        name, take = _opened(source)
        raw = take(name)
    except (OSError, UnfitError) as error:
        problem = Message(
            MANIFEST,
            expected="a folder, manifest or tar archive that has it",
            actual=_why(error),
            next_step="Name the archive that collect.py packed, or capture again.",
        )
        raise CaptureRefusedError(source, [problem]) from error
    manifest = _manifest(source, name, raw)
    files, problems = _files(manifest, take)
    if problems:
        raise CaptureRefusedError(source, problems)
    return Capture(source, manifest, hashlib.sha256(raw).hexdigest(), files)


def _opened(source: Path) -> tuple[str, Callable[[str], bytes]]:
    """Return the manifest's file name, and a reader of files by their names in the manifest."""
    if source.is_dir():
        return MANIFEST, _folder(source)
    if source.suffix == ".json":
        return source.name, _folder(source.parent)
    return MANIFEST, _archive(source)


def _manifest(source: Path, name: str, raw: bytes) -> Manifest:
    """Return the manifest: strict JSON without duplicate keys. Raise CaptureRefusedError."""
    try:
        text = raw.decode("utf-8-sig")
        printed_json.load(text)
        return Manifest.model_validate_json(text, strict=True)
    except UnicodeDecodeError as error:
        problems = [
            (
                Message(
                    name,
                    expected="JSON in UTF-8",
                    actual=f"byte {error.object[error.start]:#04x} at offset {error.start}",
                    next_step=_AGAIN,
                )
            )
        ]
    except FormatError as error:
        problems = [Message(name, expected="JSON", actual=error, next_step=_CORRECT)]
    except ValidationError as error:
        problems = [_wrong(name, item) for item in error.errors(include_url=False)]
    raise CaptureRefusedError(source, problems)


def _wrong(name: str, item: Mapping[str, Any]) -> Message:
    """Return one problem of a manifest, with its place."""
    words = told(item)
    what = words.at(path_text(steps(item)))
    return Message(name, what, expected=words.expected, actual=words.actual or given(item), next_step=_CORRECT)


def _files(manifest: Manifest, take: Callable[[str], bytes]) -> tuple[dict[str, str], list[Message]]:
    files: dict[str, str] = {}
    seen: set[str] = set()
    problems: list[Message] = []
    for number, item in enumerate(manifest.outputs):
        for field in ("file", "stderr_file", "fingerprint", "fingerprint_after"):
            name = getattr(item, field)
            if name is None or name in seen:
                continue
            seen.add(name)
            where = f"outputs[{number}].{field}: {name}"
            try:
                data = take(name)
            except (OSError, UnfitError) as error:
                problems.append(
                    Message(where, expected="a file beside the manifest", actual=_why(error), next_step=_AGAIN)
                )
                continue
            problems += _changed(where, data, manifest.files, name)
            files[name] = data.decode(errors="replace")
    strange = sorted(set(manifest.files or ()) - seen)
    problems += [
        Message("files", name, expected="a file that an output names", actual="none names it", next_step=_CORRECT)
        for name in strange
    ]
    return files, problems


def _changed(where: str, data: bytes, digests: Mapping[str, str] | None, name: str) -> list[Message]:
    """Return the problem of a file whose digest is not the manifest's.

    A manifest has the digests of all files or, if it was written by hand, of none.
    """
    if digests is None:
        return []
    if name not in digests:
        return [
            Message(where, expected="its SHA-256 under files, like those of others", actual="none", next_step=_CORRECT)
        ]
    found = hashlib.sha256(data).hexdigest()
    return (
        []
        if found == digests[name]
        else [
            (
                Message(
                    where,
                    expected=f"SHA-256 {digests[name]}",
                    actual=found,
                    next_step=f"It was damaged or changed in transit. {_AGAIN}",
                )
            )
        ]
    )


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or error.__class__.__name__


def _folder(folder: Path) -> Callable[[str], bytes]:
    """Return a reader of files below a folder, and of no others."""

    def take(name: str) -> bytes:
        path = folder / _plain(name)
        if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
            raise UnfitError("it is outside the folder")
        with _plain_file(path) as file:
            data = file.read(OUTPUT_LIMIT + 1)
        return _bounded(data)

    return take


def _archive(source: Path) -> Callable[[str], bytes]:
    """Return a reader of an archive's members, which may all be in one folder. Nothing is unpacked to disk."""
    with _plain_file(source) as file:
        found = members(file)
    manifests = sorted(name for name in found if PurePosixPath(name).name == MANIFEST)
    if not manifests:
        raise UnfitError("none in the archive")
    if len(manifests) > 1:
        raise CaptureRefusedError(
            source,
            [
                Message(
                    MANIFEST,
                    expected="one capture",
                    actual=", ".join(manifests[:10]),
                    next_step="Import each of them by itself.",
                )
            ],
        )
    top = PurePosixPath(manifests[0]).parent

    def take(name: str) -> bytes:
        if (data := found.get(str(top / _plain(name)))) is None:
            raise UnfitError("none of that name in the archive")
        return _bounded(data)

    return take


def _plain_file(path: Path) -> Any:  # noqa: ANN401 - a binary file
    """Open a regular file for reading. Refuse a pipe or device without waiting for it. Raise OSError or UnfitError."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise UnfitError("not a regular file")
    return file


def _bounded(data: bytes) -> bytes:
    if len(data) > OUTPUT_LIMIT:
        raise UnfitError(f"larger than {OUTPUT_LIMIT >> 20} MiB")
    return data


def _plain(name: str) -> str:
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts:
        raise UnfitError("a path that leads outside")
    return str(parts)


def by_run(outputs: list[CapturedOutput]) -> dict[tuple[str, str], list[CapturedOutput]]:
    """Return (gate, run) -> outputs, in the order of the manifest. A single-node run has the node's name."""
    out: dict[tuple[str, str], list[CapturedOutput]] = {}
    for item in outputs:
        out.setdefault((item.gate, item.run or item.node), []).append(item)
    return out
