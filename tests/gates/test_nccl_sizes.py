"""Message sizes that all-reduce of one node asks for: those that fit into the memory of its GPUs."""

from __future__ import annotations

import pytest

from rackready.gates.engine.registry import gate
from rackready.gates.nccl.program import fitting
from rackready.gates.records.offline import facts
from rackready.profiles import loader

GATE = "node/gpu/performance/nccl-all-reduce"
SIZES = {
    "dgx_h100": ("8589934592", "17179869184"),
    "dgx_a100_320": ("4294967296", "8589934592"),
    "r760xa_l4": ("2147483648", "4294967296"),
}


@pytest.mark.parametrize("platform", sorted(SIZES))
def test_the_size_is_what_fits_into_the_memory(platform: str) -> None:
    argv = gate(GATE).plan(facts(platform), ["node01"])[0].commands[0].argv
    assert (argv[2], argv[4]) == SIZES[platform]
    argv = gate(GATE, {"size": "1G"}).plan(facts(platform), ["node01"])[0].commands[0].argv
    assert (argv[2], argv[4]) == ("536870912", "1073741824")


@pytest.mark.parametrize("gpu", loader.known("gpu"))
def test_what_cuda_counts_less_than_nvml_changes_no_size(gpu: str) -> None:
    memory = loader.gpu(gpu).memory.value
    assert (
        fitting(memory)
        == fitting(0.97 * memory)
        == ("16G" if memory > 79 * 1024 else "4G" if memory < 24 * 1024 else "8G")
    )


@pytest.mark.parametrize(
    ("memory_mib", "size"), [(1024 * 53, "16G"), (1024 * 53 - 1, "8G"), (4096, "512M"), (2050, "512K"), (1, "1K")]
)
def test_three_buffers_and_the_reserve_fit(memory_mib: int, size: str) -> None:
    assert fitting(memory_mib) == size
