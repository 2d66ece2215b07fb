"""Every collective gate passes a healthy run and fails without its transport: node, pair, rack, leaf group, cluster."""

from __future__ import annotations

import dataclasses

import pytest

from rackready.gates.base import GateFacts
from rackready.gates.engine.registry import gate
from rackready.gates.fabric import carried, domains
from rackready.gates.fabric.collective import NcclGate
from rackready.gates.fabric.collectives import GATES
from rackready.gates.nccl.program import collectives_run
from rackready.model.outcome import Outcome, Verdict
from tests.gates import nccl_table
from tests.gates.support import Said, outputs, port, ports, rack

SEVERAL = [kind.id for kind in GATES] + [
    "pair/fabric/performance/nccl-all-reduce-ring",
    "cluster/fabric/performance/nccl-all-reduce-ring",
]
ALONE = [f"node/gpu/performance/nccl-{name}" for name in ("all-reduce", "all-gather", "reduce-scatter", "alltoall")]
BUSBW = {"all_reduce": 420.0, "all_gather": 360.0, "reduce_scatter": 361.0, "alltoall": 86.0}
INSIDE = {"all_reduce": 478.0, "all_gather": 362.0, "reduce_scatter": 363.0, "alltoall": 340.0}


def log(site: GateFacts, nodes: tuple[str, ...]) -> str:
    """Output of NCCL's processes on healthy nodes."""
    lines, rank, total = [], 0, 8 * len(nodes)
    for node in nodes:
        devices = " ".join(f"[{place}]{nic.rdma_device}:1/RoCE" for place, nic in enumerate(site.nodes[node].nics))
        for gpu in range(8):
            tag = f"{node}:{2000 + rank}:{3000 + rank} [{gpu}] NCCL INFO "
            lines += [f"{tag}NET/IB : Using {devices} [RO]; OOB eth0:192.0.2.11<0>", f"{tag}Using network IB"]
            lines += [f"{tag}NVLS multicast support is available on dev {gpu} (NVLS_NCHANNELS 16)"]
            lines += [f"{tag}Pattern 4, crossNic 0, nChannels 8, bw 40.000000/40.000000, type NVL/PXB, sameChannels 1"]
            lines += [f"{tag}Channel 00/0 : {rank}[{gpu}] -> {(rank + 1) % total}[{gpu}] via P2P/CUMEM"]
            if len(nodes) > 1:
                lines += [
                    f"{tag}Channel 00/0 : {rank}[{gpu}] -> {(rank + 8) % total}[{gpu}] [send] via NET/IB/{gpu}/GDRDMA"
                ]
            rank += 1
    return "\n".join(lines) + "\n"


def table(nodes: tuple[str, ...], collective: str, busbw: float) -> str:
    """The tool's own report."""
    head = [
        "# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809",
        f"# Collective test starting: {collective}_perf",
        nccl_table.settings(),
        "# Using devices",
    ]
    head += [
        f"#  Rank {rank:2d} Group  0 Pid {2000 + rank:6d} on {nodes[rank // 8]:>10} device {rank % 8:2d} "
        "[0000:1b:00] NVIDIA H100 80GB HBM3"
        for rank in range(8 * len(nodes))
    ]
    rows = [nccl_table.row(collective, 8 * len(nodes), size, busbw) for size in (8 << 30, 16 << 30)]
    return (
        "\n".join(
            [
                *head,
                nccl_table.COLUMNS,
                *rows,
                "# Out of bounds values : 0 OK",
                f"# Avg bus bandwidth    : {busbw:.3f}",
                f"# Collective test concluded: {collective}_perf",
            ]
        )
        + "\n"
    )


def counters(site: GateFacts, bytes_of: dict[str, float], shares: dict[str, float] | None = None) -> dict[str, Said]:
    out = {}
    for node, moved in bytes_of.items():
        for when in ("before", "after"):
            each = {
                nic.rdma_device: int(
                    5e9 + (moved / 8 * (shares or {}).get(nic.rdma_device, 1.0) if when == "after" else 0)
                )
                for nic in site.nodes[node].nics
            }
            devices = {device: port(value) for device, value in each.items()}
            out[f"{when}-{node}"] = Said(ports(devices))
    return out


