"""Findings of GPU gates that are rare on good hardware, each by its code, place and values."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from tests.gates.gpu import test_containers as containers
from tests.gates.gpu import test_links as links
from tests.gates.gpu.test_burn import burn, busy, third, watched
from tests.gates.gpu.test_nvlink_domain import domain
from tests.gates.gpu.test_pcie_path import paths_of
from tests.gates.gpu.test_performance import COPY, SMI
from tests.gates.gpu.test_performance import judge as of_load
from tests.gates.gpu.test_smi import HEALTHY, S
from tests.gates.gpu.test_smi import judge as of_report
from tests.gates.support import Case, Told, later, tells, text
from tests.gates.support import judge as of_case
from tests.gates.test_inventory import GATE as INVENTORY
from tests.gates.test_inventory import changed

Judged = Callable[[], Verdict]
CLOCK, ECC, REPLAYS = "<sm_clock>1755 MHz<", "<sram_correctable>0<", "<replay_counter>2<"


def without_third(report: str) -> str:
    pieces = report.split("\t<gpu id=")
    return "\t<gpu id=".join([*pieces[:3], *pieces[4:]]).replace("<attached_gpus>8<", "<attached_gpus>7<")


def with_ninth(report: str) -> str:
    begin, end = report.rindex("\t<gpu id="), report.rindex("\t</gpu>\n") + len("\t</gpu>\n")
    ninth = report[begin:end].replace("00000000:DF:00.0", "00000000:ED:00.0")
    ninth = ninth.replace("GPU-00000007", "GPU-00000008").replace("1650000000008", "1650000000009")
    return f"{report[:end]}{ninth}{report[end:]}".replace("<attached_gpus>8<", "<attached_gpus>9<")


@pytest.mark.parametrize(
    ("verdict", "outcome", "finding"),
    [
        (
            lambda: burn(watched(busy(SMI, hot=("<gpu_temp>34 C<", "<gpu_temp>warm<")))),
            Outcome.ERROR,
            (
                "burn-watch-not-numbers",
                "node01 gpu2",
                "numbers where numbers belong",
                "temperature/gpu_temp of 00000000:52:00.0 is 'warm', which is no number",
            ),
        ),
        (
            lambda: burn(watched(busy(SMI, clock=(CLOCK, "<sm_clock>fast<")))),
            Outcome.ERROR,
            (
                "burn-watch-not-numbers",
                "node01",
                "clocks in MHz",
                "clocks/sm_clock of 00000000:52:00.0 is 'fast', which is no number",
            ),
        ),
        (
            lambda: burn(watched(busy(SMI, clock=(CLOCK, "<sm_clock>N/A<")))),
            Outcome.ERROR,
            ("sm-clock-not-reported", "node01 gpu2", "MHz", "nothing"),
        ),
        (
            lambda: burn(after=without_third(SMI)),
            Outcome.FAIL,
            ("gpu-gone-after-load", "node01 gpu2", "as many GPUs as before", "no longer in nvidia-smi"),
        ),
        (
            lambda: burn(after=third(ECC, "<sram_correctable>many<")),
            Outcome.ERROR,
            (
                "burn-counters-unreadable",
                "node01 gpu2",
                "numbers before and after",
                "ecc_errors/volatile/sram_correctable of 00000000:52:00.0 is 'many', which is no number",
            ),
        ),
        (
            lambda: burn(after=third(ECC, "<sram_correctable>N/A<")),
            Outcome.ERROR,
            ("burn-ecc-not-reported", "node01 gpu2", "a number before and after", "nothing"),
        ),
    ],
    ids=["temperature", "clock", "no clock", "gone", "counters", "ecc"],
)
def test_what_a_load_rarely_shows(verdict: Judged, outcome: Outcome, finding: Told) -> None:
    assert (tells(judged := verdict()), judged.outcome) == ([finding], outcome)
    assert "node01/gpu2" not in judged.measured


@pytest.mark.parametrize(
    ("counter", "finding"),
    [
        (
            "many",
            (
                "pcie-replays-unreadable",
                "node01 gpu2",
                "a counter before and after",
                "pci/replay_counter of 00000000:52:00.0 is 'many', which is no number",
            ),
        ),
        ("N/A", ("pcie-replays-not-reported", "node01 gpu2", "a counter before and after", "nothing")),
    ],
)
def test_replays_that_a_report_does_not_count(counter: str, finding: Told) -> None:
    outputs = {
        "before": SMI,
        "copy-0": text("nvbandwidth/dgx_h100_healthy.json"),
        "after": later(third(REPLAYS, f"<replay_counter>{counter}<")),
    }
    verdict = of_load(COPY, outputs, {"launches": 1})
    assert (tells(verdict), verdict.outcome, verdict.measured) == ([finding], Outcome.ERROR, [])


def test_a_report_of_more_gpus_than_the_platform_has() -> None:
    verdict = of_report(f"{S}ecc", with_ninth(HEALTHY))
    assert (tells(verdict), verdict.outcome) == ([("nvidia-smi-gpus-too-many", "node01", "8", "9")], Outcome.FAIL)


def test_an_inventory_without_the_highest_pcie_generation() -> None:
    silent = changed(lambda all_: all_["gpus"][2].update(pcie_gen_max=None, unread={"pcie_gen_max": "Not Supported"}))
    verdict = of_case(INVENTORY, Case("PCIe", {"inventory": silent}, Outcome.ERROR))
    wanted = (
        "gpu-pcie-generation-not-reported",
        "node01 gpu2",
        "the highest that GPU and slot support",
        "Not Supported",
    )
    assert (tells(verdict), verdict.outcome) == ([wanted], Outcome.ERROR)


def test_a_captured_path_of_one_gpu_on_a_server_of_eight() -> None:
    verdict = links.judge(f"{S}pcie-path", {"path": text("h200_vm/pcie_path.json")}, "dgx_h200")
    addresses = facts("dgx_h200", 1).nodes["node01"].platform.gpu_pci
    empty = "; ".join(f"{address}, the place of gpu{at}" for at, address in enumerate(addresses))
    wanted = ("gpu-pcie-count", "node01", "8", f"1 (none at {empty})")
    assert (tells(verdict), verdict.outcome) == ([wanted], Outcome.FAIL)


def test_a_gpu_without_the_bridges_above_it() -> None:
    paths = paths_of()
    paths["gpus"][1]["links"] = []
    verdict = links.judge(f"{S}pcie-path", {"path": json.dumps(paths)})
    wanted = ("gpu-pcie-path-not-reported", "node01 gpu1", "the GPU and its bridges", "nothing")
    assert (tells(verdict), verdict.outcome) == ([wanted], Outcome.ERROR)


def nine(matrix: str) -> str:
    """Return a matrix of nvidia-smi topo -m with a ninth GPU beside the eight."""
    lines = []
    for line in matrix.splitlines():
        name, *cells = line.split("\t")
        if cells:
            cells.insert(8, "NV18" if name.startswith("GPU") else "SYS" if name else "GPU8")
        lines.append("\t".join([name, *cells]))
        if name == "GPU7":
            lines.append("\t".join(["GPU8", *["NV18"] * 8, " X ", *["SYS"] * 8, "56-111,168-223", "1", "", "N/A"]))
    return "\n".join(lines) + "\n"


def test_a_matrix_of_more_and_of_fewer_gpus_than_the_platform_has() -> None:
    verdict = links.judge(f"{S}affinity", {"topo": nine(links.TOPO)})
    assert (tells(verdict), verdict.outcome) == ([("gpu-topology-gpus-too-many", "node01", "8", "9")], Outcome.FAIL)
    captured = links.judge(f"{S}affinity", {"topo": text("h200_vm/topo_m.txt")}, "dgx_h200")
    assert (tells(captured)[0], captured.outcome) == (("gpu-topology-gpus-missing", "node01", "8", "1"), Outcome.FAIL)


def test_a_driver_with_more_gpus_than_the_platform_has() -> None:
    names = "".join(f"nvidia.com/gpu={gpu}\n" for gpu in range(9))
    rows = "".join(f"{gpu}, GPU-{gpu}\n" for gpu in range(9))
    offered = containers.offered(list={"rc": 0, "out": names, "err": ""}, gpus={"rc": 0, "out": rows, "err": ""})
    verdict = links.judge(f"{S}containers", {"containers": json.dumps(offered)})
    wanted = ("container-driver-gpus-too-many", "node01", "8", "9")
    assert (tells(verdict), verdict.outcome, verdict.measured) == ([wanted], Outcome.FAIL, [])


def test_a_link_with_more_crc_errors_than_the_gate_set_allows() -> None:
    texts = {
        "status": links.links(8, lambda _gpu, _link: "26.562 GB/s"),
        "errors": links.counters(8, links.HOPPER, {(1, 4): {"CRC Errors": "40"}}),
    }
    verdict = links.judge(f"{S}nvlink", texts, inputs={"crc_limit": 39})
    wanted = ("nvlink-crc", "node01 gpu1 nvlink4", "at most 39 (gate input)", "40", "name=CRC Errors")
    assert (tells(verdict), verdict.outcome) == ([wanted], Outcome.FAIL)
    assert links.judge(f"{S}nvlink", texts, inputs={"crc_limit": 40}).outcome is Outcome.PASS


def test_an_imex_that_shows_a_domain_and_ends_with_an_error() -> None:
    verdict = domain({}, {"imex-node02": 1})
    wanted = ("imex-exit-code", "node02", "exit code 0 with a domain", "exit code 1")
    assert (tells(verdict), verdict.outcome) == ([wanted], Outcome.ERROR)
