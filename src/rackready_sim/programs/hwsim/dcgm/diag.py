"""dcgmi diag: run the plugins of a level and print their results, as JSON of DCGM 4 or as a table."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from .. import machine, store
from ..host.strain import strain
from ..machine import Gpu
from . import findings
from .findings import Check, Warning_

_PLUGINS: dict[str, tuple[str, int, Check]] = {
    "software": ("Deployment", 1, findings.software),
    "memory": ("Hardware", 2, findings.memory),
    "diagnostic": ("Hardware", 3, findings.diagnostic),
    "pulse_test": ("Hardware", 4, findings.diagnostic),
    "nvbandwidth": ("Hardware", 3, findings.quiet),
    "pcie": ("Integration", 2, findings.pcie),
    "memory_bandwidth": ("Stress", 3, findings.memory_bandwidth),
    "memtest": ("Stress", 4, findings.memory),
    "targeted_stress": ("Stress", 3, findings.targeted_stress),
    "targeted_power": ("Stress", 3, findings.targeted_power),
}
_NVBANDWIDTH_IDS = frozenset({"2321", "2330", "2335", "26b9", "2941", "2bb5", "3182", "31c2"})
"""PCI device ids whose entry in nvvs/diag-skus.yaml.in (NVIDIA/DCGM 4.6.0) allows nvbandwidth.

On other GPUs its plugin skips it (nvvs/plugin_src/nvbandwidth/NVBandwidthPlugin.cpp, Go), and the result has no reason,
which goes to the log only (PluginTest::AddInfo in nvvs/src/PluginTest.cpp).
"""
_NO_PULSE_IDS = frozenset({"20f1", "20b5"})
"""PCI device ids whose entry in that file has no pulse_test: it is skipped in the same way."""
_ORDER = ("Deployment", "Integration", "Hardware", "Stress")
_LEVELS = {"1": 1, "quick": 1, "short": 1, "2": 2, "medium": 2, "3": 3, "long": 3, "4": 4, "xlong": 4}
_SECONDS = {1: 0.2, 2: 0.5, 3: 1.0, 4: 2.0}
"""Duration of a level, s.

It is far shorter than on hardware, but long enough that a stop or a kill interrupts it. Plugins with a requested
duration take that time, as on hardware, because the caller checks it.
"""
_BAD_PARAMETER, _NVVS_ERROR, _ISOLATE_ERROR = 255, 226, 205
_VALUED = {
    "-r",
    "--run",
    "-i",
    "--entity-id",
    "-g",
    "--group",
    "-p",
    "--parameters",
    "-c",
    "--configfile",
    "-n",
    "--expectedNumEntities",
    "-t",
    "--timeout",
}
_VALUED |= {
    "--iterations",
    "--check-interval",
    "--ignoreErrorCodes",
    "--clocksevent-mask",
    "--throttle-mask",
    "--statspath",
    "--host",
    "-d",
    "--debugLevel",
}
_VALUED |= {"--debugLogFile", "--watchFrequency"}

Results = dict[str, dict[int, list[Warning_]] | None]


def main(argv: list[str], version: str) -> int:
    """Run a diagnostic; the exit code is DCGM's return code modulo 256."""
    options = _options(argv)
    as_json = "-j" in options or "--json" in options
    tests = _tests(options.get("-r") or options.get("--run") or "")
    if isinstance(tests, str):
        return _broken(tests, as_json, version, _BAD_PARAMETER)
    gpus = _chosen(options)
    if not gpus:
        return _broken(
            "Unable to run diagnostic: no GPU is visible to the host engine (No data is available).",
            as_json,
            version,
            206,
        )
    expected = options.get("-n") or options.get("--expectedNumEntities")
    if expected and expected.startswith("gpu:") and int(expected[4:]) != len(gpus):
        return _broken(
            f"Error: the expected number of GPUs is {expected[4:]}, but {len(gpus)} active GPUs were found.",
            as_json,
            version,
            _NVVS_ERROR,
        )
    seconds = _SECONDS[max(_PLUGINS[test][1] for test in tests)]
    if tests != ["software"]:
        seconds += _asked(options.get("-p") or options.get("--parameters") or "")
        machine.load(gpus, seconds, seconds)
    time.sleep(seconds)
    strain()
    results = run(tests, gpus)
    sys.stdout.write(render_json(results, gpus, version) if as_json else render_text(results, gpus, version))
    return _code(results)


def run(tests: list[str], gpus: list[Gpu]) -> Results:
    """Run the plugins in order; a value of None is skipped.

    After software problems the others do not run; nvbandwidth runs on the models that DCGM lists for it.
    """
    results: Results = {}
    blocked = False
    for test in tests:
        if blocked or _not_allowed(test, gpus):
            results[test] = None
            continue
        check = _PLUGINS[test][2]
        results[test] = {gpu.index: check(gpu) + (findings.watched(gpu) if test != "software" else []) for gpu in gpus}
        blocked = test == "software" and any((results[test] or {}).values())
    return results


def _not_allowed(test: str, gpus: list[Gpu]) -> bool:
    ids = {_device_id(gpu) for gpu in gpus}
    return (test == "nvbandwidth" and not ids <= _NVBANDWIDTH_IDS) or (
        test == "pulse_test" and bool(ids & _NO_PULSE_IDS)
    )


def _device_id(gpu: Gpu) -> str:
    return str(gpu.part["device_id"])[2:6].lower()


def _code(results: Results) -> int:
    by_gpu = [rows for found in results.values() for rows in (found or {}).values()]
    warnings = [warning for rows in by_gpu for warning in rows]
    if any(warning.severity == findings.ISOLATE for warning in warnings):
        return _ISOLATE_ERROR
    return _NVVS_ERROR if warnings else 0


