"""One simulated rack per module that asks for it; it always comes down again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.project import Project, cannot_run, held_image, standing_rack


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the image of the simulated machines for the session: each module's `sim down` would remove it."""
    if reason := cannot_run():
        pytest.skip(reason)
    with held_image(tmp_path_factory.mktemp("image") / "build"):
        yield


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, image: None) -> Iterator[Project]:
    """A root with its simulated rack up and every node powered off."""
    del image
    with standing_rack(tmp_path_factory.mktemp("rack") / "clone") as made:
        yield made
