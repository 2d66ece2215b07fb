"""`--erase`: names and host lists of chosen nodes that are imaged; anything else is refused."""

from __future__ import annotations

import pytest

from rackready.cli.campaign_run import command_words, erased
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from tests.unit.design.test_provisioning import site as written
from tests.unit.design.written import parse


@pytest.fixture
def site() -> Site:
    """Its node02 boots from its disk; the others are imaged."""
    return parse(written())


def test_names_and_host_lists_are_taken_in_the_order_of_the_site(site: Site) -> None:
    nodes = [node.name for node in site.nodes()]
    others = [name for name in nodes if name != "node02"]
    assert erased(site, nodes, []) == []
    assert erased(site, nodes, ["node01"]) == ["node01"]
    assert erased(site, nodes, [",".join(reversed(others))]) == others
    assert erased(site, nodes, ["node[01,01]", "node01"]) == ["node01"]


@pytest.mark.parametrize("name", ["node02", "node99"])
def test_a_node_that_is_not_imaged_or_not_chosen_is_refused(site: Site, name: str) -> None:
    with pytest.raises(RackreadyError) as refused:
        erased(site, ["node01", "node02"], [name])
    assert str(refused.value) == (
        f"--erase {name} - Expected: some of node01: chosen nodes with boot http or pxe Actual: none of them. "
        "Correct it, or --limit."
    )


def test_a_broken_host_list_is_refused(site: Site) -> None:
    with pytest.raises(
        RackreadyError, match=r"^--erase node\[01-: - Expected: a host list Actual: .*unmatched bracket"
    ):
        erased(site, ["node01"], ["node[01-:"])


def test_the_command_is_told_with_it() -> None:
    words = command_words("provision", env="lab", limit="", check=False, again=False, erase=["node[01-02]", "node07"])
    assert words == "rackready provision --env lab --erase 'node[01-02]' --erase node07"
