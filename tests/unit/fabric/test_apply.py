"""Bringing a switch to its configuration: changed once, then never; safe to kill between any two commands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rackready.design.site import load_site
from rackready.design.switches import SwitchConfig, switch_config
from rackready.drivers.switch.apply import OPERATION, ApplyResult, ConfigDifference, apply_config, differences
from rackready.drivers.switch.base import SwitchBusyError, SwitchError, SwitchRevertedError
from rackready.drivers.switch.cumulus_nvue import CumulusNvue
from rackready.drivers.switch.nvue_text import document, expand_commands
from rackready.drivers.switch.session import SwitchUnreachableError
from rackready.ledger.store import Ledger
from tests.unit.fabric.fake_nvue import FakeNvue, settings_of

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def config() -> SwitchConfig:
    return switch_config(load_site("example-of-sim", site_file=ROOT / "inventories/sim/site.yml", root=ROOT), "leaf01")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "state.sqlite")


def _apply(fake: FakeNvue, config: SwitchConfig, ledger: Ledger, **options: bool) -> ApplyResult:
    return apply_config(CumulusNvue("leaf01", fake), config, ledger, settle_s=0, **options)


def _applies(fake: FakeNvue) -> list[str]:
    return [command for command in fake.sent if command.startswith("nv config apply -y")]


def test_first_run_commits_with_a_timed_way_back_and_confirms(config: SwitchConfig, ledger: Ledger) -> None:
    fake = FakeNvue()
    applied = _apply(fake, config, ledger)
    assert applied.changed
    assert "swp1 bridge domain br_default access: 901" in applied.diff
    assert _applies(fake) == ["nv config apply -y --confirm 120s"]
    assert fake.sent.index("nv config apply --confirm-yes") > fake.sent.index("nv config apply -y --confirm 120s")
    assert fake.sent[-1] == "nv config save"
    assert fake.before is None


def test_differences_name_wanted_and_applied_values_and_change_nothing(config: SwitchConfig, ledger: Ledger) -> None:
    fake = FakeNvue()
    _apply(fake, config, ledger)
    driver = CumulusNvue("leaf01", fake)
    assert differences(driver, config, ledger) == []
    setting = "nv set interface swp3 link mtu 9216"
    fake.applied |= settings_of("nv set interface swp3 link mtu 1500")
    fake.applied.pop(next(iter(settings_of("nv set interface swp4 link mtu 9216"))))
    fake.sent.clear()
    assert differences(driver, config, ledger) == [
        ConfigDifference(setting, removes=False, wanted="9216", actual="1500"),
        ConfigDifference("nv set interface swp4 link mtu 9216", removes=False, wanted="9216", actual="none"),
    ]
    assert all(command.startswith(("nv show", "nv config show")) for command in fake.sent), fake.sent


def test_second_run_sends_nothing_that_changes(config: SwitchConfig, ledger: Ledger) -> None:
    fake = FakeNvue()
    _apply(fake, config, ledger)
    fake.sent.clear()
    assert not _apply(fake, config, ledger).changed
    assert all(command.startswith(("nv show", "nv config show", "nv config revision")) for command in fake.sent), (
        fake.sent
    )


def test_only_what_is_missing_is_set(config: SwitchConfig, ledger: Ledger) -> None:
    fake = FakeNvue()
    _apply(fake, config, ledger)
    fake.applied[("nv", "set", "interface", "swp3", "link", "mtu")] = "1500"
    fake.sent.clear()
    assert _apply(fake, config, ledger).changed
    assert [command for command in fake.sent if command.startswith("nv set")] == ["nv set interface swp3 link mtu 9216"]


def test_a_check_changes_nothing_and_shows_the_difference(config: SwitchConfig, ledger: Ledger) -> None:
    fake = FakeNvue()
    applied = _apply(fake, config, ledger, check=True)
    assert applied.changed
    assert "+ nv set interface swp1 bridge domain br_default access 901" in applied.diff
    assert set(applied.ports) == {port.name for port in config.ports}
    assert not [command for command in fake.sent if "set" in command.split()[1] or "apply" in command]


def test_a_check_names_the_ports_that_would_change_as_data(config: SwitchConfig, ledger: Ledger) -> None:
    fake = FakeNvue()
    _apply(fake, config, ledger)
    assert _apply(fake, config, ledger, check=True) == ApplyResult(changed=False)
    fake.applied[("nv", "set", "interface", "swp3", "link", "mtu")] = "1500"
    assert _apply(fake, config, ledger, check=True).ports == ("swp3",)


def test_older_release_takes_the_older_syntax(config: SwitchConfig, ledger: Ledger) -> None:
    fake = FakeNvue(release="5.13.1")
    assert _apply(fake, config, ledger).changed
    assert "nv config patch" in fake.sent
    assert fake.applied[("nv", "set", "qos", "roce", "enable")] == "on"


def test_many_settings_go_over_as_one_document(config: SwitchConfig, ledger: Ledger) -> None:
    fake = FakeNvue()
    _apply(fake, config, ledger)
    assert [command for command in fake.sent if command.startswith(("nv set", "nv config patch"))] == [
        "nv config patch"
    ]
    by_commands = FakeNvue(documents=False)
    CumulusNvue("leaf01", by_commands).load(CumulusNvue("leaf01", fake).wanted(config))
    assert fake.applied == by_commands.contents[by_commands.attached]


def test_a_switch_that_takes_no_document_gets_the_commands(config: SwitchConfig, ledger: Ledger) -> None:
    fake = FakeNvue(documents=False)
    assert _apply(fake, config, ledger).changed
    assert fake.sent.count("nv config patch") == 1
    assert "nv set bridge domain br_default vlan 901,902,903,904" in fake.sent
    assert len(_applies(fake)) == 1


@pytest.mark.parametrize("forgets", [True, False])
def test_of_a_document_that_is_refused_the_command_at_fault_is_named_and_nothing_is_left(*, forgets: bool) -> None:
    fake = FakeNvue(release="5.13.1", forgets=forgets)
    driver = CumulusNvue("leaf01", fake)
    with pytest.raises(
        SwitchError,
        match=r"leaf01: `nv set qos roce state enabled` refused - Expected: accepted Actual: Error: Invalid parameter",
    ):
        driver.load(["nv set interface swp1 link mtu 9216", "nv set qos roce state enabled"])
    assert fake.sent[:3] == ["nv config revision -o json", "nv config patch", "nv config detach"]
    assert [value["state"] for value in fake.revisions.values()] == ["applied"]


def test_a_document_reads_as_the_switch_prints_its_own() -> None:
    lines = [
        "nv set interface swp1 description 'node01 rail1: (rackready)'",
        "nv set interface swp1 link state up",
        "nv set interface swp1 link mtu 9216",
        "nv set qos roce enable on",
        "nv set bridge domain br_default vlan 901",
    ]
    assert document(expand_commands("\n".join(lines))) == (
        "- set:\n"
        "    bridge:\n"
        "      domain:\n"
        "        br_default:\n"
        "          vlan:\n"
        "            '901': {}\n"
        "    interface:\n"
        "      swp1:\n"
        "        description: 'node01 rail1: (rackready)'\n"
        "        link:\n"
        "          mtu: 9216\n"
        "          state:\n"
        "            up: {}\n"
        "    qos:\n"
        "      roce:\n"
        "        enable: 'on'\n"
    )


def test_a_change_that_does_not_verify_is_taken_back(config: SwitchConfig, ledger: Ledger) -> None:
    fake = FakeNvue(ignores_mtu=True)
    with pytest.raises(SwitchRevertedError) as caught:
        _apply(fake, config, ledger)
    assert str(caught.value).startswith(
        "leaf01: the change was applied, did not verify and was rolled back. leaf01 swp1: MTU - Expected: 9216 bytes "
        "Actual: 1500 bytes. "
    )
    assert fake.applied == {}
    assert ledger.latest("leaf01", OPERATION).status == "failed"


@pytest.mark.parametrize(
    ("dies_at", "again", "note"),
    [
        ("nv config patch", 1, "dropped the candidate of an interrupted run"),
        ("nv config diff", 1, "dropped the candidate of an interrupted run"),
        ("nv config apply -y", 0, "confirmed what an interrupted run had applied"),
        ("nv config apply --confirm-yes", 0, ""),
    ],
)
def test_killed_between_two_commands_goes_on(
    config: SwitchConfig, ledger: Ledger, dies_at: str, again: int, note: str
) -> None:
    fake = FakeNvue(dies_at=dies_at)
    with pytest.raises(SwitchUnreachableError):
        _apply(fake, config, ledger)
    fake.attached = ""
    fake.sent.clear()
    applied = _apply(fake, config, ledger)
    assert len(_applies(fake)) == again
    assert note in applied.note
    assert fake.before is None
    assert "nv config save" in fake.sent
    assert ledger.latest("leaf01", OPERATION).status == "done"
    assert not [entry for entry in ledger.entries("leaf01") if entry.status == "intent"]


def test_killed_before_confirm_and_reverted_by_time_is_done_again(config: SwitchConfig, ledger: Ledger) -> None:
    fake = FakeNvue(dies_at="nv config apply -y")
    with pytest.raises(SwitchUnreachableError):
        _apply(fake, config, ledger)
    fake.time_runs_out()
    assert _apply(fake, config, ledger).changed
    assert fake.before is None


def test_what_a_killed_run_applied_is_taken_back_when_the_site_wants_something_else(
    config: SwitchConfig, ledger: Ledger
) -> None:
    fake = FakeNvue(dies_at="nv config apply -y")
    with pytest.raises(SwitchUnreachableError):
        _apply(fake, config, ledger)
    other = replace(config, ports=config.ports[:4])
    applied = _apply(fake, other, ledger)
    assert "rolled back what an interrupted run had applied" in applied.note
    assert not any("swp9" in key for key in fake.applied)


def test_somebody_elses_candidate_is_refused_and_left_alone(config: SwitchConfig, ledger: Ledger) -> None:
    fake = FakeNvue()
    number = fake.pending_by("maria", "nv set system hostname spine09")
    with pytest.raises(SwitchBusyError) as caught:
        _apply(fake, config, ledger)
    assert str(caught.value) == (
        "leaf01: revision 2 of user maria is pending - Expected: no other change in progress. "
        "Nothing was changed; run again once it is applied, or dropped with `nv config delete 2`."
    )
    assert fake.revisions[number]["state"] == "pending"
    assert fake.applied == {}


def test_somebody_elses_unconfirmed_change_is_refused(config: SwitchConfig, ledger: Ledger) -> None:
    fake = FakeNvue()
    number = fake.pending_by("maria", "nv set system hostname spine09")
    fake.attached = number
    fake.run("nv config apply -y --confirm 600s")
    with pytest.raises(
        SwitchBusyError,
        match="revision 2 of user maria waits for confirmation - Expected: no other change in progress",
    ):
        _apply(fake, config, ledger)
    assert fake.before is not None


def test_a_candidate_that_stays_after_a_refusal_is_nobody_elses_change(config: SwitchConfig, ledger: Ledger) -> None:
    """The document is refused, its candidate detached, and the commands go over one by one: then the run is done."""
    fake = FakeNvue(documents=False)
    number = fake.pending_by("maria", "")
    fake.contents[number] = dict(fake.applied)
    assert _apply(fake, config, ledger).changed
    assert [key for key, value in fake.revisions.items() if value["state"] == "pending"] == [number]
    assert not _apply(FakeNvue(applied=fake.applied), config, ledger).changed


@pytest.mark.parametrize("forgets", [True, False])
def test_a_refused_command_drops_the_candidate(*, forgets: bool) -> None:
    fake = FakeNvue(release="5.15.0", forgets=forgets)
    driver = CumulusNvue("leaf01", fake)
    with pytest.raises(SwitchError) as caught:
        driver.load(["nv set qos roce enable on"])
    assert str(caught.value) == (
        "leaf01: `nv set qos roce enable on` refused - Expected: accepted Actual: Error: Invalid parameter. "
        "One of: mode, enable. "
        "Nothing was applied; the release may be too old for it."
    )
    assert [value["state"] for value in fake.revisions.values()] == ["applied"]


def test_desired_commands_are_all_single_settings(config: SwitchConfig) -> None:
    commands = CumulusNvue("leaf01", FakeNvue()).wanted(config)
    assert len(expand_commands("\n".join(commands))) == len(commands)


class _OpenQuote(FakeNvue):
    """A switch whose configuration ends in an open quote."""

    def _answer(self, command: str) -> tuple[int, str]:
        code, text = super()._answer(command)
        return code, text + ("nv set system message post-login '####\n# leaf01\n" if " show " in command else "")


def test_an_open_quote_is_a_refusal_of_that_switch() -> None:
    with pytest.raises(SwitchError) as refused:
        CumulusNvue("leaf01", _OpenQuote()).missing(["nv set qos roce"])
    assert str(refused.value) == (
        "leaf01: `nv config show -o commands` - Expected: commands whose quotes are closed "
        "Actual: No closing quotation. Run it on the switch; look at texts of several lines, such as `system message`."
    )
