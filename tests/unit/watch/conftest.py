"""A world in production for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.watch.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return a site of four nodes in production."""
    made = World(tmp_path)
    made.ready()
    return made
