"""`--limit` names nodes: an empty one never means every node, and host lists are understood as in the site file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rackready.cli.limit import choose, named, names_of
from rackready.design.site import load_site
from rackready.model.problems import RackreadyError

Call = Callable[..., tuple[int, str, str]]
NOTHING = (
    "--limit - Expected: names of nodes, comma-separated Actual: nothing. "
    "Name them; without --limit, all nodes are meant.\n"
)


@pytest.mark.parametrize(
    "given",
    [("--limit", ""), ("--limit", "  "), ("--limit=",), ("--limit", ",")],
    ids=["empty", "blank", "joined", "comma"],
)
@pytest.mark.parametrize("verb", ["deploy", "provision", "install", "validate", "drift", "upgrade"])
def test_an_empty_limit_is_refused_and_does_not_mean_every_node(
    verb: str, given: tuple[str, ...], call: Call, tmp_path: Path
) -> None:
    """A script with an unset variable would otherwise deploy the whole site."""
    assert call(verb, *given) == (2, "", NOTHING)
    assert not (tmp_path / ".rackready/sim/logs").exists()


def test_a_host_list_that_cannot_be_read_is_refused(call: Call) -> None:
    assert call("install", "--check", "--limit", "node[01-02") == (
        2,
        "",
        (
            "--limit node[01-02 - Expected: names or host lists such as gpu[01-32], comma-separated "
            "Actual: 'node[01-02' has an unmatched bracket. Correct it.\n"
        ),
    )


@pytest.mark.parametrize(
    ("limit", "names"),
    [
        ("node03,node01", ["node03", "node01"]),
        (" node03 , node01 ,", ["node03", "node01"]),
        ("node[01-03]", ["node01", "node02", "node03"]),
        ("node[01,03],node04", ["node01", "node03", "node04"]),
    ],
    ids=["names", "blanks", "range", "mixed"],
)
def test_names_and_host_lists_are_those_of_the_site(limit: str, names: list[str], call: Call, tmp_path: Path) -> None:
    _ = call
    assert names_of(limit) == names
    site = load_site("sim", root=tmp_path)
    assert choose(site, limit) == sorted(names), "in the order of the site"
    assert choose(site, "") == ["node01", "node02", "node03", "node04"]


def test_options_that_name_nodes_take_host_lists_in_the_given_order() -> None:
    known = ["node01", "node02", "node03"]
    assert named(["node[02-03]", "node01,node02"], known, "--node") == ["node02", "node03", "node01"]
    for given, said in ((["node9"], "node9"), ([""], "nothing")):
        with pytest.raises(RackreadyError, match=rf"Expected: some of node\[01-03\] Actual: {said}\. Correct the name"):
            named(given, known, "--node")


def test_nodes_that_are_not_of_the_site_are_named(call: Call, tmp_path: Path) -> None:
    _ = call
    with pytest.raises(RackreadyError) as caught:
        choose(load_site("sim", root=tmp_path), "node[04-06]")
    assert str(caught.value) == (
        "--limit node[04-06] - Expected: some of node[01-04] Actual: node[05-06]. Correct the name: `rackready status` "
        "lists the nodes."
    )