def moved(site: GateFacts, found: NcclGate, nodes: tuple[str, ...]) -> float:
    domain = domains.of_run(site, nodes)
    assert domain is not None
    least, most, _ = carried.must_leave(found.collective, found.algorithm, domain)
    return (least + most) / 2 * collectives_run("16G")


def several(
    gate_id: str, *, drop: str = "", shares: dict[str, float] | None = None, factor: float = 1.0, traffic: float = 1.0
) -> Verdict:
    """Judge a healthy run over two nodes.

    ``drop``: words whose lines are left out; ``factor``, ``traffic``: shares of its figure and of its bytes.
    """
    site = rack(2)
    found = gate(gate_id, {"launches": 1})
    assert isinstance(found, NcclGate)
    (run,) = found.plan(site, list(site.nodes))
    figure = 365.0 if found.algorithm == "ring" else BUSBW[found.collective]
    text = log(site, run.nodes) + table(run.nodes, found.collective, figure * factor)
    text = "\n".join(line for line in text.splitlines() if not drop or drop not in line) + "\n"
    bytes_of = dict.fromkeys(run.nodes, traffic * moved(site, found, run.nodes))
    return found.evaluate(site, run, outputs(run, {"launch0": Said(text), **counters(site, bytes_of, shares)}))


def said(verdict: Verdict) -> str:
    return "\n".join(str(finding) for finding in verdict.findings)


@pytest.mark.parametrize("gate_id", SEVERAL)
def test_a_healthy_run_passes_and_the_same_without_proof_does_not(gate_id: str) -> None:
    verdict = several(gate_id)
    assert said(verdict) == ""
    assert verdict.outcome is Outcome.PASS
    silent = several(gate_id, drop="NCCL INFO")
    assert silent.outcome is Outcome.ERROR
    assert "node01: NCCL did not report its transport" in said(silent)
    uneven = several(gate_id, shares={"mlx5_4": 0.5, "mlx5_5": 1.5})
    assert uneven.outcome is Outcome.FAIL
    assert "node01 mlx5_4 (rail 3): share of the traffic - Expected: 1.0 within 20% Actual: 0.50." in said(uneven)


@pytest.mark.parametrize("gate_id", [gate_id for gate_id in SEVERAL if not gate_id.endswith("nccl-all-reduce")])
def test_a_slow_run_fails_where_a_bound_exists(gate_id: str) -> None:
    verdict = several(gate_id, factor=0.8)
    assert verdict.outcome is Outcome.FAIL
    assert " is slow - Expected: at least " in said(verdict)


def alone(gate_id: str, drop: str = "") -> Verdict:
    site = rack(1)
    found = gate(gate_id, {"launches": 1})
    assert isinstance(found, NcclGate)
    (run,) = found.plan(site, ["node01"])
    text = log(site, run.nodes) + table(run.nodes, found.collective, INSIDE[found.collective])
    return found.evaluate(
        site,
        run,
        outputs(
            run, {"launch0": Said("\n".join(line for line in text.splitlines() if not drop or drop not in line) + "\n")}
        ),
    )


@pytest.mark.parametrize("gate_id", ALONE)
def test_a_node_alone(gate_id: str) -> None:
    verdict = alone(gate_id)
    assert said(verdict) == ""
    assert verdict.fleet_pending is not gate_id.endswith("all-reduce")
    assert alone(gate_id, "Pattern").outcome is Outcome.ERROR
    assert alone(gate_id, "NCCL INFO").outcome is Outcome.ERROR


@pytest.mark.parametrize("gate_id", ALONE)
def test_a_node_whose_results_are_wrong_fails_at_any_speed(gate_id: str) -> None:
    site = rack(1)
    found = gate(gate_id, {"launches": 1})
    assert isinstance(found, NcclGate)
    (run,) = found.plan(site, ["node01"])
    text = log(site, run.nodes) + table(run.nodes, found.collective, INSIDE[found.collective]).replace(
        " 0 62818", " 3 62818"
    ).replace(": 0 OK", ": 6 FAILED")
    verdict = found.evaluate(site, run, outputs(run, {"launch0": Said(text, exit_code=1)}))
    step = (
        "Data were corrupted. Take the node out of service and run DCGM level 4: "
        "docs/runbooks/silent-data-corruption.md."
    )
    assert said(verdict) == f"node01 launch 1: wrong results - Expected: 0 wrong values Actual: 6 wrong values. {step}"
    assert verdict.outcome is Outcome.FAIL


