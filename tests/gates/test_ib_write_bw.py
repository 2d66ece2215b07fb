"""RDMA writes between pairs."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rackready.gates.base import Run
from rackready.gates.engine.registry import gate
from rackready.gates.fabric import perftest_run
from rackready.gates.fabric.rdma_port import LAYERS, payload_rate
from rackready.model.outcome import Outcome, Verdict
from rackready.ondevice.rdma_counters import ERRORS
from tests.gates.support import Case, Said, Told, between, check, judge, outputs, port, ports, rack, tells, text, told

GATE = "pair/fabric/performance/ib-write-bw"


WROTE = 8388608 * 2000


def link(
    device: str = "mlx5_0",
    state: str | None = "4: ACTIVE",
    rate: str = "400 Gb/sec (4X NDR)",
    sent: float = 7e9,
    **changed: object,
) -> Said:
    return Said(ports({device: port(sent, state=state, rate=rate, **changed)}))


NONE = dict.fromkeys(ERRORS, 0)
HEALTHY = Said(text("perftest/dgx_h100_rail1_healthy.txt"))
HEALTHY_BACK = Said(between(HEALTHY.stdout, "192.168.1.12", "192.168.1.11"))
AFTER = link(sent=7e9 + WROTE * 1.02)
UP = {
    "link-first": link(),
    "link-second": link(),
    "server-forth": Said(),
    "server-back": Said(),
    "after-first": AFTER,
    "after-second": AFTER,
}


def pair(name: str, outcome: Outcome, *findings: Told, **outputs: Said) -> Case:
    said = {**UP, "client_forth": HEALTHY, "client_back": HEALTHY_BACK, **outputs}
    return Case(name, {key.replace("_", "-"): value for key, value in said.items()}, outcome, findings, nodes=2)


OWN = "00:00:00:00:00:00:00:00:00:00:255:255:192:168:01:11"
FORTH = "node01 mlx5_0 -> node02 mlx5_0 (rail 1)"
BACK = "node02 mlx5_0 -> node01 mlx5_0 (rail 1)"
FIRST, SECOND = "node01 mlx5_0 (rail 1)", "node02 mlx5_0 (rail 1)"
PERF = "program=ib_write_bw"
CASES = [
    pair("healthy", Outcome.PASS),
    pair(
        "slow one way",
        Outcome.FAIL,
        ("rdma-write-slow", BACK, "at least 372.2 Gb/s (floor)", "187.4 Gb/s", "cable=its cable"),
        client_back=Said(between(text("perftest/dgx_h100_rail1_slow.txt"), "192.168.1.12", "192.168.1.11")),
    ),
    pair(
        "link down",
        Outcome.FAIL,
        ("rdma-link-down", SECOND, "port ACTIVE", "port DOWN", "when=", "cable=its cable"),
        link_second=link(state="1: DOWN"),
    ),
    pair(
        "link trained down",
        Outcome.FAIL,
        ("rdma-link-rate", FIRST, "400 Gb/s", "200 Gb/sec (4X HDR)", "when="),
        link_first=link(rate="200 Gb/sec (4X HDR)"),
    ),
    pair(
        "NIC missing",
        Outcome.FAIL,
        ("nic-missing", FIRST, "mlx5_0 under /sys/class/infiniband", "nothing", "when=", "pci=0000:18:00.0"),
        link_first=link(state=None),
    ),
    pair(
        "rail not reachable",
        Outcome.FAIL,
        (
            "rail-not-reachable",
            FORTH,
            "192.168.1.12 answers on port 18516",
            "Couldn't connect to 192.168.1.12:18516",
            "vlan=901",
            "switch=",
            "port=",
            "far_switch=",
            "far_port=",
        ),
        client_forth=Said(
            "",
            "Couldn't connect to 192.168.1.12:18516\nUnable to open file descriptor for socket connection Unable to "
            "init the socket connection\n",
            1,
        ),
    ),
    pair(
        "no address on the rail",
        Outcome.FAIL,
        ("rail-address-missing", FORTH, "192.168.1.11 on enp24s0np0", "no RoCE v2 GID for 192.168.1.11"),
        client_forth=Said("", "rackready: no RoCE v2 GID 0000:0000:0000:0000:0000:ffff:c0a8:010b on mlx5_0\n", 66),
    ),
    pair(
        "an address with RoCE v1 only",
        Outcome.FAIL,
        ("roce-version", FORTH, "a RoCE v2 GID for 192.168.1.11", "RoCE v1 only", "device=mlx5_0"),
        client_forth=Said(
            "", "rackready: no RoCE v2 GID 0000:0000:0000:0000:0000:ffff:c0a8:010b on mlx5_0, RoCE v1 only\n", 67
        ),
    ),
    pair(
        "GPU memory refused",
        Outcome.FAIL,
        ("gpudirect-refused", FORTH, "GPU memory registered with the NIC", "Couldn't register MR with dma-buf"),
        client_forth=Said(" initializing CUDA\n", " Couldn't register MR with dma-buf\n Failed to create MR\n", 1),
    ),
    pair(
        "the data went over another port",
        Outcome.FAIL,
        ("ib-write-bw-port-bytes", SECOND, "16.8 GB within 5%", "0.0 GB"),
        after_second=link(),
    ),
    pair(
        "a port that counts errors while it is loaded",
        Outcome.FAIL,
        ("port-errors-grew", SECOND, "by at most 0", "41", "name=port_rcv_errors"),
        link_second=link(errors={**NONE, "port_rcv_errors": 7}),
        after_second=link(sent=7e9 + WROTE, errors={**NONE, "port_rcv_errors": 48}),
    ),
    pair(
        "a port that fell behind the last message",
        Outcome.FAIL,
        ("rdma-link-down", SECOND, "port ACTIVE", "port DOWN", "when= after the run", "cable=its cable"),
        after_second=link(sent=7e9 + WROTE * 1.02, state="1: DOWN"),
    ),
    pair(
        "a counter of errors that is not there",
        Outcome.ERROR,
        (
            "port-error-unreadable",
            SECOND,
            "a count that does not go back",
            "0 before, nothing after",
            "name=symbol_error",
        ),
        after_second=link(sent=7e9 + WROTE, errors={**NONE, "symbol_error": None}),
    ),
    pair(
        "a counter of errors that went back",
        Outcome.ERROR,
        ("port-error-unreadable", FIRST, "a count that does not go back", "3 before, 0 after", "name=link_downed"),
        link_first=link(errors={**NONE, "link_downed": 3}),
    ),
    pair(
        "a device without counters of errors (EFA)",
        Outcome.PASS,
        link_first=link(errors={}),
        after_first=link(sent=7e9 + WROTE, errors={}),
    ),
    pair(
        "a word where a counter of errors stands",
        Outcome.ERROR,
        ("port-error-unreadable", FIRST, "a count that does not go back", "True before, 0 after", "name=symbol_error"),
        link_first=link(errors={**NONE, "symbol_error": True}),
    ),
    pair(
        "a reading without counters of errors",
        Outcome.ERROR,
        ("port-errors-not-counted", FIRST, "counts before and after", "none"),
        link_first=link(errors=None),
    ),
    pair(
        "a counter that cannot be read",
        Outcome.ERROR,
        ("rdma-bytes-unreadable", FIRST, "a complete document", "empty output"),
        after_first=Said(""),
    ),
    pair(
        "not RoCE",
        Outcome.FAIL,
        ("rdma-transport", FORTH, "RoCE (link type Ethernet)", "link type IB", "link_type=2"),
        client_forth=Said(text("perftest/dgx_h100_rail1_infiniband.txt")),
    ),
    pair(
        "RoCE without GIDs",
        Outcome.ERROR,
        ("rdma-other-gids", FORTH, "192.168.1.11 to 192.168.1.12", "none to none", PERF),
        client_forth=Said("\n".join(line for line in HEALTHY.stdout.splitlines() if "GID" not in line)),
    ),
    pair(
        "another rail's address",
        Outcome.ERROR,
        ("rdma-other-gids", BACK, "192.168.1.12 to 192.168.1.11", "192.168.2.12 to 192.168.1.11", PERF),
        client_back=Said(between(HEALTHY.stdout, "192.168.2.12", "192.168.1.11")),
    ),
    pair(
        "the other way round",
        Outcome.ERROR,
        ("rdma-other-gids", BACK, "192.168.1.12 to 192.168.1.11", "192.168.1.11 to 192.168.1.12", PERF),
        client_back=HEALTHY,
    ),
    pair(
        "a link-local GID",
        Outcome.ERROR,
        (
            "rdma-other-gids",
            FORTH,
            "192.168.1.11 to 192.168.1.12",
            "254:128:00:00:00:00:00:00:230:29:45:255:254:242:164:136 to 192.168.1.12",
            PERF,
        ),
        client_forth=Said(HEALTHY.stdout.replace(OWN, "254:128:00:00:00:00:00:00:230:29:45:255:254:242:164:136")),
    ),
    pair(
        "small path MTU",
        Outcome.FAIL,
        ("rdma-path-mtu", FORTH, "4096", "1024"),
        client_forth=Said(text("perftest/dgx_h100_rail1_mtu1024.txt")),
    ),
    pair(
        "host memory",
        Outcome.ERROR,
        ("ib-write-bw-host-memory", FORTH, "GPUDirect RDMA (dma-buf)", "host memory", "end="),
        client_forth=Said(text("perftest/dgx_h100_rail1_host_memory.txt")),
    ),
    pair(
        "perftest without CUDA",
        Outcome.ERROR,
        (
            "rdma-tool-lacks-option",
            FORTH,
            "a perftest built with CUDA and dma-buf",
            "unrecognized option '--use_cuda=0'",
            PERF,
        ),
        client_forth=Said("", "ib_write_bw: unrecognized option '--use_cuda=0'\n", 1),
    ),
    pair(
        "MB/sec",
        Outcome.ERROR,
        (
            "ib-write-bw-unreadable",
            FORTH,
            "one result block in Gb/sec",
            "bandwidth in MB/sec instead of Gb/sec (--report_gbits) (exit code 0)",
        ),
        client_forth=Said(text("perftest/dgx_h100_rail1_megabytes.txt")),
    ),
    pair(
        "implausible",
        Outcome.ERROR,
        ("rdma-write-implausible", FORTH, "at most 400.0 Gb/s (ceiling)", "791.3 Gb/s"),
        client_forth=Said(
            text("perftest/dgx_h100_rail1_healthy.txt")
            .replace("391.39", "791.39")
            .replace("391.27", "791.27")
            .replace("0.005830", "0.011791")
        ),
    ),
    pair(
        "another device",
        Outcome.ERROR,
        ("ib-write-bw-something-else", FORTH, "mlx5_0, 2000 x 8388608 bytes", "mlx5_3, 2000 x 8388608 bytes"),
        client_forth=Said(text("perftest/dgx_h100_rail1_healthy.txt").replace(": mlx5_0", ": mlx5_3")),
    ),
    pair(
        "fewer messages",
        Outcome.ERROR,
        ("ib-write-bw-something-else", FORTH, "mlx5_0, 2000 x 8388608 bytes", "mlx5_0, 5 x 8388608 bytes"),
        client_forth=Said(HEALTHY.stdout.replace(" 8388608    2000 ", " 8388608    5    ")),
    ),
    pair(
        "messages that did not arrive, and exit code 0",
        Outcome.ERROR,
        (
            "rdma-tool-contradicts",
            FORTH,
            "exit code 0 and no message of a failure",
            "Completion with error at client",
            PERF,
        ),
        client_forth=Said(
            HEALTHY.stdout,
            " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n",
        ),
    ),
    pair(
        "messages that did not arrive, as the server says",
        Outcome.ERROR,
        ("rdma-tool-contradicts", BACK, "exit code 0 and no message of a failure", "Problems with warm up", PERF),
        server_back=Said(exit_code=1, stderr="Problems with warm up\n"),
    ),
    pair(
        "a processor whose clock varies",
        Outcome.PASS,
        client_forth=Said(
            HEALTHY.stdout,
            "Conflicting CPU frequency values detected: 2000.000000 != 3800.000000. CPU Frequency is not max.\n",
        ),
    ),
    pair(
        "server never ready",
        Outcome.ERROR,
        (
            "command-could-not-run",
            FORTH,
            "a result",
            "nothing listened on port 18516 within 20 s",
            "command=ib_write_bw server",
            "node=node02",
        ),
        server_forth=Said(failure="nothing listened on port 18516 within 20 s"),
        client_forth=Said("", "Couldn't connect to 192.168.1.12:18516", 1),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdict(case: Case) -> None:
    check(GATE, case)


def test_a_pass_measures_both_nics_and_rails() -> None:
    assert judge(GATE, CASES[0]).measured == ["node01/mlx5_0", "node01/rail1", "node02/mlx5_0", "node02/rail1"]


def test_a_bad_link_is_blamed_on_its_own_node() -> None:
    assert judge(GATE, CASES[2]).blamed == ["node02"]


def test_payload_rate_of_400g() -> None:
    assert payload_rate(400, 4096, LAYERS["roce"]).value == pytest.approx(391.8, abs=0.1)
    assert payload_rate(400, 4096, LAYERS["infiniband"]).value == pytest.approx(397.5, abs=0.1)


# InfiniBand
# ------------------------------------------------------------------------------------------------------------

INFINIBAND = Said(text("perftest/dgx_h100_rail1_infiniband.txt"))
INFINIBAND_BACK = Said(
    INFINIBAND.stdout.replace("PSN 0x5a1f3c", "PSN 0x21c0de").replace("PSN 0x8d11e2", "PSN 0x4e57a1")
)


def on_infiniband(case: Case) -> tuple[Run, Verdict]:
    known = rack(2)
    known = replace(known, fabric=known.fabric.model_copy(update={"kind": "infiniband"}))
    found = gate(GATE)
    run = found.plan(known, list(known.nodes))[0]
    return run, found.evaluate(known, run, outputs(run, case.outputs))


def test_on_infiniband_that_is_the_link_type_to_have() -> None:
    run, verdict = on_infiniband(pair("healthy", Outcome.PASS, client_forth=INFINIBAND, client_back=INFINIBAND_BACK))
    assert (verdict.outcome, verdict.findings, verdict.transport) == (
        Outcome.PASS,
        [],
        "InfiniBand, mlx5_0, GPU memory by dmabuf",
    )
    assert [round(found.bound, 1) for found in verdict.criteria if found.label == "floor"] == [377.6, 377.6]
    client = next(command.argv for command in run.commands if command.key == "client-forth")
    assert (client[:2], client[3:5], client[-1]) == (("bash", "-c"), ("ib_write_bw", "mlx5_0"), "198.19.0.2")


@pytest.mark.parametrize(
    "again", [INFINIBAND, Said(INFINIBAND.stdout.replace("391.27", "391.26"))], ids=["copied", "copied and edited"]
)
def test_one_output_for_both_directions_measured_one(again: Said) -> None:
    """On InfiniBand no addresses distinguish the directions."""
    _, verdict = on_infiniband(pair("one for both", Outcome.ERROR, client_forth=INFINIBAND, client_back=again))
    assert tells(verdict) == [
        ("rdma-one-output-both-ways", "node01+node02/rail1", "one of each", "the same output", PERF)
    ]
    assert (verdict.outcome, verdict.measured) == (Outcome.ERROR, [])


def test_on_infiniband_ethernet_is_the_wrong_link_type() -> None:
    _, verdict = on_infiniband(pair("RoCE", Outcome.FAIL, client_back=INFINIBAND))
    assert tells(verdict) == [
        ("rdma-transport", FORTH, "InfiniBand (link type IB)", "link type Ethernet", "link_type=1")
    ]
    assert verdict.outcome is Outcome.FAIL


# host memory ---------------------------------------------------------------------------------------------------------


def test_another_way_to_gpu_memory_than_the_one_asked_for_is_an_error() -> None:
    peer = Said("\n".join(line for line in HEALTHY.stdout.splitlines() if "DMA-BUF" not in line))
    peer = Said(between(peer.stdout, "192.168.1.12", "192.168.1.11"))
    verdict = judge(GATE, pair("peer memory", Outcome.ERROR, client_back=peer))
    assert tells(verdict) == [
        ("ib-write-bw-other-memory", BACK, "GPU memory by dma-buf", "GPU memory by nvidia_peermem", "end=")
    ]
    assert verdict.outcome is Outcome.ERROR


def test_another_gpus_memory_is_an_error() -> None:
    other = Said(HEALTHY.stdout.replace("dev = 0]", "dev = 4]"))
    verdict = judge(GATE, pair("another GPU", Outcome.ERROR, client_forth=other))
    assert tells(verdict) == [("ib-write-bw-other-gpu", FORTH, "gpu0", "gpu4", "end=")]
    assert verdict.outcome is Outcome.ERROR


def test_a_gpu_that_cannot_be_read_may_be_any() -> None:
    other = Said(HEALTHY.stdout.replace("dev = 0]", "dev = \x1b[01;31m4\x1b[m]"))
    verdict = judge(GATE, pair("coloured", Outcome.ERROR, client_forth=other))
    assert verdict.findings[0].what == "ib_write_bw unreadable"
    assert verdict.findings[0].actual.startswith("the GPU that it used: '[pid = 51234, dev = ")


def test_host_memory_is_not_measured_out_of_gpu_memory() -> None:
    verdict = judge(HOST, pair("GPU memory", Outcome.ERROR))
    assert verdict.outcome is Outcome.ERROR
    code, _, *values = told(verdict.findings[0])
    assert (code, *values) == ("ib-write-bw-other-memory", "host memory", "GPU memory by dma-buf", "end=")


HOST = "pair/fabric/performance/ib-write-bw-host"
FROM_HOST = Said(text("perftest/dgx_h100_rail1_host_memory.txt"))
HOST_BACK = Said(between(FROM_HOST.stdout, "192.168.1.12", "192.168.1.11"))


def test_writes_from_host_memory_are_a_gate_of_their_own() -> None:
    good = pair("host", Outcome.PASS, client_forth=FROM_HOST, client_back=HOST_BACK)
    check(HOST, good)
    assert judge(HOST, good).transport == "RoCE, mlx5_0, GPU memory by none"
    slow = Said(
        FROM_HOST.stdout.replace("391.39", "187.92").replace("391.27", "187.40").replace("0.005830", "0.002792")
    )
    assert judge(HOST, pair("slow", Outcome.FAIL, client_forth=slow, client_back=HOST_BACK)).outcome is Outcome.FAIL
    assert (
        judge(HOST, pair("nothing", Outcome.ERROR, client_forth=Said(""), client_back=HOST_BACK)).outcome
        is Outcome.ERROR
    )
    known = rack(2)
    assert "--use_cuda=0" not in gate(HOST).plan(known, list(known.nodes))[0].commands[3].argv


@pytest.mark.parametrize(("offers", "words"), [(False, "--tclass=106 -F"), (True, "-F")])
def test_the_traffic_class_is_said_where_the_driver_has_none_for_all(
    tmp_path: Path, words: str, *, offers: bool
) -> None:
    known = rack(2)
    argv = gate(GATE).plan(known, list(known.nodes))[0].commands[3].argv
    assert argv[:4] == ("bash", "-c", perftest_run.WITH_GID, "ib_write_bw")
    assert argv[6] == "106"
    if offers:
        (tmp_path / "mlx5_0/tc/1").mkdir(parents=True)
        (tmp_path / "mlx5_0/tc/1/traffic_class").touch()
    part = perftest_run.CLASS.replace("/sys/class/infiniband", str(tmp_path))
    script = f'device=mlx5_0 tclass=106; set -- -F\n{part}\necho "$@"'
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    assert said == f"{words}\n"


def test_gpu_memory_goes_by_dma_buf_or_by_peer_memory() -> None:
    known = rack(2)
    by = {
        how: gate(GATE, {"gpudirect": how}).plan(known, list(known.nodes))[0].commands[3].argv
        for how in ("dmabuf", "peermem")
    }
    assert "--use_cuda_dmabuf" in by["dmabuf"]
    assert "--use_cuda=0" in by["peermem"]
    assert "--use_cuda_dmabuf" not in by["peermem"]
