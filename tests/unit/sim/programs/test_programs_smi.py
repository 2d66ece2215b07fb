from __future__ import annotations

import functools
from xml.etree import ElementTree as ET

import pytest

from rackready_sim.programs.hwsim import kmod, store
from rackready_sim.programs.hwsim.smi import main as smi

from .conftest import VERSION, Machine

nvidia_smi = functools.partial(smi.main, version=VERSION)


def test_without_a_driver_it_fails_as_the_real_one(machine: Machine) -> None:
    code, out, _ = machine.run(nvidia_smi)
    assert (code, out.startswith("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.")) == (12, True)
    machine.install()
    code, out, _ = machine.run(nvidia_smi)
    assert code == 9
    assert out.startswith("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")


def test_an_upgraded_library_does_not_fit_the_loaded_module(machine: Machine) -> None:
    machine.ready()
    machine.install("580.178.01")
    assert machine.run(nvidia_smi)[:2] == (
        18,
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.178\n",
    )
    assert kmod.module_version("nvidia") == "580.178.01"
    assert store.runtime()["modules"]["nvidia"]["version"] == VERSION


def test_the_table_and_the_list(machine: Machine) -> None:
    machine.ready()
    code, out, _ = machine.run(nvidia_smi)
    assert code == 0
    assert f"| NVIDIA-SMI {VERSION}             Driver Version: {VERSION}     CUDA Version: 13.0     |" in out
    assert {len(line) for line in out.splitlines() if line.startswith(("+", "|"))} == {91}
    assert machine.run(nvidia_smi, "-L")[1].splitlines()[7].startswith("GPU 7: NVIDIA H100 80GB HBM3 (UUID: GPU-")


def test_queries(machine: Machine) -> None:
    machine.ready()
    machine.inject("row-remap-pending", gpu=3)
    code, out, _ = machine.run(
        nvidia_smi, "--query-gpu=index,power.limit,pcie.link.width.current", "--format=csv", "-i", "0,1"
    )
    assert (code, out) == (0, "index, power.limit [W], pcie.link.width.current\n0, 700.00 W, 16\n1, 700.00 W, 16\n")
    code, out, _ = machine.run(
        nvidia_smi,
        "--query-remapped-rows=remapped_rows.pending,remapped_rows.uncorrectable",
        "--format=csv,noheader",
        "-i",
        "3",
    )
    assert (code, out) == (0, "Yes, 1\n")
    code, out, _ = machine.run(nvidia_smi, "--query-gpu=nonsense", "--format=csv")
    assert (code, out) == (2, 'Field "nonsense" is not a valid field to query.\n\n')


def test_report_shows_the_fabric_and_sections(machine: Machine) -> None:
    machine.ready()
    out = machine.run(nvidia_smi, "-q")[1]
    assert (
        "    Fabric\n        State                             : Completed\n        Status                          "
        "  : Success\n" in out
    )
    power = machine.run(nvidia_smi, "-q", "-d", "POWER", "-i", "0")[1]
    assert "        Min Power Limit                   : 200.00 W" in power
    assert "Fabric" not in power
    assert machine.run(nvidia_smi, "-q", "-d", "NOISE")[0] == 2
    tree = ET.fromstring(machine.run(nvidia_smi, "-q", "-x")[1].split("\n", 2)[2])  # noqa: S314 - our own program wrote it
    assert [gpu.findtext("serial") for gpu in tree.findall("gpu")] == [gpu["serial"] for gpu in machine.state["gpus"]]


def test_gpus_of_ampere_report_no_fabric(machine: Machine) -> None:
    machine.ready()
    for gpu in machine.state["gpus"]:
        gpu["architecture"] = "ampere"
    machine.save()
    text = (
        "    Fabric\n        State                             : N/A\n        Status                            : N/A\n"
    )
    assert machine.run(nvidia_smi, "-q")[1].count(text) == 8
    tree = ET.fromstring(machine.run(nvidia_smi, "-q", "-x")[1].split("\n", 2)[2])  # noqa: S314 - our own program wrote it
    assert {(gpu.findtext("fabric/state"), gpu.findtext("fabric/status")) for gpu in tree.findall("gpu")} == {
        ("N/A", "N/A")
    }
    assert machine.run(nvidia_smi, "--query-gpu=fabric.state,fabric.status", "--format=csv,noheader", "-i", "0")[1] == (
        "N/A, N/A\n"
    )


def test_a_lost_gpu_ends_it_with_15(machine: Machine) -> None:
    machine.ready()
    machine.inject("gpu-lost", gpu=5)
    code, out, _ = machine.run(nvidia_smi)
    assert code == 15
    assert (
        out == "Unable to determine the device handle for GPU5: 0000:C3:00.0: GPU is lost.  "
        "Reboot the system to recover this GPU\n"
    )


def test_a_missing_gpu_renumbers_the_others(machine: Machine) -> None:
    machine.inject("gpu-missing", gpu=2)
    machine.ready()
    out = machine.run(nvidia_smi, "--query-gpu=index,pci.bus_id", "--format=csv,noheader")[1]
    assert out.splitlines()[2] == "2, 00000000:61:00.0"
    assert len(out.splitlines()) == 7


def test_a_link_that_is_down(machine: Machine) -> None:
    machine.ready()
    machine.inject("nvlink-down", gpu=2, link=4)
    lines = machine.run(nvidia_smi, "nvlink", "-s", "-i", "2")[1].splitlines()
    assert lines[1] == "\t Link 0: 26.562 GB/s"
    assert lines[5] == "\t Link 4: <inactive>"
    matrix = machine.run(nvidia_smi, "topo", "-m")[1].splitlines()
    assert matrix[1].split("\t")[:4] == ["GPU0", " X ", "NV18", "NV17"]


@pytest.mark.parametrize(("value", "code"), [("650", 0), ("199", 2), ("701", 2), ("much", 2)])
def test_power_limits_are_checked(machine: Machine, value: str, code: int) -> None:
    machine.ready()
    assert machine.run(nvidia_smi, "-pl", value)[0] == code
    assert machine.run(nvidia_smi, "--query-gpu=power.limit", "--format=csv,noheader,nounits", "-i", "0")[1] == (
        "650.00\n" if code == 0 else "700.00\n"
    )


def test_settings_need_persistence_and_root(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.ready()
    machine.run(nvidia_smi, "-lgc", "1980,1980")
    assert machine.run(nvidia_smi, "--query-gpu=clocks.sm", "--format=csv,noheader,nounits", "-i", "0")[1] == "1980\n"
    machine.run(nvidia_smi, "-pm", "0")
    assert machine.run(nvidia_smi, "--query-gpu=clocks.sm", "--format=csv,noheader,nounits", "-i", "0")[1] == "345\n"
    code, out, _ = machine.run(nvidia_smi, "-pl", "650", "-i", "0")
    assert code == 0
    assert "Warning: persistence mode is disabled on device 00000000:1B:00.0" in out
    assert (
        machine.run(nvidia_smi, "--query-gpu=power.limit", "--format=csv,noheader,nounits", "-i", "0")[1] == "700.00\n"
    )
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert machine.run(nvidia_smi, "-pl", "650")[0] == 4