def test_unequal_domains_have_no_bound_and_are_an_error() -> None:
    """Three trays of one NVLink rack and one of another: the bytes of each are not computed."""
    site = rack(4)
    tray = site.nodes["node01"].platform.model_copy(update={"nvlink_domain": 72})
    nodes = {
        name: dataclasses.replace(node, platform=tray, rack="a" if name != "node04" else "b")
        for name, node in site.nodes.items()
    }
    site = dataclasses.replace(site, nodes=nodes)
    assert domains.of_run(site, list(site.nodes)) is None
    found = gate("cluster/fabric/performance/nccl-all-gather", {"launches": 1})
    (run,) = found.plan(site, list(site.nodes))
    text = log(site, run.nodes) + table(run.nodes, "all_gather", 360.0)
    verdict = found.evaluate(
        site, run, outputs(run, {"launch0": Said(text), **counters(site, dict.fromkeys(run.nodes, 1e12))})
    )
    assert verdict.outcome is Outcome.ERROR
    assert (
        "cluster: NVLink domains are unequal - Expected: equal numbers of nodes from every domain "
        "Actual: other numbers." in said(verdict)
    )


RING = "cluster/fabric/performance/nccl-all-reduce-ring"


def ring(change: dict[str, str], plugin: str = "ib") -> Verdict:
    """Judge a healthy ring over two nodes with a changed log.

    ``change``: words -> words, in NCCL's lines only.
    """
    site = rack(2)
    site = dataclasses.replace(site, fabric=site.fabric.model_copy(update={"nccl_net": plugin}))
    found = gate(RING, {"launches": 1})
    assert isinstance(found, NcclGate)
    (run,) = found.plan(site, list(site.nodes))
    text = log(site, run.nodes)
    for old, new in change.items():
        assert old in text
        text = text.replace(old, new)
    bytes_of = dict.fromkeys(run.nodes, moved(site, found, run.nodes))
    return found.evaluate(
        site,
        run,
        outputs(run, {"launch0": Said(text + table(run.nodes, "all_reduce", 365.0)), **counters(site, bytes_of)}),
    )


EXTERNAL = {"Using network IB": "Using network IBext_v10", "via NET/IB/": "via NET/IBext_v10/"}


def test_the_plugin_whose_name_begins_like_nccls_own_is_another_one() -> None:
    assert ring(EXTERNAL, "ibext").outcome is Outcome.PASS
    verdict = ring(EXTERNAL)
    step = "Correct fabric.nccl_net in site.yml, or NCCL_NET_PLUGIN in /etc/nccl.conf: docs/runbooks/nccl-transport.md"
    assert (
        said(verdict).splitlines()[0]
        == f"node01: NCCL transport - Expected: NET/IB Actual: IBext_v10, NET/IBext_v10. {step}"
    )
    assert verdict.outcome is Outcome.FAIL


def test_the_log_of_another_run_proves_nothing() -> None:
    verdict = ring({f"node02:{2008 + gpu}:": f"node02:{9008 + gpu}:" for gpu in range(8)})
    step = (
        "Give the table and NCCL INFO lines of the same launch; "
        "/etc/nccl.conf may redirect some of them (NCCL_DEBUG_FILE)."
    )
    assert said(verdict) == (
        "cluster launch 1: NCCL INFO lines of another run - Expected: those of the processes in its list of ranks "
        "(host, process id), and of all "
        "Actual: also of node02 9008, node02 9009, node02 9010, node02 9011 ...; "
        "none of node02 2008, node02 2009, node02 2010, node02 2011 .... " + step
    )
    assert verdict.outcome is Outcome.ERROR


def test_a_rank_that_said_nothing_is_not_proved() -> None:
    site = rack(2)
    mute = "".join(
        f"{line}\n" for line in log(site, ("node01", "node02")).splitlines() if not line.startswith("node02:2011:")
    )
    found = gate(RING, {"launches": 1})
    (run,) = found.plan(site, list(site.nodes))
    verdict = found.evaluate(site, run, outputs(run, {"launch0": Said(mute + table(run.nodes, "all_reduce", 365.0))}))
    assert "Actual: none of node02 2011. " in said(verdict)
    assert verdict.outcome is Outcome.ERROR


