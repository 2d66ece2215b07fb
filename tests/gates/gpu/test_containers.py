"""The gate on what containers are offered, word for word."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from rackready.model.outcome import Outcome
from rackready.ondevice import containers
from tests.gates.gpu.test_links import S, judge
from tests.gates.support import Told, tells


def offered(**changed: Any) -> dict[str, Any]:
    names = "".join(f"nvidia.com/gpu={gpu}\nnvidia.com/gpu=GPU-{gpu}\n" for gpu in range(8)) + "nvidia.com/gpu=all\n"
    rows = "".join(f"{gpu}, GPU-{gpu}\n" for gpu in range(8))
    healthy = {
        "format": containers.FORMAT,
        "complete": True,
        "toolkit": {"rc": 0, "out": "NVIDIA Container Toolkit CLI version 1.20.0\ncommit: 1\n", "err": ""},
        "list": {"rc": 0, "out": names, "err": ""},
        "gpus": {"rc": 0, "out": rows, "err": ""},
        "mig": {"rc": 0, "out": "".join(f"{gpu}, Disabled\n" for gpu in range(8)), "err": ""},
        "devices": {"rc": 0, "out": "".join(f"GPU {gpu}: H100 (UUID: GPU-{gpu})\n" for gpu in range(8)), "err": ""},
        "specs": [{"path": "/var/run/cdi/nvidia.yaml", "paths": 12, "there": 12, "absent": [], "lacks": []}],
        "runtimes": {"docker": True, "containerd": None, "crio": None},
    }
    return copy.deepcopy(healthy) | changed


@pytest.mark.parametrize(
    ("changed", "says", "outcome"),
    [
        ({}, None, Outcome.PASS),
        (
            {"list": {"rc": 0, "out": "".join(f"nvidia.com/gpu={gpu}\n" for gpu in range(7)), "err": ""}},
            (
                "cdi-gpu-not-offered",
                "node01 gpu7",
                "nvidia.com/gpu=7 or nvidia.com/gpu=GPU-7",
                "7 CDI devices without it",
            ),
            Outcome.FAIL,
        ),
        (
            {
                "list": {
                    "rc": 0,
                    "out": "".join(f"nvidia.com/gpu={gpu}\n" for gpu in [*range(8), "GPU-gone"]),
                    "err": "",
                }
            },
            (
                "cdi-stale",
                "node01",
                "devices that the driver has",
                "also GPU-gone",
            ),
            Outcome.FAIL,
        ),
        (
            {
                "specs": [
                    {
                        "path": "/var/run/cdi/nvidia.yaml",
                        "paths": 12,
                        "there": 11,
                        "absent": ["/usr/lib/libcuda.so.570.86.10"],
                        "lacks": [],
                    }
                ]
            },
            (
                "cdi-paths-missing",
                "node01",
                "every path of /var/run/cdi/nvidia.yaml exists",
                "absent: /usr/lib/libcuda.so.570.86.10",
            ),
            Outcome.FAIL,
        ),
        (
            {
                "specs": [
                    {"path": "/run/x.yaml", "paths": 12, "there": 12, "absent": [], "lacks": ["/dev/nvidia-uvm"]},
                ]
            },
            (
                "cdi-control-missing",
                "node01",
                "/dev/nvidiactl and /dev/nvidia-uvm in /run/x.yaml",
                "without /dev/nvidia-uvm",
            ),
            Outcome.FAIL,
        ),
        ({"specs": []}, ("cdi-missing", "node01", "one below /etc/cdi or /var/run/cdi", "none"), Outcome.FAIL),
        (
            {"toolkit": {"rc": 127, "out": "", "err": "cannot open shared object file"}},
            (
                "container-tool-fails",
                "node01",
                "exit code 0",
                "exit code 127: cannot open shared object file",
                "what=nvidia-ctk",
            ),
            Outcome.FAIL,
        ),
        (
            {"toolkit": {"missing": "not installed"}},
            (
                "container-tool-missing",
                "node01",
                "an answer",
                "none",
                "program=nvidia-ctk",
                "missing=not installed",
                "package=nvidia-container-toolkit-base",
            ),
            Outcome.ERROR,
        ),
    ],
)
def test_what_containers_are_offered(changed: dict[str, Any], says: Told | None, outcome: Outcome) -> None:
    verdict = judge(f"{S}containers", {"containers": json.dumps(offered(**changed))})
    assert tells(verdict) == ([says] if says else [])
    assert verdict.outcome is outcome


def with_mig(names: str, instances: str = "ab") -> dict[str, Any]:
    """A node whose GPU 0 is in MIG mode, with these devices of it in CDI."""
    listed = ["GPU 0: H100 (UUID: GPU-0)"]
    listed += [f"  MIG 1g.10gb+me  Device {place:>2}: (UUID: MIG-{name})" for place, name in enumerate(instances)]
    listed += [f"GPU {gpu}: H100 (UUID: GPU-{gpu})" for gpu in range(1, 8)]
    offers = [*names.split(), *map(str, range(1, 8)), "all"]
    return offered(
        list={"rc": 0, "out": "".join(f"nvidia.com/gpu={name}\n" for name in offers), "err": ""},
        mig={"rc": 0, "out": "0, Enabled\n" + "".join(f"{gpu}, [N/A]\n" for gpu in range(1, 8)), "err": ""},
        devices={"rc": 0, "out": "\n".join(listed) + "\n", "err": ""},
    )


@pytest.mark.parametrize(
    ("names", "instances", "says"),
    [
        ("0:0 0:1", "ab", []),
        ("MIG-a MIG-b", "ab", []),
        ("0:0 MIG-a 0:1 MIG-b", "ab", []),
        (
            "0:0 MIG-a",
            "ab",
            [
                (
                    "cdi-gpu-not-offered",
                    "node01 gpu0",
                    "nvidia.com/gpu=0:1 or nvidia.com/gpu=MIG-b",
                    "9 CDI devices without it",
                )
            ],
        ),
        ("0:0 0:1 MIG-gone", "ab", [("cdi-stale", "node01", "devices that the driver has", "also MIG-gone")]),
        ("0:0 0:1 0:2", "ab", [("cdi-stale", "node01", "devices that the driver has", "also 0:2")]),
        ("", "", [("container-mig-empty", "node01 gpu0", "an instance, or MIG off", "MIG on, no instance")]),
    ],
)
def test_a_gpu_in_mig_mode_is_offered_by_its_instances(names: str, instances: str, says: list[Told]) -> None:
    verdict = judge(f"{S}containers", {"containers": json.dumps(with_mig(names, instances))})
    assert tells(verdict) == says
    assert verdict.outcome is (Outcome.FAIL if says else Outcome.PASS)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"mig": {"rc": 0, "out": "0, Requested\n", "err": ""}}, "no GPU's index and MIG mode"),
        ({"mig": {"rc": 0, "out": "", "err": ""}}, "empty output"),
        (
            {"devices": {"rc": 0, "out": "  MIG 1g.10gb Device  0: (UUID: MIG-a)\n", "err": ""}},
            "no GPU and no MIG device",
        ),
    ],
)
def test_mig_that_cannot_be_read_is_an_error(changed: dict[str, Any], words: str) -> None:
    verdict = judge(f"{S}containers", {"containers": json.dumps(offered(**changed))})
    assert [one[0] for one in tells(verdict)] == ["container-check-unreadable"]
    assert words in str(tells(verdict))
    assert verdict.outcome is Outcome.ERROR


def test_a_runtime_that_does_not_name_nvidias_is_noted() -> None:
    verdict = judge(
        f"{S}containers",
        {"containers": json.dumps(offered(runtimes={"docker": False, "containerd": None, "crio": None}))},
    )
    assert verdict.outcome is Outcome.PASS
    assert "docker does not name nvidia-container-runtime" in (verdict.note or "")
