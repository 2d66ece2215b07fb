"""RDMA writes between pairs: the receiver used the memory that was asked for, where its server reports it."""

from __future__ import annotations

import pytest

from rackready.model.outcome import Outcome
from tests.gates.support import Said, check, text
from tests.gates.test_ib_write_bw import BACK, FORTH, FROM_HOST, GATE, HEALTHY, HOST, HOST_BACK, pair


def served(said: Said) -> Said:
    """A server's output: all but the row."""
    return Said("".join(line for line in said.stdout.splitlines(keepends=True) if not line.startswith(" 8388608 ")))


SERVERS = {
    "what the client used": (served(HEALTHY), ""),
    "only the waiting": (Said(f"\n{'*' * 36}\n* Waiting for client to connect... *\n{'*' * 36}\n"), ""),
    "cut off before its head": (
        Said(served(HEALTHY).stdout.partition("Picking device")[0]),
        (
            "ib_write_bw unreadable at the receiver - Expected: the head of its test and the memory it "
            "uses Actual: an output that is cut off. Run the gate again; if that does not help, read its "
            "raw output in the report."
        ),
    ),
    "a GPU that cannot be read": (
        Said(served(HEALTHY).stdout.replace("[pid = 51234, dev = 0]", "[pid = 51,234, dev = 4]")),
        (
            "ib_write_bw unreadable at the receiver - Expected: the head of its test and the memory it "
            "uses Actual: the GPU that it used: '[pid = 51,234, dev = 4] device name = [NVIDIA H100 80GB "
            "HBM3]'. Run the gate again; if that does not help, read its raw output in the report."
        ),
    ),
    "host memory": (
        served(Said(text("perftest/dgx_h100_rail1_host_memory.txt"))),
        (
            "GPU memory was not used at the receiver - Expected: GPUDirect RDMA (dma-buf) Actual: host "
            "memory. Install a perftest built with CUDA."
        ),
    ),
    "another GPU": (
        served(Said(HEALTHY.stdout.replace("dev = 0]", "dev = 4]"))),
        (
            "ib_write_bw measured another GPU's memory at the receiver - Expected: gpu0 Actual: gpu4. "
            "Unset CUDA_VISIBLE_DEVICES on the node."
        ),
    ),
    "peer memory": (
        Said("\n".join(line for line in served(HEALTHY).stdout.splitlines() if "DMA-BUF" not in line)),
        (
            "ib_write_bw measured another memory at the receiver - Expected: GPU memory by dma-buf "
            "Actual: GPU memory by nvidia_peermem. Run the gate again; the gate's inputs gpu_memory and "
            "gpudirect choose the way."
        ),
    ),
}


@pytest.mark.parametrize(("server", "message"), SERVERS.values(), ids=SERVERS)
@pytest.mark.parametrize(("key", "where"), [("server_forth", FORTH), ("server_back", BACK)], ids=["forth", "back"])
def test_the_receivers_memory_is_the_one_asked_for_where_its_server_says_which(
    key: str, where: str, server: Said, message: str
) -> None:
    messages = (f"{where}: {message}",) if message else ()
    check(GATE, pair("server", Outcome.ERROR if message else Outcome.PASS, *messages, **{key: server}))


def test_a_server_on_gpu_memory_is_no_measurement_of_host_memory() -> None:
    said = {"client_forth": FROM_HOST, "client_back": HOST_BACK}
    check(HOST, pair("host", Outcome.PASS, **said, server_forth=served(FROM_HOST)))
    step = "Run the gate again; the gate's inputs gpu_memory and gpudirect choose the way."
    message = (
        f"{FORTH}: ib_write_bw measured another memory at the receiver - Expected: host memory "
        f"Actual: GPU memory by dma-buf. {step}"
    )
    check(HOST, pair("GPU", Outcome.ERROR, message, **said, server_forth=served(HEALTHY)))
