"""Role nvidia_fabricmanager: which answers of `nvidia-smi -q` it takes as an initialised fabric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE = Path(__file__).resolve().parents[2] / "roles/nvidia_fabricmanager"
VARS: dict[str, Any] = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
TASKS: list[dict[str, Any]] = yaml.safe_load((ROLE / "tasks/service.yml").read_text(encoding="utf-8"))
CHECK = next(task["rackready_check"] for task in TASKS if "rackready_check" in task)
SMI = """    GSP Firmware Version                  : 580.173.02
    Fabric
        State                             : {}
        Status                            : {}
    PCI
        Bus                               : 0x1B
"""


def said(text: str, gpus: int, *fabrics: tuple[str, str]) -> Any:  # noqa: ANN401 - what a template gives
    known = {key: trust_as_template(value) if isinstance(value, str) else value for key, value in VARS.items()}
    known["__nvidia_fabricmanager_smi"] = {"stdout": "".join(SMI.format(*fabric) for fabric in fabrics)}
    known["nvidia_fabricmanager_gpus"] = gpus
    return Templar(loader=DataLoader(), variables=known).template(trust_as_template(text))


@pytest.mark.parametrize(
    ("gpus", "fabrics", "good", "actual"),
    [
        (2, [("Completed", "Success")] * 2, True, "Completed/Success, Completed/Success"),
        (2, [("Completed", "Success"), ("In Progress", "N/A")], False, "Completed/Success, In Progress/N/A"),
        (1, [("Completed", "Insufficient Resources")], False, "Completed/Insufficient Resources"),
        (2, [], False, "no answer"),
        # Ampere: bottlerocket-os/bottlerocket pull request 3873.
        (0, [("N/A", "N/A")] * 2, True, "N/A/N/A, N/A/N/A"),
    ],
)
def test_a_fabric_is_initialised_where_every_gpu_registered_with_success(
    gpus: int, fabrics: list[tuple[str, str]], *, good: bool, actual: str
) -> None:
    assert said(f"{{{{ {CHECK['that']} }}}}", gpus, *fabrics) is good
    assert said(CHECK["actual"], gpus, *fabrics) == actual
    (waits,) = [task["until"] for task in TASKS if "until" in task]
    assert waits == CHECK["that"]
