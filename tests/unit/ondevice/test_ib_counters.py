"""ib_counters.py: both ends of each cable, read by the real programs on ibsim, and what cannot be read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rackready.drivers.ib.counters import read_perfquery
from rackready.ondevice import ib_counters
from rackready_sim.ibtwin import ibsim
from rackready_sim.ibtwin.losses import sweep
from rackready_sim.ibtwin.topology import twin_of
from tests.unit.infiniband.fabrics import plan_of
from tests.unit.infiniband.twins import LACKING, REASON

# smpquery of infiniband-diags 44.0 on ibsim 0.10
NODE = """# Node info: DR path slid 65535; dlid 65535; 0,1
NodeType:........................Switch
Guid:............................0x0200000100000000
PortGuid:........................0x0200000100000000
LocalPort:.......................7
"""
PORT = """# Port info: DR path slid 65535; dlid 65535; 0,1 port 0
Lid:.............................2
SMLid:...........................1
"""


class Programs:
    """Answers by the words of a command; the first that is in it counts."""

    def __init__(self, **answers: tuple[int, str]) -> None:
        self.answers = {"nodeinfo": (0, NODE), "portinfo": (0, PORT), "perfquery": (0, "counters")} | answers
        self.ran: list[str] = []

    def __call__(self, *argv: str) -> tuple[int, str]:
        self.ran.append(" ".join(argv))
        return next(answer for word, answer in self.answers.items() if word in argv)


def files(path: str) -> str:
    return "x" if path.endswith("state") else "400 Gb/sec (4X NDR)" if path.endswith("rate") else "10.00 20.00"


def test_the_port_at_the_other_end_is_the_one_at_which_the_request_arrived() -> None:
    programs = Programs()
    found = ib_counters.device("mlx5_0", programs, files)
    assert (found["problem"], found["peer"]["port"], found["peer"]["lid"]) == ("", 7, 2)
    assert programs.ran == [
        "perfquery -C mlx5_0 -P 1",
        "perfquery -x -C mlx5_0 -P 1",
        "smpquery -C mlx5_0 -P 1 -D nodeinfo 0,1",
        "smpquery -C mlx5_0 -P 1 -D portinfo 0,1 0",
        "perfquery -C mlx5_0 -P 1 2 7",
        "perfquery -x -C mlx5_0 -P 1 2 7",
    ]


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ({"perfquery": (255, "iberror: failed")}, "perfquery exit 255: iberror: failed"),
        ({"perfquery": (127, "perfquery: not installed")}, "perfquery exit 127: perfquery: not installed"),
        ({"nodeinfo": (1, "")}, "smpquery nodeinfo exit 1: no output"),
        ({"nodeinfo": (0, NODE.replace("Switch", "Channel Adapter"))}, "the node at the other end is no switch"),
        ({"nodeinfo": (0, NODE.replace("LocalPort", "Port"))}, "smpquery nodeinfo exit 0"),
        ({"portinfo": (0, PORT.replace(".2\n", ".0\n"))}, "smpquery portinfo exit 0"),
    ],
)
def test_what_cannot_be_read_is_told(answers: dict[str, tuple[int, str]], problem: str) -> None:
    assert ib_counters.device("mlx5_0", Programs(**answers), files)["problem"].startswith(problem)


@pytest.mark.skipif(bool(LACKING), reason=REASON)
def test_the_real_programs_give_counters_of_both_ends(tmp_path: Path) -> None:
    _, plan = plan_of(tmp_path, 8, 4)
    twin = twin_of(plan)
    end, host = min(twin.adapters.items())
    with ibsim.running(twin, tmp_path, host) as sim:
        sweep(sim, "updn")
        sim.tell(f'PerformanceSet "{host}"[1] PortCounters.SymbolErrorCounter=100')

        def run(*argv: str) -> tuple[int, str]:
            # ibsim has one device, of another name
            at = argv.index("-C")
            done = sim.run(argv[0], *argv[1:at], *argv[at + 2 :], codes=(0, 1, 255))
            return done.returncode, done.stdout + done.stderr

        found = ib_counters.device("mlx5_0", run, files)
    assert found["problem"] == ""
    assert read_perfquery(found["own"]["plain"])["SymbolErrorCounter"] == 100
    assert read_perfquery(found["peer"]["plain"])["SymbolErrorCounter"] == 0
    assert read_perfquery(found["peer"]["extended"])["PortRcvPkts"] > 0
    cable = next(one for one in plan.cables if one.a.end == end)
    assert found["peer"]["port"] == plan.number(cable.b.end)
    assert re.fullmatch(r"0x[0-9a-f]{16}", found["peer"]["guid"])


def test_a_missing_program_and_a_missing_file_are_no_exceptions() -> None:
    assert ib_counters.run("rackready-no-such-program")[0] == 127
    assert ib_counters.read("/rackready/no/such/file") is None
    assert json.dumps(ib_counters.device("mlx5_0", Programs(), lambda _: None))
