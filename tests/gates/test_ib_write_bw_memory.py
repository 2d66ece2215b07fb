"""RDMA writes between pairs: the receiver used the memory that was asked for, where its server reports it."""

from __future__ import annotations

import pytest

from rackready.model.outcome import Outcome
from tests.gates.support import Said, Told, check, text
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
