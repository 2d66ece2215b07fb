"""Virtual nodes on the real Pulumi engine and a real libvirtd, emulated (never KVM): made, changed, removed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.model.outcome import Outcome
from tests.integration.libvirt_daemon import LibvirtDaemon, libvirt_missing
from tests.integration.provisioning import Bench, engine_missing

WHY = engine_missing() or libvirt_missing()
pytestmark = [pytest.mark.integration, pytest.mark.skipif(bool(WHY), reason=WHY)]
GUEST = "guest01"


@pytest.fixture
def libvirt() -> Iterator[LibvirtDaemon]:
    made = LibvirtDaemon()
    base = made.folder / "images/base.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", str(base), "64M"], check=True)
    yield made
    made.stop()


@pytest.fixture
def bench(tmp_path: Path, libvirt: LibvirtDaemon) -> Iterator[Bench]:
    made = Bench(tmp_path / "clone", net=96)
    describe(made, libvirt)
    yield made
    made.rack.stop()


def describe(bench: Bench, libvirt: LibvirtDaemon, **machine: Any) -> None:
    """Write a site with one emulated virtual node on node01, which is this machine."""
    site = yaml.safe_load(bench.paths.site_file.read_text())
    guest = {"vcpus": 1, "memory_gib": 1, "disk_gib": 2, "image": "base", "huge_pages": "none", **machine}
    nodes = [node for node in site["racks"][0]["nodes"] if node["name"] != GUEST]
    own = {"kind": "virtual", "host": "node01", "platform": nodes[0]["platform"], "address": "192.0.2.77", "slot": 90}
    site["racks"][0]["nodes"] = [*nodes, {"name": GUEST, **own, "virtual": guest}]
    cpus = Path("/sys/devices/system/node/node0/cpulist").read_text(encoding="utf-8").strip()
    numa = [{"id": 0, "cpus": cpus, "memory_gib": 8}]
    host = {
        "name": "node01",
        "reach": "local",
        "uri": libvirt.uri,
        "accelerator": "qemu",
        "numa": numa,
        "stop_timeout_s": 2,
    }
    site["hypervisors"] = [{**host, "reserved_memory_gib": 1, "image_pool": str(libvirt.folder / "images")}]
    bench.paths.site_file.write_text(yaml.safe_dump(site))


def test_made_changed_and_removed(bench: Bench, libvirt: LibvirtDaemon) -> None:
    planned = bench.provision(GUEST, check=True)[GUEST]
    assert (planned.outcome, planned.message) == (Outcome.PASS, "would create: define and start its domain")
    assert libvirt.virsh("list", "--all", "--name").split() == []

    first = bench.provision(GUEST)[GUEST]
    assert (first.outcome, first.message, first.changed) == (Outcome.PASS, "defined and started", True), bench.log()
    assert libvirt.active() == [GUEST]
    xml = libvirt.virsh("dumpxml", GUEST)
    assert "<domain type='qemu'" in xml
    assert "<vcpupin vcpu='0' cpuset='0'/>" in xml
    assert sorted(path.name for path in (libvirt.folder / "images").iterdir()) == [
        "base.qcow2",
        "guest01-seed.iso",
        "guest01-seed.iso.sha256",
        "guest01-vars.fd",
        "guest01.qcow2",
    ]

    second = bench.provision(GUEST)[GUEST]
    assert (second.changed, second.message) == (False, "as it should be")

    describe(bench, libvirt, vcpus=2)
    third = bench.provision(GUEST)[GUEST]
    assert third.changed
    assert third.message == (
        "redefined where it differed, runs; it runs an older definition: shut it down, then run again"
    )
    assert third.data["restart"] is True
    assert "<vcpu placement='static'>1</vcpu>" in libvirt.virsh("dumpxml", GUEST)
    assert "<vcpu placement='static'>2</vcpu>" in libvirt.virsh("dumpxml", "--inactive", GUEST)

    libvirt.virsh("destroy", GUEST)
    planned = bench.provision(GUEST, check=True)[GUEST]
    assert (planned.message, planned.changed) == ("would update: bring back power", True)
    fourth = bench.provision(GUEST)[GUEST]
    assert (fourth.message, fourth.data["restart"]) == ("redefined where it differed, runs", False)
    assert "<vcpu placement='static'>2</vcpu>" in libvirt.virsh("dumpxml", GUEST)

    gone = bench.destroy(GUEST)[GUEST]
    assert (gone.outcome, gone.message) == (Outcome.PASS, "stopped and undefined, its disk stays")
    assert libvirt.virsh("list", "--all", "--name").split() == []
    assert [path.name for path in (libvirt.folder / "images").iterdir() if "guest" in path.name] == ["guest01.qcow2"]


def test_a_domain_of_others_is_left_alone(bench: Bench, libvirt: LibvirtDaemon, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.xml"
    foreign.write_text(
        f"<domain type='qemu'><name>{GUEST}</name><memory unit='MiB'>64</memory>"
        "<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>"
    )
    libvirt.virsh("define", str(foreign))
    before = libvirt.virsh("dumpxml", GUEST)
    found = bench.provision(GUEST)[GUEST]
    assert found.outcome is Outcome.ERROR
    assert found.message == (
        f"node01 {libvirt.uri}: domain guest01 exists - Expected: none, or one that rackready made for sim/guest01 "
        "Actual: one that others made. Rename the node in the site file, or remove that domain with the tool that made "
        "it."
    )
    assert libvirt.virsh("dumpxml", GUEST) == before
    assert bench.destroy(GUEST)[GUEST].message == "nothing was made"
    assert libvirt.virsh("dumpxml", GUEST) == before
