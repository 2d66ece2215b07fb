"""Gates that judge `nvidia-smi -q -x`: ECC, row remap, InfoROM, recovery action, clocks, settings, fabric; element by element, word for word."""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from rackready.format_error import FormatError
from rackready.gates.engine.registry import gate
from rackready.gates.formats import smi_xml
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from tests.gates.captured import evaluate
from tests.gates.support import Told, tells, text, told

HEALTHY = text("smi/dgx_h100_healthy.xml")
GB200 = text("smi/gb200_tray_healthy.xml")
S = "node/gpu/sanity/"
GATES = [f"{S}{name}" for name in ("ecc", "row-remap", "inforom", "recovery-action", "clocks", "settings", "fabric")]
RUNBOOK = "docs/runbooks/gpu.md."
COOLING = f"Check fans or coolant flow, inlet temperature and the heat sink: {RUNBOOK}"


def changed(gpu: int, *changes: tuple[str, str], of: str = HEALTHY) -> str:
    """The report with texts of one GPU replaced; each must be there."""
    pieces = of.split("\t<gpu id=")
    for old, new in changes:
        assert old in pieces[gpu + 1], old
        pieces[gpu + 1] = pieces[gpu + 1].replace(old, new, 1)
    return "\t<gpu id=".join(pieces)


def judge(
    gate_id: str,
    report: str,
    inputs: Mapping[str, object] | None = None,
    *,
    platform: str = "dgx_h100",
    exit_code: int = 0,
) -> Verdict:
    known = facts(platform, 1)
    found = gate(gate_id, inputs)
    return evaluate(found, known, found.plan(known, ["node01"])[0], {"smi": report}, exit_code)


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize(
    ("report", "platform", "count"), [(HEALTHY, "dgx_h100", 8), (GB200, "gb200_nvl72", 4)], ids=["H100", "GB200"]
)
def test_healthy_nodes_pass_and_every_gpu_is_measured(name: str, report: str, platform: str, count: int) -> None:
    verdict = judge(name, report, platform=platform)
    assert tells(verdict) == []
    assert verdict.outcome is Outcome.PASS
    assert verdict.measured == [f"node01/gpu{index}" for index in range(count)]


@dataclass(frozen=True)
class Row:
    gate: str
    change: tuple[str, str]
    says: Told
    outcome: Outcome = Outcome.FAIL
    inputs: Mapping[str, object] = field(default_factory=dict)
    of: str = HEALTHY


def event(name: str) -> tuple[str, str]:
    return (f"<clocks_event_reason_{name}>Not Active<", f"<clocks_event_reason_{name}>Active<")


