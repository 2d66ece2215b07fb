"""Images are listed while another checkout removes one of them."""

from __future__ import annotations

from typing import Any

import pytest

from rackready_sim import podman
from rackready_sim.errors import SimError, describe

GONE = (
    '125: Error: retrieving label for image "1888b6ab9eb839e0": you may need to remove the image to resolve the error: '
    "unable to read image"
)


def answers(monkeypatch: pytest.MonkeyPatch, *said: str) -> list[float]:
    """Let podman say these one after the other, an exit code first in an error; return the pauses."""
    left, pauses = list(said), list[float]()

    def run(_argv: object, **_more: Any) -> str:
        answer = left.pop(0)
        if answer[:1].isdigit():
            raise describe("`podman images`", "exit status 0", answer, "Correct it.")
        return answer

    monkeypatch.setattr(podman, "run", run)
    monkeypatch.setattr(podman.time, "sleep", pauses.append)
    return pauses


def test_an_image_that_goes_while_they_are_listed_is_listed_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = answers(monkeypatch, GONE, GONE, "localhost/rr-a:1\nlocalhost/rr-a:1\nlocalhost/other:2\n")
    assert podman.images("localhost/rr-") == ["localhost/rr-a:1"]
    assert pauses == [0.5, 1.0]


def test_a_store_that_stays_damaged_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, *[GONE] * 6)
    with pytest.raises(SimError, match="retrieving label for image"):
        podman.images("localhost/rr-")


def test_another_error_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = answers(monkeypatch, "125: Error: no space left on device")
    with pytest.raises(SimError, match="no space left"):
        podman.images("localhost/rr-")
    assert pauses == []
