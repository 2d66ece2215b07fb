"""`rackready boot-service`: every command, without a daemon, and its refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.drivers.boot_service import BootService, BootServiceError, authority, loaders
from rackready.ledger.lock import ControllerLock
from rackready.model.problems import Message
from rackready.paths import EnvPaths
from rackready.stacks import services_run
from tests.unit.boot_service.made import armed, report, settings
from tests.unit.boot_service.sites import SERVICE, document

Call = Callable[..., tuple[int, str, str]]
MAC = "52:54:00:00:00:01"
OFF = "nginx: does not run\ndnsmasq: does not run\n"


@pytest.fixture
def run(tmp_path: Path, call: Call) -> Call:
    """Return the command line of a checkout whose site has a boot service."""
    write(tmp_path, document(service=SERVICE))
    return call


def write(root: Path, site: dict[str, Any]) -> None:
    EnvPaths(root, "sim").site_file.write_text(yaml.safe_dump(site), encoding="utf-8")


@pytest.fixture
def service(tmp_path: Path) -> BootService:
    """The service's files, with node01 armed; no daemon runs."""
    made = BootService(EnvPaths(tmp_path, "sim").state / "boot", settings())
    made.layout.make()
    authority.ensure(made.layout.tls, made.settings.address)
    made.arm(armed("node01", MAC))
    return made


def test_status_of_a_service_that_was_never_started(run: Call, tmp_path: Path) -> None:
    assert run("boot-service", "status") == (1, f"{OFF}armed: none\n", "")
    assert not (EnvPaths(tmp_path, "sim").state / "boot").exists(), "a look leaves nothing"


def test_status_as_json_names_daemons_and_armed_nodes(run: Call, service: BootService) -> None:
    del service
    code, out, err = run("boot-service", "status", "--output", "json")
    assert (code, err) == (1, "")
    assert json.loads(out) == {
        "running": False,
        "daemons": {"nginx": 0, "dnsmasq": 0},
        "armed": ["node01"],
        "address": "192.0.2.3",
        "interface": "boot0",
        "http_boot": "",
    }


def test_status_of_a_service_that_runs_is_zero(run: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BootService, "pids", lambda _self: {"nginx": 11, "dnsmasq": 12})
    assert run("boot-service", "status") == (0, "nginx: runs, pid 11\ndnsmasq: runs, pid 12\narmed: none\n", "")


