"""The files of this repository, as git knows them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def files() -> list[Path]:
    """Every file that is or would be committed."""
    argv = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in sorted(set(done.stdout.split("\0"))) if name and (ROOT / name).is_file()]


@pytest.fixture(scope="session")
def texts(files: list[Path]) -> dict[str, str]:
    """Text files by their path below the root."""
    found = {}
    for path in files:
        content = path.read_bytes()
        if b"\0" not in content:
            found[path.relative_to(ROOT).as_posix()] = content.decode("utf-8")
    return found
