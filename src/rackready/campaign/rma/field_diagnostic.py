"""The vendor's field diagnostic, as the operator supplies it: run on the drained node, read as NVIDIA documents it.

NVIDIA, "The NVIDIA Field Diagnostic Software" (docs.nvidia.com/deploy/hw-field-diag), 2.3 Return Codes: 0 and PASS when
the hardware passes, 1 and FAIL when it failed, 2 and RETEST when the set-up failed its pre-check.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

from rackready.campaign.rma.case import digest
from rackready.campaign.rma.gathering import Collector, Desk, NotGatheredError, Took
from rackready.campaign.rma.node_room import copy_all, room, run_in
from rackready.drivers.remote_copy import send, why
from rackready.model.rma import FieldDiagnostic

NAME = "field-diagnostic"
WORDS = {0: "PASS", 1: "FAIL", 2: "RETEST"}
UNCLEAR = "UNCLEAR"
_SAID = re.compile(r"(?<![\w-])(PASS|FAIL|RETEST)(?![\w-])")
_OUTPUT = "field-diagnostic.out"
_COPY_S = 1800.0
"""Time for copies there and back, s. Judgement: diagnostics are some GiB."""
_NOT_FOUND = (126, 127)
_TAIL = 65536


def gather(desk: Desk, folder: Path, deadline: float) -> Took:
    """Run the diagnostic and gather its logs. Its verdict is in the facts, also when it did not end."""
    wanted = desk.site.rma.field_diagnostic
    if wanted is None:
        raise NotGatheredError("the site names none (rma.field_diagnostic)")
    archive = Path(wanted.archive)
    found = digest(archive)
    if found != wanted.sha256:
        raise NotGatheredError(archive, expected=f"sha256 {wanted.sha256}", actual=found)
    with room(desk) as path:
        place = _unpacked(desk, archive, path, deadline)
        output = f"{path}/{_OUTPUT}"
        answer = run_in(desk, place, wanted.command, output, timeout_s=min(wanted.timeout_s, _left(deadline)))
        if answer.failure and not answer.reached:
            raise NotGatheredError(answer.failure)
        unread = _copied(desk, path, [_OUTPUT], folder, deadline)
        lost = unread or _copied(desk, place, wanted.logs, folder / "logs", deadline)
    text = _end_of(folder / _OUTPUT)
    if answer.exit_code in _NOT_FOUND:
        said = text.strip().splitlines()
        raise NotGatheredError(f"{wanted.command[0]} could not be started: {said[-1] if said else answer.exit_code}")
    verdict, why_so = judged(answer.exit_code, text)
    if answer.failure:
        verdict, why_so = UNCLEAR, answer.failure
    elif unread:
        verdict = UNCLEAR if answer.exit_code == 0 else verdict
        why_so = "it did not end within its time limit" if answer.timed_out else f"exit code {answer.exit_code}"
        why_so = f"{why_so}; what it printed was not copied: {unread}"
    facts = {"verdict": verdict, "exit_code": answer.exit_code, "command": wanted.command, "sha256": found}
    facts |= {"why": why_so, "archive": archive.name}
    if answer.failure:  # the node may have died of it: the next run tries again, and this one does not say "not run"
        refused = NotGatheredError(f"it was started, and then {answer.failure}")
        refused.facts = facts
        raise refused
    return Took(f"{verdict}: {why_so}{f'; logs not copied: {lost}' if lost and not unread else ''}", facts)


def _copied(desk: Desk, folder: str, patterns: Sequence[str], target: Path, deadline: float) -> str:
    """Copy files of the node and return why not all were copied. Hours of a run are not lost with its logs."""
    try:
        copy_all(desk, folder, patterns, target, deadline)
    except NotGatheredError as error:
        return " ".join(str(error).split())
    return ""


def _end_of(path: Path) -> str:
    """Return the last of what it printed, "" when that was not copied."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        return file.read().decode("utf-8", "replace")


def judged(exit_code: int | None, text: str) -> tuple[str, str]:
    """Return the verdict (PASS, FAIL, RETEST or UNCLEAR) and why. Code and printed word must not contradict."""
    said = _SAID.findall(text[-_TAIL:])
    word = said[-1] if said else ""
    if exit_code is None:
        return UNCLEAR, "it did not end within its time limit"
    if exit_code not in WORDS:
        return UNCLEAR, f"exit code {exit_code}, and NVIDIA documents 0, 1 and 2"
    if not word:
        return WORDS[exit_code], f"exit code {exit_code}; it printed none of PASS, FAIL, RETEST"
    if word != WORDS[exit_code]:
        return UNCLEAR, f"it printed {word} and ended with exit code {exit_code}"
    return word, f"exit code {exit_code}, and it printed {word}"


def limit_s(wanted: FieldDiagnostic | None) -> float:
    """Return the longest time that it takes with all copies, s."""
    return (wanted.timeout_s if wanted else 0) + _COPY_S


def collector(wanted: FieldDiagnostic | None) -> Collector:
    """Return the collector."""
    return Collector(NAME, "node", "the vendor's field diagnostic, and its logs", limit_s(wanted), gather)


def _left(deadline: float) -> float:
    return max(1.0, deadline - time.monotonic())


def _unpacked(desk: Desk, archive: Path, path: str, deadline: float) -> str:
    """Copy the archive to the node, unpack it, and return the folder: its only one, if it has just one."""
    send(desk.runner, desk.node, archive, f"{path}/archive", deadline=deadline)
    script = 'mkdir "$0/unpacked" && tar -xf "$0/archive" -C "$0/unpacked" --no-same-owner && rm "$0/archive"'
    answer = desk.ask(["sh", "-c", script, path], timeout_s=_left(deadline))
    if answer.exit_code != 0:
        raise NotGatheredError(f"{archive} could not be unpacked: {why(answer)}")
    inside = desk.ask(["find", f"{path}/unpacked", "-mindepth", "1", "-maxdepth", "1", "-printf", "%y %f\\n"])
    entries = inside.stdout.splitlines()
    only = entries[0].partition(" ")[2] if len(entries) == 1 and entries[0].startswith("d ") else ""
    return f"{path}/unpacked/{only}" if only else f"{path}/unpacked"
