"""nvidia-smi's report: a GPU that is described a second time at another address hides the one that is there."""

from __future__ import annotations

import re

import pytest

from rackready.gates.base import Output
from rackready.gates.engine.registry import all_gates, gate
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from tests.gates.support import text

SMI = text("smi/dgx_h100_healthy.xml")
STEP = "Run `nvidia-smi -q -x` by hand. If it shows the same, reseat the GPUs: a board's InfoROM may be damaged."
SMI_ONLY = sorted(
    name
    for name in all_gates()
    if name.startswith("node/")
    and (runs := gate(name, {}).plan(facts("dgx_h100", 1), ["node01"]))
    and [one.argv for one in runs[0].commands] == [("nvidia-smi", "-q", "-x")]
)


def copied(field: str) -> str:
    """The report with one field of the last GPU as the first has it."""
    values = re.findall(f"<{field}>([^<]+)</{field}>", SMI)
    return SMI.replace(f"<{field}>{values[-1]}<", f"<{field}>{values[0]}<")


def judged(name: str, report: str) -> Verdict:
    known, found = facts("dgx_h100", 1), gate(name, {})
    run = found.plan(known, ["node01"])[0]
    said = {command.key: Output(command.key, "node01", "x", 0, report, seconds=1.0) for command in run.commands}
    return found.evaluate(known, run, said)


@pytest.mark.parametrize("name", SMI_ONLY)
@pytest.mark.parametrize("field", ["uuid", "serial"])
def test_a_gpu_that_is_described_twice_is_an_error(name: str, field: str) -> None:
    assert judged(name, SMI).outcome is Outcome.PASS
    value, addresses = re.findall(f"<{field}>([^<]+)</{field}>", SMI)[0], re.findall('<gpu id="([^"]+)"', SMI)
    verdict = judged(name, copied(field))
    actual = f"{field} {value} at {addresses[0]}, {addresses[-1]}"
    message = (
        f"node01: nvidia-smi lists one GPU twice - Expected: a {field} of its own for every GPU "
        f"Actual: {actual}. {STEP}"
    )
    assert ([str(finding) for finding in verdict.findings], verdict.outcome, verdict.measured) == (
        [message],
        Outcome.ERROR,
        [],
    )


def test_there_are_gates_that_read_the_report() -> None:
    assert len(SMI_ONLY) >= 5


def test_two_gpus_of_a_module_share_a_serial_and_three_do_not() -> None:
    tray = text("smi/gb200_tray_healthy.xml")
    serials = re.findall("<serial>([^<]+)</serial>", tray)
    known, found = facts("gb200_nvl72", 1), gate("node/gpu/sanity/ecc", {})
    run = found.plan(known, ["node01"])[0]

    def said(shared: int) -> list[str]:
        report = tray
        for serial in serials[1:shared]:
            report = report.replace(f"<serial>{serial}<", f"<serial>{serials[0]}<")
        return [
            finding.what
            for finding in found.evaluate(
                known, run, {"smi": Output("smi", "node01", "x", 0, report, seconds=1.0)}
            ).findings
        ]

    assert (said(2), said(3)) == ([], ["nvidia-smi lists one GPU twice"])


def test_two_reports_ask_for_one() -> None:
    verdict = judged(SMI_ONLY[0], SMI + SMI)
    message = (
        "node01: nvidia-smi unreadable - Expected: a complete report of nvidia-smi -q -x Actual: 2 reports of "
        "nvidia-smi -q -x: the output of one command is wanted (exit code 0). Give one report of `nvidia-smi -q -x`, "
        "from this node."
    )
    assert ([str(finding) for finding in verdict.findings], verdict.outcome) == ([message], Outcome.ERROR)
