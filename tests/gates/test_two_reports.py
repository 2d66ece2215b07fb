"""Two reports in one output: the first is of another node or time, and no reader may take it for the only one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rackready.format_error import FormatError
from rackready.gates.formats import (
    dcgm_diag,
    dcgm_health,
    dmidecode,
    imex,
    kernel_log,
    lspci,
    proftester,
    smi_nvlink,
    smi_topo,
    smi_xml,
)
from tests.gates.gpu.test_dcgm_health import HEALTH, seen_by_dcgm
from tests.gates.gpu.test_dcgm_health import judge as health
from tests.gates.gpu.test_links import H100, links
from tests.gates.host.test_formats import MEMORY
from tests.gates.support import text

WANTED = "the output of one command is wanted"
SMI, TRAY = text("smi/dgx_h100_healthy.xml"), text("smi/gb200_tray_healthy.xml")
TOPO, NOISE = text("topo/dgx_h100_healthy.txt"), text("kernel/dgx_h100_noise.txt")
DIAG = text("dcgm/dgx_h100_r1_dcgm4_healthy.json")
LOAD = text("proftester/dgx_h100_fp16_healthy.txt")
BRIDGE = "0000:00:02.0 PCI bridge: Some (rev 04)\n\tBus: primary=00, secondary=01, subordinate=05, sec-latency=0\n"
JSON = '{"status": "UP", "nodes": {}}\n'


@pytest.mark.parametrize(
    ("parse", "printed", "says"),
    [
        (smi_xml.parse, SMI + TRAY, f"2 reports of nvidia-smi -q -x: {WANTED}"),
        (
            smi_xml.parse,
            SMI.split("</nvidia_smi_log>", maxsplit=1)[0] + TRAY,
            f"2 reports of nvidia-smi -q -x: {WANTED}",
        ),
        (smi_topo.parse, TOPO + TOPO, f"2 matrices: {WANTED}"),
        (smi_topo.parse, TOPO.replace("NIC0\t", "GPU0\tX\nNIC0\t", 2), None),
        (
            smi_nvlink.status,
            links(8, lambda *_: "26.562 GB/s") * 2,
            "GPU 0 is there twice: the output of two commands?",
        ),
        (
            smi_nvlink.status,
            links(1, lambda *_: "26.562 GB/s") + links(1, lambda *_: "26.562 GB/s", H100).replace("GPU 0:", "GPU 1:"),
            "GPU-00000000 is there twice",
        ),
        (dcgm_diag.parse, DIAG + DIAG, f"two JSON documents, the second at line {DIAG.count(chr(10)) + 1}: {WANTED}"),
        (dcgm_health.parse, '{"body": {}}\n{"body": {}}', f"two JSON documents, the second at line 2: {WANTED}"),
        (imex.parse, JSON + JSON, f"two JSON documents, the second at line 2: {WANTED}"),
        (kernel_log.parse, NOISE + NOISE, f"2 boots of a kernel: {WANTED}"),
        (lspci.parse, BRIDGE * 2, f"a bridge is there twice: {WANTED}"),
        (dmidecode.memory, MEMORY * 2, f"a structure is there twice: {WANTED}"),
        (proftester.parse, LOAD * 2, f"GPU 0 ends twice: {WANTED}"),
    ],
)
def test_two_reports_in_one_output_are_refused(parse: Callable[[str], object], printed: str, says: str | None) -> None:
    with pytest.raises(FormatError) as refused:
        parse(printed)
    assert says is None or str(refused.value) == says


def test_two_lists_of_gpus_in_one_output_are_an_error() -> None:
    verdict = health("Health monitor systems set successfully.\n", seen_by_dcgm(8) + seen_by_dcgm(8), HEALTH)
    assert (verdict.outcome.value, [item.what for item in verdict.findings]) == ("error", ["DCGM discovery unreadable"])
    assert verdict.findings[0].actual == f"2 lists of GPUs: {WANTED} (exit code 0)"
