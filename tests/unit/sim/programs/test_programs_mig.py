"""nvidia-smi mig of the simulated node, and the code of the role `mig` on top of it."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.mig import Mig
from rackready_sim.programs.hwsim import ctk, firmware, kmod
from rackready_sim.programs.hwsim.smi import main as smi

from .conftest import VERSION, Machine

nvidia_smi = functools.partial(smi.main, version=VERSION)
LAYOUTS: dict[str, Any] = {
    "mixed": [
        {"devices": [0], "mig-enabled": True, "mig-devices": {"1g.10gb": 7}},
        {"devices": [1], "mig-enabled": True, "mig-devices": {"1g.10gb": 1, "2g.20gb": 1, "3g.40gb": 1}},
    ],
    "off": [{"devices": "all", "mig-enabled": False}],
    "too much": [{"devices": [2], "mig-enabled": True, "mig-devices": {"3g.40gb": 2, "1g.10gb": 1}}],
}


def run(argv: Sequence[str]) -> Done:
    if argv[0] != "nvidia-smi":
        return Done(3, "")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = nvidia_smi(list(argv[1:]))
    return Done(code, out.getvalue())


@pytest.fixture
def mig(machine: Machine, tmp_path: Path) -> Mig:
    machine.ready()
    return Mig(run=run, root=tmp_path / "node", folder=tmp_path / "fence", lock_wait_s=0.2)


def test_words_and_exit_codes_without_instances(machine: Machine) -> None:
    machine.ready()
    assert machine.run(nvidia_smi, "mig", "-lgi")[:2] == (0, "No MIG-enabled devices found.\n")
    code, out, _ = machine.run(nvidia_smi, "-i", "0", "-mig", "1")
    assert (code, out.splitlines()[0]) == (0, "Enabled MIG Mode for GPU 00000000:1B:00.0")
    assert machine.run(nvidia_smi, "mig", "-lgi")[:2] == (6, "No GPU instances found: Not Found\n")
    assert "1g.10gb" in machine.run(nvidia_smi, "mig", "-lgip")[1]


def test_the_role_s_code_makes_a_layout_and_sees_it(mig: Mig, machine: Machine) -> None:
    assert set(mig.ensure(LAYOUTS, "mixed", 1, "a")) == {0, 1}
    assert mig.ensure(LAYOUTS, "mixed", 1, "a") == {}
    out = machine.run(nvidia_smi, "mig", "-lgi")[1]
    assert "|   1  MIG 3g.40gb           9        1          0:4     |" in out
    assert out.count("MIG 1g.10gb") == 8
    assert machine.run(nvidia_smi, "--query-gpu=mig.mode.current", "--format=csv,noheader")[1].split()[:3] == [
        "Enabled", "Enabled", "Disabled",
    ]  # fmt: skip
    assert set(mig.ensure(LAYOUTS, "off", 1, "a")) == {0, 1}
    assert machine.run(nvidia_smi, "mig", "-lgi")[:2] == (0, "No MIG-enabled devices found.\n")


def test_a_gpu_instance_alone_is_no_device_and_is_replaced(mig: Mig, machine: Machine) -> None:
    machine.run(nvidia_smi, "-i", "1", "-mig", "1")
    machine.run(nvidia_smi, "mig", "-i", "1", "-cgi", "3g.40gb")
    assert "MIG" not in machine.run(nvidia_smi, "-L")[1]
    assert machine.run(nvidia_smi, "mig", "-lci")[:2] == (6, "No compute instances found: Not Found\n")
    assert machine.run(nvidia_smi, "mig", "-i", "1", "-dci")[:2] == (6, "No compute instances found: Not Found\n")
    assert set(mig.ensure(LAYOUTS, "mixed", 1, "a")) == {0, 1}
    assert mig.ensure(LAYOUTS, "mixed", 1, "a") == {}
    listed = machine.run(nvidia_smi, "mig", "-lci")[1]
    assert "|   1      1       MIG 3g.40gb          2         0          0:3     |" in listed
    assert len({len(line) for line in listed.splitlines()}) == 1
    code, out, _ = machine.run(nvidia_smi, "mig", "-i", "1", "-dgi")
    assert (code, out.splitlines()) == (
        19,
        [
            "Unable to destroy GPU instance ID  1 from GPU  1: In use by another client",
            "Failed to destroy GPU instances: In use by another client",
        ],
    )


def test_a_contained_error_is_of_a_gpu_instance(mig: Mig, machine: Machine) -> None:
    """The words of NVIDIA/open-gpu-kernel-modules, kern_gpu_error_cont_ga100.c."""
    gpus = machine.state["gpus"]
    mig.ensure(LAYOUTS, "mixed", 1, "a")
    assert firmware.xid_line(gpus[1]["pci"], 94).startswith("NVRM: Xid (PCI:0000:43:00 GPU-I:01): 94, pid=")
    assert firmware.xid_line(gpus[1]["pci"], 95).startswith("NVRM: Xid (PCI:0000:43:00): 95, pid=")
    assert firmware.xid_line(gpus[2]["pci"], 94).startswith("NVRM: Xid (PCI:0000:52:00): 94, pid=")


def test_instances_go_with_the_driver(mig: Mig) -> None:
    mig.ensure(LAYOUTS, "mixed", 1, "a")
    for name in ("nvidia_uvm", "nvidia"):
        kmod.unload(name)
    kmod.load("nvidia")
    assert set(mig.differences(LAYOUTS, "mixed")) == {0, 1}


def test_instances_that_have_no_room_are_refused_by_the_gpu(mig: Mig) -> None:
    with pytest.raises(NodeProblem, match="Failed to create GPU instances: Insufficient Resources"):
        mig.ensure(LAYOUTS, "too much", 1, "a")


def test_cdi_names_the_instances_of_a_gpu_and_not_the_gpu(mig: Mig, machine: Machine) -> None:
    mig.ensure(LAYOUTS, "mixed", 1, "a")
    listed = machine.run(nvidia_smi, "-L")[1].splitlines()
    first = next(place for place, line in enumerate(listed) if line.startswith("GPU 1")) + 1
    devices = listed[first : first + 3]
    assert [line.split()[:4] for line in devices] == [
        ["MIG", "3g.40gb", "Device", "0:"],
        ["MIG", "2g.20gb", "Device", "1:"],
        ["MIG", "1g.10gb", "Device", "2:"],
    ]
    uuid = devices[1].split("UUID: ")[1].rstrip(")")
    machine.run(functools.partial(ctk.main, version="1.20.0-1"), "cdi", "generate", "--output=/var/run/cdi/nvidia.yaml")
    names = machine.run(functools.partial(ctk.main, version="1.20.0-1"), "cdi", "list")[1].split()
    assert f"nvidia.com/gpu={uuid}" in names
    assert [name for name in names if name.startswith("nvidia.com/gpu=1")] == [
        f"nvidia.com/gpu=1:{place}" for place in range(3)
    ]
    assert "nvidia.com/gpu=2" in names
