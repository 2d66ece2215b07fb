"""What one launch of nccl-tests can show."""

from __future__ import annotations

from rackready.gates.judging import gpu_models
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.nccl import rows as nccl_rows

SAME_LAUNCH = ErrorKind(
    "nccl-same-launch-twice",
    "{program} is launch {twin} once more",
    meaning="Two launches have the same output, so a median of them would be no median.",
    next_step="Give every launch its own output, or run the gate again: one launch "
    "that is counted several times makes no "
    "median.",
)
SLOW_AT = FailKind(
    "nccl-slow-at-size",
    "{what} is slow at {name}",
    meaning="A launch is much slower at another size or in place than at the size that is judged.",
    next_step="Read the table in the report: compare its rows, and look for throttling and jobs beside it.",
)
NO_SETTINGS = ErrorKind(
    "nccl-no-settings",
    "{program} does not say its settings",
    meaning="The output does not say how the program was started, so its figures cannot be compared.",
    next_step="Capture its output from the first line on.",
)
OTHER_SETTINGS = ErrorKind(
    "nccl-other-settings",
    "{program} ran with other settings",
    meaning="The program ran with other settings than the gate asks for.",
    next_step="Run it with the command that `rackready gate show` prints.",
)
SAYS_FAILURE = ErrorKind(
    "nccl-says-failure",
    "{program} contradicts itself",
    meaning="The program printed a whole table and also words of a failure.",
    next_step="Read its raw output in the report and the nodes' kernel logs "
    "(`journalctl -k -g 'Xid|mlx5'`), then run the "
    "gate again.",
)
NCCL_EXIT_CODE = ErrorKind(
    "nccl-exit-code",
    "{program} contradicts itself",
    meaning="The program printed a whole table and still ended with an error.",
    next_step="Read its raw output; unset NCCL_TESTS_MIN_BW.",
)
OTHER_RUN = ErrorKind(
    "nccl-other-run",
    "{program} ran something else",
    meaning="The program ran another collective or other ranks than the gate asks for.",
    next_step="Check that all GPUs are visible (CUDA_VISIBLE_DEVICES is not set), then run the gate again.",
)
SIZES_LEFT_OUT = ErrorKind(
    "nccl-sizes-left-out",
    "{program} ran something else",
    meaning="The program left out sizes, because their buffers did not fit into the GPUs' memory.",
    next_step="Run the gate again on GPUs that nothing else uses (`nvidia-smi`): sizes whose buffers do not fit into "
    "memory are left out.",
)
OTHER_HOSTS = ErrorKind(
    "nccl-other-hosts",
    "{program} ran on other hosts",
    meaning="The ranks did not run on all nodes that should take part.",
    next_step="Check the host list of the launcher (`rackready gate show`), then run the gate again.",
)
LINES_OF_ANOTHER_RUN = ErrorKind(
    "nccl-lines-of-another-run",
    "NCCL INFO lines of another run",
    meaning="The NCCL INFO lines are not of the launch that printed the table.",
    next_step="Take table and NCCL INFO lines of one and the same launch; "
    "/etc/nccl.conf may redirect some of them (NCCL_DEBUG_FILE).",
)
NOT_CHECKED = ErrorKind(
    "nccl-not-checked",
    "results were not checked",
    meaning="The program did not check its results, so corruption would not be seen.",
    next_step="Run with -c 1.",
)
WRONG_RESULTS = FailKind(
    "nccl-wrong-results",
    "wrong results",
    meaning="The collective gave wrong values: a part of the node corrupts data silently.",
    next_step="Data were corrupted: take the node out of service and run DCGM's level 4: "
    "docs/runbooks/silent-data-corruption.md.",
)
TWO_TABLES = ErrorKind(
    "nccl-two-tables",
    "{program} gave no result",
    meaning="The output holds more than one table, so nobody knows which is this launch's.",
    next_step="Give every launch its own output, or run the gate again.",
)
NO_RESULT = ErrorKind(
    "nccl-no-result",
    "{program} gave no result",
    meaning="The program left no whole table; the message says what it or its launcher complained of.",
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
"""What one launch of nccl-tests can show."""
