"""Checks of perftest's own report of its call and of the memory that it used, for all gates of perftest."""

from __future__ import annotations

from rackready.format_error import FormatError
from rackready.gates.base import GateFacts, Output
from rackready.gates.formats import perftest
from rackready.gates.formats.perftest import Call, Memory
from rackready.gates.judging import gpu_models
from rackready.gates.judging.finding_kinds import ErrorKind
from rackready.gates.judging.judge import Judge

ASKED = Call(connection="RC", qps="1", dual_port="OFF", rdma_cm="OFF")
"""No gate sets these: they are perftest's defaults (init_perftest_params of src/perftest_parameters.c)."""

FAR = " at the receiver"
"""Words behind a finding about the memory of the server's end."""


CALL_SETTINGS = ErrorKind(
    "perftest-other-settings",
    "{program} ran with other settings",
    meaning="perftest ran with other settings than the gate asks for.",
    next_step="Run {program} with the command that `rackready gate show` prints.",
)
SERVER_UNREADABLE = ErrorKind(
    "perftest-server-unreadable",
    f"{{program}} unreadable{FAR}",
    meaning="The receiver's output is incomplete, so the memory that it used is unknown.",
    next_step="Run the gate again; if that does not help, read its raw output in the report.",
)

FINDINGS = (CALL_SETTINGS, SERVER_UNREADABLE)


def judge_call(judge: Judge, where: str, program: str, call: Call) -> None:
    """Report an error where perftest was called with other settings.

    Another connection or more queue pairs give another figure.
    """
    if call != ASKED:
        judge.error(where, CALL_SETTINGS, _words(ASKED), _words(call), program=program)


def judge_model(judge: Judge, facts: GateFacts, where: str, program: str, node: str, used: Memory) -> None:
    """Report an error where perftest names a GPU of another model than the node's."""
    if used.model:
        gpu_models.require_model(
            judge, where, f"{program} used", [(node, used.model)], [facts.nodes[node].gpu.product_name]
        )


def served(gathered: Judge, where: str, program: str, server: Output | None) -> Memory | None:
    """Return the memory that the receiver's server used, or None.

    None where it reports nothing, as a server may that was ended; a partial report is an error.
    """
    if server is None:
        return None
    try:
        return perftest.served(server.stdout)
    except FormatError as error:
        gathered.error(where, SERVER_UNREADABLE, "the head of its test and the memory it uses", error, program=program)
        return None


def _words(call: Call) -> str:
    return f"connection {call.connection}, qps {call.qps}, dual-port {call.dual_port}, rdma_cm {call.rdma_cm}"
