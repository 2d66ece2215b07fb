"""The inventory plugin, through ansible-inventory as people run it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder as a checkout has it, with one environment whose mirror needs no overlay."""
    for name in ("plugins", "src", "ansible.cfg", "playbooks", "roles"):
        (tmp_path / name).symlink_to(ROOT / name)
    env = tmp_path / "inventories/example"
    env.mkdir(parents=True)
    shutil.copy(ROOT / "inventories/sim/site.yml", env / "site.yml")
    return tmp_path


def ansible_inventory(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "ansible-inventory"
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "ANSIBLE_CONFIG": str(checkout / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
    }
    return subprocess.run(
        [program, "-i", "inventories/example", *words],
        cwd=checkout,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def plain(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Take Ansible's mark off strings that are never templated."""
    if isinstance(value, dict):
        return (
            value["__ansible_unsafe"]
            if set(value) == {"__ansible_unsafe"}
            else {key: plain(item) for key, item in value.items()}
        )
    return [plain(item) for item in value] if isinstance(value, list) else value


def test_groups_and_connection_come_from_the_site(checkout: Path) -> None:
    done = ansible_inventory(checkout, "--list")
    assert done.returncode == 0, done.stderr
    found = plain(json.loads(done.stdout))
    assert found["rack_rack01"]["hosts"] == ["node01", "node02", "node03", "node04"]
    assert found["platform_dgx_h100"]["hosts"] == found["gpu_h100_sxm"]["hosts"] == found["nodes"]["hosts"]
    host = found["_meta"]["hostvars"]["node02"]
    assert (host["ansible_host"], host["ansible_user"], host["ansible_port"]) == ("192.0.2.12", "root", 22)
    assert "StrictHostKeyChecking=yes" in host["ansible_ssh_common_args"]
    assert (
        f'UserKnownHostsFile="{checkout.resolve()}/.rackready/example/known_hosts"' in host["ansible_ssh_common_args"]
    )
    assert host["nvidia_driver_version"] == "580.173.02"
    assert [nic["address"] for nic in host["rackready_nics"]][:2] == ["192.168.1.12", "192.168.2.12"]


@pytest.mark.parametrize(
    "name",
    [
        "machines.yml",
        "database.yml",
        "secrets/bmc",
        "secrets.sops.yml",
        "bmc.sops.json",
        "vault.yml",
        "vault-prod.yml",
        "password.txt",
    ],
)
def test_what_lies_beside_the_site_file_is_left_alone_or_refused(checkout: Path, name: str) -> None:
    path = checkout / "inventories/example" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}\n", encoding="utf-8")
    done = ansible_inventory(checkout, "--list")
    assert (done.returncode == 0) == (name != "password.txt"), done.stderr


def test_profiles_of_the_environment_are_used_and_are_no_inventory(checkout: Path) -> None:
    folder = checkout / "inventories/example"
    profile = folder / "profiles/platform/lab_box.yml"
    profile.parent.mkdir(parents=True)
    packaged = (ROOT / "src/rackready/profiles/platform/dgx_h100.yml").read_text(encoding="utf-8")
    profile.write_text(packaged.replace("id: dgx_h100", "id: lab_box"), encoding="utf-8")
    site = folder / "site.yml"
    text = site.read_text(encoding="utf-8").replace("platform: dgx_h100", "platform: lab_box")
    site.write_text(text, encoding="utf-8")
    done = ansible_inventory(checkout, "--list")
    assert done.returncode == 0, done.stderr
    assert plain(json.loads(done.stdout))["platform_lab_box"]["hosts"] == ["node01", "node02", "node03", "node04"]


def test_group_vars_of_the_environment_override_the_site(checkout: Path) -> None:
    folder = checkout / "inventories/example/group_vars"
    folder.mkdir()
    (folder / "all.yml").write_text("gpu_tuning_power_limit_w: 650\n")
    (checkout / "inventories/example/prepare.mk").write_text("prepare:\n\ttrue\n")
    (checkout / "inventories/example/NOTES.md").write_text("# notes\n")
    done = ansible_inventory(checkout, "--host", "node01")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["gpu_tuning_power_limit_w"] == 650


def test_overlay_is_merged(checkout: Path) -> None:
    overlays = checkout / ".rackready/overlays"
    overlays.mkdir(parents=True)
    (overlays / "example.yml").write_text("racks: [{name: rack01, nodes: [{name: node01, address: 10.9.8.7}]}]\n")
    done = ansible_inventory(checkout, "--host", "node01")
    assert plain(json.loads(done.stdout))["ansible_host"] == "10.9.8.7"


def test_bad_site_lists_every_problem_and_does_not_end_with_0(checkout: Path) -> None:
    site = checkout / "inventories/example/site.yml"
    site.write_text(
        site.read_text()
        .replace("address: 192.0.2.12", "address: 192.0.2.11")
        .replace("name: sim\n", "name: sim\nnmae: typo\n")
    )
    done = ansible_inventory(checkout, "--list")
    assert done.returncode != 0
    words = " ".join(done.stderr.split())
    assert "nmae: unknown key." in words
    assert "racks[0].nodes[1].address" in words
    assert "nothing was changed" in words


def test_environment_without_site_file_is_refused(checkout: Path) -> None:
    (checkout / "inventories/example/site.yml").rename(checkout / "inventories/example/other.yml")
    assert ansible_inventory(checkout, "--list").returncode != 0
