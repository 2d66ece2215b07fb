from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rackready_sim.nvml.build import library

from .conftest import VERSION, Machine

_ASK = """
import json, pynvml as n
out = {}
try:
    n.nvmlInit()
except n.NVMLError as error:
    print(json.dumps({"init": error.value}))
    raise SystemExit
out["driver"], out["cuda"] = n.nvmlSystemGetDriverVersion(), n.nvmlSystemGetCudaDriverVersion_v2()
out["gpus"] = []
for index in range(n.nvmlDeviceGetCount()):
    try:
        h = n.nvmlDeviceGetHandleByIndex(index)
        info = n.c_nvmlGpuFabricInfo_v2_t()
        n.nvmlDeviceGetGpuFabricInfoV(h, n.byref(info))
        wanted = [n.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, (n.NVML_FI_DEV_NVLINK_GET_SPEED, 1)]
        fields = n.nvmlDeviceGetFieldValues(h, wanted)
        out["gpus"].append({
            "name": n.nvmlDeviceGetName(h), "uuid": n.nvmlDeviceGetUUID(h),
            "serial": n.nvmlDeviceGetSerial(h), "bus": n.nvmlDeviceGetPciInfo(h).busId,
            "memory": n.nvmlDeviceGetMemoryInfo(h).total >> 20,
            "memory2": n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2).reserved >> 20,
            "limit": n.nvmlDeviceGetPowerManagementLimit(h), "range": n.nvmlDeviceGetPowerManagementLimitConstraints(h),
            "links": sum(n.nvmlDeviceGetNvLinkState(h, k) for k in range(18)), "rows": n.nvmlDeviceGetRemappedRows(h),
            "ecc": n.nvmlDeviceGetTotalEccErrors(h, n.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, n.NVML_VOLATILE_ECC),
            "fabric": info.state,
            "width": n.nvmlDeviceGetCurrPcieLinkWidth(h),
            "persistence": n.nvmlDeviceGetPersistenceMode(h), "mig": n.nvmlDeviceGetMigMode(h)[0],
            "clock": n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_SM),
            "speed": fields[1].value.uiVal, "recovery": fields[0].value.uiVal,
        })
    except n.NVMLError as error:
        out["gpus"].append(error.value)
print(json.dumps(out))
"""


@pytest.fixture
def ask(machine: Machine, tmp_path: Path) -> Any:  # noqa: ANN401 - a function
    """Ask the compiled library through nvidia-ml-py in a process of its own."""
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        pytest.skip("no C compiler")
    query = tmp_path / "query"
    code = "from pathlib import Path; from rackready_sim.programs.hwsim import kmod, nvml, paths"
    query.write_text(
        f"#!{sys.executable}\nimport sys\n{code}\npaths.ROOT = Path({str(tmp_path)!r})\nkmod._node = lambda *_: "
        "None\nsys.exit(nvml.main(sys.argv[1:]))\n"
    )
    query.chmod(0o755)
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / "libnvidia-ml.so.1").write_bytes(library(VERSION, str(query)))

    def run(code: str = _ASK) -> Any:  # noqa: ANN401 - JSON
        source = Path(__file__).parents[4] / "src"
        env = {**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(source)}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    assert machine.root == tmp_path
    return run


def test_what_nvidia_ml_py_reads(machine: Machine, ask: Any) -> None:  # noqa: ANN401 - a function
    machine.ready()
    machine.inject("nvlink-down", gpu=2, link=4)
    machine.inject("pcie-width", gpu=3, width=8)
    machine.inject("row-remap-pending", gpu=4)
    found = ask()
    assert (found["driver"], found["cuda"], len(found["gpus"])) == (VERSION, 13000, 8)
    first, part = found["gpus"][0], machine.state["gpus"][0]
    assert (first["name"], first["uuid"], first["serial"], first["bus"]) == (
        part["name"],
        part["uuid"],
        part["serial"],
        "00000000:1B:00.0",
    )
    assert (first["memory"], first["memory2"], first["limit"], first["range"]) == (81559, 636, 700000, [200000, 700000])
    assert (first["clock"], first["speed"], first["fabric"], first["persistence"], first["mig"], first["recovery"]) == (
        1980,
        26562,
        3,
        1,
        0,
        0,
    )
    assert [gpu["links"] for gpu in found["gpus"]] == [18, 18, 17, 18, 18, 18, 18, 18]
    assert [gpu["width"] for gpu in found["gpus"]] == [16, 16, 16, 8, 16, 16, 16, 16]
    assert found["gpus"][4]["rows"] == [0, 1, 1, 0]


def test_a_lost_gpu_a_missing_driver_and_a_mismatch(machine: Machine, ask: Any) -> None:  # noqa: ANN401 - a function
    machine.install()
    assert ask() == {"init": 9}
    machine.ready()
    machine.inject("gpu-lost", gpu=1)
    assert [type(gpu) for gpu in ask()["gpus"]] == [dict, int, *[dict] * 6]
    assert ask()["gpus"][1] == 15
    (machine.root / "lib/libnvidia-ml.so.1").write_bytes(library("580.178.01", str(machine.root / "query")))
    assert ask() == {"init": 18}


def test_settings(machine: Machine, ask: Any) -> None:  # noqa: ANN401 - a function
    machine.ready()
    code = """
import json, pynvml as n
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
n.nvmlDeviceSetPowerManagementLimit(h, 650000)
try:
    n.nvmlDeviceSetPowerManagementLimit(h, 900000)
except n.NVMLError as error:
    print(json.dumps([n.nvmlDeviceGetPowerManagementLimit(h), error.value]))
"""
    if os.getuid() == 0:
        assert ask(code) == [650000, 2]
