"""Role base: what a site declares is refused before the first change, with the exact text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROOT = Path(__file__).resolve().parents[2]
DEFAULTS: dict[str, Any] = yaml.safe_load((ROOT / "roles/base/defaults/main.yml").read_text(encoding="utf-8"))
TASKS: list[dict[str, Any]] = yaml.safe_load((ROOT / "roles/base/tasks/declared.yml").read_text(encoding="utf-8"))


def refusals(**declared: object) -> list[str]:
    """Return what the checks say about a declaration, as the action rackready_check words it."""
    found = []
    for check in [task["rackready_check"] for task in TASKS if "rackready_check" in task]:
        templar = Templar(loader=DataLoader(), variables={**DEFAULTS, **declared})
        conditions = check["that"] if isinstance(check["that"], list) else [check["that"]]
        if all(templar.template(trust_as_template(f"{{{{ {condition} }}}}")) for condition in conditions):
            continue
        texts = [templar.template(trust_as_template(check[name])) for name in ("expected", "actual", "next_step")]
        found.append("Expected: {} Actual: {}. {}".format(*texts))
    return found


def test_the_defaults_pass() -> None:
    assert refusals() == []


@pytest.mark.parametrize("servers", [["ntp1.example", "192.0.2.5", "2001:db8::5"]])
def test_names_and_addresses_are_time_servers(servers: list[str]) -> None:
    assert refusals(base_ntp_servers=servers) == []


def test_a_time_server_with_options_is_refused() -> None:
    [said] = refusals(base_ntp_servers=["ntp1.example", "ntp2.example iburst", ""])
    assert said == (
        'Expected: base_ntp_servers with names or addresses of time servers Actual: "ntp2.example iburst", "". '
        "Correct base_ntp_servers in the group_vars of the environment: one name or address per item, without options."
    )
