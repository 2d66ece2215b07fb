"""What the roles of InfiniBand make of the scripts' answers."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError

_SPEC = importlib.util.spec_from_file_location(
    "rackready_infiniband", Path(__file__).resolve().parents[2] / "plugins/filter/rackready_infiniband.py"
)
assert _SPEC is not None
assert _SPEC.loader is not None
filters = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(filters)

PORT = {"link_layer": "InfiniBand", "node_desc": "node01 mlx5_0", "problem": ""}


def said(**change: str) -> dict[str, str]:
    return {"stdout": json.dumps({"complete": True, "ports": {"mlx5_0": {**PORT, **change}}})}


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (said(), []),
        (said(node_desc="NODE01 mlx5_0"), []),
        (said(link_layer="Ethernet"), ["mlx5_0 link layer Ethernet"]),
        (said(link_layer=""), ["mlx5_0 link layer none"]),
        (said(problem="smpquery pkeys exit 1: no"), ["mlx5_0 smpquery pkeys exit 1: no"]),
        (said(node_desc="localhost mlx5_0"), ["mlx5_0 description 'localhost mlx5_0'"]),
        ({"stdout": '{"ports": {"mlx5_0": {}}}'}, ['ports not readable: {"ports": {"mlx5_0": {}}}']),
        ({"stdout": "no JSON"}, ["ports not readable: no JSON"]),
        ({"stdout": "", "stderr": "python3: not found"}, ["ports not readable: python3: not found"]),
        ({}, ["ports not readable: no output"]),
    ],
)
def test_only_a_whole_answer_without_a_deviation_is_good(result: dict[str, str], words: list[str]) -> None:
    assert filters.problems(result, "node01") == words


def test_devices_without_their_name_are_given_to_rdma_ndd() -> None:
    assert filters.unnamed(said(), "node01") == []
    assert filters.unnamed(said(node_desc="localhost mlx5_0"), "node01") == ["mlx5_0"]


def test_opensm_is_quoted() -> None:
    assert (
        filters.opensm_words({"stdout": '{"state": "MASTER", "problems": ["no SUBNET UP", "bad"]}'})
        == "no SUBNET UP; bad"
    )
    assert filters.opensm_words({"stdout": '{"state": "MASTER", "problems": []}'}) == "state MASTER"
    assert filters.opensm_words({"stdout": "", "stderr": "no python"}) == "no python"


RED = {"name": "research-1", "key": "0x0011", "full": True, "nodes": ["node01", "node09"]}


def test_partitions_are_those_of_the_fabric_check_with_the_ports_that_are_known() -> None:
    text = filters.partitions_text([RED], {"node01": ["b83fd20300000011", "b83fd20300000021"]})
    assert text == (
        "Default=0x7fff,ipoib :\n  ALL=limited,\n  ALL_SWITCHES=full,\n  SELF=full ;\n"
        "research_1=0x0011,ipoib,indx0 :\n  0xb83fd20300000011=full,\n  0xb83fd20300000021=full ;\n"
    )
    assert filters.partitions_text([], {}) == "Default=0x7fff,ipoib :\n  ALL=full ;\n"


def test_a_partition_of_many_ports_has_no_line_that_opensm_cuts() -> None:
    guids = {"node01": [f"{0x2000 + number:016x}" for number in range(400)]}
    assert max(map(len, filters.partitions_text([RED], guids).splitlines())) < 4095


def test_partitions_that_opensm_would_misread_are_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="each once, 0x7fff among them"):
        filters.partitions_text([{**RED, "key": "0x7fff"}], {"node01": ["b83fd20300000011"]})
