"""`rackready gate evaluate` on the outputs of a real H200: the reader and the simulated rack cannot share a guess."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

H200 = Path(__file__).resolve().parents[2] / "fixtures/captured/h200_vm"
ONE = ("--profile", "h200_sxm", "--gpus", "1")


@pytest.fixture
def evaluate(call: Any) -> Any:  # noqa: ANN401
    """Judge by the profile of one H200; return (exit code, standard output, standard error)."""
    return lambda *arguments: call("gate", "evaluate", *ONE, *arguments)


def test_gates_that_read_a_report_of_the_driver(evaluate: Any) -> None:  # noqa: ANN401
    code, out, err = evaluate("--all", "--input", str(H200 / "smi_q_x.xml"), "--input", str(H200 / "topo_m.txt"))
    rows = dict(re.findall(r"(node/\S+) +\S +(\w+)", out))
    passed = ("clocks", "ecc", "inforom", "recovery-action", "row-remap", "settings")
    assert rows == {f"node/gpu/sanity/{name}": "pass" for name in passed} | {
        "node/gpu/sanity/fabric": "error",
        "node/gpu/sanity/affinity": "fail",
    }, err
    assert "node01 gpu0: fabric state not reported - Expected: Completed Actual: nothing." in out
    assert "node01 gpu0: NIC of rail 1 - Expected: mlx5_0 at PIX or PXB Actual: no mlx5_0; beside it: none." in out
    assert code == 1


def test_rates_of_matrices(evaluate: Any) -> None:  # noqa: ANN401
    code, out, _ = evaluate("node/gpu/performance/gemm-torch", "--input", str(H200 / "gemm_torch.json"))
    assert (code, out.splitlines()[0]) == (0, "node/gpu/performance/gemm-torch: pass (fleet pending)")
    assert "gemm_bf16 on node01/gpu0: 661307 GFLOPS" in out


def test_copies_between_host_and_gpu(evaluate: Any, tmp_path: Path) -> None:  # noqa: ANN401
    report = (H200 / "smi_q_x.xml").read_text(encoding="utf-8")
    clock = re.search(r"<timestamp>.* (\d\d:\d\d:\d\d) \d{4}<", report)
    assert clock
    after = tmp_path / "after.xml"
    after.write_text(report.replace(clock[1], f"{clock[1][:3]}59:59"), encoding="utf-8")
    files = {"before": H200 / "smi_q_x.xml", "copy-0": H200 / "nvbandwidth.json", "after": after}
    given = [word for key, path in files.items() for word in ("--input", f"{key}={path}")]
    code, out, _ = evaluate("node/gpu/performance/nvbandwidth", "--set", "launches=1", "--seconds", "copy-0=5", *given)
    assert (code, out.splitlines()[0]) == (0, "node/gpu/performance/nvbandwidth: pass")
    assert "host_to_device_memcpy_ce on node01/gpu0: 55.3482 GB/s" in out


@pytest.mark.parametrize("name", ["all-reduce", "alltoall"])
def test_a_collective_of_one_gpu_measures_nothing(evaluate: Any, name: str) -> None:  # noqa: ANN401
    gate = f"node/gpu/performance/nccl-{name}"
    code, out, _ = evaluate(gate, "--input", str(H200 / f"nccl_{name.replace('-', '_')}.txt"))
    assert code == 2
    assert out == (
        f"{gate}: error\n  node01: {gate} measures nothing - Expected: at least 2 GPUs Actual: 1. "
        "Declare the skip with its reason in site.yml (gates.skip).\n"
    )


def test_inventory_of_a_gpu_whose_links_are_down(evaluate: Any) -> None:  # noqa: ANN401
    code, out, _ = evaluate("node/gpu/sanity/inventory", "--input", str(H200 / "nvml_inventory.json"))
    assert (code, out.splitlines()[0]) == (
        1,
        (
            "node/gpu/sanity/inventory: fail (board part number 692-2G520-0282-001: not compared with what was bought "
            "(input board_parts))"
        ),
    )
    assert "node01 gpu0: NVLink down - Expected: 18 links active Actual: 0 (links 0, 1, 2, 3, 4, 5, 6, 7, 8" in out


def test_the_pcie_path_of_a_gpu_on_the_root_complex(evaluate: Any) -> None:  # noqa: ANN401
    code, out, _ = evaluate("node/gpu/sanity/pcie-path", "--input", str(H200 / "pcie_path.json"))
    assert (code, out.splitlines()[0]) == (
        0,
        (
            "node/gpu/sanity/pcie-path: pass (node01 gpu0: the other end of 0000:00:06.0's link is not in sysfs "
            "(virtual machine?); only the GPU's end is judged)"
        ),
    )
