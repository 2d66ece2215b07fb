"""Published healthy runs pass; just below their bound, or without their transport, they fail."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from rackready.gates.base import GateFacts, Run
from rackready.gates.engine.registry import gate
from rackready.gates.fabric import carried, domains
from rackready.gates.judging.expectation import Collective
from rackready.gates.nccl.program import collectives_run
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from tests.gates import nccl_table
from tests.gates.support import Said, outputs, port, ports

_GIB = 1 << 30
_NAMES = {"all_reduce": "all-reduce", "all_gather": "all-gather", "alltoall": "alltoall"}
_REDOP = {"all_reduce": "sum", "all_gather": "none", "alltoall": "none"}


@dataclass(frozen=True)
class Published:
    """One published run."""

    name: str
    platform: str
    nodes: int
    plugin: str
    collective: Collective
    busbw: float
    bound: float | None
    """Floor in GB/s, computed by hand from DOMAIN 2.10's rules; None: only a fleet can judge."""
    source: str = ""
    """Words of the floor's source."""


_EFA = "0.84 of the alltoall ceiling on EFA"
_PROFILE = "NVIDIA/cluster-readiness-engine docs, validation-results"
RUNS = [
    Published("AWS H100, 2 nodes", "dgx_h100", 2, "ofi", "all_reduce", 487.9, None),
    # e 0.84 x B 400 GB/s = 336; the fabric's e has a source and the run is a pair: x 0.95
    Published("AWS H100, 2 nodes", "dgx_h100", 2, "ofi", "all_gather", 338.6, 0.95 * 0.84 * 400, _EFA),
    # e 0.84 x b 50 GB/s x 15/8 = 78.75
    Published("AWS H100, 2 nodes", "dgx_h100", 2, "ofi", "alltoall", 79.1, 0.95 * 0.84 * 50 * 15 / 8, _EFA),
    Published("AWS GB200, 4 nodes of one domain", "gb200_nvl72", 4, "ofi", "all_reduce", 882.5, 0.95 * 882.5, _PROFILE),
    Published("AWS GB200, 4 nodes of one domain", "gb200_nvl72", 4, "ofi", "all_gather", 609.3, 0.95 * 609.3, _PROFILE),
    Published("AWS GB200, 4 nodes of one domain", "gb200_nvl72", 4, "ofi", "alltoall", 568.7, 0.95 * 568.7, _PROFILE),
    Published("AWS GB300, 8 nodes of one domain", "gb300_nvl72", 8, "ofi", "all_reduce", 923.3, 0.95 * 923.3, _PROFILE),
    Published("AWS GB300, 8 nodes of one domain", "gb300_nvl72", 8, "ofi", "all_gather", 698.7, 0.95 * 698.7, _PROFILE),
    Published("AWS GB300, 8 nodes of one domain", "gb300_nvl72", 8, "ofi", "alltoall", 678.6, 0.95 * 678.6, _PROFILE),
]
H100 = [run for run in RUNS if run.platform == "dgx_h100"]
NVL72 = [run for run in RUNS if run.platform != "dgx_h100"]


@dataclass(frozen=True)
class Evidence:
    """What is generated beside the figure.

    ``shares``: of (node, device), 1.0 is even; ``rails``: bytes over rails as a share of the required ones.
    """

    busbw: float
    mnnvl: bool = True
    over_network: bool = False
    network: str = "AWS Libfabric"
    shares: Mapping[tuple[str, str], float] = field(default_factory=dict)
    rails: float = 1.0


def known(run: Published) -> GateFacts:
    """Facts of the run's nodes, with device names where the profile has none published."""
    found = facts(run.platform, run.nodes)
    nodes = {
        name: dataclasses.replace(
            node,
            nics=tuple(
                dataclasses.replace(nic, rdma_device=nic.rdma_device or f"rdmap{nic.rail}") for nic in node.nics
            ),
        )
        for name, node in found.nodes.items()
    }
    return dataclasses.replace(found, nodes=nodes, fabric=found.fabric.model_copy(update={"nccl_net": run.plugin}))


