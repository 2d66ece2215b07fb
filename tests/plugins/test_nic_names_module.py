"""Module rackready_nic_names: what it refuses, and what it leaves to the next boot."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from rackready.ondevice.nic_names import NicNames
from tests.plugins.test_driver_modules import load
from tests.plugins.test_files_module import Ended, Stub
from tests.unit.ondevice.test_nic_names import ADDRESS, PCI, ROUTE, Node

ROLE = Path(__file__).resolve().parents[2] / "roles/nic_stack"
Call = Callable[..., dict[str, Any]]
REFUSED = (
    "Expected: no default route on a card that gets another name Actual: enp24s0 (0000:18:00.0) has the default route, "
    "so it does not become enp24s0np0. Correct the platform profile if this is the address of the management card; "
    "otherwise move the default route to a management interface. Nothing was renamed."
)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def call(node: Node, monkeypatch: pytest.MonkeyPatch) -> Call:
    module = load("rackready_nic_names", monkeypatch)
    monkeypatch.setattr(module, "fence", lambda *_, **__: nullcontext([]))

    def called(*, check: bool = False, **options: str) -> dict[str, Any]:
        params: dict[str, Any] = {
            "names": {PCI: {"net": "enp24s0np0"}},
            "token": 0,
            "ledger": "",
            "lock_wait_s": 1,
            "state": "present",
        }
        params.update(options)
        monkeypatch.setattr(module, "NicNames", lambda names: NicNames(names, node, node.root))
        monkeypatch.setattr(module, "AnsibleModule", lambda **_: Stub(params, node.root, check_mode=check))
        with pytest.raises(Ended) as ended:
            module.main()
        said: dict[str, Any] = ended.value.args[0]
        return said

    return called


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("state", ["possible", "present"])
def test_the_default_route_is_refused_in_a_dry_run_too(node: Node, call: Call, state: str, *, check: bool) -> None:
    (node.root / "proc/net").mkdir(parents=True)
    (node.root / "proc/net/route").write_text(ROUTE.format("enp24s0"))
    assert call(check=check, state=state)["msg"] == REFUSED
    assert node.ran == []


def test_an_interface_in_use_is_a_note_and_no_problem(node: Node, call: Call) -> None:
    node.addresses = ADDRESS.format(" 192.168.1.11/24")
    assert call()["notes"] == [
        "0000:18:00.0: the interface gets its name with the next boot: enp24s0 has the address 192.168.1.11/24"
    ]


def test_a_dry_run_shows_the_names_and_a_run_gives_them(node: Node, call: Call) -> None:
    dry = call(check=True)
    assert (dry["changed"], node.ran) == (True, [])
    assert call()["drift"] == dry["drift"]
    assert call()["changed"] is False


def test_possible_renames_nothing_and_tells_no_difference(node: Node, call: Call) -> None:
    said = call(state="possible")
    assert (said["changed"], said["drift"], said["notes"]) == (False, [], [])
    assert node.ran == []


def test_the_role_refuses_before_it_writes_the_rule() -> None:
    """The udev rule would rename the interface at the next boot, whatever the run said."""
    [main] = [task["block"] for task in tasks_of("main") if "block" in task]
    order = [task["ansible.builtin.import_tasks"] for task in main]
    assert order.index("preflight.yml") < order.index("names.yml")
    [refusal] = [task["rackready_nic_names"] for task in tasks_of("preflight") if "rackready_nic_names" in task]
    assert refusal == {"names": "{{ nic_stack_names }}", "state": "possible"}


def test_the_role_takes_back_every_file_where_no_names_are_declared() -> None:
    [written] = [task["rackready_files"]["files"] for task in tasks_of("names") if "rackready_files" in task]
    [swept] = [task["rackready_files"]["sweep"] for task in tasks_of("no-names")]
    assert sorted(swept) == sorted(file["path"] for file in written)
    names = {"nic_stack_cards": {PCI: {}}, "nic_stack_names": {PCI: {"net": "enp24s0np0"}}}
    [back] = [task["when"] for task in tasks_of("main") if task.get("ansible.builtin.import_tasks") == "no-names.yml"]
    for absent in ({}, {"nic_stack_names": {}}, {"nic_stack_cards": {}}):
        templar = Templar(loader=DataLoader(), variables={**names, **absent})
        assert templar.template(trust_as_template(f"{{{{ {back} }}}}")) is bool(absent)


def test_the_rules_name_neither_representors_nor_sub_functions() -> None:
    """They are below the same PCI function, so that KERNELS finds them, too: they skip the naming of interfaces."""
    text = (ROLE / "templates/10-rackready-nic-names.rules.j2").read_text(encoding="utf-8")
    names = {PCI: {"net": "enp24s0np0", "infiniband": "mlx5_0"}, "0000:40:00.0": {"infiniband": "mlx5_3"}}
    files = {"__nic_stack_namer": "/namer.py", "__nic_stack_names": "/names.json", "ansible_managed": "managed"}
    templar = Templar(loader=DataLoader(), variables={"nic_stack_names": names, **files})
    rules = [row for row in templar.template(trust_as_template(text)).splitlines() if not row.startswith("#")]
    assert rules == [
        'SUBSYSTEM=="net", ATTR{phys_port_name}=="pf[0-9]*|c[0-9]*pf[0-9]*", GOTO="rackready_nic_names_end"',
        'SUBSYSTEM=="net", SUBSYSTEMS=="auxiliary", GOTO="rackready_nic_names_end"',
        'ACTION=="add", SUBSYSTEM=="net", KERNELS=="0000:18:00.0", NAME:="enp24s0np0"',
        'LABEL="rackready_nic_names_end"',
        'ACTION=="add", SUBSYSTEM=="infiniband", RUN+="/usr/bin/python3 /namer.py /names.json"',
    ]


def tasks_of(stem: str) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = yaml.safe_load((ROLE / "tasks" / f"{stem}.yml").read_text(encoding="utf-8"))
    return tasks
