"""The virtual environment ``.venv``: exactly what the lock files say, by hash; done again only when they change."""

from __future__ import annotations

import importlib.util
import json
import sys
from functools import partial

import apt
from console import ROOT, SetupError, digest_of, retried, run, say

VENV = ROOT / ".venv"
STAMP = VENV / ".rackready.json"
LOCKS = {
    "runtime": ("requirements.lock",),
    "dev": ("requirements-dev.lock",),
    "docs": ("requirements-dev.lock", "requirements-docs.lock"),
}
"""``runtime`` deploys (and simulates), ``dev`` also tests, ``docs`` also builds the site: each includes the last."""
PROJECTS = (ROOT, ROOT / "src" / "rackready_sim")
"""Packages of this checkout, installed in place: rackready, and the simulated rack (found by its entry point)."""

_LOG_HELP = (
    "See that pip can reach a package index or mirror (PIP_INDEX_URL), then run this again; "
    "nothing has to be removed first."
)


def ensure(kind: str) -> None:
    """Make the environment of that kind, or find it made."""
    stamp = _read_stamp()
    kind = max(kind, stamp.get("kind", kind), key=list(LOCKS).index)  # an environment for tests stays one
    if _current(stamp, kind):
        say(f"Python environment .venv: up to date ({stamp['kind']})")
        return
    if not _usable(stamp):
        _create()
    STAMP.unlink(missing_ok=True)
    for lock in LOCKS[kind]:
        say(f"installing Python packages into .venv from {lock}, each verified by hash")
        retried(partial(_install, lock))
    _install_checkout()
    STAMP.write_text(json.dumps(_wanted(kind)) + "\n", encoding="utf-8")
    say("Python environment .venv: ready; the command is .venv/bin/rackready")


def _wanted(kind: str) -> dict[str, str]:
    locks, project = (
        digest_of(*(ROOT / lock for lock in LOCKS[kind])),
        digest_of(*(folder / "pyproject.toml" for folder in PROJECTS)),
    )
    return {"kind": kind, "lock": locks, "project": project, "root": str(ROOT), "python": sys.version}


def _read_stamp() -> dict[str, str]:
    try:
        stamp: dict[str, str] = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp


def _current(stamp: dict[str, str], kind: str) -> bool:
    enough = list(LOCKS)[list(LOCKS).index(kind) :]
    return any(stamp == _wanted(each) for each in enough) and (VENV / "bin" / "rackready").exists()


def _usable(stamp: dict[str, str]) -> bool:
    """Return whether this Python made the environment, and in this checkout: else its paths are wrong."""
    same = all(stamp.get(key) == value for key, value in _wanted("dev").items() if key in {"root", "python"})
    return same and (VENV / "bin" / "python").exists()


def _create() -> None:
    if VENV.is_symlink():
        say(f".venv was a link to {VENV.readlink()}, which stays as it is")
        VENV.unlink()  # or --clear would empty what it leads to
    say(f"making the Python environment .venv with Python {sys.version.split()[0]}")
    if importlib.util.find_spec("ensurepip") is None:
        apt.install([f"python{sys.version_info.major}.{sys.version_info.minor}-venv"], "Python's venv module")
    run(
        [sys.executable, "-m", "venv", "--clear", str(VENV)],
        what="making .venv",
        what_to_do="Install Python's venv module (apt: python3-venv), then run this again.",
    )


def _python() -> str:
    return str(VENV / "bin" / "python")


def _install(lock: str) -> None:
    argv = [
        _python(),
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-input",
        "--no-deps",
        "--require-hashes",
        "-r",
        str(ROOT / lock),
    ]
    run(argv, what=f"installing {lock}", what_to_do=_LOG_HELP)


def _install_checkout() -> None:
    argv = [
        _python(),
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-input",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    for folder in PROJECTS:
        argv += ["-e", str(folder)]
    run(
        argv,
        what="installing this checkout",
        what_to_do="See the output above; `rm -r .venv` and run this again makes it anew.",
    )


def check_python() -> None:
    """Raises SetupError when this Python is too old."""
    if sys.version_info < (3, 11):  # noqa: UP036 - set-up is run by whatever Python the machine has
        raise SetupError(
            f"Python {sys.version.split()[0]} is too old",
            "Install Python 3.11 or newer, or name one: `make setup PYTHON=/path/to/python3`.",
        )
