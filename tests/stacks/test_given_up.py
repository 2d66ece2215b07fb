"""A node that is given up, or repaired, while its installation is open: no consent to erase outlives that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rackready.drivers.boot_service import BootService
from rackready.drivers.redfish import BootTarget
from rackready.ledger.store import Ledger
from rackready.paths import EnvPaths
from rackready.stacks import imaging as module
from rackready.stacks import power
from rackready.stacks.boot_jobs import jobs_dir
from rackready.stacks.installations import IMAGE
from rackready.stacks.kinds import METAL
from rackready.stacks.machine import MachineIncompleteError
from tests.stacks.fake_media import MediaRedfish
from tests.stacks.fake_rack import FakeRack
from tests.stacks.imaging_parts import ERASE, Bench, Killed, good
from tests.stacks.test_machine import node_args


@pytest.fixture
def paths(tmp_path: Path) -> EnvPaths:
    return EnvPaths(tmp_path, "t", apart=True)


@pytest.fixture
def bench(paths: EnvPaths, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    for name, value in (("_POLL_S", 0.02), ("_POWER_S", 0.0), ("_OFF_S", 1.0)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(power, "_LAG_S", 0.2)
    monkeypatch.setattr(BootService, "medium", lambda self, node: f"{self.media(node)}{'0a' * 16}.iso")
    rack = FakeRack(paths.root / "rack", 1, net=76, kind=MediaRedfish)
    ledger = Ledger.open(paths.root / "state.sqlite")
    made = Bench(rack, ledger, paths.state)
    made.write_job(BootTarget.CD)
    yield made
    ledger.close()
    rack.stop()


def cut_off(bench: Bench, point: str, consent: str = "c1") -> None:
    """An installation with --erase whose controller dies at a line of progress."""
    bench.kill_at = point
    with pytest.raises(Killed):
        bench.machine(good, consent=consent).ensure(made=False)


def plans(bench: Bench) -> list[str]:
    return [path.name for path in (jobs_dir(bench.state) / "node01").glob("plan-*.json")]


def ends(bench: Bench) -> list[tuple[str, object]]:
    entries = [entry for entry in bench.ledger.entries("node01") if entry.operation == IMAGE]
    return [(entry.status, entry.result.get("error")) for entry in entries]


def test_giving_up_ends_the_installation_and_its_consent(bench: Bench) -> None:
    cut_off(bench, "ramdisk: writing")
    bench.machine().remove(made=True)
    assert (bench.node.image, bench.node.power, bench.service.armed()) == ("", "Off", [])
    assert (ends(bench), plans(bench)) == ([("failed", "given up")], [])
    bench.ledger.raise_epoch("node01", "came back")
    erasing: list[bool] = []

    def looks(bench: Bench) -> Iterator[None]:
        while not bench.service.armed():
            yield
        erasing.append(bench.plan["erase"])
        bench.reboot()
        yield from good(bench)

    bench.machine(looks).ensure(made=False)
    assert (erasing, bench.images()) == ([False], ["failed", "done"])


def test_a_node_that_is_imaged_no_more_is_disarmed_all_the_same(bench: Bench) -> None:
    cut_off(bench, "ramdisk: writing")
    bench.without_imaging().remove(made=True)
    assert (bench.node.image, bench.service.armed(), ends(bench)) == ("", [], [("failed", "given up")])


@pytest.mark.parametrize(
    ("point", "words"),
    [("boot service armed", "its installation ended before power-on"), ("ramdisk: writing", "powered off")],
)
def test_what_the_engine_never_recorded_is_given_up_as_well(
    bench: Bench, paths: EnvPaths, point: str, words: str
) -> None:
    cut_off(bench, point)
    assert bench.service.armed() == ["node01"]
    said: list[str] = []
    assert METAL.removed(node_args(bench.rack), bench.ledger, paths, said.append) == words
    assert (bench.node.image, bench.node.power, bench.service.armed()) == ("", "Off", [])
    assert (ends(bench), plans(bench)) == ([("failed", "given up")], [])
    if words == "powered off":
        assert said == ["powered off (done)", "virtual media ejected"]
    else:
        assert said == ["was not powered on by us, its power stays as it is", "virtual media ejected"]
    assert METAL.removed(node_args(bench.rack), bench.ledger, paths, said.append) == ""


def test_a_bmc_that_fails_leaves_no_plan_to_be_fetched(bench: Bench, paths: EnvPaths) -> None:
    cut_off(bench, "boot service armed")
    strange = node_args(bench.rack, serial="OTHER")
    with pytest.raises(Exception, match="OTHER"):
        METAL.removed(strange, bench.ledger, paths, lambda _text: None)
    assert (bench.service.armed(), bench.images()) == ([], ["intent"])


def test_after_a_repair_an_installation_that_erases_is_not_continued_without_consent(bench: Bench) -> None:
    cut_off(bench, "ramdisk: writing")
    bench.ledger.raise_epoch("node01", "disk replaced")
    for _ in range(2):
        with pytest.raises(MachineIncompleteError) as refused:
            bench.machine(good).ensure(made=True)
        assert str(refused.value) == (
            "node01: its installation with --erase was cut off before a repair - Expected: --erase in this run Actual: "
            f"--erase in campaign c1 only. Its disks may be half written: `{ERASE}` erases them and images it again."
        )
    assert (bench.node.image, bench.service.armed(), bench.images()) == ("", [], ["intent"])
    bench.reboot()
    bench.machine(good, consent="c2").ensure(made=True)
    assert ends(bench) == [("failed", "started again with --erase"), ("done", None)]
    assert plans(bench) == []


def test_after_a_repair_an_installation_that_is_written_is_recorded(bench: Bench) -> None:
    cut_off(bench, "ramdisk: done")
    bench.ledger.raise_epoch("node01", "cable replaced")
    bench.machine(good).ensure(made=True)
    assert (bench.images(), bench.node.boots(), bench.service.armed()) == (["done"], 1, [])


@pytest.mark.parametrize("consent", ["c1", ""])
def test_without_a_repair_the_next_run_finishes_a_half_written_disk(bench: Bench, consent: str) -> None:
    cut_off(bench, "ramdisk: writing")
    bench.machine(good, consent=consent).ensure(made=False)
    assert (bench.images(), bench.node.boots()) == (["done"], 1)
    assert "continues the installation that an earlier run started" in bench.said
