"""Memory temperature and application clocks of `nvidia-smi -q -x`: bounds, and values that are not judged."""

from __future__ import annotations

import pytest

from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome
from tests.gates.gpu.test_smi import S, changed, judge
from tests.gates.support import Told, tells

CAPTURED = "nvidia-smi -q of NVIDIA H100 80GB HBM3, Memory Max Operating Temp, public captures"


def hot(most: int, source: str, actual: int) -> Told:
    return "gpu-memory-hot", "node01 gpu1", f"at most {most} C ({source})", f"{actual} C"


def memory_at(degrees: str, more: str = "") -> str:
    return changed(1, ("<memory_temp>40 C</memory_temp>", f"<memory_temp>{degrees}</memory_temp>{more}"))


@pytest.mark.parametrize(
    ("degrees", "more", "platform", "said"),
    [
        ("95 C", "", "dgx_h100", []),
        ("96 C", "", "dgx_h100", [hot(95, CAPTURED, 96)]),
        ("118 C", "", "dgx_h100", [hot(95, CAPTURED, 118)]),
        (
            "92 C",
            "<gpu_temp_max_mem_threshold>90 C</gpu_temp_max_mem_threshold>",
            "dgx_h100",
            [hot(90, "the GPU's own threshold", 92)],
        ),
        (
            "92 C",
            "<gpu_temp_max_mem_threshold>90 C</gpu_temp_max_mem_threshold>",
            "dgx_h200",
            [hot(90, "the GPU's own threshold", 92)],
        ),
        ("96 C", "<gpu_temp_max_mem_tlimit_threshold>0 C</gpu_temp_max_mem_tlimit_threshold>", "dgx_h200", []),
        ("N/A", "", "dgx_h200", []),
        (
            "N/A",
            "",
            "dgx_h100",
            [("gpu-memory-temperature-not-reported", "node01 gpu1", "degrees Celsius", "nothing")],
        ),
    ],
    ids=[
        "at its limit",
        "above",
        "hot",
        "its own limit",
        "its own limit of another model",
        "no limit published",
        "no sensor",
        "silent",
    ],
)
def test_memory_is_held_against_its_operating_temperature(
    degrees: str, more: str, platform: str, said: list[str]
) -> None:
    model = facts(platform).nodes["node01"].gpu.product_name
    verdict = judge(f"{S}clocks", memory_at(degrees, more).replace("NVIDIA H100 80GB HBM3", model), platform=platform)
    assert tells(verdict) == said
    assert ("node01/gpu1" in verdict.measured) is not bool(said)


CLOCK = """<{group}>
\t\t\t<graphics_clock>{graphics}</graphics_clock>
\t\t\t<mem_clock>{memory}</mem_clock>"""


def application_clocks(graphics: str, memory: str, group: str = "applications_clocks") -> str:
    shipped = CLOCK.format(group=group, graphics="1980 MHz", memory="2619 MHz")
    return changed(1, (shipped, CLOCK.format(group=group, graphics=graphics, memory=memory)))


@pytest.mark.parametrize(
    ("graphics", "memory", "said"),
    [
        (
            "345 MHz",
            "2619 MHz",
            ("at least 1980 MHz (the driver's default)", "345 MHz", "name=graphics"),
        ),
        (
            "1980 MHz",
            "1593 MHz",
            ("at least 2619 MHz (the driver's default)", "1593 MHz", "name=memory"),
        ),
    ],
    ids=["graphics", "memory"],
)
def test_application_clocks_that_somebody_lowered_fail(graphics: str, memory: str, said: Told) -> None:
    verdict = judge(f"{S}settings", application_clocks(graphics, memory))
    assert tells(verdict) == [("application-clock-lowered", "node01 gpu1", *said)]
    assert verdict.outcome is Outcome.FAIL


@pytest.mark.parametrize("group", ["applications_clocks", "default_applications_clocks"])
@pytest.mark.parametrize("nothing", ["N/A", "Requested functionality has been deprecated"])
def test_application_clocks_that_a_model_or_driver_does_not_have_are_not_lowered(group: str, nothing: str) -> None:
    assert judge(f"{S}settings", application_clocks(nothing, nothing, group)).outcome is Outcome.PASS


def test_application_clocks_above_the_default_are_no_fault() -> None:
    assert (
        judge(f"{S}settings", application_clocks("1500 MHz", "2619 MHz", "default_applications_clocks")).outcome
        is Outcome.PASS
    )
