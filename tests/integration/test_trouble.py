"""Troubles of real racks on the simulated one: each gives one error with the node and the next step. In order."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from rackready.design.site import load_site
from rackready.drivers.ssh.pins import fingerprint, pinned
from rackready_sim.packages import build_repo
from tests.integration.project import Project

pytestmark = pytest.mark.integration


def rows(document: dict[str, list[dict[str, str]]]) -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in document["nodes"]}


def test_wrong_bmc_password_and_unreachable_node_hold_back_no_other(project: Project) -> None:
    """The operator's copy of node02's password is wrong; node04 boots, but nothing answers on its network."""
    secret = project.paths.base / "wrong"
    secret.write_text("not the password\n", encoding="utf-8")
    overlay = project.paths.overlay.read_text(encoding="utf-8")
    changed = overlay.replace(str(project.paths.base / "sim/secrets/node02-bmc"), str(secret)).replace(
        ".rackready/sim/secrets/node02-bmc", str(secret)
    )
    assert changed != overlay
    project.paths.overlay.write_text(changed + "campaign: {provision_timeout_s: 25}\n", encoding="utf-8")
    assert project.run("sim", "inject", "node04", "host-unreachable")[0] == 0
    code, document = project.json("provision")
    project.paths.overlay.write_text(overlay, encoding="utf-8")
    found = rows(document)
    assert code == 1
    assert {name: row["outcome"] for name, row in found.items()} == {
        "node01": "pass",
        "node02": "error",
        "node03": "pass",
        "node04": "error",
    }
    assert found["node02"]["reason"].startswith("node02 BMC "), found["node02"]["reason"]
    assert "401" in found["node02"]["reason"]
    assert str(secret) in found["node02"]["reason"], "the next step: which password to correct"
    assert "node04" in found["node04"]["reason"]
    assert "SSH" in found["node04"]["reason"]
    assert "not the password" not in found["node02"]["reason"]


def test_both_are_taken_up_again_once_mended(project: Project) -> None:
    assert project.run("sim", "clear", "node04")[0] == 0
    code, document = project.json("provision")
    assert code == 0, document
    times = [entry["node"] for entry in project.power_log() if entry["action"] == "on"]
    assert sorted(times) == ["node01", "node02", "node03", "node04"], "nobody was powered on twice"


def test_a_new_host_key_is_refused_and_accepted_by_one_command(project: Project) -> None:
    """node04 is installed anew by its owner: its host key is another one."""
    old = pinned(project.paths.known_hosts, project.address("node04"))
    project.ssh(
        "node04",
        "rm /etc/ssh/ssh_host_*; ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key; "
        "systemctl restart ssh",
    )
    code, document = project.json("install", "--limit", "node04", "--check")
    assert code == 1
    assert (
        "`rackready hostkey accept node04` shows both keys and pins the new one" in rows(document)["node04"]["reason"]
    ), document
    code, refused = project.json("hostkey", "accept", "node04")
    assert (code, refused["error"].partition(" - ")[0]) == (2, "hostkey accept node04")
    code, document = project.json("hostkey", "accept", "node04", "--yes")
    (row,) = document["hosts"]
    new = project.ssh("node04", "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub").split()[1]
    assert (code, row["outcome"], row["pinned"], row["shown"]) == (
        0,
        "accepted",
        fingerprint(old),
        f"ssh-ed25519 {new}",
    )
    assert row["serial"] == {"expected": "SIM-DGXH100-0004", "actual": "SIM-DGXH100-0004"}


def test_lost_pins_are_rebuilt_for_the_whole_site(project: Project) -> None:
    project.paths.known_hosts.unlink()
    code, document = project.json("hostkey", "accept", "--all", "--yes")
    assert code == 0, document
    assert {row["name"]: row["outcome"] for row in document["hosts"]} == dict.fromkeys(
        ["node01", "node02", "node03", "node04", "leaf01", "leaf02", "scheduler"], "accepted"
    )
    assert len(project.paths.known_hosts.read_text(encoding="utf-8").splitlines()) == 7


HOLD = (
    "python3 -c \"import fcntl, time; f = open('/var/lib/dpkg/lock-frontend', 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); "
    'time.sleep(600)" >/dev/null 2>&1 & echo $!'
)
"""Does on a node what an administrator's own apt does: holds the lock for longer than anybody waits."""