def log(run: Published, site: GateFacts, evidence: Evidence) -> str:
    """Output of NCCL's processes, a few lines of each GPU."""
    lines, rank = [], 0
    total = domains.ranks(site, list(site.nodes))
    network = evidence.over_network or run.platform == "dgx_h100"
    for node, of_node in site.nodes.items():
        for gpu in range(of_node.platform.gpus):
            tag = f"{node}:{2000 + rank}:{3000 + rank} [{gpu}] NCCL INFO "
            lines += [
                f"{tag}NET/OFI Selected provider is efa, fabric is efa (found 8 nics)",
                f"{tag}Using network {evidence.network}",
            ]
            lines += [f"{tag}NVLS multicast support is available on dev {gpu} (NVLS_NCHANNELS 16)"]
            lines += [f"{tag}Pattern 4, crossNic 0, nChannels 8, bw 40.000000/40.000000, type NVL/PXB, sameChannels 1"]
            if run.platform != "dgx_h100" and evidence.mnnvl:
                lines += [f"{tag}MNNVL 1 cliqueId 7ffd cliqueSize {total} cliqueRank {rank}"]
            way = "MNNVL" if run.platform != "dgx_h100" and evidence.mnnvl else "CUMEM"
            lines += [f"{tag}Channel 00/0 : {rank}[{gpu}] -> {(rank + 1) % total}[{gpu}] via P2P/{way}"]
            if network:
                lines += [
                    (
                        f"{tag}Channel 00/0 : {rank}[{gpu}] -> {(rank + 8) % total}[{gpu}] [send] via "
                        f"NET/{evidence.network}/{gpu}/GDRDMA"
                    )
                ]
            rank += 1
    return "\n".join(lines) + "\n"


def table(run: Published, site: GateFacts, busbw: float) -> str:
    """The tool's own report around the figure."""
    count = domains.ranks(site, list(site.nodes))
    per = count // run.nodes
    head = [
        "# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809",
        f"# Collective test starting: {run.collective}_perf",
    ]
    head += [nccl_table.settings(), "#", "# Using devices"]
    names = list(site.nodes)
    model = site.nodes[names[0]].gpu.product_name
    head += [
        f"#  Rank {rank:2d} Group  0 Pid {2000 + rank:6d} on {names[rank // per]:>10} device {rank % per:2d} "
        f"[0000:1b:00] {model}"
        for rank in range(count)
    ]
    rows = [nccl_table.row(run.collective, count, size, busbw) for size in (8 * _GIB, 16 * _GIB)]
    foot = [
        "# Out of bounds values : 0 OK",
        f"# Avg bus bandwidth    : {busbw:.3f}",
        f"# Collective test concluded: {run.collective}_perf",
    ]
    return "\n".join([*head, nccl_table.COLUMNS, *rows, *foot]) + "\n"


