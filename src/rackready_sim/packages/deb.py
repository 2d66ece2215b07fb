"""Write Debian binary packages; equal content gives equal bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

_TIME = 1735776000
"""Time stamp of every file, seconds since 1970: constant, so that equal packages have equal bytes."""


@dataclass(frozen=True, slots=True)
class Deb:
    """One package."""

    name: str
    version: str
    summary: str
    fields: dict[str, str] = field(default_factory=dict)
    """Further control fields: Depends, Conflicts, Provides, ..."""
    files: Mapping[str, bytes | str] = field(default_factory=dict)
    """Absolute path to content. Paths below a bin folder, and scripts below libexec, are executable."""
    links: dict[str, str] = field(default_factory=dict)
    """Absolute path to the target of a symbolic link."""
    conffiles: tuple[str, ...] = ()
    scripts: dict[str, str] = field(default_factory=dict)
    """postinst, prerm, postrm, preinst to shell text (without the first line)."""
    architecture: str = "amd64"

    @property
    def filename(self) -> str:
        """Name of the package file, without the epoch, as in Debian."""
        return f"{self.name}_{self.version.split(':', 1)[-1]}_{self.architecture}.deb"

    def control(self) -> str:
        """Return the control paragraph."""
        size = sum(len(content) for content in self.files.values()) // 1024 + 1
        rows = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": self.architecture,
            "Maintainer": "rackready simulated mirror <nobody@invalid>",
            "Installed-Size": str(size),
            **self.fields,
            "Section": "non-free/kernel",
            "Priority": "optional",
            "Description": self.summary,
        }
        return "".join(f"{key}: {value}\n" for key, value in rows.items())


def write(deb: Deb, folder: Path) -> str:
    """Write the package file into ``folder``; return its paragraph for a Packages index."""
    data = _archive(_data_members(deb))
    raw = _ar({"debian-binary": b"2.0\n", "control.tar.gz": _archive(_control_members(deb)), "data.tar.gz": data})
    (folder / deb.filename).write_bytes(raw)
    sums = (
        f"Filename: ./{deb.filename}\nSize: {len(raw)}\nMD5sum: {hashlib.md5(raw, usedforsecurity=False).hexdigest()}\n"
    )
    return f"{deb.control()}{sums}SHA256: {hashlib.sha256(raw).hexdigest()}\n"


def _control_members(deb: Deb) -> list[tuple[str, bytes | str, int]]:
    members: list[tuple[str, bytes | str, int]] = [("./control", deb.control().encode(), 0o644)]
    sums = "".join(
        f"{hashlib.md5(_bytes(content), usedforsecurity=False).hexdigest()}  {path[1:]}\n"
        for path, content in sorted(deb.files.items())
    )
    members.append(("./md5sums", sums.encode(), 0o644))
    if deb.conffiles:
        members.append(("./conffiles", "".join(f"{path}\n" for path in deb.conffiles).encode(), 0o644))
    members += [
        (f"./{name}", f"#!/bin/sh\nset -e\n{text}".encode(), 0o755) for name, text in sorted(deb.scripts.items())
    ]
    return members


def _data_members(deb: Deb) -> list[tuple[str, bytes | str, int]]:
    entries: dict[str, tuple[bytes | str, int]] = {}
    for path, content in deb.files.items():
        entries[path] = (_bytes(content), 0o755 if is_executable(path, content) else 0o644)
    for path, target in deb.links.items():
        entries[path] = (target, 0)
    folders = {str(parent) for path in entries for parent in PurePosixPath(path).parents} - {"/"}
    rows: list[tuple[str, bytes | str, int]] = [("./", b"", -1)]
    rows += [(f".{path}/", b"", -1) for path in sorted(folders)]
    return rows + [(f".{path}", content, mode) for path, (content, mode) in sorted(entries.items())]


def _archive(members: list[tuple[str, bytes | str, int]]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, content, mode in members:
            info = tarfile.TarInfo(name)
            info.mtime, info.uname, info.gname = _TIME, "root", "root"
            if mode < 0:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
            elif isinstance(content, str):
                info.type, info.linkname, info.mode = tarfile.SYMTYPE, content, 0o777
            else:
                info.size, info.mode = len(content), mode
            tar.addfile(info, io.BytesIO(content) if isinstance(content, bytes) and mode >= 0 else None)
    return gzip.compress(raw.getvalue(), compresslevel=1, mtime=0)


def _ar(members: dict[str, bytes]) -> bytes:
    out = b"!<arch>\n"
    for name, content in members.items():
        head = f"{name:<16}{_TIME:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n"
        out += head.encode() + content + (b"\n" if len(content) % 2 else b"")
    return out


def is_executable(path: str, content: bytes | str) -> bool:
    """Return whether a file of a package is executable."""
    return any(part in {"bin", "sbin"} for part in PurePosixPath(path).parts[:-1]) or (
        "libexec" in PurePosixPath(path).parts and _bytes(content).startswith(b"#!")
    )


def _bytes(content: bytes | str) -> bytes:
    return content.encode() if isinstance(content, str) else content
