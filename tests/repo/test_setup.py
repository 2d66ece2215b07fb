"""Set-up of host packages and the Pulumi engine: three ways in order, helpful refusals, nothing unverified is kept."""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import platform
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("console", "apt", "python_venv", "go_modules", "pulumi_release", "pulumi_modules", "pulumi_engine")
VERSION = "3.250.0"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, ModuleType]]:
    """The modules of scripts/setup, working in an empty folder."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts/setup"))
    before = {name: sys.modules.pop(name) for name in NAMES if name in sys.modules}
    modules = {name: importlib.import_module(name) for name in NAMES}
    monkeypatch.setattr(modules["console"], "PRIVATE", tmp_path)
    monkeypatch.setattr(modules["console"].time, "sleep", lambda _seconds: None)
    for name, value in (
        ("TOOLS", tmp_path / "tools"),
        ("BIN", tmp_path / "tools/bin"),
        ("STAMP", tmp_path / "tools/pulumi.json"),
    ):
        monkeypatch.setattr(modules["pulumi_engine"], name, value)
    yield modules
    for name in NAMES:
        sys.modules.pop(name, None)
    sys.modules.update(before)


def program(version: str) -> bytes:
    return f"#!/bin/sh\necho v{version}\n".encode()


def publish(folder: Path, version: str = VERSION, *, spoil: bool = False) -> str:
    """Lay out a release as its host does: archive and checksums. Returns its address."""
    folder.mkdir(parents=True, exist_ok=True)
    machine = {"x86_64": "x64", "aarch64": "arm64"}[platform.machine()]
    archive = folder / f"pulumi-v{version}-linux-{machine}.tar.gz"
    with tarfile.open(archive, "w:gz") as out:
        for name in ("pulumi", "pulumi-language-python", "pulumi-language-python-exec", "pulumi-language-go"):
            member = tarfile.TarInfo(f"pulumi/{name}")
            member.size = len(program(version))
            out.addfile(member, io.BytesIO(program(version)))
    checksum = hashlib.sha256(archive.read_bytes()).hexdigest()
    (folder / f"pulumi-{version}-checksums.txt").write_text(
        f"{'0' * 64}  other.tar.gz\n{checksum}  {archive.name}\n", encoding="utf-8"
    )
    if spoil:
        archive.write_bytes(archive.read_bytes() + b"x")
    return folder.as_uri()


def put(folder: Path, version: str = VERSION) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("pulumi", "pulumi-language-python", "pulumi-language-python-exec"):
        (folder / name).write_bytes(program(version))
        (folder / name).chmod(0o755)


def stamp(scripts: dict[str, ModuleType]) -> dict[str, str]:
    found: dict[str, str] = json.loads(scripts["pulumi_engine"].STAMP.read_text(encoding="utf-8"))
    return found


def test_pinned_version_is_the_sdks(scripts: dict[str, ModuleType]) -> None:
    assert scripts["pulumi_engine"].pinned_version() == VERSION


def test_engine_on_the_path_is_taken_first(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "usr")
    monkeypatch.setenv("PATH", f"{tmp_path / 'usr'}:/bin:/usr/bin")
    scripts["pulumi_engine"].ensure()
    assert stamp(scripts)["way"] == "found on the PATH"
    assert (tmp_path / "tools/bin/pulumi").resolve() == tmp_path / "usr/pulumi"
    scripts["pulumi_engine"].ensure()
    assert capsys.readouterr().out.endswith(f"Pulumi engine {VERSION}: up to date\n")


def test_release_is_fetched_and_verified(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(tmp_path / "usr", "3.1.0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'usr'}:/bin:/usr/bin")
    monkeypatch.setenv("RACKREADY_PULUMI_RELEASES", publish(tmp_path / "releases"))
    scripts["pulumi_engine"].ensure()
    assert stamp(scripts)["way"] == "official release archive"
    assert sorted(path.name for path in (tmp_path / "tools/bin").iterdir()) == [
        "pulumi",
        "pulumi-language-python",
        "pulumi-language-python-exec",
    ]


def test_archive_with_another_checksum_is_refused(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RACKREADY_PULUMI_RELEASES", publish(tmp_path / "releases", spoil=True))
    (tmp_path / "tools/bin").mkdir(parents=True)
    with pytest.raises(
        scripts["console"].SetupError, match=r"Expected: sha256 [0-9a-f]{64} Actual: [0-9a-f]{64}; it was thrown away"
    ):
        scripts["pulumi_release"].install(VERSION, tmp_path / "tools/bin")
    assert list((tmp_path / "tools/bin").iterdir()) == []


def test_release_host_without_tls_is_refused(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RACKREADY_PULUMI_RELEASES", "http://mirror.example.com")
    with pytest.raises(scripts["console"].SetupError, match="is not https"):
        scripts["pulumi_release"].install(VERSION, tmp_path)


def test_no_way_at_all_says_what_was_tried_and_what_still_works(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("RACKREADY_PULUMI_RELEASES", (tmp_path / "nothing").as_uri())
    with pytest.raises(scripts["console"].SetupError) as caught:
        scripts["pulumi_engine"].ensure()
    text = str(caught.value)
    assert [
        way in text
        for way in (
            "found on the PATH: there is no pulumi",
            "official release archive: file://",
            "built from Go modules: there is no Go",
        )
    ] == [True] * 3
    assert "every other command works" in caught.value.what_to_do


def test_engine_of_another_version_is_replaced(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(tmp_path / "usr")
    monkeypatch.setenv("PATH", f"{tmp_path / 'usr'}:/bin:/usr/bin")
    scripts["pulumi_engine"].ensure()
    (tmp_path / "tools/bin/pulumi").unlink()
    (tmp_path / "tools/bin/pulumi").write_bytes(program("3.0.0"))
    (tmp_path / "tools/bin/pulumi").chmod(0o755)
    scripts["pulumi_engine"].ensure()
    assert scripts["pulumi_engine"].version_of(tmp_path / "tools/bin/pulumi") == VERSION


def test_missing_host_packages_without_root_name_them_and_why(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    apt = scripts["apt"]
    monkeypatch.setattr(apt, "missing", lambda names: names[:2])
    monkeypatch.setattr(apt.os, "geteuid", lambda: 1000)
    with pytest.raises(
        scripts["console"].SetupError, match=r"missing host packages \(the simulated rack\): aardvark-dns apt-utils"
    ) as caught:
        apt.simulated_rack()
    assert "needs root" in caught.value.what_to_do


def test_what_tests_need_of_the_host_is_installed_with_its_reason(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    apt = scripts["apt"]
    installed: list[list[str]] = []
    monkeypatch.setattr(apt, "missing", lambda names: [name for name in names if name == "python3-torch"])
    monkeypatch.setattr(apt.os, "geteuid", lambda: 0)
    monkeypatch.setattr(apt, "_update", lambda: None)
    monkeypatch.setattr(apt, "_install", installed.append)
    apt.of_tests()
    assert installed == [["python3-torch"]]
    assert "python3-torch: PyTorch for CPUs: runs the programs that nodes run on GPUs" in capsys.readouterr().out


def test_database_server_of_tests_is_installed_without_one_that_runs(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    apt, seen = scripts["apt"], []
    monkeypatch.setattr(apt, "missing", lambda names: [name for name in names if name == "postgresql"])
    monkeypatch.setattr(apt, "_CLUSTERS", tmp_path / "createcluster.d")
    monkeypatch.setattr(apt.os, "geteuid", lambda: 0)
    monkeypatch.setattr(
        apt,
        "install",
        lambda names, _why: seen.append((names, (tmp_path / "createcluster.d/rackready.conf").read_text())),
    )
    apt.of_tests()
    assert seen == [(["postgresql"], "create_main_cluster = false\n")]
    assert list((tmp_path / "createcluster.d").iterdir()) == [], "what somebody installs later is as they want it"


@pytest.mark.parametrize(
    "service", ["opensm", "frr", "prometheus", "prometheus-alertmanager", "prometheus-node-exporter"]
)
def test_no_subnet_manager_router_or_monitoring_starts_where_tests_need_its_programs(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, service: str
) -> None:
    apt, unit = scripts["apt"], tmp_path / f"system/{service}.service"
    masked: list[bool] = []
    monkeypatch.setattr(apt, "missing", lambda names: [name for name in names if name == service])
    monkeypatch.setattr(apt, "_UNITS", unit.parent)
    monkeypatch.setattr(apt.os, "geteuid", lambda: 0)
    monkeypatch.setattr(apt, "install", lambda _names, _why: masked.append(unit.resolve() == Path("/dev/null")))
    apt.of_tests()
    apt.of_tests()
    assert masked == [True, True]


def test_cloud_init_is_turned_off_before_tests_get_its_program(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """At the next boot it would give the machine another name, users and host keys."""
    apt, off, lacking = scripts["apt"], tmp_path / "cloud/cloud-init.disabled", ["cloud-init"]
    found: list[bool] = []
    monkeypatch.setattr(apt, "missing", lambda names: [name for name in names if name in lacking])
    monkeypatch.setattr(apt, "_CLOUD_INIT_OFF", off)
    monkeypatch.setattr(apt.os, "geteuid", lambda: 0)
    monkeypatch.setattr(apt, "install", lambda _names, _why: found.append(off.exists()))
    apt.of_tests()
    assert found == [True]
    off.unlink()
    lacking.clear()
    apt.of_tests()
    assert not off.exists(), "a machine that uses it keeps it"


def test_passing_failures_are_retried_and_lasting_ones_raised(scripts: dict[str, ModuleType]) -> None:
    console = scripts["console"]
    calls: list[int] = []

    def flaky() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise console.SetupError("reset by peer", "wait")
        return "done"

    assert console.retried(flaky) == "done"

    def broken() -> str:
        calls.append(1)
        raise console.SetupError("no route", "call somebody")

    calls.clear()
    with pytest.raises(console.SetupError, match="no route"):
        console.retried(broken, times=3)
    assert len(calls) == 3


def test_failing_command_shows_the_end_of_its_output(
    scripts: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = scripts["console"]
    monkeypatch.setattr(console, "ROOT", tmp_path)
    with pytest.raises(console.SetupError) as caught:
        console.run(["sh", "-c", "echo what went wrong; exit 3"], what="doing it", what_to_do="Do this.", cwd=tmp_path)
    assert "doing it: sh ended with status 3\n    what went wrong" in str(caught.value)
    assert caught.value.what_to_do == "Do this. The whole output is in setup.log."


@pytest.mark.parametrize(
    ("version", "refused"), [("go1.19.8", True), ("go1.21.0", False), ("go1.26.8", False), ("devel", True)]
)
def test_old_go_is_refused_in_words_that_help(
    scripts: dict[str, ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    refused: bool,  # noqa: FBT001
) -> None:
    modules = scripts["go_modules"]
    monkeypatch.setattr(modules, "go", lambda *_arguments, **_options: f"go version {version} linux/amd64")
    if not refused:
        modules.check_go()
        return
    with pytest.raises(scripts["console"].SetupError, match=r"Expected: 1\.21 or newer Actual: go version"):
        modules.check_go()


def test_full_disk_is_one_clear_error(tmp_path: Path) -> None:
    """A file where .rackready should be stands for a disk that takes no folder."""
    shutil.copytree(ROOT / "scripts/setup", tmp_path / "scripts/setup", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / ".rackready").touch()
    done = subprocess.run([sys.executable, tmp_path / "scripts/setup"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"set-up failed: {tmp_path / '.rackready'}: File exists\n  What to do: Free disk space or correct permissions"
    )
