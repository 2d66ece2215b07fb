"""One simulated rack per module that asks for it; it always comes down again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.project import Project, cannot_run


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A root with its simulated rack up and every node powered off."""
    if reason := cannot_run():
        pytest.skip(reason)
    made = Project(tmp_path_factory.mktemp("rack") / "clone")
    try:
        code, text = made.run("sim", "up")
        assert code == 0, text + made.progress()
        yield made
    finally:
        made.run("sim", "down")
