"""Commands of the documents that need a rack or root: each is run by the test that is named here."""

from __future__ import annotations

import ast
import shlex
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_CLI = "tests/unit/cli/"
_RACK = "tests/integration/"
_PHASES = _CLI + "test_damaged_evidence.py::test_commands_of_phases_end_with_a_report"
_NETBOX = "tests/unit/netbox/test_netbox.py::"
_PROFILE = _CLI + "test_profile.py::"
_CERTIFICATE = _CLI + "test_certificate.py::"
_VERIFY = _RACK + "test_kill.py::test_a_certificate_is_verified_against_the_node_as_it_is_now"
_RETIRE = _RACK + "test_retire.py::test_a_node_leaves_for_good_and_the_others_stay"
_HAND_BACK = _RACK + "test_hand_back.py::test_a_node_returns_from_its_tenant"
_RMA = _RACK + "test_rma.py::test_a_node_goes_to_its_vendor"
_REHEARSE = _RACK + "test_rehearse.py::"
_REPAIR = _RACK + "test_main_job.py::test_repaired_node_comes_back"
_WATCH = _CLI + "test_watch.py::"
_ROTATION = _CLI + "test_rotation.py::test_a_dry_run_asks_no_device_and_names_what_cannot_be_written"
_CALENDAR = _CLI + "test_calendar.py::"
_NIGHTLY = _CLI + "test_nightly.py::"
_TREND = _CLI + "test_trend.py::"
_RELEASE = _CLI + "test_release.py::"
_UPGRADE = _CLI + "test_upgrade.py::"
_MAKE = "tests/repo/test_make.py::"

