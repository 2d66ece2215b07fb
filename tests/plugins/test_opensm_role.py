"""Role opensm: a run that was cut off after it wrote opensm's files is completed by the next one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from rackready.ondevice.command import Done
from tests.plugins.test_driver_modules import load
from tests.plugins.test_files_module import Ended, Stub

ROLE = Path(__file__).resolve().parents[2] / "roles/opensm"
OWN: dict[str, Any] = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
LEAF01, LEAF02 = "rackready-opensm@leaf01.service", "rackready-opensm@leaf02.service"
UNIT, PARTITIONS = "/etc/systemd/system/rackready-opensm@.service", "/etc/rackready/opensm/partitions.conf"


def trusted(value: Any) -> Any:  # noqa: ANN401 - YAML
    return [trusted(item) for item in value] if isinstance(value, list) else trust_as_template(value)


def value(text: str, *, written: list[str] | None = None, older: list[str] | None = None, **more: Any) -> Any:  # noqa: ANN401
    """Return the value of a template of the role after a run wrote these files and found these units older."""
    known = {name: trusted(own) for name, own in OWN.items()}
    known |= {"opensm_instances": [{"name": "leaf01"}, {"name": "leaf02"}], "ansible_check_mode": False}
    known |= {"__opensm_written": {"written": written or []}, "__opensm_running": {"older": older or []}, **more}
    return Templar(loader=DataLoader(), variables=known).template(trust_as_template(text))


def tasks(stem: str) -> dict[str, dict[str, Any]]:
    found = yaml.safe_load((ROLE / f"tasks/{stem}.yml").read_text(encoding="utf-8"))
    return {task["name"].removeprefix(f"{stem} | "): task for task in found}


SERVICE, VERIFY = tasks("service"), tasks("verify")
RUN_NAME = "Run a subnet manager for each subnet, at every boot"
RUN = SERVICE[RUN_NAME]


def test_a_manager_of_another_name_leaves_its_port_before_the_new_one_starts() -> None:
    """Two managers cannot have one port. Those of other ports stop at the end."""
    order = list(SERVICE)
    stop, run = SERVICE["Stop those of earlier runs whose ports the present ones need"], order.index(RUN_NAME)
    assert order.index("Stop those of earlier runs whose ports the present ones need") < run
    lines = [
        f"/etc/rackready/opensm/{name}.conf:guid 0x{guid}"
        for name, guid in (
            ("fabric", "b83fd20300000111"),
            ("leaf01", "b83fd20300000111"),
            ("leaf09", "b83fd20300000119"),
        )
    ]
    known = {
        "__opensm_gids": {"results": [{"stdout": "fe80:0000:0000:0000:b83f:d203:0000:0111"}]},
        "__opensm_ports": {"stdout_lines": lines},
    }
    assert value(stop["loop"], **known) == ["fabric"]
    assert value(stop["loop"], **known | {"__opensm_ports": {"stdout_lines": [], "rc": 2}}) == []
    assert stop["ansible.builtin.systemd_service"]["state"] == "stopped"


def test_every_file_that_opensm_reads_at_its_start_counts() -> None:
    asked = SERVICE["Find subnet managers that run with older files"]["rackready_units"]
    shared = {UNIT, PARTITIONS, "/etc/rackready/opensm/node-name-map", "/etc/rackready/opensm/root-guids"}
    assert {unit: set(files) for unit, files in value(asked["files"]).items()} == {
        LEAF01: {*shared, "/etc/rackready/opensm/leaf01.conf"},
        LEAF02: {*shared, "/etc/rackready/opensm/leaf02.conf"},
    }


@pytest.mark.parametrize(
    ("written", "older", "states"),
    [
        ([], [], ["started", "started"]),
        ([], [LEAF02], ["started", "restarted"]),
        (["/etc/rackready/opensm/leaf01.conf"], [], ["restarted", "started"]),
        ([PARTITIONS], [], ["restarted", "restarted"]),
    ],
)
def test_a_manager_that_runs_with_older_files_is_restarted(
    written: list[str], older: list[str], states: list[str]
) -> None:
    state = RUN["ansible.builtin.systemd_service"]["state"]
    assert [value(state, written=written, older=older, item=name) for name in ("leaf01", "leaf02")] == states


@pytest.mark.parametrize(
    ("written", "older", "check", "reloads"),
    [([], [], False, False), ([UNIT], [], False, True), ([], [LEAF01], False, True), ([UNIT], [LEAF01], True, False)],
)
def test_systemd_reads_a_unit_again_that_it_has_not_read_since_it_was_written(
    written: list[str],
    older: list[str],
    check: bool,  # noqa: FBT001 - of the run
    reloads: bool,  # noqa: FBT001
) -> None:
    when = SERVICE["Reload systemd"]["when"]
    assert value(f"{{{{ {when} }}}}", written=written, older=older, ansible_check_mode=check) is reloads


def test_the_module_names_units_that_systemd_read_before_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load("rackready_units", monkeypatch)
    answers = {"--property=NeedDaemonReload": "yes\n", "--property=ActiveEnterTimestampMonotonic": "0\n"}
    monkeypatch.setattr(module, "run", lambda argv: Done(0, answers[argv[2]] if argv[-1] == LEAF01 else "no\n"))
    monkeypatch.setattr(
        module, "AnsibleModule", lambda **_: Stub({"files": {LEAF01: [], LEAF02: []}}, tmp_path, check_mode=True)
    )
    with pytest.raises(Ended) as ended:
        module.main()
    assert ended.value.args[0] == {"changed": False, "older": [LEAF01]}


def test_no_package_starts_an_opensm_of_its_own() -> None:
    """Units are masked before a package brings them. An absent unit has no ``enabled``: the module fails on it."""
    steps = list(tasks("install").values())
    mask, stop, install = steps[:3]
    assert mask["ansible.builtin.systemd_service"] == {"name": "{{ item }}", "masked": True}
    assert value(mask["loop"]) == ["opensm.service", "opensmd.service"]
    assert stop["ansible.builtin.systemd_service"] == {"name": "{{ item.item }}", "state": "stopped"}
    assert "rackready_packages" in install


@pytest.mark.parametrize(("check", "changed", "runs"), [(False, True, True), (True, False, True), (True, True, False)])
def test_a_dry_run_does_not_stop_a_unit_that_it_did_not_mask(
    check: bool,  # noqa: FBT001 - of the run
    changed: bool,  # noqa: FBT001
    runs: bool,  # noqa: FBT001
) -> None:
    """The unit may not be there yet."""
    when = list(tasks("install").values())[1]["when"]
    assert value(f"{{{{ {when} }}}}", ansible_check_mode=check, item={"changed": changed}) is runs


def test_the_log_is_read_with_the_unit_that_writes_it() -> None:
    argv = VERIFY["Read what each subnet manager did"]["ansible.builtin.command"]["argv"]
    assert [value(str(word), item="leaf01", opensm_routing_engine="updn") for word in argv[1:]] == [
        "/usr/local/lib/rackready/opensm_log.py",
        "/var/log/rackready-opensm-leaf01.log",
        "updn",
        LEAF01,
    ]


def test_a_log_that_tells_nothing_is_no_fail_and_no_proof() -> None:
    read = {
        "results": [
            {"rc": 0, "stdout": '{"state": "MASTER", "problems": [], "unread": ""}'},
            {"rc": 3, "stdout": '{"state": "none", "problems": [], "unread": "leaf02: opensm emptied its log"}'},
            {"rc": 1, "stdout": '{"state": "none", "problems": ["state none"], "unread": ""}'},
        ]
    }
    that = VERIFY["Check the subnets"]["rackready_check"]["that"]
    assert [value(f"{{{{ {that} }}}}", item=item) for item in read["results"]] == [True, True, False]
    report = VERIFY["Report subnets of which the log tells nothing"]
    told = value(report["vars"]["unmeasured"], __opensm_read=read)
    assert told == ["leaf02: opensm emptied its log"]
    assert report["ansible.builtin.debug"] == {"var": "unmeasured"}


@pytest.mark.parametrize("roots", [[], ["0xb83fd20300f00002", "0xb83fd20300f00001"]])
def test_opensm_reads_the_roots_that_it_is_told(roots: list[str]) -> None:
    """One GUID to a line (linux-rdma/opensm complib/cl_nodenamemap.c: parse_node_map)."""
    known = {"opensm_root_guids": roots, "opensm_switch_names": [], "opensm_routing_engine": "updn", "guid": "b8"}
    known |= {"ansible_managed": "managed", "instance": {"priority": 15, "name": "fabric"}}
    conf, file = (value((ROLE / f"templates/{name}.j2").read_text(), **known) for name in ("opensm.conf", "root-guids"))
    line = "root_guid_file /etc/rackready/opensm/root-guids"
    assert (line in conf.splitlines()) is bool(roots)
    assert file.splitlines() == ["# managed", *sorted(roots)]
