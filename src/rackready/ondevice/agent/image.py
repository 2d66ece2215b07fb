"""Writes the image: fetched, hashed and unpacked at once. It counts only when the hash is the plan's."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from .errors import ImagingError
from .plan import Image

_TAR = (
    "tar", "--extract", "--zstd", "--preserve-permissions", "--same-owner", "--numeric-owner",
    "--acls", "--xattrs", "--xattrs-include=*", "--file=-",
)  # fmt: skip
_STEP = 10
"""Per cent between two reports."""


def write(pieces: Iterator[bytes], image: Image, target: Path, report: Callable[[int], None]) -> None:
    """Unpack an image below ``target``; ``report`` gets the per cent done.

    Raises ImagingError when tar fails, or the hash is another one. What was unpacked must not be used then.
    """
    digest, done, told = hashlib.sha256(), 0, 0
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen([*_TAR, f"--directory={target}"], stdin=subprocess.PIPE, stderr=said) as tar,
    ):
        try:
            for piece in pieces:
                digest.update(piece)
                _feed(tar, piece)
                done += len(piece)
                percent = min(done * 100 // image.size, 100)
                if percent >= told + _STEP:
                    told = percent // _STEP * _STEP
                    report(told)
        except BaseException:
            tar.kill()
            raise
        if tar.stdin is not None:
            _close(tar)
        code = tar.wait()
        said.seek(0)
        words = " ".join(said.read().decode(errors="replace").split())[-400:]
    # The hash first: damaged data is why tar fails, and not the other way round.
    if done == image.size and digest.hexdigest() != image.sha256:
        raise ImagingError(
            "image-hash",
            f"image {image.name}",
            expected=f"SHA-256 {image.sha256}",
            actual=f"{digest.hexdigest()}",
            next_step="Build or import the image again.",
        )
    if code != 0:
        raise ImagingError("image-unpack", f"image {image.name}", expected="tar unpacks it", actual=f"{code}: {words}")
    if done != image.size:
        raise ImagingError("network", f"image {image.name}", expected=f"{image.size} bytes", actual=f"{done}")


def _feed(tar: subprocess.Popen[bytes], piece: bytes) -> None:
    """Pass a piece on; once tar has ended, only the hash still matters."""
    if tar.stdin is None or tar.stdin.closed:
        return
    try:
        tar.stdin.write(piece)
    except BrokenPipeError:
        _close(tar)


def _close(tar: subprocess.Popen[bytes]) -> None:
    try:
        if tar.stdin is not None:
            tar.stdin.close()
    except BrokenPipeError:  # it ended early: its exit code tells
        pass
