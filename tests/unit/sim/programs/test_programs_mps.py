"""nvidia-cuda-mps-control of the simulated node, and compute modes; words of the program 535.261.03."""

from __future__ import annotations

import functools
import io
import threading
import time

import pytest

from rackready_sim.programs.hwsim import machine as hw
from rackready_sim.programs.hwsim import mps
from rackready_sim.programs.hwsim.smi import main as smi

from .conftest import VERSION, Machine

nvidia_smi = functools.partial(smi.main, version=VERSION)
MODE = ("--query-gpu=compute_mode", "--format=csv,noheader")


def ask(machine: Machine, monkeypatch: pytest.MonkeyPatch, *lines: str) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    return machine.run(mps.main)


def test_the_daemon_answers_as_the_real_one(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.ready()
    assert ask(machine, monkeypatch, "get_server_list") == (1, "", "Cannot find MPS control daemon process\n")
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "40")
    logged: list[str] = []
    daemon = threading.Thread(target=lambda: mps._serve(mps._listen(), logged.append), daemon=True)
    daemon.start()
    deadline = time.monotonic() + 60
    while ask(machine, monkeypatch, "get_server_list") != (0, "", "") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ask(machine, monkeypatch, "get_default_active_thread_percentage")[:2] == (0, "40.0\n")
    assert ask(machine, monkeypatch, "set_default_active_thread_percentage 500")[:2] == (0, "40.0\n")
    assert ask(machine, monkeypatch, "get_default_device_pinned_mem_limit 0")[:2] == (0, "")
    limit = ("set_default_device_pinned_mem_limit 0 10G", "get_default_device_pinned_mem_limit 0")
    assert ask(machine, monkeypatch, *limit)[:2] == (0, "10G\n")
    assert ask(machine, monkeypatch, "nonsense")[:2] == (0, 'Unknown command "nonsense"\n')
    assert machine.run(mps.main, "-d") == (1, "", "An instance of this daemon is already running\n")
    assert hw.gpus()[0].speed == pytest.approx(0.4, rel=0.05)
    assert ask(machine, monkeypatch, "quit") == (0, "", "")
    daemon.join(60)
    assert (daemon.is_alive(), logged[-1]) == (False, "Exit with status 0")
    assert "Invalid percentage, expected between (0.0, 100.0]" in logged
    assert hw.gpus()[0].speed == pytest.approx(1.0, rel=0.05)


def test_compute_modes_are_set_and_read(machine: Machine) -> None:
    machine.ready()
    code, out, _ = machine.run(nvidia_smi, "-c", "EXCLUSIVE_PROCESS")
    assert code == 0
    assert out.splitlines()[0] == "Set compute mode to EXCLUSIVE_PROCESS for GPU 00000000:1B:00.0."
    assert machine.run(nvidia_smi, *MODE)[1].splitlines() == ["Exclusive_Process"] * 8
    out = machine.run(nvidia_smi, "-c", "3")[1]
    assert out.splitlines()[0] == "Compute mode is already set to EXCLUSIVE_PROCESS for GPU 00000000:1B:00.0."
    assert "<compute_mode>Exclusive_Process<" in machine.run(nvidia_smi, "-q", "-x")[1]
    assert machine.run(nvidia_smi, "-c", "DEFAULT")[0] == 0
    assert machine.run(nvidia_smi, *MODE)[1].splitlines() == ["Default"] * 8


def test_a_gpu_with_mig_takes_no_exclusive_mode(machine: Machine) -> None:
    machine.ready()
    machine.run(nvidia_smi, "-i", "0", "-mig", "1")
    assert machine.run(nvidia_smi, "-i", "0", "-c", "EXCLUSIVE_PROCESS")[0] == 3
    assert machine.run(nvidia_smi, "-i", "0", "-c", "EXCLUSIVE")[0] == 2