ELSEWHERE = {
    "make deploy": _MAKE + "test_the_simulated_rack_comes_up_before_its_deploy_and_no_other_environment_knows_it",
    "make setup": _MAKE + "test_targets_of_the_readme_call_their_scripts",
    "make sim-down": _MAKE + "test_sim_down_takes_down_the_rack_of_this_clone",
    "make test": _MAKE + "test_targets_of_the_readme_call_their_scripts",
    "certificate export --format --out": _CERTIFICATE + "test_a_bundle_is_shown_and_verified_without_any_environment",
    "bmc rotate --all --check": _ROTATION,
    "switch rotate --all --check": _ROTATION,
    "certificate keys": _CERTIFICATE + "test_keys_are_listed_as_the_site_file_takes_them",
    "certificate show": _CERTIFICATE + "test_show_tells_subject_signer_and_every_bound_with_its_source",
    "certificate show --key": _CERTIFICATE + "test_a_bundle_is_shown_and_verified_without_any_environment",
    "certificate verify": _VERIFY,
    "certificate verify --key --subject": _CERTIFICATE + "test_a_bundle_is_shown_and_verified_without_any_environment",
    "comment --for --name": _CLI + "test_comment.py::test_written_once_then_replaced",
    "deploy --full": _CLI + "test_full.py::test_full_is_part_of_the_request_and_of_the_command_to_repeat",
    "deploy": _RACK + "test_main_job.py::test_second_run_changes_nothing_and_says_so",
    "drift": _RACK + "test_drift.py::test_a_node_that_was_never_deployed_cannot_be_asked",
    "slurm apply": _CLI + "test_slurm.py::test_apply_writes_it_once_and_names_the_node_that_is_mute",
    "slurm diff": _CLI + "test_slurm.py::test_diff_shows_what_handover_would_write_for_certified_nodes",
    "evidence import --by": _CLI + "test_evidence_import.py::test_a_user_without_a_name_is_asked_for_one",
    "evidence set-aside --proof": _CLI + "test_damaged_evidence.py::test_what_was_set_aside_is_listed_with_its_proof",
    "export kubernetes --out": _CLI + "test_export.py::test_files_are_written_and_named",
    "export grafana --out": _CLI + "test_export_monitoring.py::test_dashboards_are_written",
    "export metrics": _CLI + "test_export_monitoring.py::test_metrics_tell_states_gates_campaign_and_what_is_expected",
    "export metrics --out": _CLI
    + "test_export_monitoring.py::test_a_file_is_replaced_as_a_whole_and_servers_may_read_it",
    "export pipeline --for": _CLI + "test_export_pipeline.py::test_written_once_and_unchanged_after",
    "export pipeline --for --plan-runner": _CLI + "test_export_pipeline.py::test_one_runner_for_all_is_named",
    "export prometheus --out": _CLI
    + "test_export_monitoring.py::test_prometheus_files_are_written_and_what_is_open_is_told",
    "export netbox --token-file --url": _NETBOX + "test_export_shows_first_and_writes_with_yes",
    "export netbox --token-file --url --yes": _NETBOX + "test_export_shows_first_and_writes_with_yes",
    "gate run": _RACK + "test_kill.py::test_srun_starts_what_open_mpi_started_and_the_nodes_are_as_before",
    "hand-back --reason": _HAND_BACK,
    "hand-back --reason --yes": _HAND_BACK,
    "rma --check": _RMA,
    "rma --reason": _RMA,
    "rma --reason --returned": _RACK
    + "test_rma.py::test_it_comes_back_with_another_gpu_and_its_peer_stays_in_production",
    "hostkey accept": _CLI
    + "test_hostkey.py::test_a_changed_key_is_shown_with_both_fingerprints_and_the_serial_and_pinned",
    "import netbox --into --token-file --url": _NETBOX + "test_import_writes_a_new_file_and_lists_what_is_missing",
    "install": _PHASES,
    "optimize --full": _CLI + "test_full.py::test_full_is_part_of_the_request_and_of_the_command_to_repeat",
    "release serve --listen": _CLI + "test_release_serve.py::test_it_serves_until_it_is_stopped",
    "install --full": _RACK + "test_proof.py::test_full_plays_a_node_that_is_as_released",
    "install --check": _RACK + "test_trouble.py::test_a_new_host_key_is_refused_and_accepted_by_one_command",
    "mirror --check --kernel": _CLI + "test_mirror.py::test_a_site_gets_its_mirror",
    "optimize": _PHASES,
    "profile learn --local": _PROFILE + "test_a_profile_is_printed_and_nothing_written",
    "provision": _PHASES,
    "rehearse": _REHEARSE + "test_rehearsal_takes_two_nodes_to_production_and_leaves_only_its_reports",
    "rehearse --check": _REHEARSE + "test_dry_run_makes_nothing",
    "rehearse --check --site": _REHEARSE + "test_dry_run_makes_nothing",
    "rehearse --check --site --stand-in": _REHEARSE + "test_dry_run_makes_nothing",
    "repair --reason": _REPAIR,
    "report": _CLI + "test_commands.py::test_a_report_is_one_json_document_and_says_by_its_exit_code_what_did_not_pass",
    "report --out --rack": _CLI + "test_acceptance.py::test_the_pdf_is_signed_too",
    "retire --reason": _RETIRE,
    "retire --reason --yes": _RETIRE,
    "setup": "tests/repo/test_wheel.py::test_setup_takes_the_shipped_recipe",
    "sim clear": _REPAIR,
    "sim down": _RACK + "test_sim_rack.py::test_another_clone_comes_up_killed_or_not_and_goes_down_alone",
    "sim fabric --site": "tests/unit/infiniband/test_rehearsal.py::test_a_small_fabric_passes_as_text_and_json",
    "sim fabric --site --uplinks": "tests/unit/ethtwin/test_ethernet_twin.py::test_the_only_spine_is_missed",
    "sim inject --gpu": _RACK + "test_main_job.py::test_one_bad_node_is_quarantined_and_three_become_ready",
    "sim inject --nic": _RACK + "test_sim_rack.py::test_a_cable_that_is_pulled_is_missed_at_both_ends_until_it_is_back",
    "sim status": _RACK + "test_sim_rack.py::test_what_died_is_repaired_and_what_lives_is_left_alone",
    "sim up": _RACK + "test_sim_rack.py::test_a_second_up_changes_nothing",
    "release reports": _CLI + "test_release_reports.py::test_nodes_as_released_are_0",
    "release build": _RELEASE + "test_a_build_says_what_it_made_and_a_second_one_makes_nothing",
    "release prune": _CLI + "test_release_prune.py::test_it_shows_what_would_go_and_removes_nothing",
    "release prune --yes": _CLI + "test_release_prune.py::test_the_newest_builds_stay_whole",
    "release list": _RELEASE + "test_indexes_are_listed_the_newest_first",
    "release show": _RELEASE + "test_show_has_the_document_and_no_variables",
    "release verify": _RELEASE + "test_every_kind_of_tampering_is_found_and_the_next_build_mends_it",
    "upgrade --abort": _UPGRADE + "test_pause_and_abort_from_a_second_terminal",
    "upgrade --check --to": _UPGRADE + "test_the_plan_shows_changes_reboot_duration_and_waves",
    "upgrade --done --switch": _UPGRADE + "test_a_switch_is_begun_and_its_rails_are_proven",
    "upgrade --failed-only --to": _UPGRADE + "test_a_stop_waits_for_the_operators_word",
    "upgrade --pause": _UPGRADE + "test_pause_and_abort_from_a_second_terminal",
    "upgrade --resume": _UPGRADE + "test_a_stop_waits_for_the_operators_word",
    "upgrade --switch": _UPGRADE + "test_a_switch_is_begun_and_its_rails_are_proven",
    "upgrade --switches": _UPGRADE + "test_the_order_of_switches_is_shown",
    "upgrade --to": _UPGRADE + "test_all_nodes_in_waves_and_then_the_site_file_is_to_name_the_set",
    "validate": _PHASES,
    "validate --again": _CLI + "test_phases.py::test_validate_says_whether_everything_is_measured_anew",
    "calendar": _CALENDAR + "test_items_of_a_day_stand_together",
    "calendar --until": _CALENDAR + "test_items_of_a_day_stand_together",
    "nightly": _NIGHTLY + "test_nodes_are_limited",
    "nightly --check": _NIGHTLY + "test_a_preview_says_what_would_be_measured",
    "nightly --put-back": _NIGHTLY + "test_what_a_killed_night_took_is_put_back_alone",
    "nightly --for --max-share": _NIGHTLY + "test_a_night_tells_each_node_and_ends_with_one_where_one_failed",
    "trend": _TREND + "test_a_regression_is_shown_and_ends_with_one",
    "trend --gate": _TREND + "test_the_document_has_the_readings_of_one_gate",
    "ticket close --reason": _WATCH + "test_tickets_are_listed_shown_and_closed",
    "ticket list": _WATCH + "test_tickets_are_listed_shown_and_closed",
    "ticket show": _WATCH + "test_tickets_are_listed_shown_and_closed",
    "watch": _RACK + "test_watch.py::test_a_watch_that_was_killed_sees_what_happened_meanwhile",
    "watch --once": _WATCH + "test_once_finds_nothing_on_healthy_nodes",
    "watch clear-storm --reason": _WATCH + "test_a_storm_is_shown_and_cleared",
    "worker --label --name": "tests/unit/cli/test_worker.py::test_it_runs_until_it_is_stopped",
    "watch status": _WATCH + "test_status_says_why_nobody_is_watched",
}
"""Command and its options, as ``key`` gives them -> the test that runs them."""

