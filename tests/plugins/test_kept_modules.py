"""Archives of modules are kept for runs of the same code, and no run needs them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from rackready.drivers import ansible_modules
from rackready.drivers.ansible_modules import RUN_S, callbacks
from rackready.drivers.proof import release

ROOT = Path(__file__).resolve().parents[2]
ARCHIVE = "ansible.modules.ping-ZIP_DEFLATED-none"


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


def kept(state: Path) -> dict[str, int]:
    """Return the archives that are kept of the newest code, with their file numbers."""
    folders = [path for path in (state / "modules").iterdir() if not path.name.startswith("run-")]
    newest = max(folders, key=lambda path: path.stat().st_mtime)
    return {path.name: path.stat().st_ino for path in newest.iterdir()}


def test_a_second_run_uses_what_the_first_packed(tmp_path: Path) -> None:
    for _ in range(2):
        with callbacks(tmp_path / "state") as environment:
            folder = Path(environment["RACKREADY_MODULES"])
            before = {path.name: path.stat().st_ino for path in folder.iterdir()}
            assert "WARNING" not in ping(tmp_path, environment)
            after = {path.name: path.stat().st_ino for path in folder.iterdir() if path.suffix != ".lock"}
        assert list(kept(tmp_path / "state")) == [ARCHIVE]
    assert before == after == kept(tmp_path / "state"), "the second run packs nothing"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("ansible-local-")] == []
    assert not list((tmp_path / "state/modules").glob("run-*")), "each run removes its own folder"


def test_without_a_folder_nothing_is_kept(tmp_path: Path) -> None:
    with callbacks(tmp_path / "state") as environment:
        folder = Path(environment.pop("RACKREADY_MODULES"))
        ping(tmp_path, environment)
        assert not list(folder.iterdir())


def run(state: Path, data: bytes = b"") -> list[str]:
    """Have a run find archives, and pack one where it has ``data``."""
    with callbacks(state) as environment:
        folder = Path(environment["RACKREADY_MODULES"])
        found = sorted(path.name for path in folder.iterdir())
        if data:
            (folder / ARCHIVE).write_bytes(data)
            (folder / f"{ARCHIVE}.lock").touch()
            (folder / "ansible.modules.copy-ZIP_DEFLATED-none-part").write_bytes(b"half")
    return found


def test_code_that_was_edited_meanwhile_is_not_kept_as_the_code_that_was_begun_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = b"old"
    monkeypatch.setattr(ansible_modules, "sources_digest", lambda: code)
    with callbacks(tmp_path) as environment:
        code = b"new"
        Path(environment["RACKREADY_MODULES"], ARCHIVE).write_bytes(b"packed of new code")
    assert run(tmp_path) == []
    code = b"old"
    assert run(tmp_path, b"packed of old code") == [], "nothing was kept"
    assert list(kept(tmp_path)) == [ARCHIVE], "neither locks nor half an archive"


def test_a_run_that_packs_nothing_new_reads_our_code_once_and_counts_as_a_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []
    monkeypatch.setattr(ansible_modules, "sources_digest", lambda: asked.append(b"") or b"code")
    run(tmp_path, b"packed")
    assert len(asked) == 2
    folder = tmp_path / "modules" / b"code".hex()
    os.utime(folder, (1.0, 1.0))
    assert run(tmp_path) == [ARCHIVE]
    assert len(asked) == 3
    assert folder.stat().st_mtime > 1.0


def test_parallel_runs_keep_the_archive_of_the_first(tmp_path: Path) -> None:
    with callbacks(tmp_path) as slow:
        run(tmp_path, b"first")
        Path(slow["RACKREADY_MODULES"], ARCHIVE).write_bytes(b"second")
    (archive,) = tmp_path.glob(f"modules/*/{ARCHIVE}")
    assert archive.read_bytes() == b"first"
    assert archive.parent.stat().st_mode & 0o777 == 0o700


def test_a_run_that_is_stopped_keeps_what_it_packed(tmp_path: Path) -> None:
    stopped = ExitStack()
    environment = stopped.enter_context(callbacks(tmp_path))
    Path(environment["RACKREADY_MODULES"], ARCHIVE).write_bytes(b"whole")
    with pytest.raises(KeyboardInterrupt), stopped:
        raise KeyboardInterrupt
    assert run(tmp_path) == [ARCHIVE]


def test_folders_of_other_code_and_of_killed_runs_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = b"0"
    monkeypatch.setattr(ansible_modules, "sources_digest", lambda: digest)
    now = time.time()
    for number in range(6):
        digest = bytes([number])
        run(tmp_path, b"packed")
        os.utime(tmp_path / "modules" / digest.hex(), (now - 60 + number,) * 2)
    for name, age in (("run-killed", RUN_S + 60), ("run-beside", RUN_S - 60)):
        (tmp_path / "modules" / name).mkdir()
        os.utime(tmp_path / "modules" / name, (now - age,) * 2)
    assert run(tmp_path) == [ARCHIVE]
    assert sorted(path.name for path in (tmp_path / "modules").iterdir()) == ["02", "03", "04", "05", "run-beside"]


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda _state, patch: patch.setattr(ansible_modules, "sources_digest", gone), "No such file"),
        (lambda state, _patch: (state / "modules").write_text("a file"), "File exists"),
    ],
    ids=["a file of our code is a broken link", "its folder is a file"],
)
def test_where_archives_cannot_be_kept_the_run_packs_them_and_the_log_says_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[Path, pytest.MonkeyPatch], object],
    why: str,
) -> None:
    caplog.set_level("INFO")
    spoil(tmp_path, monkeypatch)
    with callbacks(tmp_path, "rackready_steps") as environment:
        assert environment["ANSIBLE_CALLBACKS_ENABLED"] == "rackready_modules,rackready_steps"
        assert "RACKREADY_MODULES" not in environment
    (line,) = caplog.messages
    assert line.startswith("Ansible packs all modules, their archives are not kept: ")
    assert why in line


def test_a_full_disk_at_the_end_fails_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> bool:
        raise OSError(28, "No space left on device")

    caplog.set_level("INFO")
    monkeypatch.setattr(ansible_modules.files, "create", full)
    run(tmp_path, b"packed")
    assert caplog.messages == ["archives of modules are not kept: [Errno 28] No space left on device"]
    assert not list((tmp_path / "modules").glob("run-*"))


def gone() -> bytes:
    """Read a link that leads nowhere."""
    raise FileNotFoundError(2, "No such file or directory", ".#main.yml")


def test_an_installed_package_counts_the_copy_that_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "shipped", lambda: tmp_path)
    monkeypatch.setattr(release, "is_checkout", lambda: False)
    copy = tmp_path / "src/rackready/ondevice/dpkg.py"
    copy.parent.mkdir(parents=True)
    copy.write_text("ONE = 1\n")
    before = release.sources_digest()
    copy.write_text("ONE = 2\n")
    assert release.sources_digest() != before
