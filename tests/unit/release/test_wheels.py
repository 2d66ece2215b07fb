"""Wheels of a release: which packages, fetched by the real pip from a folder, and held to their hashes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rackready.drivers.release import closure as closures
from rackready.drivers.release import pip, wheels
from rackready.drivers.release.closure import closure
from rackready.drivers.release.error import ReleaseError
from rackready.drivers.release.objects import Objects
from rackready.drivers.release.wheels import Wheels, locked
from rackready.paths import EnvPaths
from tests.unit.release.world import tiny_wheel

ROOT = Path(__file__).resolve().parents[3]
WANTED = {"pure-part": "1.0", "binary-part": "2.1"}
Make = Callable[[], Wheels]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of wheels, the only index that pip knows."""
    out = tmp_path / "index"
    out.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(out))
    monkeypatch.setattr(wheels, "closure", lambda _python, _processor: WANTED)
    tiny_wheel(out, "pure-part", "1.0")
    tiny_wheel(out, "binary-part", "2.1", "cp311-cp311-manylinux_2_28_x86_64")
    tiny_wheel(out, "binary-part", "2.1", "cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64")
    tiny_wheel(out, "binary-part", "2.1", "cp312-cp312-manylinux_2_34_aarch64")
    return out


@pytest.fixture
def fresh(tmp_path: Path) -> Make:
    """Return a function that makes wheels of the same environment as a new process would."""
    paths = EnvPaths(tmp_path, "sim")
    return lambda: Wheels(paths, Objects(paths.state / "objects"), lock=None)


def write_lock(folder: Path, change: Callable[[str], str] = lambda text: text) -> Path:
    lines = []
    for name, version in WANTED.items():
        files = folder.glob(f"{name.replace('-', '_')}-*.whl")
        hashes = sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in files)
        lines.append(" \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{item}" for item in hashes)]))
    path = folder.parent / "requirements.lock"
    path.write_text(change("\n".join(lines)) + "\n    # via rackready\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("python", "processor", "file"),
    [
        ("3.11", "x86_64", "binary_part-2.1-cp311-cp311-manylinux_2_28_x86_64.whl"),
        ("3.12", "x86_64", "binary_part-2.1-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"),
        ("3.12", "aarch64", "binary_part-2.1-cp312-cp312-manylinux_2_34_aarch64.whl"),
    ],
)
def test_pip_takes_the_wheel_of_the_nodes_python(
    folder: Path, fresh: Make, python: str, processor: str, file: str
) -> None:
    made = fresh()
    made.lock = write_lock(folder)
    found = made.of(python, processor)
    assert [wheel.file for wheel in found] == ["pure_part-1.0-py3-none-any.whl", file]
    assert made.objects.get(found[1].blob) == (folder / file).read_bytes()


