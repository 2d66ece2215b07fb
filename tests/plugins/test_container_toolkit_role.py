"""Role nvidia_container_toolkit: which CDI description is written again, and which is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from rackready.ondevice.containers import CONTROL

ROLE = Path(__file__).resolve().parents[2] / "roles/nvidia_container_toolkit"
VARS: dict[str, Any] = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
# As nvidia-ctk 1.20.0 writes it: keys in the order of the alphabet, no path in quotes.
SPEC = """containerEdits:
  deviceNodes:
  - major: 509
    path: /dev/nvidia-uvm
  - minor: 1
    path: /dev/nvidia-uvm-tools
  - major: 195
    path: /dev/nvidiactl
"""


def said(name: str, **known: object) -> Any:  # noqa: ANN401 - what a template gives
    own = {key: trust_as_template(value) if isinstance(value, str) else value for key, value in VARS.items()}
    return Templar(loader=DataLoader(), variables=own | known).template(trust_as_template(f"{{{{ {name} }}}}"))


@pytest.mark.parametrize(
    ("spec", "lacks"),
    [
        (SPEC, []),
        (SPEC.replace("/dev/nvidia-uvm\n", '"/dev/nvidia-uvm"\n'), []),
        (SPEC.replace("/dev/nvidia-uvm\n", "/dev/other\n"), ["/dev/nvidia-uvm"]),
        ("", ["/dev/nvidiactl", "/dev/nvidia-uvm"]),
    ],
)
def test_a_description_without_a_control_device_is_unfit(spec: str, lacks: list[str], tmp_path: Path) -> None:
    path = tmp_path / "nvidia.yaml"
    path.write_text(spec)
    argv = [
        str(path) if word == "/var/run/cdi/nvidia.yaml" else word
        for word in VARS["__nvidia_container_toolkit_controls"]
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    known = {
        "__nvidia_container_toolkit_control": {"stdout_lines": done.stdout.splitlines()},
        "__nvidia_container_toolkit_after": {"stdout": "nvidia.com/gpu=0\n"},
        "__nvidia_container_toolkit_gone": {"stdout": ""},
        "nvidia_container_toolkit_gpus": 1,
    }
    assert said("__nvidia_container_toolkit_lacks", **known) == lacks
    assert said("__nvidia_container_toolkit_unfit", **known) is bool(lacks)


def test_role_and_gate_need_the_same_devices() -> None:
    assert VARS["__nvidia_container_toolkit_needed"] == list(CONTROL)
