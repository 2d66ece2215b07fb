"""Names and results of DCGM's tests, which differ between DCGM 3 and 4."""

from __future__ import annotations

from functools import lru_cache

from rackready.gates.formats import dcgm_diag

SOFTWARE_3 = (
    "denylist",
    "nvml_library",
    "cuda_main_library",
    "permissions_and_os_blocks",
    "persistence_mode",
    "environment_variables",
    "page_retirement/row_remap",
    "graphics_processes",
    "inforom",
)
"""Tests that DCGM 3.x runs in place of 4.x's `software`.

Source: levelOneTests in dcgmi/Diag.cpp, v3.0.4 to v3.3.9, without those of the CUDA toolkit, which it leaves out.
"""

_ALIASES_3 = {"gpu_memory": "memory", "eud_test": "eud"}
"""Names of DCGM 3.x (HelperGetTestName in dcgmi/Diag.cpp) -> those of 4.x, if more than the spelling differs."""

EUD = "eud"
NVBANDWIDTH = "nvbandwidth"
PULSE = "pulse_test"

# fmt: off
_NVBANDWIDTH_IDS = frozenset({
    "20bd", "230c", "230e", "2321", "2328", "2329", "232c", "2330", "2335", "233a", "233b", "2342",
    "2345", "2348", "237f", "26b7", "26b9", "26ba", "26bb", "27b6", "28b0", "2909", "2941", "29bb",
    "2bb3", "2bb4", "2bb5", "2bb9", "2c3a", "3021", "3182", "31a1", "31c2",
})
# fmt: on
"""PCI device ids for which DCGM runs nvbandwidth, in all their variants.

It runs nowhere else: is_allowed is False unless the id's entry sets it (nvbandwidth/NVBandwidthPlugin.cpp).
2901 (B200) and 2920 have it for some subsystem ids only, which the report does not show.

Source: NVIDIA/DCGM nvvs/diag-skus.yaml.in, 4.6.0.
"""

_NO_PULSE_IDS = frozenset({"20f1", "20b5"})
"""PCI device ids whose entry has no pulse_test: A100 PCIe with 40 and 80 GB. DCGM runs it there only when asked to.

Source: NVIDIA/DCGM nvvs/diag-skus.yaml.in, 4.6.0.
"""


@lru_cache(maxsize=256)
def canonical_name(test: str) -> str:
    """Return a test's name as DCGM 4.x writes it: 'targeted_stress' for 'Targeted Stress' of 3.x."""
    name = test.strip().lower().replace(" ", "_")
    return _ALIASES_3.get(name, name)


def gpus_with_result(
    diagnostic: dcgm_diag.Diagnostic, test: str, wanted: set[int], statuses: set[str] | None = None
) -> set[int]:
    """Return the GPUs with a result of a test; for DCGM 3.x's `software`, those with a result of each of its parts."""
    if test == "software" and _software_is_split(diagnostic):
        return set.intersection(wanted, *(gpus_with_result(diagnostic, part, wanted, statuses) for part in SOFTWARE_3))
    found = [result for result in diagnostic.results if canonical_name(result.test) == test]
    # 3.x gives one result for the node, with the number of the last GPU that it warns of
    if len(found) == 1 and test in SOFTWARE_3:
        return wanted if statuses is None or found[0].status in statuses else set()
    return {
        result.gpu for result in found if result.gpu is not None and (statuses is None or result.status in statuses)
    }


def is_disabled(result: dcgm_diag.Result, device_id: str) -> bool:
    """Return whether DCGM skipped a test because it has no settings of it for this GPU.

    Levels 3 and 4 always list nvbandwidth, level 4 pulse_test (FillTestVectors in nvvs/src/NvidiaValidationSuite.cpp).
    If one is not allowed, the result is a Skip without a word: the plugin's reason goes to the log only
    (PluginTest::AddInfo). A GPU that DCGM leaves out for its state has a reason in its result.
    """
    test = canonical_name(result.test)
    runs_nowhere = (test == NVBANDWIDTH and device_id not in _NVBANDWIDTH_IDS) or (
        test == PULSE and device_id in _NO_PULSE_IDS
    )
    return runs_nowhere and result.status == "Skip" and not result.info and not result.warnings


def _software_is_split(diagnostic: dcgm_diag.Diagnostic) -> bool:
    """Return whether `software` is split into the tests of the category Deployment, as in DCGM 3.x."""
    return any(
        result.category == "Deployment" and canonical_name(result.test) != "software" for result in diagnostic.results
    )


def absent_software(diagnostic: dcgm_diag.Diagnostic) -> list[str]:
    """Return the parts of DCGM 3.x's `software` that the result lacks."""
    there = {canonical_name(result.test) for result in diagnostic.results}
    return [part for part in SOFTWARE_3 if part not in there] if _software_is_split(diagnostic) else []


def eud_installed(diagnostic: dcgm_diag.Diagnostic) -> bool:
    """Return whether EUD is installed: the document's head has its version, or a result other than Skip."""
    return bool(diagnostic.eud) or any(
        canonical_name(result.test) == EUD and result.status != "Skip" for result in diagnostic.results
    )


def eud_note(diagnostic: dcgm_diag.Diagnostic, wanted: set[int]) -> str:
    """Return the note on EUD, a package that the operator installs per driver branch.

    Only its results show that it ran, not the version in the document's head.
    """
    version = f" {diagnostic.eud}" if diagnostic.eud else ""
    ran = gpus_with_result(diagnostic, EUD, wanted, {"Pass", "Fail", "Warn"})
    if ran == wanted:
        return f"EUD{version} ran with it"
    if ran:
        return f"EUD{version} ran with it on {', '.join(f'gpu{gpu}' for gpu in sorted(ran))} only"
    if version:
        return f"EUD{version} is installed on this node, and did not run"
    return "EUD (extended utility diagnostic) did not run: not installed on this node, or DCGM does not run as root"