def test_what_was_fetched_is_not_fetched_again(folder: Path, fresh: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fresh().of("3.11", "x86_64")
    monkeypatch.setattr(pip, "download", lambda *_: pytest.fail("fetched again"))
    again = fresh()
    assert again.of("3.11", "x86_64") == before
    assert again.objects.kept == {wheel.blob.sha256 for wheel in before}
    assert folder.is_dir()


def test_a_damaged_wheel_is_fetched_again(folder: Path, fresh: Make) -> None:
    wheel = fresh().of("3.11", "x86_64")[0]
    made = fresh()
    path = made.objects.path(wheel.blob.sha256)
    path.chmod(0o644)
    path.write_bytes(b"x")
    assert made.of("3.11", "x86_64")[0] == wheel
    assert made.objects.whole(wheel.blob)
    assert folder.is_dir()


def test_a_file_that_is_not_in_the_lock_is_refused(folder: Path, fresh: Make) -> None:
    made = fresh()
    made.lock = write_lock(folder)
    tiny_wheel(folder, "pure-part", "1.0", text=" # changed on its way")
    got = hashlib.sha256((folder / "pure_part-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    with pytest.raises(ReleaseError) as refused:
        made.of("3.11", "x86_64")
    assert str(refused.value) == (
        f"release build: pure-part==1.0 - Expected: SHA-256 a locked hash Actual: {got[:12]}. "
        "The index has another file of this version: do not use it, and ask who changed it."
    )


def test_without_a_lock_the_hash_of_the_first_download_counts(folder: Path, fresh: Make) -> None:
    first = fresh().of("3.11", "x86_64")[0]
    made = fresh()
    made.objects.path(first.blob.sha256).unlink()
    tiny_wheel(folder, "pure-part", "1.0", text=" # another file of this version")
    with pytest.raises(ReleaseError, match=r"pure-part==1\.0 - Expected: SHA-256 "):
        made.of("3.11", "x86_64")


def test_a_package_without_a_wheel_for_the_node_is_named(folder: Path, fresh: Make) -> None:
    assert folder.is_dir()
    with pytest.raises(ReleaseError) as refused:
        fresh().of("3.13", "x86_64")
    assert str(refused.value) == (
        "release build: binary-part==2.1 - Expected: a wheel for Python 3.13 on x86_64 Actual: none at pip's index. "
        "Mirror it, or put the wheels into a folder and set PIP_NO_INDEX=1 and PIP_FIND_LINKS=FOLDER. Then run again."
    )


def test_an_index_that_does_not_answer_is_said(folder: Path, fresh: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder.is_dir()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(ReleaseError) as refused:
        fresh().of("3.11", "x86_64")
    text = str(refused.value)
    assert text.startswith("release build: wheels for Python 3.11 - Expected: an index that answers pip Actual: ")
    assert text.endswith(
        "Name a mirror (`pip config set global.index-url URL`), or put the wheels into a folder and set "
        "PIP_NO_INDEX=1 and PIP_FIND_LINKS=FOLDER. Then run again."
    )


def test_an_environment_without_pip_is_told_how_to_get_it() -> None:
    error = pip._failure("/venv/bin/python: No module named pip\n", "3.11", "x86_64")
    assert "Expected: pip in the environment of rackready Actual: none. Run `" in str(error)


def test_nodes_get_what_the_controller_runs(folder: Path, fresh: Make) -> None:
    made = fresh()
    made.lock = write_lock(folder, lambda text: text.replace("pure-part==1.0", "pure-part==1.1"))
    with pytest.raises(ReleaseError) as refused:
        made.of("3.11", "x86_64")
    assert str(refused.value) == (
        f"{made.lock}: Python package pure-part - Expected: 1.1, as locked Actual: 1.0 is installed. "
        "Run `make setup`: nodes get what the controller runs."
    )


def test_a_damaged_record_is_no_record(folder: Path, fresh: Make) -> None:
    before = fresh().of("3.11", "x86_64")
    record = fresh().paths.state / "wheels/3.11-x86_64.json"
    assert [row["name"] for row in json.loads(record.read_text(encoding="utf-8"))] == ["binary-part", "pure-part"]
    record.write_text("[{", encoding="utf-8")
    assert fresh().of("3.11", "x86_64") == before
    assert folder.is_dir()


@pytest.mark.parametrize("processor", ["x86_64", "aarch64"])
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_the_closure_is_what_the_lock_has(python: str, processor: str) -> None:
    found = closure(python, processor)
    assert set(closures.ROOTS) <= set(found)
    assert {"cffi", "jinja2", "markupsafe", "pydantic-core", "pyyaml", "pexpect", "packaging"} <= set(found)
    pins = locked((ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines())
    assert {name: version for name, version in found.items() if pins[name][0] != version or not pins[name][1]} == {}


def test_markers_are_judged_for_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dist:
        version = "1"

        def __init__(self, name: str) -> None:
            lines = ['a; python_version < "3.12"', 'b; platform_machine == "aarch64"', 'c; extra == "x"', "d>=1"]
            self.requires = lines if name in closures.ROOTS else None

    monkeypatch.setattr(closures, "distribution", Dist)
    extra = set(closure("3.12", "aarch64")) - set(closures.ROOTS)
    assert extra == {"b", "d"}
    assert set(closure("3.11", "x86_64")) - set(closures.ROOTS) == {"a", "d"}
