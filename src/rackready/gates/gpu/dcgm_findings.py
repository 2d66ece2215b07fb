"""Findings of DCGM's diagnostic: node/gpu/validation/dcgm-r1 to -r4, and the loads that use it."""

from __future__ import annotations

from rackready.gates.gpu import parts
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind

DIAG_UNREADABLE = ErrorKind(
    "dcgm-diag-unreadable",
    "DCGM diagnostic unreadable",
    meaning="DCGM's diagnostic left no complete report, so nothing was measured.",
    next_step="Check that nvidia-dcgm runs and that `dcgmi -v` works, then run the gate again.",
)
DIAG_DID_NOT_RUN = ErrorKind(
    "dcgm-diag-did-not-run",
    "DCGM diagnostic did not run",
    meaning="DCGM did not run its diagnostic, and reports why.",
    next_step="Check `systemctl status nvidia-dcgm` and that no job holds the GPUs, then run the gate again.",
)
DIAG_TELLS_TOO_LITTLE = ErrorKind(
    "dcgm-diag-tells-too-little",
    "DCGM diagnostic reports too little",
    meaning="The report lacks facts that a pass needs: the GPUs, their serial numbers or the severity of warnings.",
    next_step="Update DCGM (`dcgmi -v` shows its version), then run the gate again.",
)
DIAG_GPUS_MISSING = FailKind(
    "dcgm-diag-gpus-missing",
    "GPUs in the diagnostic",
    meaning="The diagnostic ran on fewer GPUs than the platform has.",
    next_step="See gate node/gpu/sanity/inventory: a GPU is missing or inactive.",
)
DIAG_GPUS_MORE = FailKind(
    "dcgm-diag-gpus-too-many",
    "GPUs in the diagnostic",
    meaning="The diagnostic lists more GPUs than the platform has.",
    next_step=parts.MORE,
)
DIAG_GPUS_OTHER = FailKind(
    "dcgm-diag-gpus-other",
    "GPUs in the diagnostic",
    meaning="The diagnostic numbers the GPUs in a way that does not fit the platform.",
    next_step="Run `dcgmi discovery -l`: it shows how DCGM numbers the GPUs.",
)
DIAG_MEASURED_NOTHING = ErrorKind(
    "dcgm-diag-measured-nothing",
    "DCGM diagnostic measured nothing",
    meaning="The site skips every test of the diagnostic, so nothing was measured.",
    next_step="Remove a test from `skips`, or skip the whole gate with a reason (site.yml gates.skip).",
)
DIAG_TEST_DID_NOT_RUN = ErrorKind(
    "dcgm-diag-test-did-not-run",
    "DCGM test {test} did not run",
    meaning="A test of the diagnostic has no result for some GPUs.",
    next_step="Install DCGM's plugins for the CUDA in use. "
    "Declare a test that cannot run here under the gate's input `skips`.",
)
DIAG_TEST_SKIPPED = ErrorKind(
    "dcgm-diag-test-skipped",
    "DCGM test {test} was skipped",
    meaning="DCGM skipped a test that the site does not skip.",
    next_step="Declare the skip with a reason under the gate's input `skips`, or make the test runnable.",
)
DIAG_TEST_FAILED = FailKind(
    "dcgm-diag-test-failed",
    "DCGM test {test}",
    meaning="A test of the diagnostic failed on this part.",
    next_step="{step}",
)
DIAG_TEST_CONTRADICTS = ErrorKind(
    "dcgm-diag-test-contradicts",
    "DCGM test {test} contradicts itself",
    meaning="DCGM reports that a test passed and warns of a failure in it.",
    next_step="{step}",
)
DIAG_EXIT_CODE = ErrorKind(
    "dcgm-diag-exit-code",
    "DCGM contradicts itself",
    meaning="DCGM reports passes only and still ended with an error.",
    next_step="Run `dcgmi diag` by hand on the node and read its log (nvvs.log).",
)
DIAG_OTHER_MODEL = ErrorKind(
    "dcgm-diag-other-model",
    "DCGM ran on GPUs of another model",
    meaning="The diagnostic ran on GPUs of another model than the platform's, so the output is of another node.",
    next_step="Check that the output is this node's, and that the site file names the right platform; "
    "`nvidia-smi -L` names the GPUs.",
)
DIAG_GPUS_NOT_TOLD_APART = ErrorKind(
    "dcgm-diag-gpus-not-told-apart",
    "DCGM's GPUs cannot be told apart",
    meaning="The diagnostic lists one serial number for several GPUs, so its results cannot be assigned to them.",
    next_step="Check that the output is this node's, and that the site file names the right platform; "
    "`nvidia-smi -L` names the GPUs.",
)

FINDINGS = (
    DIAG_UNREADABLE,
    DIAG_DID_NOT_RUN,
    DIAG_TELLS_TOO_LITTLE,
    DIAG_GPUS_MISSING,
    DIAG_GPUS_MORE,
    DIAG_GPUS_OTHER,
    DIAG_MEASURED_NOTHING,
    DIAG_TEST_DID_NOT_RUN,
    DIAG_TEST_SKIPPED,
    DIAG_TEST_FAILED,
    DIAG_TEST_CONTRADICTS,
    DIAG_EXIT_CODE,
    DIAG_OTHER_MODEL,
    DIAG_GPUS_NOT_TOLD_APART,
)
