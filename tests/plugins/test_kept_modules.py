"""Archives of modules are kept between runs of ansible-playbook, used again, and made again where they are torn."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from rackready.drivers import ansible_modules
from rackready.drivers.ansible_modules import KEPT_S, callbacks

ROOT = Path(__file__).resolve().parents[2]
KEPT = "ansible.modules.ping-ZIP_DEFLATED-none"


def ping(folder: Path, environment: dict[str, str]) -> str:
    """Run the module `ping` on this machine, and return what Ansible printed."""
    playbook = folder / "play.yml"
    tasks = [{"name": "Ping", "ansible.builtin.ping": {}}]
    playbook.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("ansible-playbook")),
            *("-i", "localhost,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}"),
            str(playbook),
        ],
        env=os.environ
        | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_INVENTORY_ENABLED": "host_list"}
        | {"ANSIBLE_LOCAL_TEMP": str(folder), "ANSIBLE_HOME": str(folder)}
        | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_an_archive_is_made_once_and_again_where_it_is_torn(tmp_path: Path) -> None:
    environment = callbacks(tmp_path / "state")
    folder = Path(environment["RACKREADY_MODULES"])
    ping(tmp_path, environment)
    made = folder / KEPT
    whole, number = made.read_bytes(), made.stat().st_ino
    assert len(whole) > 50_000
    assert "WARNING" not in ping(tmp_path, environment)
    assert made.stat().st_ino == number, "the second run packs nothing"
    for torn in (b"", b"\0" * len(whole)):
        made.write_bytes(torn)
        ping(tmp_path, environment)
        assert made.stat().st_size == pytest.approx(len(whole), abs=100)
    assert not list(tmp_path.glob("ansible-local-*")), "each run removes its own folder"


def test_without_a_folder_nothing_is_kept(tmp_path: Path) -> None:
    environment = callbacks(tmp_path / "state")
    folder = Path(environment.pop("RACKREADY_MODULES"))
    ping(tmp_path, environment)
    assert not list(folder.iterdir())


def test_other_code_has_its_own_folder_and_the_old_one_goes_after_a_week(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Path(callbacks(tmp_path)["RACKREADY_MODULES"])
    assert old == Path(callbacks(tmp_path)["RACKREADY_MODULES"])
    assert (old.stat().st_mode & 0o777, old.parent.parent) == (0o700, tmp_path)
    (old / KEPT).write_bytes(b".")
    monkeypatch.setattr(ansible_modules, "sources_digest", lambda: b"other code")
    new = Path(callbacks(tmp_path, "rackready_steps")["RACKREADY_MODULES"])
    assert sorted(old.parent.iterdir()) == sorted([old, new])
    os.utime(old, (time.time() - KEPT_S - 60,) * 2)
    callbacks(tmp_path)
    assert list(old.parent.iterdir()) == [new]
