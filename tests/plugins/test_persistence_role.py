"""Role nvidia_persistence: which drop-in it leaves, also on a node that an earlier version set gave another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from rackready.design.hostvars import site_vars
from rackready.profiles import loader
from tests.unit.profiles.test_software_sets import site_of

ROLE = Path(__file__).resolve().parents[2] / "roles/nvidia_persistence"
VARS: dict[str, str] = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
TASKS: list[dict[str, Any]] = yaml.safe_load((ROLE / "tasks/service.yml").read_text(encoding="utf-8"))
DROP_IN = "/etc/systemd/system/nvidia-persistenced.service.d/rackready.conf"


def files(**known: Any) -> dict[str, Any]:
    """Return what the role writes and removes."""
    task = next(task for task in TASKS if "rackready_files" in task)
    own = {key: trust_as_template(value) for key, value in VARS.items()}
    variables = own | {"dropin": {"path": DROP_IN}} | known
    templar = Templar(loader=DataLoader(), variables=variables)
    return {key: templar.template(trust_as_template(text)) for key, text in task["rackready_files"].items()}


@pytest.mark.parametrize("name", loader.known("software"))
def test_the_drop_in_of_an_earlier_set_goes_where_the_package_has_a_unit(name: str) -> None:
    """Ubuntu's sets had one with a user that NVIDIA's package does not make."""
    found = files(**site_vars(site_of(name)))
    assert (found["files"], found["sweep"]) == ([], [DROP_IN])


@pytest.mark.parametrize(("unit", "mode"), [(False, True), (False, False), (True, False)])
def test_one_is_written_where_the_unit_does_other_than_the_site_wants(*, unit: bool, mode: bool) -> None:
    found = files(nvidia_persistence_unit=unit, nvidia_persistence_mode=mode)
    assert ([item["path"] for item in found["files"]], found["sweep"]) == ([DROP_IN], [])


def test_the_daemon_starts_again_without_the_drop_in_that_went() -> None:
    restarts = next(
        task for task in TASKS if task.get("ansible.builtin.systemd_service", {}).get("state") == "restarted"
    )
    assert restarts["ansible.builtin.systemd_service"]["daemon_reload"] is True
    assert restarts["when"].startswith("__nvidia_persistence_changed is changed")
