"""RDMA writes between pairs: the receiver used the memory that was asked for, where its server reports it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rackready.gates.base import GateFacts
from rackready.gates.engine.registry import gate
from rackready.gates.judging.node_topology import domain, gpu_link
from rackready.gates.judging.predicted_bounds import predicted
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from rackready.model.profile import GpuPath
from rackready.profiles import loader
from tests.gates.support import Said, Told, between, check, outputs, rack, tells, text
from tests.gates.test_ib_write_bw import BACK, FORTH, FROM_HOST, GATE, HEALTHY, HOST, HOST_BACK, pair


def served(said: Said) -> Said:
    """A server's output: all but the row."""
    return Said("".join(line for line in said.stdout.splitlines(keepends=True) if not line.startswith(" 8388608 ")))


SERVERS = {
    "what the client used": (served(HEALTHY), None),
    "only the waiting": (Said(f"\n{'*' * 36}\n* Waiting for client to connect... *\n{'*' * 36}\n"), None),
    "cut off before its head": (
        Said(served(HEALTHY).stdout.partition("Picking device")[0]),
        (
            "perftest-server-unreadable",
            "the head of its test and the memory it uses",
            "an output that is cut off",
            "program=ib_write_bw",
        ),
    ),
    "a GPU that cannot be read": (
        Said(served(HEALTHY).stdout.replace("[pid = 51234, dev = 0]", "[pid = 51,234, dev = 4]")),
        (
            "perftest-server-unreadable",
            "the head of its test and the memory it uses",
            "the GPU that it used: '[pid = 51,234, dev = 4] device name = [NVIDIA H100 80GB HBM3]'",
            "program=ib_write_bw",
        ),
    ),
    "host memory": (
        served(Said(text("perftest/dgx_h100_rail1_host_memory.txt"))),
        ("ib-write-bw-host-memory", "GPUDirect RDMA (dma-buf)", "host memory", "end= at the receiver"),
    ),
    "another GPU": (
        served(Said(HEALTHY.stdout.replace("dev = 0]", "dev = 4]"))),
        ("ib-write-bw-other-gpu", "gpu0", "gpu4", "end= at the receiver"),
    ),
    "peer memory": (
        Said("\n".join(line for line in served(HEALTHY).stdout.splitlines() if "DMA-BUF" not in line)),
        ("ib-write-bw-other-memory", "GPU memory by dma-buf", "GPU memory by nvidia_peermem", "end= at the receiver"),
    ),
}


@pytest.mark.parametrize(("server", "finding"), SERVERS.values(), ids=SERVERS)
@pytest.mark.parametrize(("key", "where"), [("server_forth", FORTH), ("server_back", BACK)], ids=["forth", "back"])
def test_the_receivers_memory_is_the_one_asked_for_where_its_server_says_which(
    key: str, where: str, server: Said, finding: Told | None
) -> None:
    findings = ((finding[0], where, *finding[1:]),) if finding else ()
    check(GATE, pair("server", Outcome.ERROR if finding else Outcome.PASS, *findings, **{key: server}))


def test_a_server_on_gpu_memory_is_no_measurement_of_host_memory() -> None:
    said = {"client_forth": FROM_HOST, "client_back": HOST_BACK}
    check(HOST, pair("host", Outcome.PASS, **said, server_forth=served(FROM_HOST)))
    finding = ("ib-write-bw-other-memory", FORTH, "host memory", "GPU memory by dma-buf", "end= at the receiver")
    check(HOST, pair("GPU", Outcome.ERROR, finding, **said, server_forth=served(HEALTHY)))


SLOW = text("perftest/dgx_h100_rail1_slow.txt")
LINK = "at least 183.2 Gb/s (floor)"


def with_gpu(model: str, *nodes: str) -> GateFacts:
    """Two nodes with NICs of 400 Gb/s, some of them with another GPU."""
    known = rack(2)
    return replace(
        known,
        nodes={
            name: replace(node, gpu=loader.gpu(model)) if name in nodes else node for name, node in known.nodes.items()
        },
    )


