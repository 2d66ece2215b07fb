"""Every example site is valid and short, matches its header, and has a fabric with an address for everything."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections import Counter

import pytest

from rackready.design.addresses import addresses
from rackready.design.endpoints import endpoints
from rackready.design.placement import place_switches
from rackready.design.topology.build import build
from tests.unit.design.written import EXAMPLES, ROOT, example, parse

LARGE = "gpus-100k-three-tier"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.yml"))
NODES = {
    "b200-4su-roce": 128,
    "gb200-nvl72-8-racks": 144,
    LARGE: 12_500,
    "h100-1su-infiniband": 31,
    "lab-4-nodes": 4,
    "mixed-metal-virtual": 14,
    "slurm-and-kubernetes": 12,
}
FABRICS = {
    "b200-4su-roce": {"leaf": 32, "spine": 8, "core": 0, "endpoint_cables": 1024, "leaf_spine_cables": 1024},
    "gb200-nvl72-8-racks": {"leaf": 12, "spine": 6, "core": 0, "endpoint_cables": 576},
    "h100-1su-infiniband": {"leaf": 8, "spine": 4, "core": 0, "endpoint_cables": 252, "leaf_spine_cables": 256},
}
"""H100: NVIDIA DGX SuperPOD H100, network fabrics, 1 SU: 252 cables to nodes and UFM, 256 between leafs and spines."""


def test_every_example_is_listed_here() -> None:
    assert sorted(NODES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_example_is_valid_and_short(name: str) -> None:
    assert len(parse(example(name)).nodes()) == NODES[name]
    assert len((EXAMPLES / f"{name}.yml").read_text(encoding="utf-8").splitlines()) < 150


@pytest.mark.parametrize("name", FABRICS)
def test_fabric_of_the_example(name: str) -> None:
    site = parse(example(name))
    assert site.topology is not None
    fabric = build(site.topology, endpoints(site))
    assert fabric.problems == ()
    assert {key: fabric.counts[key] for key in FABRICS[name]} == FABRICS[name]
    assert place_switches(site, fabric).problems == ()
    assert addresses(site, fabric).problems == ()


def test_nvl72_rack_is_one_domain_of_72_gpus() -> None:
    site = parse(example("gb200-nvl72-8-racks"))
    assert {len(rack.nodes) for rack in site.racks if rack.nodes} == {18}
    assert [domain.rack for domain in site.nvlink_domains] == [f"r{number:02d}" for number in range(1, 9)]
    assert Counter(device.kind for device in site.devices if device.rack == "r01") == {
        "power_shelf": 8,
        "nvlink_tray": 9,
    }


def test_virtual_nodes_have_a_host_and_no_bmc() -> None:
    virtual = [node for node in parse(example("mixed-metal-virtual")).nodes() if node.kind == "virtual"]
    assert {node.host for node in virtual} == {"host-1", "host-2"}
    assert {(node.unit, node.bmc.address) for node in virtual} == {(None, None)}


def test_hundred_thousand_gpus_load_in_seconds_and_little_memory() -> None:
    """Limits: 4 s of processor time and 250 MiB for writing out, validation and checks of 12,500 nodes.

    The peak is VmHWM: ru_maxrss of a process that was forked begins with the memory of the test run itself.
    """
    script = (
        "import time; from pathlib import Path; from rackready.design.site import load_site; "
        "began = time.process_time();"
        f"site = load_site('x', site_file=Path({str(EXAMPLES / (LARGE + '.yml'))!r}), root=Path({str(ROOT)!r})); "
        "spent = time.process_time() - began;"
        "peak = Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0];"
        "print(len(site.nodes()), spent, int(peak) / 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
    )
    nodes, seconds, mib = (float(part) for part in done.stdout.split())
    assert nodes == 12_500
    assert seconds < 4
    assert mib < 250


def test_lookups_in_a_large_site_are_not_searches() -> None:
    site = parse(example(LARGE))
    gc.collect()
    began = time.process_time()
    for node in site.nodes():
        site.node(node.name)
        site.rack_of(node.name)
        site.position_of(node.name)
    assert time.process_time() - began < 1
