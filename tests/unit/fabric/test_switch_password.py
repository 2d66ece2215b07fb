"""A switch's new password: kept first, proven by a second login, taken back when refused, finished when cut."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design.secrets import reveal
from rackready.drivers.secret_store import FileStore
from rackready.drivers.switch import password
from rackready.drivers.switch.base import SwitchBusyError, SwitchDriver, SwitchError
from rackready.drivers.switch.cumulus_nvue import CumulusNvue
from rackready.drivers.switch.password import SWITCH_PASSWORD, Rotation, SwitchPasswordLostError, look
from rackready.drivers.switch.session import SwitchLoginError, SwitchUnreachableError
from rackready.ledger.store import Ledger
from rackready.model.site import Switch
from rackready.paths import EnvPaths
from tests.unit.fabric.fake_nvue import FakeNvue

OLD = "the-Old-one-4711"


class _CutError(Exception):
    """The process was killed here."""


@dataclass
class Nvue(FakeNvue):
    """NVUE with users: the hash of an applied revision is the user's; the way back restores what was before."""

    box: Box | None = None

    def feed(self, command: str, text: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        assert self.box is not None
        if command == "openssl passwd -6 -stdin":
            return 0, f"$6$salt${self.box.hashed(text.strip())}\n"
        if "hashed-password" in text:
            user = yaml.safe_load(text)[0]["set"]["system"]["aaa"]["user"]
            self.box.candidate = user["cumulus"]["hashed-password"].rpartition("$")[2]
            return 0, self._set("nv set system hostname leaf01")[1]
        return super().feed(command, text, timeout_s=timeout_s)

    def _answer(self, command: str) -> tuple[int, str]:
        assert self.box is not None
        if command.startswith("nv config apply -y") and self.box.candidate:
            self.box.before, self.box.works = self.box.works, self.box.of_hash[self.box.candidate]
        answer = super()._answer(command)
        if command == "nv config apply --confirm-yes":
            self.box.before = ""
        return answer

    def time_runs_out(self) -> None:
        super().time_runs_out()
        assert self.box is not None
        if self.box.before:
            self.box.works, self.box.before = self.box.before, ""


class Bash:
    """SONiC: users are those of Debian."""

    def __init__(self, box: Box) -> None:
        self.box = box

    def feed(self, command: str, text: str, *, timeout_s: float = 60.0) -> tuple[int, str]:
        del timeout_s
        assert command == "sudo -n chpasswd"
        user, _, word = text.strip().partition(":")
        assert user == "admin"
        if self.box.policy:
            return 1, f"BAD PASSWORD: {word}"
        self.box.works = word
        return 0, ""

    def close(self) -> None:
        """Nothing to end."""


@dataclass
class Box:
    """One switch. ``deaf``: it accepts a new password and refuses the login; ``tried``: the passwords of logins."""

    works: str = OLD
    deaf: bool = False
    policy: bool = False
    late: bool = False
    """The change's time limit ends right after a login with the new password."""
    candidate: str = ""
    before: str = ""
    tried: list[str] = field(default_factory=list)
    of_hash: dict[str, str] = field(default_factory=dict)
    nvue: Nvue = field(default_factory=Nvue)

    def hashed(self, word: str) -> str:
        self.of_hash[f"h{len(self.of_hash)}"] = word
        return f"h{len(self.of_hash) - 1}"

    def login(self, _paths: EnvPaths, switch: Switch) -> tuple[Any, str]:
        assert switch.password is not None
        word = reveal(switch.password)
        self.tried.append(word)
        if word != self.works or (self.deaf and word != OLD):
            raise SwitchLoginError(switch.name, "SSH login refused", expected="accepted", actual="password refused")
        self.nvue.box = self
        if self.late and word != OLD:
            self.nvue.time_runs_out()
        return (self.nvue if switch.os == "cumulus_nvue" else Bash(self)), ""


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Box:
    made = Box()
    monkeypatch.setattr(password, "open_session", made.login)
    monkeypatch.setattr(CumulusNvue, "login_pause_s", 0.0)
    return made


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.sqlite") as found:
        yield found


def switch(tmp_path: Path, os: str = "cumulus_nvue", **more: Any) -> Switch:
    file = tmp_path / "leaf01"
    if not file.exists():
        file.write_text(OLD + "\n", encoding="utf-8")
    given = {"name": "leaf01", "os": os, "model": "sn5600", "address": "192.0.2.21", "password": {"file": str(file)}}
    return Switch.model_validate(given | more)


def rotate(ledger: Ledger, item: Switch) -> list[str]:
    said: list[str] = []
    Rotation(ledger, EnvPaths(ledger.home.parent, "sim"), item, said.append).run()
    return said


def pending(tmp_path: Path) -> Path:
    return tmp_path / "leaf01.pending"


def kept(tmp_path: Path) -> str:
    return (tmp_path / "leaf01").read_text(encoding="utf-8").strip()


def statuses(ledger: Ledger) -> list[str]:
    return [entry.status for entry in ledger.entries("leaf01") if entry.operation == SWITCH_PASSWORD]


SYSTEMS = pytest.mark.parametrize("os", ["cumulus_nvue", "sonic"])


@SYSTEMS
def test_a_new_password_is_set_proven_and_kept(
    box: Box, ledger: Ledger, tmp_path: Path, os: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    assert rotate(ledger, switch(tmp_path, os)) == [f"leaf01: has a new password, in file {tmp_path / 'leaf01'}"]
    assert (box.works, box.tried, pending(tmp_path).exists()) == (kept(tmp_path), [OLD, kept(tmp_path)], False)
    assert kept(tmp_path) != OLD
    assert statuses(ledger) == ["done"]
    shown = caplog.text + repr(ledger.entries("leaf01")) + repr(box.nvue.sent)
    for word in (OLD, kept(tmp_path), "$6$salt"):
        assert word not in shown
        assert word.encode() not in (tmp_path / "ledger.sqlite").read_bytes()
    if os == "cumulus_nvue":
        assert [line for line in box.nvue.sent if "apply" in line or "save" in line] == [
            "nv config apply -y --confirm 300s",
            "nv config apply --confirm-yes",
            "nv config save",
        ]


@SYSTEMS
def test_a_switch_that_refuses_the_new_password_gets_the_old_one_back(
    box: Box, ledger: Ledger, tmp_path: Path, os: str
) -> None:
    box.deaf = True
    with pytest.raises(SwitchError) as caught:
        rotate(ledger, switch(tmp_path, os))
    assert str(caught.value) == (
        "leaf01: the new password - Expected: a login with it, after the switch accepted it Actual: refused; the old "
        "one was put back over the session that stayed open. Look at the switch's rules for passwords, then run "
        f"again: it tries {pending(tmp_path)} first."
    )
    assert (box.works, kept(tmp_path), pending(tmp_path).exists()) == (OLD, OLD, True)


def test_a_password_that_the_rules_refuse_changes_nothing(box: Box, ledger: Ledger, tmp_path: Path) -> None:
    box.policy = True
    with pytest.raises(SwitchError) as caught:
        rotate(ledger, switch(tmp_path, "sonic"))
    assert str(caught.value) == (
        "leaf01: `sudo chpasswd` for admin - Expected: success Actual: exit 1. Nothing was changed. Look at "
        "PASSW_HARDENING in CONFIG_DB; sudo must ask for no password."
    )
    assert box.works == OLD


CUTS = {
    "before the pending password": (FileStore, "prepare", False, "has a new password"),
    "pending, not set": (FileStore, "prepare", True, "the old password works, the new one is set again"),
    "set, not proven": (Rotation, "_prove", False, "the new password works and is now in"),
    "proven, not in place": (FileStore, "promote", False, "the new password works and is now in"),
    "in place, not recorded": (FileStore, "promote", True, "has a new password"),
}


@SYSTEMS
@pytest.mark.parametrize("where", CUTS)
def test_a_cut_change_is_finished_with_one_try_each(
    box: Box, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, os: str, where: str
) -> None:
    owner, name, after, message = CUTS[where]
    real = getattr(owner, name)

    def killed(*args: Any) -> None:
        if after:
            real(*args)
        raise _CutError

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, killed)
        with pytest.raises(_CutError):
            rotate(ledger, switch(tmp_path, os))
    box.tried.clear()
    said = rotate(ledger, switch(tmp_path, os))
    assert any(message in line for line in said), said
    assert box.works == kept(tmp_path)
    assert not pending(tmp_path).exists()
    assert max(box.tried.count(word) for word in box.tried) <= 2, "once to see which works, once to prove it"
    assert statuses(ledger)[-1] == "done"


def test_a_change_that_was_cut_after_it_was_confirmed_is_saved(
    box: Box, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `nv config save` the start-up configuration has the old password, which nobody keeps any longer."""

    def killed(_self: CumulusNvue) -> None:
        raise _CutError

    with monkeypatch.context() as patched:
        patched.setattr(CumulusNvue, "save", killed)
        with pytest.raises(_CutError):
            rotate(ledger, switch(tmp_path))
    assert "nv config save" not in box.nvue.sent
    rotate(ledger, switch(tmp_path))
    assert box.nvue.sent.count("nv config save") == 1
    assert box.works == kept(tmp_path) != OLD


def test_a_change_that_nvue_took_back_meanwhile_is_made_again(
    box: Box, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_args: object) -> None:
        raise _CutError

    with monkeypatch.context() as patched:
        patched.setattr(Rotation, "_prove", killed)
        with pytest.raises(_CutError):
            rotate(ledger, switch(tmp_path))
    box.nvue.time_runs_out()
    assert box.works == OLD
    assert rotate(ledger, switch(tmp_path))[0] == (
        "leaf01: a change was interrupted; the old password works, the new one is set again"
    )
    assert box.works == kept(tmp_path) != OLD


def test_when_neither_works_each_was_tried_once(box: Box, ledger: Ledger, tmp_path: Path) -> None:
    item = switch(tmp_path)
    pending(tmp_path).write_text("pending-one", encoding="utf-8")
    box.works = "somebody-elses"
    with pytest.raises(SwitchPasswordLostError) as caught:
        rotate(ledger, item)
    assert str(caught.value) == (
        "leaf01: a change of its password was interrupted - Expected: one of the two passwords works Actual: neither "
        f"that in {pending(tmp_path)} nor that in file {tmp_path / 'leaf01'}; each was tried once. Set a password at "
        f"the switch's console, write it to file {tmp_path / 'leaf01'}, remove {pending(tmp_path)}, then run again."
    )
    assert box.tried == ["pending-one", OLD]


def test_a_lost_connection_is_no_refusal(
    box: Box, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = switch(tmp_path)
    pending(tmp_path).write_text("pending-one", encoding="utf-8")

    def silent(*_args: object) -> None:
        raise SwitchUnreachableError("leaf01", "SSH", expected="an answer", actual="none")

    monkeypatch.setattr(password, "open_session", silent)
    with pytest.raises(SwitchUnreachableError):
        rotate(ledger, item)
    assert box.tried == []
    assert pending(tmp_path).exists()


def test_an_unfinished_change_of_somebody_stops_it(box: Box, ledger: Ledger, tmp_path: Path) -> None:
    box.nvue.pending_by("ops", "nv set system hostname x")
    with pytest.raises(SwitchBusyError) as caught:
        rotate(ledger, switch(tmp_path))
    assert str(caught.value) == (
        "leaf01: revision 2 is not finished - Expected: no other change in progress. Nothing was changed. Finish it, "
        "or drop it: `nv config delete 2`."
    )
    assert box.works == OLD


def test_what_cannot_be_changed_is_refused_before_a_login(box: Box, tmp_path: Path) -> None:
    with pytest.raises(SwitchError) as caught:
        look(switch(tmp_path, "arista_eos"))
    assert str(caught.value) == (
        "leaf01: rackready does not change passwords of arista_eos - Expected: a system whose driver does: "
        "cumulus_nvue, sonic Actual: arista_eos. Change it on the switch by hand, then write it to its place."
    )
    with pytest.raises(SwitchError) as caught:
        look(switch(tmp_path, password={"env": "LEAF"}))
    assert str(caught.value) == (
        "leaf01 password - Expected: file, sops or vault, which rackready writes Actual: environment variable LEAF. "
        "Name such a place in the site file."
    )
    with pytest.raises(SwitchError) as caught:
        look(switch(tmp_path, "", address=None, password=None))
    assert str(caught.value) == (
        "leaf01: has no login - Expected: os, address and password. Leave it out: there is no password to change."
    )
    assert look(switch(tmp_path)) == (
        f"leaf01: would set a new random password, kept in {pending(tmp_path)} until it works"
    )
    assert box.tried == []


def test_a_driver_of_others_refuses_by_itself(tmp_path: Path) -> None:
    del tmp_path
    with pytest.raises(SwitchError, match="leaf09: the password of admin - Expected: a driver that changes passwords"):
        SwitchDriver.set_password(CumulusNvue("leaf09", FakeNvue()), "admin", "word")


def test_a_change_whose_time_ends_after_the_login_leaves_both_passwords(
    box: Box, ledger: Ledger, tmp_path: Path
) -> None:
    item = switch(tmp_path)
    box.late = True
    with pytest.raises(SwitchError) as caught:
        rotate(ledger, item)
    assert str(caught.value) == (
        "leaf01: the new password - Expected: the switch keeps it after a login with it Actual: the time for that ran "
        f"out, and the switch took it back. Run again: it tries {pending(tmp_path)} first, then the old one, which "
        "works."
    )
    assert (box.works, (tmp_path / "leaf01").read_text(encoding="utf-8").strip()) == (OLD, OLD)
    assert pending(tmp_path).exists()
    box.late = False
    assert rotate(ledger, item)[-1] == f"leaf01: has a new password, in file {tmp_path / 'leaf01'}"
    assert box.works == (tmp_path / "leaf01").read_text(encoding="utf-8").strip() != OLD


def test_a_cut_change_whose_time_ends_after_the_login_is_set_again(box: Box, ledger: Ledger, tmp_path: Path) -> None:
    item = switch(tmp_path)
    pending(tmp_path).write_text("the-New-one-4711\n", encoding="utf-8")
    box.works, box.before = "the-New-one-4711", OLD
    box.late = True
    with pytest.raises(SwitchError, match="the switch took it back"):
        rotate(ledger, item)
    assert (box.works, (tmp_path / "leaf01").read_text(encoding="utf-8").strip()) == (OLD, OLD)
