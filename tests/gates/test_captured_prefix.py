"""Prefixes of log collectors and launchers: removed if every line has one, refused if lines of sources are mixed."""

from __future__ import annotations

import pytest

from rackready.gates.records.captured_prefix import strip
from rackready.model.problems import RackreadyError
from tests.gates.support import text

SMI = text("smi/dgx_h100_healthy.xml")
TABLE = text("nccl/dgx_h100_8_healthy.txt")
POD, TIME, TAG = "[pod/probe-7x/main] ", "2026-11-22T12:00:00.123456789Z ", "[1,0]<stdout>:"


def before(body: str, prefix: str) -> str:
    """Each line behind a prefix; the last newline is the end of the last line, as collectors print it."""
    return "".join(f"{prefix}{line}\n" for line in body.rstrip("\n").split("\n"))


@pytest.mark.parametrize(
    "prefix",
    [
        POD,
        TIME,
        "2026-11-22T12:00:00.1+01:00 ",
        POD + TIME,
        TAG,
        "[1,0]<stdout>: ",
        "[1,0][gpu07:4711]<stdout>: ",
        "[prterun-gpu07-4711@1,0]<stdout>: ",
        "[0]<stdout>: ",
        "Sun Nov 22 12:00:00 2026<stdout>:",
        "Sun Nov  1 12:00:00 2026[1,0]<stdout>:",
        "[Sun Nov 22 12:00:00 2026]<stdout>: ",
        "[Sun Nov 22 12:00:00 2026][1,0]<stdout>: ",
        "Nov 22 12:00:00 gpu07 probe[4711]: ",
        "Nov  2 12:00:00 gpu07 slurmd: ",
        "2026-11-22T12:00:00+0000 gpu07 probe[4711]: ",
        POD + TIME + TAG,
    ],
)
def test_a_prefix_that_every_line_carries_is_taken_off(prefix: str) -> None:
    for body in (SMI, TABLE):
        found = strip(before(body, prefix), "--input x")
        assert found.text.rstrip("\n") == body.rstrip("\n")
        assert found.taken


@pytest.mark.parametrize(
    "body", [SMI, TABLE, text("kernel/dgx_h100_noise.txt"), text("perftest/dgx_h100_rail1_healthy.txt"), ""]
)
def test_what_has_no_prefix_stays_as_it_is(body: str) -> None:
    assert strip(body, "--input x", kernel_log=True) == strip(body, "--input x", launch=True, kernel_log=True)
    assert strip(body, "--input x", kernel_log=True).text == body
    assert strip(body, "--input x", kernel_log=True).taken == ()


def test_a_kernel_logs_own_times_stay() -> None:
    log = before("host kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid=1", "2026-11-22T12:00:00+0000 ")
    assert strip(log, "--input x", kernel_log=True).text == log
    assert strip(before(log, POD), "--input x", kernel_log=True).text == log


def test_the_journals_own_lines_go_with_its_prefix() -> None:
    journal = "-- Journal begins at Sun 2026-11-22 12:00:00 UTC, ends at Sun 2026-11-22 13:00:00 UTC. --\n" + before(
        TABLE, "Nov 22 12:00:00 n1 nccl[7]: "
    )
    assert strip(journal, "--input x").text.rstrip("\n") == TABLE.rstrip("\n")


@pytest.mark.parametrize(
    ("mixed", "said"),
    [
        (
            before("a", POD) + before("b", "[pod/probe-9z/main] "),
            (
                "Expected: lines of one container Actual: 2 (pod/probe-7x/main, pod/probe-9z/main). "
                "Give the lines of each container in a file of its own."
            ),
        ),
        (
            before("a", TAG) + before("b", "[1,1]<stdout>:"),
            "Expected: lines of one rank Actual: 2 ([1,0], [1,1]). Give the lines of each rank in a file of its own.",
        ),
        (
            before("a", "Nov 22 12:00:00 n1 x[7]: ") + before("b", "Nov 22 12:00:00 n2 x[7]: "),
            (
                "Expected: lines of one program Actual: 2 (n1 x[7], n2 x[7]). "
                "Give the lines of each program in a file of its own."
            ),
        ),
        (
            before("a", POD) + "no prefix\n",
            (
                "Expected: kubectl's prefix on every line, or on none Actual: 1 lines without it, first line 2: 'no "
                "prefix'. Give the complete output of one program."
            ),
        ),
        (
            "mpirun: a warning\n" + before("a", TAG),
            (
                "Expected: mpirun's prefix on every line, or on none Actual: 1 lines without it, first line 1: "
                "'mpirun: a warning'. "
                "Give the complete output of one program."
            ),
        ),
    ],
    ids=["two pods", "two ranks", "two hosts", "a line without kubectl's", "a line without mpirun's"],
)
def test_lines_of_several_sources_are_refused(mixed: str, said: str) -> None:
    with pytest.raises(RackreadyError) as refusal:
        strip(mixed, "--input x")
    assert str(refusal.value) == f"--input x - {said}"


def test_ranks_of_one_launch_share_an_output() -> None:
    """As they do without tags; mpirun's own words carry none."""
    said = "mpirun noticed that process rank 1 with PID 4711 on node n2 exited on signal 9 (Killed).\n"
    log = (
        before("n1:41001:1 [0] NCCL INFO a", TAG)
        + before("n2:41002:1 [0] NCCL INFO b", "[1,1]<stdout>:")
        + before(TABLE, TAG)
        + said
    )
    found = strip(log, "--input x", launch=True)
    assert found.text == "n1:41001:1 [0] NCCL INFO a\nn2:41002:1 [0] NCCL INFO b\n" + TABLE.rstrip("\n") + "\n" + said
    assert found.taken == ("mpirun's tags of 2 ranks, [1,0], [1,1]",)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            before(TABLE, TAG) + before(TABLE, "[1,1]<stdout>:"),
            "Expected: a table of one rank Actual: 2 ([1,0], [1,1]). Give the lines of each rank in a file of its own.",
        ),
        (
            before(TABLE, TAG) + before(TABLE, "[2,0]<stdout>:"),
            "Expected: a table of one rank Actual: 2 ([1,0], [2,0]). Give the lines of each rank in a file of its own.",
        ),
        (
            before(TABLE, TAG) + "# Avg bus bandwidth    : 480\n",
            (
                "Expected: mpirun's prefix on every line, or on none Actual: 1 lines without it, first line "
                f"{TABLE.rstrip(chr(10)).count(chr(10)) + 2}: '# Avg bus bandwidth    : 480'. "
                "Give the complete output of one program."
            ),
        ),
    ],
    ids=["two ranks print a table", "two jobs", "a line of a table without a tag"],
)
def test_a_launch_has_one_table(log: str, said: str) -> None:
    with pytest.raises(RackreadyError) as refusal:
        strip(log, "--input x", launch=True)
    assert str(refusal.value) == f"--input x - {said}"


def test_times_on_some_lines_only_are_no_prefix() -> None:
    body = before("a", TIME) + "b\n"
    assert strip(body, "--input x").text == body