def wrote(known: GateFacts, gate_id: str, body: str) -> Verdict:
    """The verdict on writes of which both ends say this; the server's GPU is not told."""
    run = gate(gate_id).plan(known, list(known.nodes))[0]
    models = [known.nodes[node].gpu.product_name for node in run.nodes]
    forth, back = (Said(body.replace("NVIDIA H100 80GB HBM3", model)) for model in models)
    back = Said(between(back.stdout, "192.168.1.12", "192.168.1.11"))
    case = pair("written", Outcome.PASS, client_forth=forth, client_back=back)
    return gate(gate_id).evaluate(known, run, outputs(run, case.outputs))


@pytest.mark.parametrize("nodes", [("node01", "node02"), ("node01",), ("node02",)])
def test_gpu_memory_is_judged_by_the_pcie_link_of_the_slower_gpu(nodes: tuple[str, ...]) -> None:
    known = with_gpu("l40s", *nodes)
    assert tells(wrote(known, GATE, SLOW)) == []
    slower = SLOW.replace("187.52", "150.10").replace("187.40", "150.00").replace("0.002792", "0.002235")
    assert tells(wrote(known, GATE, slower)) == [
        ("rdma-write-slow-to-gpu", where, LINK, "150.0 Gb/s") for where in (FORTH, BACK)
    ]
    wanted = ("rdma-write-implausible", FORTH, "at most 256.0 Gb/s (ceiling)", "391.3 Gb/s")
    assert tells(wrote(known, GATE, HEALTHY.stdout))[0] == wanted


def test_the_criteria_name_the_part_that_limits_the_write() -> None:
    found = {one.label: one for one in predicted(gate(GATE), with_gpu("a100_80_sxm", "node01"), ["node01"])}
    assert found["reference"].bound == pytest.approx(256 * 128 / 152)
    assert found["reference"].source.startswith("derived: rate of the GPU's PCIe link x 128/(128+24)")
    assert found["floor"].bound == pytest.approx(0.85 * 256 * 128 / 152)
    host = {one.label: one for one in predicted(gate(HOST), with_gpu("a100_80_sxm", "node01"), ["node01"])}
    assert host["floor"].bound > 370
    lower = {
        one.label: one for one in predicted(gate(GATE, {"floor_share": 0.7}), with_gpu("l4", "node01"), ["node01"])
    }
    assert lower["floor"].bound == pytest.approx(0.7 * 256 * 128 / 152)


def test_the_link_of_the_host_limits_writes_from_its_memory() -> None:
    """A DGX B300 has ports of 800 Gb/s, and processors with PCIe Gen5: no host memory gives that."""
    known = facts("dgx_b300", 2)
    host = {one.label: one for one in predicted(gate(HOST), known, ["node01"])}
    assert host["reference"].bound == pytest.approx(512 * 128 / 152)
    assert host["reference"].source.startswith("derived: rate of the PCIe link of the host x 128/(128+24)")
    assert host["floor"].bound == pytest.approx(0.85 * 512 * 128 / 152)
    gpu = {one.label: one for one in predicted(gate(GATE), known, ["node01"])}
    assert gpu["floor"].bound > 700, "GPU and NIC have Gen6"
    plain = {one.label: one for one in predicted(gate(HOST), facts("dgx_h100", 2), ["node01"])}
    assert plain["floor"].bound > 370


def test_a_server_may_connect_its_gpus_with_less_than_they_have() -> None:
    node = rack(1).nodes["node01"]
    for gen, lanes, rate in ((5, 16, 64.0), (4, 16, 32.0), (5, 8, 32.0), (4, 8, 16.0), (6, 16, 64.0)):
        path = GpuPath(gen=gen, lanes=lanes, source="a test")
        platform = node.platform.model_copy(update={"gpu_path": path})
        assert gpu_link(replace(node, platform=platform)) == rate
    assert gpu_link(replace(node, gpu=loader.gpu("b200_sxm"))) is None


def test_a_collective_reaches_no_more_than_the_gpus_pcie_link() -> None:
    slow = domain(with_gpu("a100_80_sxm", "node01").nodes["node01"], 2)
    assert (slow.nic, slow.reached) == (50.0, pytest.approx(32 * 128 / 152))
    plain = domain(rack(1).nodes["node01"], 2)
    assert (plain.reached, plain.limit) == (50.0, "")