def _options(argv: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    queue = list(argv)
    while queue:
        name, _, value = queue.pop(0).partition("=")
        found[name] = value or (queue.pop(0) if name in _VALUED and queue else "")
    return found


def _asked(parameters: str) -> float:
    """Return the seconds that the plugins were asked to run, one after the other."""
    return sum(float(item.split("=", 1)[1]) for item in parameters.split(";") if ".test_duration=" in item)


def _tests(wanted: str) -> list[str] | str:
    if not wanted:
        return "Error: the -r option is required."
    if wanted in _LEVELS:
        return [test for test, (_, level, _check) in _PLUGINS.items() if level <= _LEVELS[wanted]]
    tests = [item.strip().lower().replace(" ", "_") for item in wanted.split(",")]
    bad = next((test for test in tests if test not in _PLUGINS), None)
    if bad:
        return f"Error: requested test '{bad}' was not found among possible test choices."
    return tests if "software" in tests else ["software", *tests]


def _chosen(options: dict[str, str]) -> list[Gpu]:
    engine = store.runtime().get("dcgm", {})
    seen = [gpu for gpu in machine.gpus() if gpu.part["uuid"] in engine.get("gpus", []) and not gpu.lost]
    wanted = options.get("-i") or options.get("--entity-id")
    if not wanted or "*" in wanted:
        return seen
    names = {item.split(":")[-1].strip() for item in wanted.split(",")}
    return [gpu for gpu in seen if str(gpu.index) in names]


def _broken(text: str, as_json: bool, version: str, code: int) -> int:  # noqa: FBT001
    if as_json:
        sys.stdout.write(json.dumps({"DCGM Diagnostic": {"version": version, "runtime_error": text}}, indent=4) + "\n")
    else:
        sys.stdout.write(f"{text}\n")
    return code


def render_json(results: Results, gpus: list[Gpu], version: str) -> str:
    """Return the document that ``dcgmi diag -j`` prints."""
    categories = []
    for category in _ORDER:
        tests = [_test(test, found, gpus) for test, found in results.items() if _PLUGINS[test][0] == category]
        if tests:
            categories.append({"category": category, "tests": tests})
    entities = [
        {"device_id": _device_id(gpu), "entity_id": gpu.index, "serial_num": gpu.part["serial"]} for gpu in gpus
    ]
    document = {
        "DCGM Diagnostic": {"test_categories": categories},
        "entity_groups": [{"entities": entities, "entity_group": "GPU", "entity_group_id": 1}],
        "metadata": {"Driver Version Detected": machine.driver_version() or "", "version": version},
    }
    return json.dumps(document, indent=4) + "\n"


def _test(test: str, found: dict[int, list[Warning_]] | None, gpus: list[Gpu]) -> dict[str, Any]:
    rows = []
    for gpu in gpus:
        warnings = (found or {}).get(gpu.index, [])
        row: dict[str, Any] = {
            "entity_group": "GPU",
            "entity_group_id": 1,
            "entity_id": gpu.index,
            "status": _status(found, warnings),
        }
        if warnings:
            row["warnings"] = [
                {
                    "error_category": item.category,
                    "error_id": item.error,
                    "error_severity": item.severity,
                    "warning": item.text,
                }
                for item in warnings
            ]
        rows.append(row)
    return {
        "name": test,
        "results": rows,
        "test_summary": {"status": _status(found, [item for items in (found or {}).values() for item in items])},
    }


def _status(found: dict[int, list[Warning_]] | None, warnings: list[Warning_]) -> str:
    return "Skip" if found is None else "Fail" if warnings else "Pass"


def render_text(results: Results, gpus: list[Gpu], version: str) -> str:
    """Return the table that ``dcgmi diag`` prints."""
    rule = f"+{'-' * 27}+{'-' * 48}+"
    lines = ["Successfully ran diagnostic for group.", rule, _row("Diagnostic", "Result"), f"+{'=' * 27}+{'=' * 48}+"]
    ids = ", ".join(_device_id(gpu) for gpu in gpus)
    lines += [
        _head("Metadata"),
        _row("DCGM Version", version),
        _row("Driver Version Detected", machine.driver_version() or ""),
        *_wrapped("GPU Device IDs Detected", ids),
    ]
    for category in _ORDER:
        tests = {test: found for test, found in results.items() if _PLUGINS[test][0] == category}
        if tests:
            lines.append(_head(category))
        for test, found in tests.items():
            lines += _test_rows(test, found, gpus)
    return "\n".join([*lines, rule]) + "\n"


def _test_rows(test: str, found: dict[int, list[Warning_]] | None, gpus: list[Gpu]) -> list[str]:
    lines = [_row(test, _status(found, [item for items in (found or {}).values() for item in items]))]
    for gpu in gpus:
        warnings = (found or {}).get(gpu.index, [])
        lines.append(_row("", f"GPU{gpu.index}: {_status(found, warnings)}"))
        for item in warnings:
            lines += _wrapped(f"Warning: GPU{gpu.index}", item.text)
    return lines


def _head(text: str) -> str:
    return f"|-----  {text}  ".ljust(28, "-") + f"+{'-' * 48}|"


def _row(left: str, right: str) -> str:
    return f"| {left:<25} | {right:<46} |"


def _wrapped(left: str, text: str) -> list[str]:
    pieces = [text[at : at + 46] for at in range(0, len(text), 46)] or [""]
    return [_row(left if at == 0 else "", piece) for at, piece in enumerate(pieces)]