FILLED = {"node02": "/var/cache/apt", "node03": "/var/lib/apt/lists"}
"""Node to the folder that is a file system of its own there, and full."""


@pytest.fixture
def foreign_lock(project: Project) -> Iterator[str]:
    """Somebody else's process holds dpkg's lock on node01. Gives its pid there."""
    settings = project.root / "inventories/sim/group_vars/all.yml"
    settings.parent.mkdir()
    settings.write_text("rackready_lock_wait_s: 4\n", encoding="utf-8")
    pid = project.ssh("node01", HOLD).strip()
    yield pid
    project.ssh("node01", f"kill {pid}")
    shutil.rmtree(settings.parent)


@pytest.fixture
def full_disks(project: Project) -> Iterator[None]:
    for node, folder in FILLED.items():
        project.ssh(
            node,
            f"mount -t tmpfs -o size=2m tmpfs {folder} && mkdir -p {folder}/partial {folder}/archives/partial; "
            f"cat /dev/zero >{folder}/ballast; true",
        )
    yield
    for node, folder in FILLED.items():
        project.ssh(node, f"umount {folder}")


@pytest.mark.usefixtures("full_disks")
def test_full_disks_and_a_foreign_apt_stop_their_nodes_and_no_other(project: Project, foreign_lock: str) -> None:
    code, document = project.json("install")
    found = rows(document)
    assert code == 1
    assert found["node04"]["outcome"] == "pass", found
    assert {found[name]["outcome"] for name in ("node01", "node02", "node03")} == {"fail"}, found
    held = found["node01"]["reason"]
    assert held.startswith('node01: install: task "base : '), held
    assert (
        f"Expected: /var/lib/dpkg/lock-frontend is free within 4 s Actual: held by process {foreign_lock} (python3"
        in held
    )
    assert held.endswith("). Wait until that process has ended, or end it on the node; then run again.")
    for name, folder in FILLED.items():
        full = found[name]["reason"]
        assert full.startswith(f'{name}: install: task "'), full
        assert f"({folder} has 0 MiB free of 2 MiB" in full, full
        assert full.endswith(f"Free disk space on the node in {folder}, then run again."), full


def test_expired_mirror_key(project: Project) -> None:
    mirror, expired = project.paths.base / "sim" / "mirror", project.root / "expired" / "mirror"
    expired.parent.mkdir()
    build_repo(load_site("sim", root=project.root), expired, key_days=-1)
    for path in expired.iterdir():  # in place: the mirror serves this very folder
        if path.is_file():
            shutil.copyfile(path, mirror / path.name)
    code, document = project.json("install", "--limit", "node01")
    assert code == 1
    reason = rows(document)["node01"]["reason"]
    assert reason.startswith("node01: install: task ")
    assert "EXPKEYSIG" in reason or "expired" in reason, reason
    assert "Expected: package lists signed by the mirror's key" in reason


def test_full_disk_on_the_controller(project: Project) -> None:
    """The state folder is a file system of its own that is full: said at once, and nothing is touched."""
    state = project.paths.base / "full"
    state.mkdir(mode=0o700)
    (project.root / "inventories" / "full").mkdir()
    (project.root / "inventories" / "full" / "site.yml").write_bytes(project.paths.site_file.read_bytes())
    before = len(project.power_log())
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", str(state)], check=True)
    try:
        (state / "ballast").write_bytes(b"\0" * 60_000)
        code, document = project.json("deploy", "--env", "full")
    finally:
        subprocess.run(["umount", str(state)], check=True)
    assert code == 2
    assert "Free disk space" in document["error"], document
    assert len(project.power_log()) == before
