"""Fixtures of releases: a site repository, and an index of wheels that needs no network."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.drivers.release import code
from tests.unit.release.world import Index, pin_keys, write_site


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Index:
    return Index(monkeypatch)


@pytest.fixture
def root(tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a site repository; its code is a few bytes, for packing all of it takes a second."""
    del index
    monkeypatch.setattr(code, "archive", lambda: b"roles and playbooks")
    write_site(tmp_path)
    pin_keys(tmp_path)
    return tmp_path