ROWS = [
    Row(
        "ecc",
        ("<current_ecc>Enabled<", "<current_ecc>Disabled<"),
        ("ecc-mode", "Enabled", "Disabled"),
    ),
    Row(
        "ecc",
        ("<pending_ecc>Enabled<", "<pending_ecc>Disabled<"),
        ("ecc-mode-pending", "Enabled", "Disabled"),
    ),
    Row(
        "ecc",
        ("<dram_uncorrectable>0<", "<dram_uncorrectable>2<"),
        ("ecc-uncorrected", "0", "2", "what=DRAM"),
    ),
    Row(
        "ecc",
        ("<sram_uncorrectable_parity>0<", "<sram_uncorrectable_parity>1<"),
        ("ecc-uncorrected", "0", "1", "what=SRAM parity"),
    ),
    Row(
        "ecc",
        ("<sram_threshold_exceeded>No<", "<sram_threshold_exceeded>Yes<"),
        ("ecc-sram-threshold", "No", "Yes"),
    ),
    Row(
        "ecc",
        ("<tpc_repair_pending>No<", "<tpc_repair_pending>Yes<"),
        ("tpc-repair-pending", "No", "Yes"),
    ),
    Row(
        "ecc",
        ("<dram_correctable>0<", "<dram_correctable>51<"),
        ("ecc-corrected", "at most 50 (gate input)", "51", "what=DRAM"),
        inputs={"corrected_limit": 50},
    ),
    Row(
        "ecc",
        ("<dram_uncorrectable>0<", "<dram_uncorrectable>N/A<"),
        ("gpu-number-not-reported", "a number", "N/A", "what=uncorrected DRAM errors"),
        Outcome.ERROR,
    ),
    Row(
        "ecc",
        ("<sram_threshold_exceeded>No<", "<sram_threshold_exceeded>Maybe<"),
        ("gpu-flag-not-reported", "Yes or No", "Maybe", "what=SRAM threshold flag"),
        Outcome.ERROR,
    ),
    Row(
        "row-remap",
        ("<remapped_row_pending>No<", "<remapped_row_pending>Yes<"),
        ("row-remap-pending", "No", "Yes"),
    ),
    Row(
        "row-remap",
        ("<remapped_row_failure>No<", "<remapped_row_failure>Yes<"),
        ("row-remap-failed", "No", "Yes"),
    ),
    Row(
        "row-remap",
        ("<remapped_row_unc>0<", "<remapped_row_unc>512<"),
        ("row-remap-many", "fewer than 512", "512"),
    ),
    Row(
        "row-remap",
        ("<remapped_row_failure>No</remapped_row_failure>", ""),
        ("gpu-flag-not-reported", "Yes or No", "nothing", "what=row remapping failure"),
        Outcome.ERROR,
    ),
    Row(
        "inforom",
        ("<img_version>G520.0200.00.05<", "<img_version>N/A<"),
        ("inforom-not-reported", "a value", "nothing", "what=InfoROM version"),
        Outcome.ERROR,
    ),
    Row(
        "recovery-action",
        ("<gpu_recovery_action>None<", "<gpu_recovery_action>Reset<"),
        ("gpu-recovery-action", "None", "Reset", "step=1"),
    ),
    Row(
        "recovery-action",
        ("<gpu_recovery_action>None<", "<gpu_recovery_action>Reboot<"),
        ("gpu-recovery-action", "None", "Reboot", "step=2"),
    ),
    Row(
        "recovery-action",
        ("<gpu_recovery_action>None<", "<gpu_recovery_action>Exorcise<"),
        ("gpu-recovery-unknown-word", "None", "Exorcise"),
        Outcome.ERROR,
    ),
    Row(
        "clocks",
        event("hw_thermal_slowdown"),
        ("clocks-held-hw-thermal", "Not Active", "Active"),
    ),
    Row(
        "clocks",
        event("hw_power_brake_slowdown"),
        ("clocks-held-power-brake", "Not Active", "Active"),
    ),
    Row(
        "clocks",
        ("<clocks_event_reason_sw_thermal_slowdown>Not Active<", "<clocks_event_reason_sw_thermal_slowdown>N/A<"),
        ("clock-reason-not-reported", "Active or Not Active", "nothing", "key=sw_thermal_slowdown"),
        Outcome.ERROR,
    ),
    Row(
        "clocks",
        ("<gpu_temp_slow_tlimit_threshold>-2 C<", "<gpu_temp_slow_tlimit_threshold>N/A<"),
        ("gpu-slowdown-threshold-not-reported", "a threshold of the GPU", "nothing"),
        Outcome.ERROR,
    ),
    Row(
        "settings",
        ("<persistence_mode>Enabled<", "<persistence_mode>Disabled<"),
        ("persistence-mode", "Enabled", "Disabled"),
    ),
    Row(
        "settings",
        ("<current_mig>Disabled<", "<current_mig>Enabled<"),
        ("mig-mode", "Disabled", "Enabled"),
    ),
    Row(
        "settings",
        ("<compute_mode>Default<", "<compute_mode>Prohibited<"),
        ("compute-mode", "Default", "Prohibited", "mode=DEFAULT"),
    ),
    Row(
        "settings",
        ("<compute_mode>Default<", "<compute_mode>Exclusive_Process<"),
        ("compute-mode", "Default", "Exclusive_Process", "mode=DEFAULT"),
    ),
    Row(
        "settings",
        ("<compute_mode>Default<", "<compute_mode>Prohibited<"),
        ("compute-mode", "Default", "Prohibited", "mode=DEFAULT"),
        inputs={"mps": True},
    ),
    Row(
        "settings",
        ("<current_power_limit>700.00 W<", "<current_power_limit>500.00 W<"),
        ("gpu-power-limit", "700 W (NVIDIA H100 SXM datasheet, TDP up to 700 W)", "500 W", "wanted=700"),
    ),
    Row(
        "settings",
        ("<current_power_limit>700.00 W<", "<current_power_limit>high<"),
        (
            "nvidia-smi-not-numbers",
            "numbers where numbers belong",
            "gpu_power_readings/current_power_limit of 00000000:43:00.0 is 'high', which is no number",
        ),
        Outcome.ERROR,
    ),
    Row(
        "fabric",
        ("<state>Completed<", "<state>In Progress<"),
        ("fabric-state", "Completed", "In Progress", "step=1"),
    ),
    Row(
        "fabric",
        ("<status>Success<", "<status>Insufficient Resources<"),
        ("fabric-status", "Success", "Insufficient Resources", "step=1"),
    ),
    Row(
        "fabric",
        ("<summary>Healthy<", "<summary>Limited Capacity<"),
        ("fabric-health-bad", "Healthy", "Limited Capacity", "step=2"),
        of=GB200,
    ),
    Row(
        "fabric",
        ("<bandwidth>Full<", "<bandwidth>Degraded<"),
        ("fabric-health-part-bad", "Full", "Degraded", "what=bandwidth", "step=2"),
        of=GB200,
    ),
    Row(
        "fabric",
        ("<access_timeout_recovery>False<", "<access_timeout_recovery>True<"),
        ("fabric-health-part-bad", "False", "True", "what=access timeout recovery", "step=2"),
        of=GB200,
    ),
    Row(
        "fabric",
        ("<access_timeout_recovery>False</access_timeout_recovery>", ""),
        ("fabric-health-not-reported", "reported as for the other GPUs", "nothing", "what=access timeout recovery"),
        Outcome.ERROR,
        of=GB200,
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.gate} {row.change[1][:40]}")
def test_one_element_of_one_gpu(row: Row) -> None:
    report = changed(1, row.change, of=row.of)
    verdict = judge(S + row.gate, report, row.inputs, platform="gb200_nvl72" if row.of == GB200 else "dgx_h100")
    assert tells(verdict) == [(row.says[0], "node01 gpu1", *row.says[1:])]
    assert verdict.outcome is row.outcome
    assert "node01/gpu1" not in verdict.measured
    assert "node01/gpu0" in verdict.measured


def test_normal_reasons_are_no_fault() -> None:
    """A power cap in force is what every GPU at full load shows; idle is what it shows otherwise (a mask of both is no throttling)."""  # noqa: E501
    report = changed(1, event("sw_power_cap"), event("sync_boost"), event("applications_clocks_setting"))
    assert judge(f"{S}clocks", report).outcome is Outcome.PASS


def test_the_general_slowdown_is_not_repeated_beside_a_particular_one() -> None:
    report = changed(1, event("hw_slowdown"), event("hw_power_brake_slowdown"))
    assert [finding.what for finding in judge(f"{S}clocks", report).findings] == ["clocks reduced: power brake"]
    assert [finding.what for finding in judge(f"{S}clocks", changed(1, event("hw_slowdown"))).findings] == [
        "clocks reduced: hardware slowdown"
    ]


@pytest.mark.parametrize(("margin", "outcome"), [("-1", Outcome.PASS), ("-2", Outcome.FAIL), ("-5", Outcome.FAIL)])
def test_temperature_is_held_against_the_gpus_own_threshold(margin: str, outcome: Outcome) -> None:
    assert judge(f"{S}clocks", changed(1, tlimit(margin))).outcome is outcome


def tlimit(margin: str) -> tuple[str, str]:
    piece = HEALTHY.split("\t<gpu id=")[2]
    now = piece.split("<gpu_temp_tlimit>")[1].split(" C")[0]
    return (f"<gpu_temp_tlimit>{now} C<", f"<gpu_temp_tlimit>{margin} C<")


@pytest.mark.parametrize(("limit", "outcome"), [("90 C", Outcome.PASS), ("20 C", Outcome.FAIL)])
def test_older_gpus_report_the_threshold_in_degrees(limit: str, outcome: Outcome) -> None:
    report = changed(
        1,
        (tlimit("1")[0], "<gpu_temp_tlimit>N/A<"),
        (
            "<gpu_temp_slow_tlimit_threshold>-2 C</gpu_temp_slow_tlimit_threshold>",
            f"<gpu_temp_slow_threshold>{limit}</gpu_temp_slow_threshold>",
        ),
    )
    assert judge(f"{S}clocks", report).outcome is outcome


def test_a_wanted_state_other_than_the_usual_is_declared() -> None:
    report = (
        HEALTHY.replace("<current_mig>Disabled<", "<current_mig>Enabled<")
        .replace("<pending_mig>Disabled<", "<pending_mig>Enabled<")
        .replace("<current_power_limit>700.00 W", "<current_power_limit>650.00 W")
    )
    assert judge(f"{S}settings", report, {"mig": True, "power_limit_w": 650}).outcome is Outcome.PASS


def test_both_compute_modes_of_a_node_with_mps_are_right() -> None:
    """Exclusive_Process while MPS runs, Default while gates measure without it."""
    report = HEALTHY.replace("<compute_mode>Default<", "<compute_mode>Exclusive_Process<")
    assert judge(f"{S}settings", report, {"mps": True}).outcome is Outcome.PASS
    assert judge(f"{S}settings", HEALTHY, {"mps": True}).outcome is Outcome.PASS
    assert judge(f"{S}settings", report).outcome is Outcome.FAIL


def test_a_corrupt_inforom_is_named_by_its_warning_and_exit_code() -> None:
    report = HEALTHY + "WARNING: infoROM is corrupted at gpu 00000000:61:00.0\n"
    verdict = judge(f"{S}inforom", report, exit_code=14)
    assert tells(verdict) == [
        (("inforom-corrupt", "node01 gpu3", "a valid InfoROM", "nvidia-smi: infoROM is corrupted at 00000000:61:00.0"))
    ]
    assert "node01/gpu3" not in verdict.measured
    assert judge(f"{S}ecc", report, exit_code=14).outcome is Outcome.PASS
    assert judge(f"{S}ecc", HEALTHY, exit_code=14).outcome is Outcome.ERROR


@pytest.mark.parametrize("name", GATES)
def test_a_lost_gpu_fails_every_gate(name: str) -> None:
    said = (
        "Unable to determine the device handle for GPU5: 0000:C3:00.0: GPU is lost.  Reboot the "
        "system to recover this GPU\n"
    )
    verdict = judge(name, said, exit_code=15)
    assert verdict.outcome is Outcome.FAIL
    assert told(verdict.findings[0]) == ("gpu-lost", "node01", "a GPU that answers", "GPU is lost", "name=5")


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize(
    ("report", "said"),
    [
        (HEALTHY.replace("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"), "NVIDIA A100-SXM4-80GB (8 on node01)"),
        (changed(3, ("NVIDIA H100 80GB HBM3", "NVIDIA H800")), "NVIDIA H800 (1 on node01)"),
        (changed(3, ("<product_name>NVIDIA H100 80GB HBM3</product_name>", "")), "no model (1 on node01)"),
    ],
    ids=["all", "one", "none named"],
)
def test_a_report_of_another_model_is_judged_by_no_gate(name: str, report: str, said: str) -> None:
    verdict = judge(name, report)
    wanted = ("gpus-of-another-model", "node01", "NVIDIA H100 80GB HBM3", said, "what=nvidia-smi reports")
    assert (tells(verdict), verdict.outcome, verdict.measured) == (
        [wanted],
        Outcome.ERROR,
        [],
    )


def test_drivers_that_leave_out_the_vendors_name_report_the_same_model() -> None:
    assert judge(f"{S}ecc", HEALTHY.replace("NVIDIA H100 80GB HBM3", "H100 80GB HBM3")).outcome is Outcome.PASS


@pytest.mark.parametrize("name", GATES)
def test_a_missing_gpu_fails_and_the_others_keep_their_names(name: str) -> None:
    pieces = HEALTHY.split("\t<gpu id=")
    report = "\t<gpu id=".join(pieces[:3] + pieces[4:]).replace("<attached_gpus>8<", "<attached_gpus>7<")
    verdict = judge(name, report)
    assert (verdict.outcome, verdict.findings[0].what) == (Outcome.FAIL, "GPUs in nvidia-smi")
    assert verdict.measured == [f"node01/gpu{index}" for index in (0, 1, 3, 4, 5, 6, 7)]


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ("", "empty output"),
        ("Field is not valid", "no report of nvidia-smi -q -x, but 'Field is not valid'"),
        (HEALTHY[: len(HEALTHY) // 2], "the report is cut off: its last element is missing"),
        (HEALTHY.replace("</pci>", "", 1), "the report is damaged: "),
        (HEALTHY.replace("<attached_gpus>8", "<attached_gpus>9"), "the report counts 9 GPUs and describes 8"),
        (
            HEALTHY.replace("00000000:1B:00.0", "00000000:43:00.0"),
            "a GPU of the report has no address, or two have the same",
        ),
        (
            HEALTHY.replace("<nvidia_smi_log>", '<!ENTITY a "b"><nvidia_smi_log>'),
            "the report declares entities, which nvidia-smi's never does",
        ),
    ],
)
def test_what_is_no_report_is_refused(report: str, words: str) -> None:
    with pytest.raises(FormatError) as caught:
        smi_xml.parse(report)
    assert str(caught.value).startswith(words)


def test_a_damaged_report_is_refused_with_its_line() -> None:
    line = HEALTHY[HEALTHY.index("<nvidia_smi_log") : HEALTHY.index("</gpu>")].count("\n") + 1
    with pytest.raises(FormatError) as caught:
        smi_xml.parse(HEALTHY.replace("</pci>", "", 1))
    assert str(caught.value) == f"the report is damaged: mismatched tag: line {line}, column 3"


def test_where_a_report_has_its_lines_says_nothing() -> None:
    broken = HEALTHY.replace("<current_ecc>Enabled<", "<current_ecc>\n\tEnabled\n<")
    windows = HEALTHY.replace("\n", "\r\n")
    assert broken != HEALTHY
    assert judge(f"{S}ecc", broken) == judge(f"{S}ecc", windows) == judge(f"{S}ecc", HEALTHY)


def test_a_driver_that_does_not_answer_is_an_error() -> None:
    said = (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure "
        "that the latest NVIDIA driver is installed and running.\n"
    )
    verdict = judge(f"{S}ecc", said, exit_code=9)
    assert verdict.outcome is Outcome.ERROR
    assert verdict.findings[0].what == "nvidia-smi cannot reach the driver"


def test_a_platform_without_switches_has_no_fabric_to_judge() -> None:
    known = facts("dgx_h100", 1)
    plain = known.nodes["node01"].platform.model_copy(update={"nvswitch": False})
    known = replace(known, nodes={"node01": replace(known.nodes["node01"], platform=plain)})
    found = gate(f"{S}fabric")
    verdict = evaluate(
        found, known, found.plan(known, ["node01"])[0], {"smi": HEALTHY.replace(">Completed<", ">N/A<")}, 0
    )
    assert (verdict.outcome, verdict.note) == (
        Outcome.PASS,
        "platform dgx_h100 has no NVSwitches: there is no fabric to judge",
    )
    assert verdict.measured == [], "no GPU was measured by it"


def test_gpus_before_hopper_tell_nothing_of_the_fabric() -> None:
    """As captured of an A100 (driver 570); one that tells nothing beside siblings that do is an error, as on any other server."""  # noqa: E501
    a100 = HEALTHY.replace("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB")
    mute = a100.replace("<state>Completed</state>", "<state>N/A</state>").replace(
        "<status>Success</status>", "<status>N/A</status>"
    )
    verdict = judge(f"{S}fabric", mute, platform="dgx_a100")
    note = (
        "GPU a100_80_sxm reports no fabric state: node/gpu/sanity/nvlink judges its links, "
        "node/gpu/sanity/versions its fabric manager"
    )
    assert (verdict.outcome, verdict.measured, verdict.note) == (Outcome.PASS, [], note)
    one = judge(
        f"{S}fabric", changed(2, ("<state>Completed</state>", "<state>N/A</state>"), of=a100), platform="dgx_a100"
    )
    assert [(item.where, item.what) for item in one.findings] == [("node01 gpu2", "fabric state not reported")]
    assert (one.outcome, len(one.measured)) == (Outcome.ERROR, 7)
    hopper = judge(f"{S}fabric", HEALTHY.replace("<state>Completed</state>", "<state>N/A</state>"))
    assert (hopper.outcome, len(hopper.findings)) == (Outcome.ERROR, 8)


def test_banks_without_spare_rows_are_noted() -> None:
    verdict = judge(
        f"{S}row-remap",
        changed(1, ("<row_remapper_histogram_none>0 bank(s)<", "<row_remapper_histogram_none>2 bank(s)<")),
    )
    assert (verdict.outcome, verdict.note) == (
        Outcome.PASS,
        "node01 gpu1: 2 banks have no spare row left; plan to replace the GPU",
    )
