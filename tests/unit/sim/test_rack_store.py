"""What the rack keeps on disk: never lost halfway, private, and made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready_sim.errors import SimError
from rackready_sim.store import Record, Store, write_json


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_secrets_are_made_once_and_kept(store: Store) -> None:
    store.ensure_secrets(["node01", "node02"], ["leaf01"])
    first = {path.name: path.read_text() for path in store.secret("x").parent.iterdir()}
    key = store.key.read_text()
    store.ensure_secrets(["node01", "node02", "node03"], ["leaf01"])
    after = {path.name: path.read_text() for path in store.secret("x").parent.iterdir()}
    assert set(after) == {*first, "node03-bmc"}
    assert {name: after[name] for name in first} == first
    assert store.key.read_text() == key
    assert first["node01-bmc"] != first["node02-bmc"]


def test_everything_is_private_to_its_owner(store: Store) -> None:
    store.ensure_secrets(["node01"], [])
    store.save(Record("ab12cd", "sim", "10.64.7.0/24", "127.9.8"))
    for path in [store.base, *store.base.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0 or path.suffix == ".pub", path


def test_the_record_comes_back_as_it_was(store: Store) -> None:
    assert store.load() is None
    record = Record("ab12cd", "sim", "10.64.7.0/24", "127.9.8", "image", {"node01": "digest"})
    store.save(record)
    assert store.load() == record


def test_a_damaged_record_names_the_way_out(store: Store) -> None:
    store.save(Record("ab12cd", "sim", "10.64.7.0/24", "127.9.8"))
    store.record_file.write_text('{"clone": "ab')
    with pytest.raises(
        SimError, match=r"rack\.json - Expected: the record of a simulated rack .*`rackready sim down` removes the rack"
    ):
        store.load()


def test_a_file_is_replaced_whole_and_leaves_no_part_behind(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"old": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", {"new": object()})
    assert (tmp_path / "x.json").read_text() == '{\n "old": 1\n}\n'
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_a_missing_hardware_state_says_what_to_run(store: Store) -> None:
    with pytest.raises(
        SimError, match=r"node01: hardware state - Expected: a file at .* Actual: none\. Run `rackready sim up`"
    ):
        store.state("node01")


def test_readers_share_a_hardware_state_until_it_is_written_anew(store: Store) -> None:
    store.write_state("node01", {"boot_count": 1})
    shared = store.seen("node01")
    assert store.seen("node01") is shared
    assert store.state("node01") is not shared, "a writer changes its own"
    store.write_state("node01", {"boot_count": 2})
    assert store.seen("node01") == {"boot_count": 2}
    (store.hardware("node01") / "state.json").unlink()
    with pytest.raises(SimError, match=r"node01: hardware state - Expected: a file at .* Actual: none\."):
        store.seen("node01")


def test_a_moved_state_folder_is_read_at_its_new_place(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write_state("node01", {"boot_count": 1})
    assert store.seen("node01") == {"boot_count": 1}
    monkeypatch.setenv("RACKREADY_STATE", str(tmp_path / "moved"))
    store.write_state("node01", {"boot_count": 2})
    assert store.seen("node01") == {"boot_count": 2}
