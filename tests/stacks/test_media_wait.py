"""A BMC that accepts virtual media and loads it in the background: what it shows later counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rackready.drivers.redfish import Bmc
from rackready.drivers.redfish_errors import BmcError
from rackready.drivers.redfish_media import eject, insert
from rackready.model.problems import RackreadyError
from tests.stacks.fake_media import MediaRedfish
from tests.stacks.fake_rack import FakeNode, FakeRack
from tests.stacks.test_machine import node_args

FOLDER = "http://192.0.2.1/media/node01/"
IMAGE = f"{FOLDER}{'0a' * 16}.iso"


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[FakeRack]:
    made = FakeRack(tmp_path / "rack", 1, net=77, kind=MediaRedfish)
    made.nodes[0].loading = []
    yield made
    made.stop()


def after(node: FakeNode, looks: int, pauses: list[float]) -> Callable[[float], None]:
    """Return a pause after whose last call the BMC is done with what it was asked."""

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == looks and node.loading:
            node.image = node.loading.pop()

    return pause


def test_an_image_that_is_shown_later_is_inserted(rack: FakeRack) -> None:
    pauses: list[float] = []
    with Bmc("node01", node_args(rack).bmc) as bmc:
        insert(bmc, IMAGE, pause=after(rack.nodes[0], 24, pauses))
    assert (rack.nodes[0].asked, rack.nodes[0].image, pauses) == (["insert"], IMAGE, [5.0] * 24)


def test_an_image_that_is_never_shown_is_refused_after_two_minutes(rack: FakeRack) -> None:
    pauses: list[float] = []
    with Bmc("node01", node_args(rack).bmc) as bmc, pytest.raises(BmcError) as caught:
        insert(bmc, IMAGE, pause=pauses.append)
    assert str(caught.value).partition(": ")[2] == (
        f"virtual media {IMAGE} - Expected: a CD slot that takes it Actual: USB1 accepted it and did not show it "
        "within 120 s. Eject what is inserted, check the BMC's licence for virtual media, or choose another "
        "provisioning.boot."
    )
    assert (rack.nodes[0].asked, pauses) == (["insert"], [5.0] * 24)


def test_an_ejection_that_is_shown_later_is_done(rack: FakeRack) -> None:
    rack.nodes[0].image = IMAGE
    pauses: list[float] = []
    with Bmc("node01", node_args(rack).bmc) as bmc:
        eject(bmc, FOLDER, pause=after(rack.nodes[0], 2, pauses))
    assert (rack.nodes[0].asked, rack.nodes[0].image, pauses) == (["eject"], "", [5.0] * 2)


def test_an_image_that_stays_in_the_slot_is_an_error_after_two_minutes(rack: FakeRack) -> None:
    rack.nodes[0].image = IMAGE
    pauses: list[float] = []
    with Bmc("node01", node_args(rack).bmc) as bmc, pytest.raises(BmcError) as caught:
        eject(bmc, FOLDER, pause=pauses.append)
    assert str(caught.value).partition(": ")[2] == (
        f"virtual media USB1 - Expected: ejected Actual: accepted, and it held {IMAGE} for 120 s more. "
        "Eject it at the BMC's console, then run again."
    )
    assert pauses == [5.0] * 24


def test_a_stop_ends_the_wait(rack: FakeRack) -> None:
    pauses: list[float] = []

    def proceed() -> None:
        if len(pauses) == 1:
            raise RackreadyError("node01", "stopped by the operator")

    with Bmc("node01", node_args(rack).bmc) as bmc, pytest.raises(RackreadyError, match="stopped by the operator"):
        insert(bmc, IMAGE, proceed=proceed, pause=pauses.append)
    assert pauses == [5.0]