def test_a_site_that_boots_by_http_is_told_what_is_in_the_way(
    run: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Message("loader", "shim", expected="version 16", actual="15", next_step="Use pxe.")
    monkeypatch.setattr(loaders, "http_boot_problem", lambda _loader: problem)
    assert "loader" not in run("boot-service", "status")[1], "these nodes boot from disk"
    site = document(service=SERVICE)
    site["racks"][0]["nodes"][0] |= {"boot": "http", "boot_mac": MAC}
    site["provisioning"] |= {"image": "debian12", "disks": {"system": [{"serial": "S1"}]}}
    write(tmp_path, site)
    assert run("boot-service", "status") == (
        1,
        f"{OFF}armed: none\nloader: shim - Expected: version 16 Actual: 15. Use pxe.\n",
        "",
    )


def test_start_runs_the_stack_then_shows_the_state(run: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(services_run, "up", lambda site, paths: asked.append(f"{site.name} {paths.env}"))
    assert run("boot-service", "start")[:2] == (0, f"{OFF}armed: none\n")
    assert asked == ["sim sim"]


def test_start_without_a_ramdisk_is_refused(run: Call, tmp_path: Path) -> None:
    code, out, err = run("boot-service", "start")
    folder = tmp_path / ".rackready/ramdisk"
    assert (code, out) == (2, "")
    for name in ("vmlinuz", "ramdisk.img"):
        assert (
            f"boot service: {folder}/{name} - Expected: a file Actual: not there. Run `rackready image ramdisk`." in err
        )


def test_start_while_another_controller_works_is_refused(run: Call, tmp_path: Path) -> None:
    paths = EnvPaths(tmp_path, "sim")
    with ControllerLock(paths.lock, "rackready deploy --env sim", paths.database):
        code, out, err = run("boot-service", "start")
    assert (code, out) == (2, "")
    assert "`rackready deploy --env sim`" in err


@pytest.mark.parametrize(
    "words", [["start"], ["stop"], ["destroy"], ["status"], ["disarm", "node01"], ["show", "node01"]]
)
def test_a_site_without_a_service_is_refused_by_every_command(words: list[str], call: Call) -> None:
    code, out, err = call("boot-service", *words)
    assert (code, out) == (2, "")
    text = "provisioning.service: boot service - Expected: its address, interface and network Actual: not in the site "
    assert f"{text}file. Add it; docs/howto/boot-service.md shows an example." in " ".join(err.split())


def test_stop_leaves_files_and_armed_nodes(run: Call, service: BootService) -> None:
    assert run("boot-service", "stop")[:2] == (0, f"{OFF}armed: node01\n")
    assert service.layout.host("node01").exists()


def test_stop_and_disarm_of_a_service_that_is_not_there_make_nothing(run: Call, tmp_path: Path) -> None:
    for words in (["stop"], ["disarm", "node01"]):
        assert run("boot-service", *words) == (0, f"{OFF}armed: none\n", "")
    assert not (EnvPaths(tmp_path, "sim").state / "boot").exists()


def test_disarm_says_whether_the_node_was_armed(run: Call, service: BootService) -> None:
    code, out, err = run("boot-service", "disarm", "node01")
    assert (code, out) == (0, f"{OFF}armed: none\n")
    assert "node01: disarmed" in err
    assert not service.layout.host("node01").exists()
    assert "node01: was not armed" in run("boot-service", "disarm", "node01")[2]
    assert json.loads(run("boot-service", "disarm", "node01", "--output", "json")[1])["armed"] == []


def test_destroy_is_refused_while_a_node_is_armed(
    run: Call, service: BootService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services_run, "destroy", lambda _paths: None)
    code, out, err = run("boot-service", "destroy")
    assert (code, out) == (2, "")
    text = "boot service: removal - Expected: no node is being provisioned Actual: armed: node01."
    assert f"{text} Wait for them, or run `rackready boot-service disarm` for each." in err
    assert service.layout.host("node01").exists()


def test_destroy_also_removes_what_no_stack_knows(
    run: Call, service: BootService, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(services_run, "destroy", lambda paths: asked.append(paths.env))
    service.disarm("node01")
    assert run("boot-service", "destroy")[:2] == (0, f"{OFF}armed: none\n")
    assert asked == ["sim"]
    assert not service.layout.root.exists()


def test_a_stack_that_cannot_be_destroyed_leaves_the_files(
    run: Call, service: BootService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_paths: EnvPaths) -> None:
        raise BootServiceError("stack sim-services", expected="destroy ends", actual="exit status 1", next_step="Look.")

    monkeypatch.setattr(services_run, "destroy", refuse)
    service.disarm("node01")
    code, _, err = run("boot-service", "destroy")
    assert (code, "stack sim-services - Expected: destroy ends Actual: exit status 1. Look." in err) == (2, True)
    assert service.layout.root.exists()


def test_show_lists_the_reports_of_a_node(run: Call, service: BootService) -> None:
    folder = service.layout.reports("node01")
    (folder / "0a1b2c3d-0001.json").write_text(report("node01", "writing", percent=40, message="half of the image"))
    code, out, err = run("boot-service", "show", "node01")
    assert (code, err) == (0, "")
    row = next(line for line in out.splitlines() if "writing" in line)
    assert [
        word for word in ("0a1b2c3d", "2001-01-01 00:00:00", "40 %", "1.5", "half of the image") if word in row
    ] == [
        "0a1b2c3d",
        "2001-01-01 00:00:00",
        "40 %",
        "1.5",
        "half of the image",
    ]
    found = json.loads(run("boot-service", "show", "node01", "--output", "json")[1])
    assert (found["node"], [item["step"] for item in found["reports"]], found["strange"]) == ("node01", ["writing"], [])


def test_show_tells_of_what_is_no_report(run: Call, service: BootService) -> None:
    path = service.layout.reports("node01") / "1"
    path.write_text("{")
    code, _, err = run("boot-service", "show", "node01")
    assert code == 0
    assert f"{path}: not a report of this plan - Expected: BOOT-NNNN.json Actual: another name." in err
    found = json.loads(run("boot-service", "show", "node01", "--output", "json")[1])
    assert len(found["strange"]) == 1


def test_show_of_an_unknown_node_is_refused(run: Call) -> None:
    code, out, err = run("boot-service", "show", "node99")
    assert (code, out) == (2, "")
    assert "node99 - Expected: a node of the site Actual: none with this name" in err
