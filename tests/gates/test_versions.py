"""Versions agree with the version set and with each other."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from rackready.gates.engine.registry import gate
from rackready.gates.host.versions import wanted_packages
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome
from tests.gates.captured import evaluate
from tests.gates.support import Case, Said, Told, check, document, text

GATE = "node/gpu/sanity/versions"


def changed(change: Callable[[dict[str, Any]], object]) -> Said:
    found = copy.deepcopy(document("versions/dgx_h100_healthy.json"))
    change(found)
    return Said(json.dumps(found))


def one(name: str, said: Said, outcome: Outcome, *findings: Told) -> Case:
    return Case(name, {"versions": said}, outcome, findings)


CASES = [
    one("healthy", Said(text("versions/dgx_h100_healthy.json")), Outcome.PASS),
    one(
        "older fabric manager",
        Said(text("versions/dgx_h100_fabric_manager_older.json")),
        Outcome.FAIL,
        ("fabric-manager-version", "node01", "580.173.02", "580.126.09"),
        ("package-version", "node01", "580.173.02-1", "580.126.09-1", "name=nvidia-fabricmanager"),
    ),
    one(
        "old module still loaded",
        changed(lambda found: found.update(driver_module="570.133.20")),
        Outcome.FAIL,
        ("driver-module-version", "node01", "580.173.02", "570.133.20"),
    ),
    one(
        "NVML says no",
        changed(lambda found: found.update(nvml={"error": "NVML: Driver/library version mismatch"})),
        Outcome.ERROR,
        ("versions-nvml-cannot-be-asked", "node01", "an answer", "NVML: Driver/library version mismatch"),
    ),
    one(
        "driver too old for the toolkit",
        changed(lambda found: found["nvml"].update(cuda="12.8")),
        Outcome.FAIL,
        ("cuda-version", "node01", "at least 13.0 (the toolkit's)", "12.8"),
    ),
    one("newer driver runs an older toolkit", changed(lambda found: found["nvml"].update(cuda="13.1")), Outcome.PASS),
    one(
        "package missing",
        changed(lambda found: found["packages"].update(libnccl2=None)),
        Outcome.FAIL,
        ("package-version", "node01", "2.28.9-1+cuda13.0", "not installed", "name=libnccl2"),
    ),
    one(
        "package not asked for",
        changed(lambda found: found["packages"].pop("libnccl2")),
        Outcome.ERROR,
        ("package-not-reported", "node01", "2.28.9-1+cuda13.0", "nothing", "name=libnccl2"),
    ),
    one(
        "fabric manager failed",
        changed(lambda found: found["services"].update({"nvidia-fabricmanager.service": "failed"})),
        Outcome.FAIL,
        ("gpu-service-not-active", "node01", "active", "failed", "name=nvidia-fabricmanager.service"),
    ),
    one(
        "no systemctl",
        changed(lambda found: found["services"].update({"nvidia-dcgm.service": None})),
        Outcome.ERROR,
        ("value-not-reported", "node01", "active", "nothing", "value=nvidia-dcgm.service"),
    ),
    one(
        "a package that no tool reports",
        changed(lambda found: found["packages"].pop("cuda-toolkit-13-0")),
        Outcome.ERROR,
        ("package-not-reported", "node01", "13.0.2-1", "nothing", "name=cuda-toolkit-13-0"),
    ),
    one(
        "module not reported",
        changed(lambda found: found.update(driver_module=None)),
        Outcome.ERROR,
        ("value-not-reported", "node01", "580.173.02", "nothing", "value=loaded kernel module"),
    ),
    one(
        "cut off",
        Said('{"format": "rackready/versions/v1"}'),
        Outcome.ERROR,
        ("versions-unreadable", "node01", "a complete versions document", "the document is not complete"),
    ),
    one(
        "services that are no list of them",
        changed(lambda found: found.update(services="active")),
        Outcome.ERROR,
        (
            "versions-unreadable",
            "node01",
            "a complete versions document",
            "services: not a mapping",
        ),
    ),
    one(
        "no word of NVML",
        changed(lambda found: found.update(nvml=True)),
        Outcome.ERROR,
        (
            "versions-unreadable",
            "node01",
            "a complete versions document",
            "nvml: not a mapping",
        ),
    ),
    one(
        "another format",
        Said('{"format": "rackready/versions/v9", "complete": true}'),
        Outcome.ERROR,
        (
            "versions-unreadable",
            "node01",
            "a complete versions document",
            "no document of format rackready/versions/v1",
        ),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdict(case: Case) -> None:
    check(GATE, case)


@pytest.mark.parametrize(
    ("platform", "wanting"),
    [
        ("gb200_nvl72", []),
        ("gb300_nvl72", []),
        ("dgx_h100", ["fabric manager not reported", "package nvidia-fabricmanager", "nvidia-fabricmanager.service"]),
    ],
)
def test_a_fabric_manager_is_asked_for_where_install_puts_one(platform: str, wanting: list[str]) -> None:
    """Trays of an NVL72 have NVSwitches, and none runs their fabric manager: the switch trays do."""
    known = facts(platform, 1)
    found = document("versions/dgx_h100_healthy.json")
    found["packages"] = wanted_packages(known.nodes["node01"]) | {"nvidia-fabricmanager": None}
    found["fabric_manager"] = None
    found["services"]["nvidia-fabricmanager.service"] = "inactive"
    made = gate(GATE)
    verdict = evaluate(made, known, made.plan(known, ["node01"])[0], {"versions": json.dumps(found)}, 0)
    assert sorted(finding.what for finding in verdict.findings) == sorted(wanting)
    assert (verdict.outcome, verdict.measured) == ((Outcome.FAIL, []) if wanting else (Outcome.PASS, ["node01"]))
