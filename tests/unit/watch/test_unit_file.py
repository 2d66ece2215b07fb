"""The systemd unit of the documentation, as `systemd-analyze verify` reads it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def unit() -> str:
    text = (ROOT / "docs/howto/watch.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"^```ini\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(found)


def verify(tmp_path: Path, text: str) -> tuple[int, str]:
    path = tmp_path / "rackready-watch@.service"
    path.write_text(text.replace("/srv/rackready/.venv/bin/rackready", sys.executable), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--generators=no", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, "".join(line for line in done.stderr.splitlines(keepends=True) if path.name in line)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing")
def test_the_unit_is_well_formed(tmp_path: Path) -> None:
    assert verify(tmp_path, unit()) == (0, "")
    _, said = verify(tmp_path, unit().replace("NoNewPrivileges", "NoNewPrivilegs"))
    assert "'NoNewPrivilegs'" in said


def test_it_starts_again_and_writes_only_the_state() -> None:
    lines = unit().splitlines()
    assert "Restart=on-failure" in lines
    assert "ProtectSystem=strict" in lines
    assert "ReadWritePaths=/srv/rackready/.rackready" in lines
