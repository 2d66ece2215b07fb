"""Partitions and options of opensm: what it would ignore or misread is refused, and the real opensm reads ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.drivers.ib.opensm_conf import OpensmConfError, check_options, render_options
from rackready.drivers.ib.opensm_log import judge_opensm
from rackready.drivers.ib.partitions import (
    Member,
    Partition,
    PartitionError,
    check,
    judge_keys,
    partitions_of,
    render,
    wanted_keys,
)
from rackready.model.place import Place
from rackready_sim.ibtwin import ibsim
from rackready_sim.ibtwin.losses import sweep
from rackready_sim.ibtwin.topology import twin_of
from tests.unit.infiniband.fabrics import plan_of, site_of
from tests.unit.infiniband.twins import LACKING, REASON

TENANTS = """
tenants:
  - {name: research-1, racks: [a01], pkey: "0x0011"}
  - {name: product, racks: [a02], pkey: "0x0012", full_member: false}
"""
PORTS = {f"a0{rack}-n{node}": [0x2001 + 0x100 * rack + 0x10 * node] for rack in (1, 2) for node in (1, 2, 3, 4)}
GUIDS = [guid for guids in PORTS.values() for guid in guids]


def test_tenants_become_partitions_of_their_ports(tmp_path: Path) -> None:
    partitions = partitions_of(site_of(tmp_path, 8, 4, TENANTS), PORTS)
    text = render(partitions)
    assert text.startswith(
        "Default=0x7fff,ipoib :\n  ALL=limited,\n  ALL_SWITCHES=full,\n  SELF=full ;\nresearch_1=0x0011,ipoib,indx0 :\n"
    )
    assert check(text, GUIDS) == partitions
    assert wanted_keys(partitions, PORTS["a01-n1"][0]) == {0x7FFF, 0x8011}
    assert wanted_keys(partitions, PORTS["a02-n1"][0], manager=True) == {0xFFFF, 0x0012}


def test_a_site_without_tenants_has_the_default_partition_alone(tmp_path: Path) -> None:
    assert render(partitions_of(site_of(tmp_path, 8, 4), {})) == "Default=0x7fff,ipoib :\n  ALL=full ;\n"


def test_a_node_without_known_ports_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PartitionError, match="a01-n1: port GUIDs - Expected: at least one Actual: none known"):
        partitions_of(site_of(tmp_path, 8, 4, TENANTS), {**PORTS, "a01-n1": []})


GOOD = "Default=0x7fff,ipoib : ALL=limited, SELF=full ;\nT=0x0011 : 0x2111=full ;\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "keys - Expected: each once"),
        (GOOD.replace("0x2111=full", "0x2110=full"), "opensm ignores a node GUID without a word"),
        (GOOD.replace("0x2111=full", "0x2111"), "none: it depends on the partition's default"),
        (GOOD.replace("0x2111=full", "0x2111=Full"), "Expected: full, limited or both Actual: Full"),
        (GOOD.replace("0x2111=full", "node01=full"), "the whole file is discarded"),
        (GOOD.replace("0x2111=full", "A=full"), "the whole file is discarded"),
        (GOOD.replace("T=0x0011 :", "T=0x0011,ipob :"), "flag ipob=: ".rstrip(": ")),
        (GOOD.replace("T=0x0011 :", "T=0x0011,defmember=fully :"), "flag defmember=fully"),
        (GOOD.replace("T=0x0011 :", "T=0x8011 :"), "Name=0x0001 to 0x7fff"),
        (GOOD.replace("T=0x0011 :", "T=0x0011"), "Name=0x0001 to 0x7fff"),
        (GOOD.replace("T=0x0011", "T=0x7fff"), "keys - Expected: each once"),
        (GOOD.replace("Default=0x7fff", "D=0x7ffe"), "0x7fff among them"),
        (GOOD.rstrip("\n ;"), "';' at its end"),
        (GOOD.replace("0x2111=full", ", ".join(["0x2111=full"] * 400)), "at most 4094 characters"),
    ],
)
def test_what_opensm_would_discard_ignore_or_misread_is_refused(text: str, said: str) -> None:
    check(GOOD, GUIDS)
    with pytest.raises(PartitionError) as refused:
        check(text, GUIDS)
    assert said in str(refused.value)


def test_keys_of_a_port_are_judged_and_unread_ones_are_an_error() -> None:
    where, wanted = Place("node01", "mlx5_0"), frozenset({0x7FFF, 0x8011})
    assert judge_keys(where, wanted, wanted) == []
    assert [item.code for item in judge_keys(where, wanted, frozenset({0xFFFF}))] == ["ib-port-pkeys"]
    assert [item.code for item in judge_keys(where, wanted, None)] == ["ib-port-pkeys-unread"]


def test_options_that_opensm_would_ignore_or_misread_are_refused() -> None:
    options = {"routing_engine": "updn,no_fallback", "sm_priority": 15, "part_enforce": "both"}
    assert check_options(render_options(options)) == {name: str(value) for name, value in options.items()}
    for wrong in (
        {"routing_engine": "ar_updn"},
        {},
        {"routing_engine": "updn", "sm_priority": 16},
        {"routing_engine": "updn", "sm_prio": 1},
        {"routing_engine": "updn", "partition_config_file": "relative.conf"},
    ):
        with pytest.raises(OpensmConfError):
            render_options(wrong)
    with pytest.raises(OpensmConfError):
        check_options("routing_engine updn\nrouting_engine ftree\n")


@pytest.mark.skipif(bool(LACKING), reason=REASON)
def test_the_real_opensm_reads_our_partitions_and_its_fallback_is_found(tmp_path: Path) -> None:
    """With 400 members in a partition: on one line, opensm would cut a GUID in two."""
    plan = plan_of(tmp_path, 8, 4)[1]
    twin = twin_of(plan)
    guids = twin.port_guids()
    first = min(twin.adapters)
    every = [Member(f"0x{guid:016x}", full=True) for guid in guids.values()]
    absent = [Member(f"0x{0x0200_0009_0000_0000 + number:016x}", full=True) for number in range(400)]
    own = (
        Partition("Default", 0x7FFF, (Member("ALL", full=False), Member("SELF", full=True))),
        Partition("T1", 0x0011, (*absent, *every), first=True),
    )
    file = tmp_path / "partitions.conf"
    with ibsim.running(twin, tmp_path, twin.adapters[first]) as sim:
        for text, codes, keys in (
            (render(own), [], "0x8011 0x7fff"),
            (render(own).replace(",indx0", ""), [], "0x7fff 0x8011"),
            (render(own).replace("T1=0x0011,ipoib,indx0 :", "T1=0x0011"), ["ib-partitions-discarded"], "0xffff 0x0000"),
        ):
            file.write_text(text, encoding="utf-8")
            assert [item.code for item in judge_opensm("opensm", sweep(sim, "updn"), "updn")] == codes
            last = twin.adapters[max(twin.adapters)]
            assert sim.run("smpquery", "-D", "pkeys", "0", host=last).stdout.startswith(f"   0: {keys} 0x0000 ")


@pytest.mark.skipif(bool(LACKING), reason=REASON)
def test_the_real_opensm_takes_names_of_switches_from_the_map_of_the_role(tmp_path: Path) -> None:
    twin = twin_of(plan_of(tmp_path, 8, 4)[1])
    node = twin.switches[min(twin.switches)]
    (tmp_path / "map").write_text(f'# managed\n0x{node.removeprefix("S-")} "unmanaged-1"\n', encoding="utf-8")
    options = {"routing_engine": "updn", "node_name_map_name": tmp_path / "map"}
    (tmp_path / "conf").write_text(render_options(options), encoding="utf-8")
    with ibsim.running(twin, tmp_path, twin.adapters[min(twin.adapters)]) as sim:
        sim.run("opensm", "-o", "-F", str(tmp_path / "conf"), "-f", str(tmp_path / "log"), "-D", "0x43")
    assert "unmanaged-1" in (tmp_path / "opensm-subnet.lst").read_text(encoding="utf-8")
