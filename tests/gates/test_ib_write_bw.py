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
from rackready.gates.host.reading import AGAIN
from rackready.model.outcome import Outcome, Verdict
from rackready.ondevice.rdma_counters import ERRORS
from tests.gates.support import Case, Said, between, check, judge, outputs, port, ports, rack, text

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
CABLE = (
    "Clean and reseat cable and module; then swap them with another port's, to see whether the errors move with them."
)
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


def pair(name: str, outcome: Outcome, *messages: str, **outputs: Said) -> Case:
    said = {**UP, "client_forth": HEALTHY, "client_back": HEALTHY_BACK, **outputs}
    return Case(name, {key.replace("_", "-"): value for key, value in said.items()}, outcome, messages, nodes=2)


CAPTURED = (
    "Run the gate again; for an output that was captured elsewhere, check that it belongs to this rail, "
    "and give its addresses (--address NODE:HCA=ADDRESS)."
)
OWN = "00:00:00:00:00:00:00:00:00:00:255:255:192:168:01:11"
FORTH = "node01 mlx5_0 -> node02 mlx5_0 (rail 1)"
BACK = "node02 mlx5_0 -> node01 mlx5_0 (rail 1)"
CASES = [
    pair("healthy", Outcome.PASS),
    pair(
        "slow one way",
        Outcome.FAIL,
        f"{BACK}: RDMA write is slow - Expected: at least 372.2 Gb/s (floor) Actual: 187.4 Gb/s. "
        "Check its cable, errors of the port and PCIe width of the NIC: docs/runbooks/rail-slow.md.",
        client_back=Said(between(text("perftest/dgx_h100_rail1_slow.txt"), "192.168.1.12", "192.168.1.11")),
    ),
    pair(
        "link down",
        Outcome.FAIL,
        "node02 mlx5_0 (rail 1): link down - Expected: port ACTIVE Actual: port DOWN. "
        "Check its cable and its transceivers: docs/runbooks/link-down.md",
        link_second=link(state="1: DOWN"),
    ),
    pair(
        "link trained down",
        Outcome.FAIL,
        "node01 mlx5_0 (rail 1): link rate - Expected: 400 Gb/s Actual: 200 Gb/sec (4X HDR). "
        "Check the cable, its transceivers and the switch port's speed: docs/runbooks/link-down.md",
        link_first=link(rate="200 Gb/sec (4X HDR)"),
    ),
    pair(
        "NIC missing",
        Outcome.FAIL,
        "node01 mlx5_0 (rail 1): NIC missing - Expected: mlx5_0 under /sys/class/infiniband Actual: "
        "nothing. Check that `lspci` shows the NIC at 0000:18:00.0 and mlx5_core is loaded; reseat it: "
        "docs/runbooks/nic.md",
        link_first=link(state=None),
    ),
    pair(
        "rail not reachable",
        Outcome.FAIL,
        f"{FORTH}: rail not reachable - Expected: 192.168.1.12 answers on port 18516 "
        "Actual: Couldn't connect to 192.168.1.12:18516. "
        "Check VLAN 901 on   and  : run fabric again.",
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
        f"{FORTH}: address missing - Expected: 192.168.1.11 on enp24s0np0 Actual: no RoCE v2 GID for 192.168.1.11. "
        "Run fabric again: it sets the rail's address.",
        client_forth=Said("", "rackready: no RoCE v2 GID 0000:0000:0000:0000:0000:ffff:c0a8:010b on mlx5_0\n", 66),
    ),
    pair(
        "an address with RoCE v1 only",
        Outcome.FAIL,
        f"{FORTH}: RoCE version - Expected: a RoCE v2 GID for 192.168.1.11 Actual: RoCE v1 only. "
        "Set RoCE v2: `cma_roce_mode -d mlx5_0 -p 1 -m 2`; if there is still no v2 GID, reset the NIC (`mlxfwreset`).",
        client_forth=Said(
            "", "rackready: no RoCE v2 GID 0000:0000:0000:0000:0000:ffff:c0a8:010b on mlx5_0, RoCE v1 only\n", 67
        ),
    ),
    pair(
        "GPU memory refused",
        Outcome.FAIL,
        f"{FORTH}: GPUDirect RDMA - Expected: GPU memory registered with the NIC "
        "Actual: Couldn't register MR with dma-buf. "
        "Check ACS (`lspci -vvv | grep ACSCtl`), the IOMMU (iommu=pt), dma-buf (kernel and open driver) or "
        "nvidia_peermem: docs/runbooks/nccl-transport.md",
        client_forth=Said(" initializing CUDA\n", " Couldn't register MR with dma-buf\n Failed to create MR\n", 1),
    ),
    pair(
        "the data went over another port",
        Outcome.FAIL,
        "node02 mlx5_0 (rail 1): bytes sent by the port - Expected: 16.8 GB within 5% Actual: 0.0 GB. "
        "The data used another port, or something else used this one: check that no job runs, and the "
        "node's RDMA devices: docs/runbooks/rail-slow.md.",
        after_second=link(),
    ),
    pair(
        "a port that counts errors while it is loaded",
        Outcome.FAIL,
        f"node02 mlx5_0 (rail 1): port_rcv_errors grew under load - Expected: by at most 0 Actual: 41. {CABLE}",
        link_second=link(errors={**NONE, "port_rcv_errors": 7}),
        after_second=link(sent=7e9 + WROTE, errors={**NONE, "port_rcv_errors": 48}),
    ),
    pair(
        "a port that fell behind the last message",
        Outcome.FAIL,
        "node02 mlx5_0 (rail 1): link down after the run - Expected: port ACTIVE Actual: port DOWN. "
        "Check its cable and its transceivers: docs/runbooks/link-down.md",
        after_second=link(sent=7e9 + WROTE * 1.02, state="1: DOWN"),
    ),
    pair(
        "a counter of errors that is not there",
        Outcome.ERROR,
        "node02 mlx5_0 (rail 1): symbol_error not readable - Expected: a count that does not go back "
        f"Actual: 0 before, nothing after. {AGAIN}",
        after_second=link(sent=7e9 + WROTE, errors={**NONE, "symbol_error": None}),
    ),
    pair(
        "a counter of errors that went back",
        Outcome.ERROR,
        "node01 mlx5_0 (rail 1): link_downed not readable - Expected: a count that does not go back "
        f"Actual: 3 before, 0 after. {AGAIN}",
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
        "node01 mlx5_0 (rail 1): symbol_error not readable - Expected: a count that does not go back "
        f"Actual: True before, 0 after. {AGAIN}",
        link_first=link(errors={**NONE, "symbol_error": True}),
    ),
    pair(
        "a reading without counters of errors",
        Outcome.ERROR,
        "node01 mlx5_0 (rail 1): error counters not readable - Expected: counts before and after Actual: "
        f"none. {AGAIN}",
        link_first=link(errors=None),
    ),
    pair(
        "a counter that cannot be read",
        Outcome.ERROR,
        "node01 mlx5_0 (rail 1): byte counters unreadable - Expected: a complete document Actual: empty output. "
        "Run the gate again.",
        after_first=Said(""),
    ),
    pair(
        "not RoCE",
        Outcome.FAIL,
        f"{FORTH}: transport - Expected: RoCE (link type Ethernet) Actual: link type IB. "
        "Set the port's link type: `mlxconfig -d DEVICE set LINK_TYPE_P1=2`, then reset the NIC.",
        client_forth=Said(text("perftest/dgx_h100_rail1_infiniband.txt")),
    ),
    pair(
        "RoCE without GIDs",
        Outcome.ERROR,
        f"{FORTH}: ib_write_bw used other GIDs - Expected: 192.168.1.11 to 192.168.1.12 Actual: none to none. "
        f"{CAPTURED}",
        client_forth=Said("\n".join(line for line in HEALTHY.stdout.splitlines() if "GID" not in line)),
    ),
    pair(
        "another rail's address",
        Outcome.ERROR,
        f"{BACK}: ib_write_bw used other GIDs - Expected: 192.168.1.12 to 192.168.1.11 "
        f"Actual: 192.168.2.12 to 192.168.1.11. {CAPTURED}",
        client_back=Said(between(HEALTHY.stdout, "192.168.2.12", "192.168.1.11")),
    ),
    pair(
        "the other way round",
        Outcome.ERROR,
        f"{BACK}: ib_write_bw used other GIDs - Expected: 192.168.1.12 to 192.168.1.11 "
        f"Actual: 192.168.1.11 to 192.168.1.12. {CAPTURED}",
        client_back=HEALTHY,
    ),
    pair(
        "a link-local GID",
        Outcome.ERROR,
        f"{FORTH}: ib_write_bw used other GIDs - Expected: 192.168.1.11 to 192.168.1.12 "
        f"Actual: 254:128:00:00:00:00:00:00:230:29:45:255:254:242:164:136 to 192.168.1.12. {CAPTURED}",
        client_forth=Said(HEALTHY.stdout.replace(OWN, "254:128:00:00:00:00:00:00:230:29:45:255:254:242:164:136")),
    ),
    pair(
        "small path MTU",
        Outcome.FAIL,
        f"{FORTH}: RDMA path MTU - Expected: 4096 Actual: 1024. Check the MTU of the interface and of the "
        "switch ports on both ends, and run fabric again.",
        client_forth=Said(text("perftest/dgx_h100_rail1_mtu1024.txt")),
    ),
    pair(
        "host memory",
        Outcome.ERROR,
        f"{FORTH}: GPU memory was not used - Expected: GPUDirect RDMA (dma-buf) Actual: host memory. "
        "Install a perftest built with CUDA.",
        client_forth=Said(text("perftest/dgx_h100_rail1_host_memory.txt")),
    ),
    pair(
        "perftest without CUDA",
        Outcome.ERROR,
        f"{FORTH}: ib_write_bw lacks an option - Expected: a perftest built with CUDA and dma-buf "
        "Actual: unrecognized option '--use_cuda=0'. "
        "Run install again: it installs the right perftest.",
        client_forth=Said("", "ib_write_bw: unrecognized option '--use_cuda=0'\n", 1),
    ),
    pair(
        "MB/sec",
        Outcome.ERROR,
        f"{FORTH}: ib_write_bw unreadable - Expected: one result block in Gb/sec Actual: bandwidth in "
        "MB/sec instead of Gb/sec (--report_gbits) (exit code 0). Run the gate again; if that does not "
        "help, read its raw output in the report.",
        client_forth=Said(text("perftest/dgx_h100_rail1_megabytes.txt")),
    ),
    pair(
        "implausible",
        Outcome.ERROR,
        f"{FORTH}: RDMA write bandwidth is implausible - Expected: at most 400.0 Gb/s (ceiling) Actual: 791.3 Gb/s. "
        "Check the NIC's rate in the platform profile.",
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
        f"{FORTH}: ib_write_bw measured something else - Expected: mlx5_0, 2000 x 8388608 bytes "
        "Actual: mlx5_3, 2000 x 8388608 bytes. Run the gate again.",
        client_forth=Said(text("perftest/dgx_h100_rail1_healthy.txt").replace(": mlx5_0", ": mlx5_3")),
    ),
    pair(
        "fewer messages",
        Outcome.ERROR,
        f"{FORTH}: ib_write_bw measured something else - Expected: mlx5_0, 2000 x 8388608 bytes "
        "Actual: mlx5_0, 5 x 8388608 bytes. Run the gate again.",
        client_forth=Said(HEALTHY.stdout.replace(" 8388608    2000 ", " 8388608    5    ")),
    ),
    pair(
        "messages that did not arrive, and exit code 0",
        Outcome.ERROR,
        f"{FORTH}: ib_write_bw contradicts itself - Expected: exit code 0 and no message of a failure "
        "Actual: Completion with error at client. Read the raw outputs of both ends in the report, and "
        "the errors of both ports: docs/runbooks/rail-slow.md.",
        client_forth=Said(
            HEALTHY.stdout,
            " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n",
        ),
    ),
    pair(
        "messages that did not arrive, as the server says",
        Outcome.ERROR,
        f"{BACK}: ib_write_bw contradicts itself - Expected: exit code 0 and no message of a failure "
        "Actual: Problems with warm up. Read the raw outputs of both ends in the report, and the errors "
        "of both ports: docs/runbooks/rail-slow.md.",
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
        f"{FORTH}: ib_write_bw server could not run - Expected: a result "
        "Actual: nothing listened on port 18516 within 20 s. "
        "Check that node02 answers on SSH, then run the gate again.",
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
    assert [str(finding) for finding in verdict.findings] == [
        (
            "node01+node02/rail1: ib_write_bw has one output for both directions - Expected: one of each "
            "Actual: the same output. "
            "Give each direction its own output, or run the gate again."
        )
    ]
    assert (verdict.outcome, verdict.measured) == (Outcome.ERROR, [])


def test_on_infiniband_ethernet_is_the_wrong_link_type() -> None:
    _, verdict = on_infiniband(pair("RoCE", Outcome.FAIL, client_back=INFINIBAND))
    assert [str(finding) for finding in verdict.findings] == [
        (
            f"{FORTH}: transport - Expected: InfiniBand (link type IB) Actual: link type Ethernet. "
            "Set the port's link type: `mlxconfig -d DEVICE set LINK_TYPE_P1=1`, then reset the NIC."
        )
    ]
    assert verdict.outcome is Outcome.FAIL


# host memory ---------------------------------------------------------------------------------------------------------


def test_another_way_to_gpu_memory_than_the_one_asked_for_is_an_error() -> None:
    peer = Said("\n".join(line for line in HEALTHY.stdout.splitlines() if "DMA-BUF" not in line))
    peer = Said(between(peer.stdout, "192.168.1.12", "192.168.1.11"))
    verdict = judge(GATE, pair("peer memory", Outcome.ERROR, client_back=peer))
    step = "Run the gate again; the gate's inputs gpu_memory and gpudirect choose the way."
    assert [str(finding) for finding in verdict.findings] == [
        (
            f"{BACK}: ib_write_bw measured another memory - Expected: GPU memory by dma-buf "
            f"Actual: GPU memory by nvidia_peermem. {step}"
        )
    ]
    assert verdict.outcome is Outcome.ERROR


def test_another_gpus_memory_is_an_error() -> None:
    other = Said(HEALTHY.stdout.replace("dev = 0]", "dev = 4]"))
    verdict = judge(GATE, pair("another GPU", Outcome.ERROR, client_forth=other))
    assert [str(finding) for finding in verdict.findings] == [
        (
            f"{FORTH}: ib_write_bw measured another GPU's memory - Expected: gpu0 Actual: gpu4. "
            "Unset CUDA_VISIBLE_DEVICES on the node."
        )
    ]
    assert verdict.outcome is Outcome.ERROR


def test_a_gpu_that_cannot_be_read_may_be_any() -> None:
    other = Said(HEALTHY.stdout.replace("dev = 0]", "dev = \x1b[01;31m4\x1b[m]"))
    verdict = judge(GATE, pair("coloured", Outcome.ERROR, client_forth=other))
    assert verdict.findings[0].what == "ib_write_bw unreadable"
    assert verdict.findings[0].actual.startswith("the GPU that it used: '[pid = 51234, dev = ")


def test_host_memory_is_not_measured_out_of_gpu_memory() -> None:
    verdict = judge(HOST, pair("GPU memory", Outcome.ERROR))
    assert verdict.outcome is Outcome.ERROR
    assert "measured another memory - Expected: host memory Actual: GPU memory by dma-buf." in str(verdict.findings[0])


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
