"""What all gates of perftest compare with their command: how it says that it was called, and whose memory it used."""

from __future__ import annotations

from rackready.gates import models
from rackready.gates.base import GateFacts, Output
from rackready.gates.formats import perftest
from rackready.gates.formats.error import FormatError
from rackready.gates.formats.perftest import Call, Memory
from rackready.gates.judge import Judge

ASKED = Call(connection="RC", qps="1", dual_port="OFF", rdma_cm="OFF")
"""No gate sets one of them: these are perftest's defaults (init_perftest_params of src/perftest_parameters.c)."""

FAR = " at the receiver"
"""Behind what is wrong with the memory of the end that serves."""


def judge_call(judge: Judge, where: str, program: str, call: Call) -> None:
    """Err where perftest says that it was called otherwise: another connection or more queue pairs give another figure."""
    if call != ASKED:
        step = f"Run {program} with the command that `rackready gate show` prints."
        judge.error(where, f"{program} ran with other settings", _words(ASKED), _words(call), step)


def judge_model(judge: Judge, facts: GateFacts, where: str, program: str, node: str, used: Memory) -> None:
    """Err where perftest names a GPU of another model than the node's."""
    if used.model:
        models.same(judge, where, f"{program} used", [(node, used.model)], [facts.nodes[node].gpu.product_name])


def served(gathered: Judge, where: str, program: str, server: Output | None) -> Memory | None:
    """Return the memory that the receiver's server used; None where it said nothing, as one that is ended may, or, with an error, half of it."""
    if server is None:
        return None
    try:
        return perftest.served(server.stdout)
    except FormatError as error:
        step = "Run the gate again; if it stays so, read its raw output in the report."
        gathered.error(where, f"{program} unreadable{FAR}", "the head of its test and the memory it uses", error, step)
        return None


def _words(call: Call) -> str:
    return f"connection {call.connection}, qps {call.qps}, dual-port {call.dual_port}, rdma_cm {call.rdma_cm}"
