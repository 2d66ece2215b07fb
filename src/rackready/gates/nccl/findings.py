"""Findings of one launch of nccl-tests."""

from __future__ import annotations

from rackready.gates.judging import gpu_models
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.nccl import rows as nccl_rows

SAME_LAUNCH = ErrorKind(
    "nccl-same-launch-twice",
    "{program} is launch {twin} again",
    meaning="Two launches have the same output, so they count as one and there is no median.",
    next_step="Give each launch its own output, or run the gate again.",
)
SLOW_AT = FailKind(
    "nccl-slow-at-size",
    "{what} is slow at {name}",
    meaning="A launch is much slower at another size or in place than at the judged size.",
    next_step="Compare the rows of the table in the report, and look for throttling and other jobs.",
)
NO_SETTINGS = ErrorKind(
    "nccl-no-settings",
    "{program} does not print its settings",
    meaning="The output does not show the program's settings, so its figures cannot be compared.",
    next_step="Capture its output from the first line on.",
)
OTHER_SETTINGS = ErrorKind(
    "nccl-other-settings",
    "{program} ran with other settings",
    meaning="The program ran with other settings than the gate requires.",
    next_step="Run it with the command that `rackready gate show` prints.",
)
SAYS_FAILURE = ErrorKind(
    "nccl-says-failure",
    "{program} contradicts itself",
    meaning="The program printed a complete table, but also an error message.",
    next_step="Read its raw output in the report and the nodes' kernel logs (`journalctl -k -g 'Xid|mlx5'`), then run "
    "the gate again.",
)
NCCL_EXIT_CODE = ErrorKind(
    "nccl-exit-code",
    "{program} contradicts itself",
    meaning="The program printed a complete table, but exited with an error.",
    next_step="Read its raw output; unset NCCL_TESTS_MIN_BW.",
)
OTHER_RUN = ErrorKind(
    "nccl-other-run",
    "{program} ran something else",
    meaning="The program ran another collective or other ranks than the gate requires.",
    next_step="Check that all GPUs are visible (CUDA_VISIBLE_DEVICES is not set), then run the gate again.",
)
SIZES_LEFT_OUT = ErrorKind(
    "nccl-sizes-left-out",
    "{program} ran something else",
    meaning="The program skipped sizes whose buffers did not fit into the GPUs' memory.",
    next_step="Run the gate again on GPUs that nothing else uses (`nvidia-smi`): nccl-tests skips sizes whose buffers "
    "do not fit into memory.",
)
OTHER_HOSTS = ErrorKind(
    "nccl-other-hosts",
    "{program} ran on other hosts",
    meaning="The ranks did not run on all requested nodes.",
    next_step="Check the host list of the launcher (`rackready gate show`), then run the gate again.",
)
LINES_OF_ANOTHER_RUN = ErrorKind(
    "nccl-lines-of-another-run",
    "NCCL INFO lines of another run",
    meaning="The NCCL INFO lines are not from the launch that printed the table.",
    next_step="Give the table and NCCL INFO lines of the same launch; "
    "/etc/nccl.conf may redirect some of them (NCCL_DEBUG_FILE).",
)
NOT_CHECKED = ErrorKind(
    "nccl-not-checked",
    "results were not checked",
    meaning="The program did not check its results, so data corruption would go unnoticed.",
    next_step="Run with -c 1.",
)
WRONG_RESULTS = FailKind(
    "nccl-wrong-results",
    "wrong results",
    meaning="The collective returned wrong values: a part of the node silently corrupts data.",
    next_step="Data were corrupted. Take the node out of service and run DCGM level 4: "
    "docs/runbooks/silent-data-corruption.md.",
    runbook="docs/runbooks/silent-data-corruption.md",
)
TWO_TABLES = ErrorKind(
    "nccl-two-tables",
    "{program} gave no result",
    meaning="The output contains several tables, so it is unknown which one is from this launch.",
    next_step="Give each launch its own output, or run the gate again.",
)
NO_RESULT = ErrorKind(
    "nccl-no-result",
    "{program} gave no result",
    meaning="The program printed no complete table; the message shows its error or its launcher's.",
    next_step="Read its raw output in the report; check that nccl-tests and libnccl2 "
    "are installed and the GPUs are free.",
)

FINDINGS = (
    *gpu_models.FINDINGS,
    *nccl_rows.FINDINGS,
    SAME_LAUNCH,
    SLOW_AT,
    NO_SETTINGS,
    OTHER_SETTINGS,
    SAYS_FAILURE,
    NCCL_EXIT_CODE,
    OTHER_RUN,
    SIZES_LEFT_OUT,
    OTHER_HOSTS,
    LINES_OF_ANOTHER_RUN,
    NOT_CHECKED,
    WRONG_RESULTS,
    TWO_TABLES,
    NO_RESULT,
)
"""Every kind of finding of one launch of nccl-tests."""
