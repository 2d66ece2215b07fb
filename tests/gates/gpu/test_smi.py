"""Gates that judge `nvidia-smi -q -x`: ECC, row remap, InfoROM, recovery action, clocks, settings, fabric; element by element, word for word."""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from rackready.gates.engine.registry import gate
from rackready.gates.formats import smi_xml
from rackready.gates.formats.error import FormatError
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from tests.gates.captured import evaluate
from tests.gates.support import text

HEALTHY = text("smi/dgx_h100_healthy.xml")
GB200 = text("smi/gb200_tray_healthy.xml")
S = "node/gpu/sanity/"
GATES = [f"{S}{name}" for name in ("ecc", "row-remap", "inforom", "recovery-action", "clocks", "settings", "fabric")]
RUNBOOK = "docs/runbooks/gpu.md."
RESET = f"Drain the node and reset the GPU (`nvidia-smi -r -i N`) or reboot, then run the gate again: {RUNBOOK}"
REPLACE = f"Run the field diagnostic, then replace the GPU: {RUNBOOK}"
XID_48 = "Vendor's action WORKFLOW_XID_48"
LOCAL = (
    "Check `systemctl status nvidia-fabricmanager` and /var/log/fabricmanager.log; the fabric manager must be the "
    "driver's version: docs/runbooks/nvlink-down.md."
)
REMOTE = "Check the NVLink switch trays (NMX-C configured, all trays up) before the compute trays: docs/runbooks/nvlink-down.md."  # noqa: E501
DECLARE = (
    "Set it (`nvidia-smi -pl 700`). If the site lowered the limit on purpose, declare it under the gate's input "
    "`power_limit_w`."
)
LIMIT_512 = "NVIDIA/DCGM common/DcgmGPUHardwareLimits.h: DCGM_LIMIT_MAX_ROW_REMAP_UNCORRECTABLE"
COOLING = f"Check fans or coolant flow, inlet temperature and the heat sink: {RUNBOOK}"
UPDATE = "Update the driver."


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
    assert [str(finding) for finding in verdict.findings] == []
    assert verdict.outcome is Outcome.PASS
    assert verdict.measured == [f"node01/gpu{index}" for index in range(count)]


@dataclass(frozen=True)
class Row:
    gate: str
    change: tuple[str, str]
    says: str
    outcome: Outcome = Outcome.FAIL
    inputs: Mapping[str, object] = field(default_factory=dict)
    of: str = HEALTHY


def event(name: str) -> tuple[str, str]:
    return (f"<clocks_event_reason_{name}>Not Active<", f"<clocks_event_reason_{name}>Active<")