WHERE = {"--env", "--limit", "--node", "--output"}
"""Options that choose the site, the nodes or the form of the output: a test may choose others."""


def key(call: str, groups: frozenset[str]) -> str:
    """Return a call's command and its options in order, without values and without ``WHERE``.

    ``groups``: commands that have commands of their own.
    """
    program, *words = shlex.split(call)
    if program == "make":
        return " ".join([program, *(word for word in words if "=" not in word)])
    name = words[: 2 if words[0] in groups and not words[1].startswith("-") else 1]
    options = sorted({word.partition("=")[0] for word in words if word.startswith("--")} - WHERE)
    return " ".join([*name, *options])


def missing(address: str, words: list[str]) -> list[str]:
    """Return the words that the named test does not have as texts; all of them where there is no such test."""
    file, _, name = address.partition("::")
    texts = _texts(ROOT / file).get(name, set()) if (ROOT / file).is_file() else set()
    return [word for word in words if word not in texts]


@cache
def _texts(path: Path) -> dict[str, set[str]]:
    """Return the words in each test's texts, those of its marks and of the constants that it names included."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            constants[node.targets[0].id] = _words(node.value)
    out: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            names = {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
            out[node.name] = _words(node).union(*(constants[name] for name in names & constants.keys()))
    return out


def _words(tree: ast.AST) -> set[str]:
    """Return the texts of a piece of code."""
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
