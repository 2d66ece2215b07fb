from __future__ import annotations

import re
import threading

import pytest

from rackready.gates.formats import perftest as formats
from rackready.ondevice import rdma_counters
from rackready_sim.programs.hwsim import firmware, paths
from rackready_sim.programs.hwsim.host import strain
from rackready_sim.programs.hwsim.nic.tools import change
from rackready_sim.programs.hwsim.perf import facts, perftest, ports, probe

from .conftest import Machine

_PORT = "38515"


@pytest.fixture(autouse=True)
def _reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "reachable", lambda *_: True)


def both(machine: Machine, *arguments: str, name: str = "ib_write_bw") -> tuple[int, str, str]:
    firmware.lay_out()
    line = ["-d", "mlx5_0", "-p", _PORT, "-F", "--report_gbits", *arguments]
    codes: list[int] = []
    server = threading.Thread(target=lambda: codes.append(perftest.main(name, line)))
    server.start()
    machine.capsys.readouterr()
    for _ in range(1000):
        code = perftest.main(name, [*line, "127.0.0.1"])
        out, err = machine.capsys.readouterr()
        if "Couldn't connect" not in err:
            break
        threading.Event().wait(0.05)
    server.join(60)
    assert codes == [code]
    return code, out, err


def test_each_program_says_its_traffic_class_where_the_driver_has_none_for_all(machine: Machine) -> None:
    firmware.lay_out()
    nic = machine.state["nics"][0]
    change(nic, trust="dscp")
    assert not paths.at("/sys/class/infiniband/mlx5_0/tc").exists()
    assert [facts.priority(nic, tclass) for tclass in (0, 106)] == [0, 3]
    nic["traffic_class_ignored"] = True
    assert facts.priority(nic, 106) == 0


def average(out: str) -> float:
    row = next(line for line in out.splitlines() if re.match(r"^ 65536 ", line))
    return float(row.split()[3])


def test_two_sides_meet_and_measure(machine: Machine) -> None:
    machine.ready()
    code, out, _ = both(machine, "-D", "2", "--use_cuda=0", "--use_cuda_dmabuf")
    assert code == 0
    assert " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]" in out
    assert 388 < average(out) < 397
    assert " Picking device No. 0\n" in out
    sent = int(paths.at("/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data").read_text())
    assert sent * 4 == pytest.approx(2 * average(out) * 1e9 / 8, rel=0.1)


@pytest.mark.parametrize(
    ("fault", "counter", "count"),
    [("nic-discards", "port_xmit_discards", 3120), ("nic-receive-errors", "port_rcv_errors", 41)],
)
def test_a_port_counts_errors_only_while_it_carries_data(
    machine: Machine, fault: str, counter: str, count: int
) -> None:
    """The document that gates read before and after: each end of the one connection is this port, so it grows twice."""
    machine.ready()
    machine.inject(fault)
    firmware.lay_out()
    base = str(paths.at("/sys/class/infiniband/mlx5_0/ports/1"))
    strain.strain()
    assert rdma_counters.errors(base) == dict.fromkeys(rdma_counters.ERRORS, 0)
    assert both(machine)[0] == 0
    assert rdma_counters.errors(base) == {**dict.fromkeys(rdma_counters.ERRORS, 0), counter: 2 * count}