NO_MATTER = "NVLS multicast support is available on dev 7 (NVLS_NCHANNELS 16)"
"""A line that a ring does not need, in whose place NCCL says something else."""
AS_ONE = {"via NET/IB/0/GDRDMA": "via NET/IB/8/GDRDMA", "via NET/IB/1/GDRDMA": "via NET/IB/8/GDRDMA"}


def test_a_nic_that_nccl_lists_by_its_data_direct_function_is_that_nic() -> None:
    assert said(ring({":1/RoCE": "_dma:1/RoCE"})) == ""
    fused = "NET/IB : Made virtual device [8] name=mlx5_0_dma+mlx5_3_dma speed=1600000 ndevs=2"
    assert said(ring({":1/RoCE": "_dma:1/RoCE", NO_MATTER: fused, **AS_ONE})) == ""


def test_ports_that_nccl_fuses_to_one_device_are_both_used() -> None:
    fused = "NET/IB : Made virtual device [8] name={} speed=800000 ndevs=2"
    assert said(ring({NO_MATTER: fused.format("mlx5_0+mlx5_3"), **AS_ONE})) == ""
    verdict = ring({NO_MATTER: fused.format("mlx5_0+mlx5_4"), **AS_ONE})
    assert verdict.outcome is Outcome.FAIL
    assert "node01: HCAs used by NCCL - Expected: mlx5_0, mlx5_10, mlx5_11, mlx5_3, mlx5_4" in said(verdict)


def test_ports_that_nccl_fuses_in_its_list_are_both_used() -> None:
    """NCCL 2.21 to 2.23: channels count the entries of the list, whose other indexes are those of the ports."""
    site = rack(1)
    names = [nic.rdma_device for nic in site.nodes["node01"].nics]
    plain = " ".join(f"[{at}]{name}:1/RoCE" for at, name in enumerate(names))
    first = f"[0]={{[0] {names[0]}:1/RoCE, [1] {names[1]}:1/RoCE}}"
    others = " ".join(f"[{at}]{name}:1/RoCE" for at, name in enumerate(names) if at > 1)
    channels = {f"via NET/IB/{at}/": f"via NET/IB/{max(0, at - 1)}/" for at in range(8)}
    assert said(ring({plain: f"{first} {others}", **channels})) == ""


def test_a_channel_over_hcas_that_the_log_does_not_name_is_an_error() -> None:
    verdict = ring({"via NET/IB/0/GDRDMA": "via NET/IB/8/GDRDMA"})
    assert verdict.outcome is Outcome.ERROR
    assert [finding.code for finding in verdict.findings] == ["nccl-hcas-not-named"] * 2
    assert "HCAs of NCCL's channels - Expected: each channel over HCAs that NCCL names Actual: NET/IB/8." in said(
        verdict
    )


def test_a_channel_in_a_form_that_is_not_known_is_an_error() -> None:
    """It may be the one over sockets: an unknown channel is not left out."""
    verdict = ring({"[1] -> 9[1] [send] via NET/IB/1/GDRDMA": "[1] -> 9[1] [send] via WIRE:IB:1"})
    step = "Read NCCL's release notes, and update rackready."
    wanted = (
        "node01: unknown form of an NCCL channel - Expected: a channel via NET, P2P or SHM Actual: via "
        f"WIRE:IB:1. {step}"
    )
    assert wanted in said(verdict)
    assert verdict.outcome is not Outcome.PASS


def test_one_node_is_not_measured_by_half_of_two() -> None:
    site = rack(1)
    found = gate(ALONE[0], {"launches": 1})
    (run,) = found.plan(site, ["node01"])
    text = (log(site, ("node01",)) + table(("node01",), "all_reduce", 478.0)).replace(
        "on     node01 device  7", "on     node02 device  7"
    )
    verdict = found.evaluate(site, run, outputs(run, {"launch0": Said(text)}))
    step = "Check the host list of the launcher (`rackready gate show`), then run the gate again."
    wanted = (
        "node01 launch 1: all_reduce_perf ran on other hosts - Expected: 8 ranks on 1 host "
        f"Actual: on node01, node02. {step}"
    )
    assert said(verdict) == wanted
    assert verdict.outcome is Outcome.ERROR
