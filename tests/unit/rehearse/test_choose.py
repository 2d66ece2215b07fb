"""The nodes of a rehearsal: two of each kind, of two racks and two units, as many as the machine holds."""

from __future__ import annotations

from typing import Any

import pytest

from rackready_sim.rehearse import machine
from rackready_sim.rehearse.choose import by_kind, choose
from rackready_sim.rehearse.machine import most_nodes
from tests.unit.rehearse.small import changed, site


def two_sets(document: dict[str, Any]) -> None:
    document["software"]["groups"] = [{"name": "jammy", "nodes": ["a01-n[1-3]"], "set": "hgx-r580-ubuntu2204"}]


def every(name: str) -> list[str]:
    return [node.name for node in site(name).nodes()]


def test_two_racks_of_two_units() -> None:
    here = site("b200-4su-roce")
    assert choose(here, every("b200-4su-roce"), 16).nodes == ("a01-n1", "a01-n2", "a09-n1", "a09-n2")


def test_two_of_each_version_set() -> None:
    here = changed("h100-1su-infiniband", two_sets)
    found = choose(here, [node.name for node in here.nodes()], 8)
    assert found.nodes == ("a01-n1", "a01-n2", "a01-n4", "a02-n1")
    assert [(note.what, note.here, note.there) for note in found.notes] == [
        ("nodes of dgx_h100, hgx-r580-debian12", "28", "2"),
        ("nodes of dgx_h100, hgx-r580-ubuntu2204", "3", "2"),
    ]


def test_a_small_machine_leaves_the_smaller_kind_out_and_says_so() -> None:
    here = changed("h100-1su-infiniband", two_sets)
    found = choose(here, [node.name for node in here.nodes()], 3)
    assert found.nodes == ("a01-n4", "a02-n1", "a02-n2")
    last = found.notes[-1]
    assert (last.what, last.there) == ("nodes of dgx_h100, hgx-r580-ubuntu2204", "not rehearsed")
    assert last.reason == "this machine holds 3 nodes; a larger one, or --limit with nodes of this kind, rehearses it"


def test_one_node_where_the_machine_holds_one() -> None:
    assert choose(site("lab-4-nodes"), every("lab-4-nodes"), 1).nodes == ("node01",)


def partitions(document: dict[str, Any]) -> None:
    parts = [{"name": "long", "nodes": ["node[01-02]"]}, {"name": "short", "nodes": ["node[03-04]"]}]
    document["handover"] = {
        "kind": "slurm",
        "controller": "192.0.2.5",
        "private_key": "x",
        "files": {"folder": "/etc/slurm", "partitions": parts},
    }


def test_partitions_are_kinds() -> None:
    here = changed("lab-4-nodes", partitions)
    kinds = by_kind(here, [node.name for node in here.nodes()])
    assert [str(kind) for kind in kinds] == [
        "dgx_h100, hgx-r580-debian12, partition long",
        "dgx_h100, hgx-r580-debian12, partition short",
    ]


@pytest.mark.parametrize(
    ("memory", "cores", "most"), [(6.0, 2, 4), (6.0, 64, 4), (64.0, 2, 4), (64.0, 16, 32), (2.5, 2, 0), (0.5, 2, 0)]
)
def test_machine_holds_as_many_as_its_memory_and_cores(memory: float, cores: int, most: int) -> None:
    assert most_nodes(memory, cores) == most


def test_free_memory_is_read_in_gib() -> None:
    assert machine._free_gib("MemTotal:  32768000 kB\nMemAvailable:   6291456 kB\n") == 6.0
