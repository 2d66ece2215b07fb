"""Downloads wheels for another Python and processor with pip, from the index that pip is configured with."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rackready.drivers.release.error import ReleaseError

_LIMIT_S = 900
_OLDEST_GLIBC, _GLIBC = 17, 34
"""Minor versions of glibc 2: of manylinux2014, and of EL 9, the oldest system of a version set."""
_MISSING = re.compile(r"No matching distribution found for (\S+)")
_AWAY = re.compile(r"Retrying \(|Could not fetch URL|Connection (?:refused|broken|to)|Temporary failure in name")
_OFFLINE = "put the wheels into a folder and set PIP_NO_INDEX=1 and PIP_FIND_LINKS=FOLDER. Then run again."


def download(
    wanted: Mapping[str, str], hashes: Mapping[str, frozenset[str]], python: str, processor: str, folder: Path
) -> None:
    """Download wheels into an empty folder; a package with hashes must have one of them. Raises ReleaseError."""
    for number, names in enumerate(_by_hash(wanted, hashes)):
        if not names:
            continue
        asked = folder.with_name(f"{folder.name}.{number}.txt")
        lines = [" ".join([f"{name}=={wanted[name]}", *_options(hashes[name])]) for name in names]
        asked.write_text("\n".join(lines) + "\n", encoding="utf-8")
        try:
            _run(asked, python, processor, folder)
        finally:
            asked.unlink()


def _by_hash(wanted: Mapping[str, str], hashes: Mapping[str, frozenset[str]]) -> tuple[list[str], list[str]]:
    """Return the packages with hashes and those without: pip wants all or none of a file."""
    return [name for name in wanted if hashes[name]], [name for name in wanted if not hashes[name]]


def _options(hashes: frozenset[str]) -> list[str]:
    return [f"--hash=sha256:{item}" for item in sorted(hashes)]


def _run(asked: Path, python: str, processor: str, folder: Path) -> None:
    platforms = [f"manylinux_2_{minor}_{processor}" for minor in range(_GLIBC, _OLDEST_GLIBC - 1, -1)]
    argv = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps", "--only-binary=:all:"),
        *("--retries", "2", "--implementation", "cp", "--python-version", python, "--dest", str(folder)),
        *(word for tag in [*platforms, f"manylinux2014_{processor}"] for word in ("--platform", tag)),
        *("-r", str(asked)),
    ]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise away(python, f"no end within {_LIMIT_S} s") from error
    if done.returncode != 0:
        raise _failure(done.stderr, python, processor)


def _failure(said: str, python: str, processor: str) -> ReleaseError:
    """Return the error for what pip printed."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if "No module named pip" in said:
        return ReleaseError(
            "release build",
            "wheels for nodes",
            expected="pip in the environment of rackready",
            actual="none",
            next_step=f"Run `{sys.executable} -m ensurepip`.",
        )
    if "DO NOT MATCH THE HASHES" in said:
        name = next((line.partition(" from ")[0] for line in lines if " from " in line and "==" in line), "a package")
        got = next((line.split()[-1] for line in lines if line.startswith("Got ")), "another hash")
        return other_hash(name, frozenset(), got)
    if _AWAY.search(said):
        return away(python, next((line for line in reversed(lines) if _AWAY.search(line)), lines[-1])[:200])
    if missing := _MISSING.search(said):
        return not_found(missing[1], python, processor, "none at pip's index")
    return away(python, lines[-1][:200] if lines else "pip failed without a word")


def away(python: str, actual: str) -> ReleaseError:
    """Return the error for an index that does not answer."""
    return ReleaseError(
        "release build",
        f"wheels for Python {python}",
        expected="an index that answers pip",
        actual=actual,
        next_step=f"Name a mirror (`pip config set global.index-url URL`), or {_OFFLINE}",
    )


def not_found(requirement: str, python: str, processor: str, actual: str) -> ReleaseError:
    """Return the error for a package without a wheel for the nodes."""
    return ReleaseError(
        "release build",
        requirement,
        expected=f"a wheel for Python {python} on {processor}",
        actual=actual,
        next_step=f"Mirror it, or {_OFFLINE}",
    )


def other_hash(requirement: str, expected: frozenset[str], actual: str) -> ReleaseError:
    """Return the error for a file that is not the one that was locked or recorded."""
    known = ", ".join(sorted(item[:12] for item in expected)[:3]) or "a locked hash"
    return ReleaseError(
        "release build",
        requirement,
        expected=f"SHA-256 {known}",
        actual=actual[:12],
        next_step="The index has another file of this version: do not use it, and ask who changed it.",
    )