def counters(run: Published, site: GateFacts, evidence: Evidence) -> dict[str, Said]:
    """Byte counters before and after, as the collective must have moved them."""
    domain = domains.of_run(site, list(site.nodes))
    assert domain is not None
    network = evidence.over_network or domain.count > 1
    apart = dataclasses.replace(domain, gpus=domain.gpus // domain.boards, count=domain.count * domain.boards)
    least, most, _ = carried.must_leave(run.collective, "default", apart)
    moved = (least + most) / 2 * collectives_run("16G") * evidence.rails if network else 1e6
    out = {}
    for node, of_node in site.nodes.items():
        for when, amount in (("before", 0.0), ("after", moved)):
            each = {
                nic.rdma_device: int(
                    5e9 + amount / len(of_node.nics) * evidence.shares.get((node, nic.rdma_device), 1.0)
                )
                for nic in of_node.nics
            }
            devices = {device: port(value) for device, value in each.items()}
            out[f"{when}-{node}"] = Said(ports(devices))
    return out


def judged(run: Published, evidence: Evidence) -> Verdict:
    site = known(run)
    found = gate(f"cluster/fabric/performance/nccl-{_NAMES[run.collective]}", {"launches": 1})
    planned: Run = found.plan(site, list(site.nodes))[0]
    said = {
        "launch0": Said(log(run, site, evidence) + table(run, site, evidence.busbw)),
        **counters(run, site, evidence),
    }
    return found.evaluate(site, planned, outputs(planned, said))


def ids(run: Published) -> str:
    return f"{run.name} {run.collective}"


@pytest.mark.parametrize("run", RUNS, ids=ids)
def test_a_published_healthy_run_passes(run: Published) -> None:
    verdict = judged(run, Evidence(run.busbw))
    assert [str(finding) for finding in verdict.findings] == []
    assert verdict.outcome is Outcome.PASS
    assert verdict.fleet_pending is not bool(run.bound)
    assert verdict.measured
    assert verdict.transport is not None
    assert ("P2P/MNNVL" in verdict.transport) is (run.platform != "dgx_h100")


@pytest.mark.parametrize("run", [run for run in RUNS if run.bound], ids=ids)
def test_just_under_its_bound_it_fails_and_the_bound_is_named_with_inputs_and_source(run: Published) -> None:
    assert run.bound is not None
    assert judged(run, Evidence(run.bound + 0.02)).outcome is Outcome.PASS
    verdict = judged(run, Evidence(run.bound - 0.02))
    assert verdict.outcome is Outcome.FAIL
    (finding,) = verdict.findings
    count = 16 if run.nodes < 8 else 32
    wanted = (
        f"cluster: {_NAMES[run.collective]} of {count} GPUs on {run.nodes} nodes is slow - "
        f"Expected: at least {run.bound:.1f} GB/s (floor) Actual: "
    )
    assert str(finding).startswith(wanted)
    floor = next(item for item in verdict.criteria if item.label == "floor")
    assert floor.bound == pytest.approx(run.bound)
    assert run.source in floor.source
    assert floor.inputs["reference"] == pytest.approx(run.bound / 0.95)


@pytest.mark.parametrize("run", RUNS, ids=ids)
def test_above_its_ceiling_it_is_implausible_and_no_pass(run: Published) -> None:
    ceiling = next(item for item in judged(run, Evidence(run.busbw)).criteria if item.label == "ceiling")
    verdict = judged(run, Evidence(ceiling.bound + 0.1))
    assert verdict.outcome is Outcome.ERROR
    assert "is implausible - Expected: at most" in str(verdict.findings[0])


@pytest.mark.parametrize("run", H100, ids=ids)
def test_the_h100_run_with_one_nics_share_missing_fails_its_transport_proof(run: Published) -> None:
    verdict = judged(run, Evidence(run.busbw, shares={("node02", "mlx5_4"): 0.0}))
    assert verdict.outcome is Outcome.FAIL
    rails = " ".join(str(finding) for finding in verdict.findings)
    assert "node02 mlx5_4 (rail 3): share of the traffic - Expected: 1.0 within 20% Actual: 0.00." in rails
    if run.collective == "alltoall":  # what must leave a node is one number: an eighth of it is missing
        assert "node02: bytes sent over its rails - Expected:" in rails


@pytest.mark.parametrize("run", H100, ids=ids)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda run: Evidence(run.busbw, network="Socket"),
            "NCCL transport - Expected: NET/OFI Actual: NET/Socket, Socket.",
        ),
        (lambda run: Evidence(run.busbw, network="IB"), "NCCL transport - Expected: NET/OFI Actual: IB, NET/IB."),
        (
            lambda run: Evidence(run.busbw, rails=0.0),
            "bytes sent over its rails - Expected: traffic on every rail Actual: 0 bytes.",
        ),
    ],
    ids=["sockets", "another plugin than declared", "nothing over the rails"],
)
def test_the_h100_run_over_another_transport_fails(
    run: Published, change: Callable[[Published], Evidence], words: str
) -> None:
    verdict = judged(run, change(run))
    assert verdict.outcome is Outcome.FAIL
    assert words in " ".join(str(finding) for finding in verdict.findings)


@pytest.mark.parametrize("run", NVL72, ids=ids)
def test_an_nvlink_domain_run_fails_when_nvlink_was_not_used_whatever_its_figure(run: Published) -> None:
    """One published run declared NVLink off, gave the figures of NVLink on, and passed."""
    verdict = judged(run, Evidence(run.busbw, mnnvl=False, over_network=True))
    assert verdict.outcome is Outcome.FAIL
    text = " ".join(str(finding) for finding in verdict.findings)
    count = 16 if run.nodes < 8 else 32
    assert "node01: NVLink domain - Expected: all channels over NVLink Actual: NET/AWS Libfabric." in text
    assert (
        f"node01: NVLink across nodes - Expected: P2P/MNNVL channels, a clique of {count} GPUs "
        "Actual: no such channel, clique of 0." in text
    )
    assert "node01: bytes sent over its rails - Expected: less than" in text


@pytest.mark.parametrize("run", NVL72, ids=ids)
def test_bytes_over_the_rails_alone_give_an_nvlink_domain_run_away(run: Published) -> None:
    verdict = judged(run, dataclasses.replace(Evidence(run.busbw, over_network=True), network="AWS Libfabric"))
    assert verdict.outcome is Outcome.FAIL
    assert "bytes sent over its rails" in " ".join(str(finding) for finding in verdict.findings)


@pytest.mark.parametrize("run", NVL72, ids=ids)
def test_rails_that_rested_are_not_measured(run: Published) -> None:
    """Inside one NVLink domain no data use the rails: a pass shows nothing about them, so other gates cover them."""
    verdict = judged(run, Evidence(run.busbw))
    assert verdict.outcome is Outcome.PASS
    assert {part.split("/")[1][:3] for part in verdict.measured} == {"gpu"}
