"""A kept outline says what the site says, and is never used once anything that decides the site has changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design import site_inputs
from rackready.design.outline import Outline, keep, load_outline, outline_of
from rackready.design.site import load_site
from rackready.design.site_inputs import site_key
from rackready.model.problems import RackreadyError, SiteInvalidError
from rackready.paths import EnvPaths, private_dir

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def paths(tmp_path: Path) -> EnvPaths:
    """Return an environment with two schedulers, whose state exists."""
    paths = EnvPaths(tmp_path, "mixed")
    paths.inventory.mkdir(parents=True)
    paths.site_file.write_bytes((ROOT / "inventories/examples/slurm-and-kubernetes.yml").read_bytes())
    private_dir(paths.state)
    return paths


def no_load(env: str, **_: object) -> None:
    """Stand in for a loader that must not be called."""
    raise AssertionError(env)


def test_the_second_time_the_same_is_said_without_loading_the_site(
    paths: EnvPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load_outline(paths)
    site = load_site(paths.env, root=paths.root)
    assert list(first.nodes) == [node.name for node in site.nodes()]
    assert len(set(first.nodes.values())) > 1  # parts with schedulers of their own
    assert paths.outline.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr("rackready.design.site.load_site", no_load)
    again = load_outline(paths)
    assert again == first
    assert list(again.nodes) == list(first.nodes)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


FILES: dict[str, Callable[[EnvPaths], Path]] = {
    "site": lambda paths: paths.site_file,
    "machines": lambda paths: paths.inventory / "machines.yml",
    "overlay": lambda paths: paths.overlay,
    "pins": lambda paths: paths.bmc_pins,
    "sets": lambda paths: paths.node_sets,
    "profile": lambda paths: paths.inventory / "profiles/platform/own.yml",
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_appears_changes_or_goes_makes_another_key(paths: EnvPaths, name: str) -> None:
    file = FILES[name](paths)
    keys = [site_key(paths)]
    for text in ("a: 1\n", "a: 2\n"):
        _write(file, text)
        keys.append(site_key(paths))
    file.unlink()
    keys.append(site_key(paths))
    assert len(set(keys)) == (4 if name == "site" else 3)  # the last is the first again, except for the site file
    assert site_key(paths) == keys[-1] != ""


@pytest.mark.parametrize("name", [name for name in FILES if name != "profile"])  # a folder there is only a folder
def test_a_file_that_cannot_be_read_gives_no_key(paths: EnvPaths, name: str) -> None:
    file = FILES[name](paths)
    file.unlink(missing_ok=True)
    file.mkdir(parents=True)
    assert site_key(paths) == ""


class _Tomorrow(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> _Tomorrow:  # noqa: ANN401 - as in the standard library
        return cls(2999, 1, 1, tzinfo=tz)


@pytest.mark.parametrize(
    ("name", "value"),
    [("__version__", "99"), ("_code", lambda: ["other code"]), ("datetime", _Tomorrow)],
    ids=["version", "code", "day"],
)
def test_other_code_and_another_day_make_another_key(
    paths: EnvPaths, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    before = site_key(paths)
    monkeypatch.setattr(site_inputs, name, value)
    assert site_key(paths) not in {before, ""}


def test_the_folder_of_state_counts(paths: EnvPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = site_key(paths)
    monkeypatch.setenv("RACKREADY_STATE", str(tmp_path / "elsewhere"))
    assert site_key(paths) != before


def test_a_site_with_plug_ins_is_always_loaded(paths: EnvPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackready.entry_points.plug_ins", lambda group: (group,) if "profiles" in group else ())
    assert site_key(paths) == ""
    load_outline(paths)
    assert not paths.outline.exists()


def test_a_site_file_that_was_broken_since_is_refused_as_by_every_command(paths: EnvPaths) -> None:
    load_outline(paths)
    document = yaml.safe_load(paths.site_file.read_text(encoding="utf-8"))
    document["nmae"] = "typo"
    paths.site_file.write_text(yaml.safe_dump(document), encoding="utf-8")
    with pytest.raises(SiteInvalidError) as refused:
        load_outline(paths)
    with pytest.raises(SiteInvalidError) as known:
        load_site(paths.env, root=paths.root)
    assert str(refused.value) == str(known.value)
    assert "nmae" in str(refused.value)


def test_a_site_that_is_gone_is_refused(paths: EnvPaths) -> None:
    load_outline(paths)
    paths.site_file.unlink()
    with pytest.raises(RackreadyError, match="no such file"):
        load_outline(paths)


def test_the_state_of_another_site_is_refused(paths: EnvPaths) -> None:
    load_outline(paths)
    _write(paths.state_owner, "other-site\n")
    with pytest.raises(RackreadyError, match="Actual: those of site other-site"):
        load_outline(paths)


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda text: text[: len(text) // 2],
        lambda text: json.dumps({**json.loads(text), "schedulers": []}).encode(),
        lambda text: json.dumps({**json.loads(text), "schema": "rackready/site-outline/v0", "nodes": []}).encode(),
        lambda _: b"[]",
    ],
    ids=["empty", "cut", "no-schedulers", "other-schema", "no-mapping"],
)
def test_a_damaged_outline_is_made_again(paths: EnvPaths, damage: Callable[[bytes], bytes]) -> None:
    first = load_outline(paths)
    good = paths.outline.read_bytes()
    paths.outline.write_bytes(damage(good))
    assert load_outline(paths) == first
    assert paths.outline.read_bytes() == good


def test_nothing_is_kept_where_there_is_no_state(paths: EnvPaths) -> None:
    paths.state.rmdir()
    load_outline(paths)
    assert not paths.base.exists() or not paths.outline.exists()


def test_an_edit_while_the_site_is_loaded_keeps_nothing(paths: EnvPaths) -> None:
    key = site_key(paths)
    found = outline_of(load_site(paths.env, root=paths.root))
    with paths.site_file.open("a", encoding="utf-8") as file:
        file.write("# edited\n")
    keep(paths, found, key)
    assert not paths.outline.exists()


def test_a_folder_that_cannot_be_written_stops_nothing(paths: EnvPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rackready.files.replace", full)
    assert isinstance(load_outline(paths), Outline)
    assert not paths.outline.exists()