def test_a_client_ends_when_the_other_port_has_counted(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As perftest's handshake at the end: who reads counters behind a client reads all of what it wrote."""
    machine.ready()
    counted: list[str] = []
    real = ports.congestion

    def slow(end: dict[str, object], result: dict[str, object], *, sends: bool) -> None:
        threading.Event().wait(0.0 if sends else 0.5)
        real(end, result, sends=sends)
        counted.append("sender" if sends else "receiver")

    monkeypatch.setattr(ports, "congestion", slow)
    assert both(machine)[0] == 0
    assert counted == ["receiver", "sender"]


def test_what_it_prints_is_what_gates_read(machine: Machine) -> None:
    """Both ends print here, and each its memory and its addresses."""
    machine.ready()
    code, out, _ = both(machine, "--use_cuda=2", "--use_cuda_dmabuf")
    assert code == 0
    assert formats.memory_of(out) == formats.Memory("dmabuf", 2, "NVIDIA H100 80GB HBM3")
    assert formats.served(out[: out.index(" #bytes")]) == formats.Memory("dmabuf", 2, "NVIDIA H100 80GB HBM3")
    code, out, _ = both(machine, name="ib_write_lat")
    assert code == 0
    assert formats.served(out) == formats.Memory("none", None)
    assert formats.addresses(out, "local") == formats.addresses(out, "remote")
    assert len(formats.addresses(out, "local")) == 1


def test_latency(machine: Machine) -> None:
    code, out, _ = both(machine, name="ib_write_lat")
    assert code == 0
    row = next(line for line in out.splitlines() if line.startswith(" 2 "))
    assert 1.5 < float(row.split()[4]) < 4.2


@pytest.mark.parametrize(
    ("fault", "params", "most"),
    [
        ("nic-slow", {"nic": 1, "factor": 0.5}, 200),
        ("nic-rate", {"nic": 1, "rate": 200}, 200),
        ("pcie-gen", {"gpu": 0, "gen": 3}, 120),
    ],
)
def test_a_bad_part_on_the_way_is_slow(machine: Machine, fault: str, params: dict[str, float], most: float) -> None:
    machine.ready()
    machine.inject(fault, **params)
    assert average(both(machine, "--use_cuda=0", "--use_cuda_dmabuf")[1]) < most


def test_a_far_gpu_is_slower_than_the_near_one(machine: Machine) -> None:
    machine.ready()
    assert average(both(machine, "--use_cuda=5", "--use_cuda_dmabuf")[1]) < 200


def test_nobody_listens(machine: Machine) -> None:
    code, _, err = machine.run(lambda argv: perftest.main("ib_write_bw", argv), "-p", "39999", "127.0.0.1")
    assert code == 1
    assert err.startswith("Couldn't connect to 127.0.0.1:39999\n Unable to open file descriptor for socket connection")


def test_a_peer_that_the_network_does_not_reach(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "reachable", lambda _netdev, _address, _size: False)
    code, _, err = both(machine)
    assert code == 1
    assert "Unable to Connect the HCA's through the link" in err


def test_frames_too_large_for_the_way(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "reachable", lambda _netdev, _address, size: size < 4000)
    code, _, err = both(machine)
    assert code == 1
    assert "Failed status 12" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-d", "mlx5_7"], " IB device mlx5_7 not found\n Unable to find the Infiniband/RoCE device\n"),
        (["--nonsense"], "unrecognized option '--nonsense'"),
        (["--use_cuda=0"], "cuInit(0) returned 100"),
    ],
)
def test_what_it_refuses(machine: Machine, arguments: list[str], words: str) -> None:
    machine.install()
    code, _, err = machine.run(lambda argv: perftest.main("ib_write_bw", argv), *arguments)
    assert code == 1
    assert words in err


def test_a_port_without_link_and_a_driver_without_peer_memory(machine: Machine) -> None:
    machine.ready()
    code, _, err = machine.run(lambda argv: perftest.main("ib_write_bw", argv), "-d", "mlx5_0", "--use_cuda=0")
    assert (code, "Couldn't register MR" in err) == (1, True)
    machine.inject("nic-down", nic=1)
    code, _, err = machine.run(lambda argv: perftest.main("ib_write_bw", argv), "-d", "mlx5_0")
    assert (code, err.startswith(" Port number 1 state is Down\n")) == (1, True)


def test_no_peak_is_measured_of_many_iterations(machine: Machine) -> None:
    """Perftest reports it and prints 0 (force_dependecies of src/perftest_parameters.c)."""
    machine.ready()
    code, out, _ = both(machine, "-n", "20001")
    assert code == 0
    assert " WARNING: BW peak won't be measured in this run.\n" in out
    assert " 65536      20001          0.00 " in out
    assert "WARNING" not in both(machine, "-n", "20000")[1]