ROWS = [
    Row(
        "ecc",
        ("<current_ecc>Enabled<", "<current_ecc>Disabled<"),
        "ECC mode - Expected: Enabled Actual: Disabled. Set it (`nvidia-smi -e 1`), then reboot the node.",
    ),
    Row(
        "ecc",
        ("<pending_ecc>Enabled<", "<pending_ecc>Disabled<"),
        "ECC mode after the next reboot - Expected: Enabled Actual: Disabled. Set it (`nvidia-smi -e 1`), then reboot the node.",  # noqa: E501
    ),
    Row(
        "ecc",
        ("<dram_uncorrectable>0<", "<dram_uncorrectable>2<"),
        f"uncorrected DRAM errors since the driver was loaded - Expected: 0 Actual: 2. {XID_48}: d{RESET[1:]}",
    ),
    Row(
        "ecc",
        ("<sram_uncorrectable_parity>0<", "<sram_uncorrectable_parity>1<"),
        f"uncorrected SRAM parity errors since the driver was loaded - Expected: 0 Actual: 1. {XID_48}: d{RESET[1:]}",
    ),
    Row(
        "ecc",
        ("<sram_threshold_exceeded>No<", "<sram_threshold_exceeded>Yes<"),
        f"lifetime SRAM errors above the vendor's threshold - Expected: No Actual: Yes. The vendor replaces it (RMA). {REPLACE}",  # noqa: E501
    ),
    Row(
        "ecc",
        ("<tpc_repair_pending>No<", "<tpc_repair_pending>Yes<"),
        f"TPC repair waits for a reset - Expected: No Actual: Yes. {RESET}",
    ),
    Row(
        "ecc",
        ("<dram_correctable>0<", "<dram_correctable>51<"),
        f"corrected DRAM errors since the driver was loaded - Expected: at most 50 (gate input) Actual: 51. Watch their rate under load. {REPLACE}",  # noqa: E501
        inputs={"corrected_limit": 50},
    ),
    Row(
        "ecc",
        ("<dram_uncorrectable>0<", "<dram_uncorrectable>N/A<"),
        f"uncorrected DRAM errors not reported - Expected: a number Actual: N/A. {UPDATE}",
        Outcome.ERROR,
    ),
    Row(
        "ecc",
        ("<sram_threshold_exceeded>No<", "<sram_threshold_exceeded>Maybe<"),
        f"SRAM threshold flag not reported - Expected: Yes or No Actual: Maybe. {UPDATE}",
        Outcome.ERROR,
    ),
    Row(
        "row-remap",
        ("<remapped_row_pending>No<", "<remapped_row_pending>Yes<"),
        f"row remapping waits for a reset (Xid 63) - Expected: No Actual: Yes. {RESET}",
    ),
    Row(
        "row-remap",
        ("<remapped_row_failure>No<", "<remapped_row_failure>Yes<"),
        f"row remapping failed (Xid 64) - Expected: No Actual: Yes. The vendor replaces it (RMA). {REPLACE}",
    ),
    Row(
        "row-remap",
        ("<remapped_row_unc>0<", "<remapped_row_unc>512<"),
        f"rows remapped after uncorrected errors - Expected: fewer than 512 Actual: 512. {LIMIT_512}. {REPLACE}",
    ),
    Row(
        "row-remap",
        ("<remapped_row_failure>No</remapped_row_failure>", ""),
        f"row remapping failure not reported - Expected: Yes or No Actual: nothing. {UPDATE}",
        Outcome.ERROR,
    ),
    Row(
        "inforom",
        ("<img_version>G520.0200.00.05<", "<img_version>N/A<"),
        f"InfoROM version not reported - Expected: a value Actual: nothing. Run `nvidia-smi -q`; if the value is missing there too, contact the vendor: {RUNBOOK}",  # noqa: E501
        Outcome.ERROR,
    ),
    Row(
        "recovery-action",
        ("<gpu_recovery_action>None<", "<gpu_recovery_action>Reset<"),
        f"GPU recovery action - Expected: None Actual: Reset. Drain the node and reset the GPU (`nvidia-smi -r -i N`): {RUNBOOK}",  # noqa: E501
    ),
    Row(
        "recovery-action",
        ("<gpu_recovery_action>None<", "<gpu_recovery_action>Reboot<"),
        f"GPU recovery action - Expected: None Actual: Reboot. Drain and reboot the node: {RUNBOOK}",
    ),
    Row(
        "recovery-action",
        ("<gpu_recovery_action>None<", "<gpu_recovery_action>Exorcise<"),
        "GPU recovery action unknown - Expected: None Actual: Exorcise. Read the vendor's manual of nvidia-smi, and "
        "update rackready.",
        Outcome.ERROR,
    ),
    Row(
        "clocks",
        event("hw_thermal_slowdown"),
        f"clocks reduced: hardware thermal slowdown - Expected: Not Active Actual: Active. {COOLING}",
    ),
    Row(
        "clocks",
        event("hw_power_brake_slowdown"),
        f"clocks reduced: power brake - Expected: Not Active Actual: Active. Check the power supplies and the rack's power cap (BMC event log); the board asserts the brake: {RUNBOOK}",  # noqa: E501
    ),
    Row(
        "clocks",
        ("<clocks_event_reason_sw_thermal_slowdown>Not Active<", "<clocks_event_reason_sw_thermal_slowdown>N/A<"),
        f"clock event reason sw_thermal_slowdown not reported - Expected: Active or Not Active Actual: nothing. {UPDATE}",  # noqa: E501
        Outcome.ERROR,
    ),
    Row(
        "clocks",
        ("<gpu_temp_slow_tlimit_threshold>-2 C<", "<gpu_temp_slow_tlimit_threshold>N/A<"),
        f"slowdown threshold not reported - Expected: a threshold of the GPU Actual: nothing. {UPDATE}",
        Outcome.ERROR,
    ),
    Row(
        "settings",
        ("<persistence_mode>Enabled<", "<persistence_mode>Disabled<"),
        "persistence mode - Expected: Enabled Actual: Disabled. Start nvidia-persistenced. Run install again: it "
        "sets this.",
    ),
    Row(
        "settings",
        ("<current_mig>Disabled<", "<current_mig>Enabled<"),
        "MIG mode - Expected: Disabled Actual: Enabled. Set it (`nvidia-smi -mig 0` or 1), then reset the GPU.",
    ),
    Row(
        "settings",
        ("<compute_mode>Default<", "<compute_mode>Prohibited<"),
        "compute mode - Expected: Default Actual: Prohibited. Set it (`nvidia-smi -c DEFAULT`).",
    ),
    Row(
        "settings",
        ("<compute_mode>Default<", "<compute_mode>Exclusive_Process<"),
        "compute mode - Expected: Default Actual: Exclusive_Process. Set it (`nvidia-smi -c DEFAULT`).",
    ),
    Row(
        "settings",
        ("<compute_mode>Default<", "<compute_mode>Prohibited<"),
        "compute mode - Expected: Default Actual: Prohibited. Set it (`nvidia-smi -c DEFAULT`).",
        inputs={"mps": True},
    ),
    Row(
        "settings",
        ("<current_power_limit>700.00 W<", "<current_power_limit>500.00 W<"),
        f"power limit - Expected: 700 W (NVIDIA H100 SXM datasheet, TDP up to 700 W) Actual: 500 W. {DECLARE}",
    ),
    Row(
        "settings",
        ("<current_power_limit>700.00 W<", "<current_power_limit>high<"),
        "nvidia-smi unreadable - Expected: numbers where numbers belong Actual: gpu_power_readings/current_power_limit of 00000000:43:00.0 is 'high', which is no number. Run `nvidia-smi -q -x` by hand.",  # noqa: E501
        Outcome.ERROR,
    ),
    Row(
        "fabric",
        ("<state>Completed<", "<state>In Progress<"),
        f"fabric state - Expected: Completed Actual: In Progress. {LOCAL}",
    ),
    Row(
        "fabric",
        ("<status>Success<", "<status>Insufficient Resources<"),
        f"fabric status - Expected: Success Actual: Insufficient Resources. {LOCAL}",
    ),
    Row(
        "fabric",
        ("<summary>Healthy<", "<summary>Limited Capacity<"),
        f"fabric health - Expected: Healthy Actual: Limited Capacity. {REMOTE}",
        of=GB200,
    ),
    Row(
        "fabric",
        ("<bandwidth>Full<", "<bandwidth>Degraded<"),
        f"fabric health: bandwidth - Expected: Full Actual: Degraded. {REMOTE}",
        of=GB200,
    ),
    Row(
        "fabric",
        ("<access_timeout_recovery>False<", "<access_timeout_recovery>True<"),
        f"fabric health: access timeout recovery - Expected: False Actual: True. {REMOTE}",
        of=GB200,
    ),
    Row(
        "fabric",
        ("<access_timeout_recovery>False</access_timeout_recovery>", ""),
        "fabric health: access timeout recovery not reported - Expected: reported as for the other GPUs Actual: "
        "nothing. A driver reports the same fields for every GPU: use the report as nvidia-smi printed it, or run "
        "the gate again.",
        Outcome.ERROR,
        of=GB200,
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.gate} {row.change[1][:40]}")
def test_one_element_of_one_gpu(row: Row) -> None:
    report = changed(1, row.change, of=row.of)
    verdict = judge(S + row.gate, report, row.inputs, platform="gb200_nvl72" if row.of == GB200 else "dgx_h100")
    assert [str(finding) for finding in verdict.findings] == [f"node01 gpu1: {row.says}"]
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
    assert [str(finding) for finding in verdict.findings] == [
        (
            "node01 gpu3: InfoROM corrupt - Expected: a valid InfoROM Actual: nvidia-smi: infoROM is corrupted at 00000000:61:00.0. "  # noqa: E501
            f"Power the node off and on; if that does not help, have the vendor replace the board or reflash its InfoROM: {RUNBOOK}"  # noqa: E501
        )
    ]
    assert "node01/gpu3" not in verdict.measured
    assert judge(f"{S}ecc", report, exit_code=14).outcome is Outcome.PASS
    assert judge(f"{S}ecc", HEALTHY, exit_code=14).outcome is Outcome.ERROR


@pytest.mark.parametrize("name", GATES)
def test_a_lost_gpu_fails_every_gate(name: str) -> None:
    said = "Unable to determine the device handle for GPU5: 0000:C3:00.0: GPU is lost.  Reboot the system to recover this GPU\n"  # noqa: E501
    verdict = judge(name, said, exit_code=15)
    assert verdict.outcome is Outcome.FAIL
    assert str(verdict.findings[0]).startswith(
        "node01: GPU lost (5) - Expected: a GPU that answers Actual: GPU is lost."
    )


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
    step = "Correct the node's platform in site.yml or the profile that is named here, or replace the GPU; MIG instances are parts of GPUs: switch MIG off."  # noqa: E501
    wanted = (
        f"node01: nvidia-smi reports GPUs of another model - Expected: NVIDIA H100 80GB HBM3 Actual: {said}. {step}"
    )
    assert ([str(finding) for finding in verdict.findings], verdict.outcome, verdict.measured) == (
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
    said = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n"  # noqa: E501
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
