"""Port names, whole and broken out, and the radix of a switch model; unsuitable models are refused."""

from __future__ import annotations

import pytest

from rackready.design.topology import ports
from rackready.model.profile import SwitchProfile
from rackready.model.topology import TierSwitches
from rackready.profiles import loader


def profile(**fields: object) -> SwitchProfile:
    base = {
        "id": "s1",
        "ports": "swp1-swp4",
        "os": ["cumulus_nvue"],
        "rate": 800,
        "breakout": [1, 2, 4],
        "source": "a test",
    }
    return SwitchProfile.model_validate(base | fields)


def test_whole_ports_keep_their_names() -> None:
    assert [ports.port_name(profile(), index, 1) for index in (1, 4)] == ["swp1", "swp4"]


def test_sub_ports_of_cumulus_count_from_zero() -> None:
    assert ports.port_names(profile(), 2) == (
        "swp1s0",
        "swp1s1",
        "swp2s0",
        "swp2s1",
        "swp3s0",
        "swp3s1",
        "swp4s0",
        "swp4s1",
    )
    assert ports.port_name(profile(), 16, 4) == "swp4s3"


def test_sub_ports_of_another_system_are_named_by_place() -> None:
    assert ports.port_name(profile(os=[], ports="1-4"), 3, 2) == "2/1"


def test_twin_cages_follow_the_pattern_of_the_profile() -> None:
    twin = profile(ports="1-4", os=[], port_pattern="{c}/{t}", ports_per_cage=2, layer="infiniband")
    assert ports.port_names(twin, 1) == ("1/1", "1/2", "2/1", "2/2")


@pytest.mark.parametrize("index", [0, 9])
def test_a_port_that_is_not_there(index: int) -> None:
    with pytest.raises(
        ValueError,
        match=f"^s1: port {index} at breakout 2 - Expected: 1 to 8 Actual: {index}. Use a larger switch model.$",
    ):
        ports.port_name(profile(), index, 2)


def test_ranges_for_people() -> None:
    names = ["swp3s0", "swp1s0", "swp1s1", "swp2s0"]
    assert ports.port_ranges(names, profile(), 2) == "swp1s0-swp2s0, swp3s0"
    with pytest.raises(KeyError):
        ports.port_ranges(["swp9"], profile(), 1)


@pytest.mark.parametrize(("rate", "ways"), [(800, 1), (400, 2), (200, 4), (100, None), (300, None), (1600, None)])
def test_breakout(rate: int, ways: int | None) -> None:
    assert ports.breakout_of(profile(), rate) == ways


@pytest.fixture
def _shelf(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = {"s1": profile(), "s2": profile(id="s2", layer="infiniband", rate=400)}
    monkeypatch.setattr(loader, "known", lambda _: sorted(shelf))
    monkeypatch.setattr(loader, "switch", shelf.__getitem__)


@pytest.mark.usefixtures("_shelf")
@pytest.mark.parametrize(
    ("model", "radix", "rate", "expected"),
    [
        ("s1", None, 800, (4, "")),
        ("s1", None, 400, (8, "")),
        ("s1", 6, 400, (6, "")),
        (
            "s1",
            9,
            400,
            (
                0,
                (
                    "leaf.radix: ports of s1 at 400 Gb/s - Expected: at most 8 Actual: 9. "
                    "Remove radix, or use a larger model."
                ),
            ),
        ),
        (
            "s1",
            None,
            100,
            (
                0,
                (
                    "leaf.model: s1: links of 100 Gb/s - Expected: one of 800, 400, 200 Gb/s Actual: 100. "
                    "Use another model, or NICs of its rate."
                ),
            ),
        ),
        (
            "s2",
            None,
            400,
            (
                0,
                "leaf.model: s2 - Expected: an ethernet switch Actual: infiniband. Correct the model or topology.link.",
            ),
        ),
        (
            "s3",
            None,
            400,
            (0, "leaf.model: s3 - Expected: one of s1, s2 Actual: s3. Add profiles/switch/s3.yml or correct the id."),
        ),
    ],
)
def test_radix(model: str, radix: int | None, rate: int, expected: tuple[int, str]) -> None:
    found, problem = ports.radix_of("leaf", TierSwitches(model=model, radix=radix), rate, "roce")
    assert (found, str(problem) if problem is not None else "") == expected


def test_every_shipped_switch_has_names_for_all_its_ports() -> None:
    for name in loader.known("switch"):
        own = loader.switch(name)
        for ways in {1, *own.breakout}:
            names = ports.port_names(own, ways)
            assert len(set(names)) == len(names) > 0


@pytest.mark.parametrize(("model", "lanes"), [("qm9700", 2), ("sn5600", 2)])
def test_a_qsfp56_port_has_four_lanes_that_a_faster_switch_does_not_give_it(model: str, lanes: int) -> None:
    # MCP7Y60: a QM9700 carries 64 links to QSFP56 ports, not 128, and an SN5600 128, not 256.
    switch = loader.switch(model)
    assert ports.lanes_short(switch, 200, "qsfp56") == (4, lanes)
    # ConnectX-7 runs 200 Gb/s over two lanes of 100 (MCP7Y40, MCP7Y50).
    assert ports.lanes_short(switch, 200, "qsfp112") is ports.lanes_short(switch, 400, "osfp_flat") is None


def test_a_switch_with_lanes_of_50_takes_qsfp56() -> None:
    assert ports.lanes_short(profile(rate=200, lanes=4, breakout=[1]), 200, "qsfp56") is None
    assert ports.lanes_short(profile(rate=400, lanes=8, breakout=[1, 2]), 200, "qsfp56") is None


def test_a_switch_that_splits_half_of_its_ports_in_four_offers_none_of_a_quarter() -> None:
    """SN4600C: 32 of 64 ports, with the neighbour off (Cumulus Linux, Switch Port Attributes); none in SONiC."""
    found = loader.switch("sn4600c")
    assert [ports.breakout_of(found, rate) for rate in (100, 50, 25)] == [1, 2, None]
