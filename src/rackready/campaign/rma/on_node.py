"""Collectors that ask the node: its parts and versions, its kernel's log, nvidia-smi, and nvidia-bug-report."""

from __future__ import annotations

import json
import time
from pathlib import Path

from rackready.campaign.rma.gathering import Collector, Desk, NotGatheredError, Took
from rackready.campaign.rma.node_room import copy_all, printed, room, run_in
from rackready.design.facts import node_facts
from rackready.drivers.remote_copy import why
from rackready.gates.engine.shipped_script import command
from rackready.ondevice import fingerprint, node_parts, nvml_inventory, part_inventory

PARTS = "node-parts"
KERNEL = "kernel-log"
BUG_REPORT = "nvidia-bug-report"
SCRIPTS = {"identity": fingerprint, "gpus": nvml_inventory, "parts": node_parts, "inventory": part_inventory}
THIS_BOOT, ALL_BOOTS = "kernel.log", "kernel-all-boots.log"
_JOURNAL = ("journalctl", "--no-pager", "--output=short-iso")
_SCRIPT_S = 120.0
_TOOLS = {
    "slots.txt": ("dmidecode", "--type", "system,baseboard,slot"),
    "nvidia-smi-q.txt": ("nvidia-smi", "-q"),
}
_SAFE = ("--safe-mode", "--extra-system-data")
_REPORT_S, _SAFE_S = 3600.0, 900.0
"""Longest plain and safe run of nvidia-bug-report.sh, s. NVIDIA's GPU debug guidelines: "Allow up to one hour"; if it
hangs, run it with these two options. The safe run's limit is our judgement: it asks the driver next to nothing."""
_NOT_FOUND = 127
_COPY_S = 900.0


def parts(desk: Desk, folder: Path, deadline: float) -> Took:
    """Gather what the node says about its parts and versions: JSON documents of our programs, and two tools."""
    failed = []
    nics = [nic.rdma_device for nic in node_facts(desk.site, desk.node).nics]
    wanted = json.dumps({"modules": nics, "programs": [], "libraries": []})
    for name, script in SCRIPTS.items():
        given = [wanted] if script is node_parts else []
        asked = command(name, desk.node, script, *given, timeout_s=_SCRIPT_S)
        answer = desk.runner.run(desk.node, asked.argv, stdin=asked.stdin, timeout_s=_SCRIPT_S)
        (folder / f"{name}.json").write_text(answer.stdout, encoding="utf-8")
        failed += [f"{name}: {why(answer)}"] if answer.exit_code != 0 else []
    for name, argv in _TOOLS.items():
        try:
            printed(desk, argv, folder / name, deadline, timeout_s=_SCRIPT_S)
        except NotGatheredError as error:
            failed.append(str(error))
    if len(failed) == len(SCRIPTS) + len(_TOOLS):
        raise NotGatheredError("; ".join(failed))
    return Took(f"not all of it: {'; '.join(failed)}" if failed else "", {"failed": failed})


def kernel_log(desk: Desk, folder: Path, deadline: float) -> Took:
    """Gather the kernel's messages of this boot, and of all boots that the journal has."""
    third, notes = (deadline - time.monotonic()) / 3, []
    try:
        printed(desk, [*_JOURNAL, "--dmesg", "--boot"], folder / THIS_BOOT, deadline, timeout_s=third)
    except NotGatheredError as error:
        printed(desk, ["dmesg", "--time-format=iso"], folder / THIS_BOOT, deadline, timeout_s=third)
        notes.append(f"by dmesg: {error}")
    try:  # --dmesg means this boot alone on older releases of systemd: its match does not
        printed(desk, [*_JOURNAL, "--quiet", "_TRANSPORT=kernel"], folder / ALL_BOOTS, deadline, timeout_s=third)
    except NotGatheredError as error:
        notes.append(f"of this boot alone: {error}")
    return Took("; ".join(notes))


def bug_report(desk: Desk, folder: Path, deadline: float) -> Took:
    """Gather NVIDIA's report. A run that hangs is ended, its file kept, and the safe run follows."""
    note = ""
    with room(desk) as path:
        limit = max(60.0, deadline - time.monotonic() - _SAFE_S - _COPY_S)
        answer = _report(desk, path, "nvidia-bug-report", (), min(limit, _REPORT_S))
        if answer == _NOT_FOUND:
            raise NotGatheredError("nvidia-bug-report.sh is not on the node: it comes with the driver")
        if hung := answer is None:
            note = f"the plain run did not end within {min(limit, _REPORT_S):.0f} s; run again with {' '.join(_SAFE)}"
            answer = _report(desk, path, "nvidia-bug-report-safe", _SAFE, _SAFE_S)
        names = copy_all(desk, path, ["*.log", "*.log.gz", "*.out"], folder, deadline)
    if not any(".log" in name for name in names):
        raise NotGatheredError(f"nvidia-bug-report.sh wrote no report: exit code {answer}")
    if answer is None:
        note += "; the safe run did not end either: power-cycle the node, then run this again"
    elif answer != 0:
        note = f"{note}; exit code {answer}" if note else f"exit code {answer}"
    return Took(note, {"exit_code": answer, "safe": hung})


def _report(desk: Desk, path: str, name: str, options: tuple[str, ...], timeout_s: float) -> int | None:
    """Run the script and return its exit code, None when it did not end in time."""
    argv = ["nvidia-bug-report.sh", *options, "--output-file", f"{path}/{name}.log"]
    answer = run_in(desk, path, argv, f"{path}/{name}.out", timeout_s=timeout_s)
    if answer.failure:
        raise NotGatheredError(answer.failure)
    return None if answer.timed_out else answer.exit_code


COLLECTORS = (
    Collector(PARTS, "node", "serials, slots, firmware and driver versions as the node tells them", 1200.0, parts),
    Collector(
        KERNEL, "node", "messages of its kernel: of this boot, and of all boots in the journal", 600.0, kernel_log
    ),
    Collector(
        BUG_REPORT,
        "node",
        "nvidia-bug-report.sh; if it hangs, again with --safe-mode --extra-system-data",
        _REPORT_S + _SAFE_S + _COPY_S,
        bug_report,
    ),
)
