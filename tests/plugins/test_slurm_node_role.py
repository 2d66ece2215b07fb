"""Role slurm_node: what a run that was cut off left behind, the next one repairs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from rackready.gates.nodecheck.program import PLACES

ROLE = Path(__file__).resolve().parents[2] / "roles/slurm_node"
OWN: dict[str, Any] = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
KEY, OPTIONS, DROPIN = (
    "/etc/munge/munge.key",
    "/etc/default/slurmd",
    "/etc/systemd/system/slurmd.service.d/rackready.conf",
)
UNCHANGED = {"changed": False}


def task(name: str) -> dict[str, Any]:
    """Return a task of the role's last step."""
    tasks = yaml.safe_load((ROLE / "tasks/service.yml").read_text(encoding="utf-8"))
    return next(task for task in tasks if task["name"] == f"service | {name}")


def evaluated(text: str, **known: Any) -> Any:  # noqa: ANN401 - a template's value
    own = {name: trust_as_template(value) for name, value in OWN.items() if isinstance(value, str)}
    return Templar(loader=DataLoader(), variables=own | known).template(trust_as_template(text))


def test_every_service_is_compared_with_the_files_that_it_reads_when_it_starts() -> None:
    asked = task("Find services that run with older settings")["rackready_units"]["files"]
    assert asked == "{{ __slurm_node_read_at_start }}"
    read = {unit: [evaluated(path) for path in paths] for unit, paths in OWN[asked.strip("{} ")].items()}
    assert read == {"munge.service": [KEY], "slurmd.service": [OPTIONS, DROPIN, KEY]}


@pytest.mark.parametrize(
    ("older", "key_changed", "written", "munge", "slurmd"),
    [
        ([], False, [], ("started", False), ("started", False)),
        (["munge.service", "slurmd.service"], False, [], ("restarted", True), ("restarted", True)),
        (["slurmd.service"], False, [], ("started", False), ("restarted", True)),
        ([], True, [], ("restarted", False), ("restarted", False)),
        ([], False, [DROPIN], ("started", False), ("restarted", True)),
    ],
    ids=["nothing to do", "a run ended after the key", "a run ended after the options", "a new key", "a new drop-in"],
)
def test_a_service_with_older_settings_is_started_anew(
    older: list[str],
    key_changed: bool,  # noqa: FBT001 - a case of the table
    written: list[str],
    munge: tuple[str, bool],
    slurmd: tuple[str, bool],
) -> None:
    known = {
        "__slurm_node_units": {"older": older},
        "__slurm_node_munge": {"changed": key_changed},
        "__slurm_node_files": {"changed": bool(written), "written": written},
        "__slurm_node_installed": UNCHANGED,
    }
    for name, wanted in (("Start munge", munge), ("Start slurmd", slurmd)):
        asked = task(name)["ansible.builtin.systemd_service"]
        assert (evaluated(asked["state"], **known), evaluated(asked["daemon_reload"], **known)) == wanted, name


@pytest.mark.parametrize(
    ("folder", "controllers", "source"),
    [
        ("", [], "--conf-server 10.0.0.5:6817"),
        ("", ["ctl1"], "--conf-server 10.0.0.5:6817"),
        ("", ["10.0.0.5", "10.0.0.6"], "--conf-server 10.0.0.5:6817,10.0.0.6:6817"),
        ("", ["10.0.0.6", "10.0.0.5", "ctl3"], "--conf-server 10.0.0.5:6817,10.0.0.6:6817,ctl3:6817"),
        ("/etc/slurm", ["10.0.0.5", "10.0.0.6"], "-f /etc/slurm/slurm.conf"),
    ],
)
def test_slurmd_asks_every_controller_for_its_files(folder: str, controllers: list[str], source: str) -> None:
    known = {
        "slurm_node_folder": folder,
        "slurm_node_controller": "10.0.0.5",
        "slurm_node_controllers": controllers,
        "slurm_node_controller_port": 6817,
    }
    assert evaluated("{{ __slurm_node_source }}", **known).strip() == source


@pytest.mark.parametrize(
    ("configless", "folder", "joins"), [(True, "", True), (False, "/etc/slurm", True), (False, "", False)]
)
def test_a_node_that_would_lose_its_configuration_is_left_as_it_is(
    configless: bool,  # noqa: FBT001 - a case of the table
    folder: str,
    joins: bool,  # noqa: FBT001
) -> None:
    [play] = yaml.safe_load((ROLE.parents[1] / "playbooks/handover.yml").read_text(encoding="utf-8"))
    [first] = play["pre_tasks"]  # before any role, so that nothing changes
    asked = first["ansible.builtin.import_role"]
    assert asked["name"] == "slurm_node"
    [check] = yaml.safe_load((ROLE / "tasks" / asked["tasks_from"]).read_text(encoding="utf-8"))
    known = {"slurm_node_configless": configless, "slurm_node_folder": folder}
    assert evaluated(f"{{{{ {check['rackready_check']['that']} }}}}", **known) is joins


def test_a_node_whose_check_could_not_drain_it_is_refused(tmp_path: Path) -> None:
    """Debian's slurmd does not depend on slurm-client, nor SchedMD's slurm-smd-slurmd on slurm-smd-client."""
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text(encoding="utf-8"))
    assert "slurm-client" in defaults["slurm_node_packages"]
    for system in ("AlmaLinux", "RedHat", "Rocky"):
        names = yaml.safe_load((ROLE / f"vars/{system}_9.yml").read_text(encoding="utf-8"))["__slurm_node_names"]
        assert names["slurm-client"] == "slurm"  # slurm.spec: scontrol and srun
    look, check, *_ = yaml.safe_load((ROLE / "tasks/check.yml").read_text(encoding="utf-8"))
    cmd = evaluated(look["ansible.builtin.shell"]["cmd"])
    assert f'"$PATH:{PLACES}"' in cmd
    passes = "{{ " + check["rackready_check"]["that"] + " }}"
    for there in (False, True):
        if there:
            (tmp_path / "scontrol").touch(mode=0o755)
        code = subprocess.run(
            ["/bin/sh", "-c", cmd.replace(PLACES, "")], env={"PATH": str(tmp_path)}, check=False
        ).returncode
        known = {look["register"]: {"rc": code}}
        assert evaluated(passes, **known) is there
        assert not evaluated("{{ " + look["failed_when"] + " }}", **known)
