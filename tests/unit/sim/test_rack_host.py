"""What the simulated rack changes on its host."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready_sim.errors import SimError
from rackready_sim.host import raise_inotify_limit


def test_inotify_limit_is_raised_once_and_said(tmp_path: Path) -> None:
    limit = tmp_path / "max_user_instances"
    limit.write_text("128\n", encoding="ascii")
    assert raise_inotify_limit(limit).startswith("fs.inotify.max_user_instances raised from 128 to 1024")
    assert limit.read_text(encoding="ascii") == "1024\n"
    assert raise_inotify_limit(limit) == ""


def test_higher_limit_is_left_alone(tmp_path: Path) -> None:
    limit = tmp_path / "max_user_instances"
    limit.write_text("8192\n", encoding="ascii")
    assert raise_inotify_limit(limit) == ""
    assert limit.read_text(encoding="ascii") == "8192\n"


def test_limit_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(SimError, match=r"sysctl -w fs\.inotify\.max_user_instances=1024"):
        raise_inotify_limit(tmp_path / "none")
