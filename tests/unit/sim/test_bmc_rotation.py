"""Passwords of BMCs: rotated from the factory's, by vendor, cut at every step, and never seen anywhere."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ansible.parsing.vault import VaultLib, VaultSecret

from rackready.design.secrets import reveal
from rackready.drivers import bmc_password, redfish
from rackready.drivers.bmc_password import (
    BMC_PASSWORD,
    BmcPasswordPlaceError,
    needs_rotation,
    new_password,
    rotate,
)
from rackready.drivers.redfish import Bmc
from rackready.drivers.redfish_errors import BmcError, BmcLoginError, BmcPasswordChangeError
from rackready.drivers.secret_store import FileStore, SecretUnwritableError, VaultStore
from rackready.ledger.store import Ledger
from rackready.model.bmc import Bmc as BmcSite
from rackready.stacks.args import NodeArgs
from rackready.stacks.machine import MachineIncompleteError, StackMachine
from tests.unit.sim.bmc_service import ADDRESS, FACTORY, NODE, Service, served

VENDORS = {"dgx_h100": "2", "gb200": "admin", "dell": "3", "lenovo": "1", "hpe": "1", "supermicro": "2"}


class _CutError(Exception):
    """The process was killed here."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redfish, "_PAUSE_S", 0.01)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with served(tmp_path) as found:
        found.is_a("dgx_h100", factory_password=FACTORY)
        yield found


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.sqlite") as found:
        yield found


@pytest.fixture
def site(service: Service, tmp_path: Path) -> BmcSite:
    factory = tmp_path / "factory"
    factory.write_text(FACTORY, encoding="utf-8")
    return service.site(password={"file": str(own(tmp_path))}, factory_password={"file": str(factory)})


def own(tmp_path: Path) -> Path:
    return tmp_path / "secrets" / f"{NODE}-bmc"


def pending(tmp_path: Path) -> Path:
    return tmp_path / "secrets" / f"{NODE}-bmc.pending"


def reads(site: BmcSite) -> str:
    with Bmc(NODE, site) as bmc:
        return bmc.identify().serial


def statuses(ledger: Ledger) -> list[str]:
    return [entry.status for entry in ledger.entries(NODE) if entry.operation == BMC_PASSWORD]


def cut(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    def killed(*_args: object, **_more: object) -> None:
        raise _CutError

    monkeypatch.setattr(owner, name, killed)


def cut_after(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    real: Callable[..., object] = getattr(owner, name)

    def killed(*args: object, **more: object) -> None:
        real(*args, **more)
        raise _CutError

    monkeypatch.setattr(owner, name, killed)


@pytest.mark.parametrize("vendor", VENDORS)
def test_the_factory_password_is_changed_before_anything_is_read(
    service: Service, site: BmcSite, ledger: Ledger, tmp_path: Path, vendor: str
) -> None:
    service.is_a(vendor, factory_password=FACTORY, told=vendor != "dgx_h100")  # that one by its quirk
    assert needs_rotation(site)
    said: list[str] = []
    rotate(ledger, NODE, site, said.append)
    assert said == [f"{NODE}: the BMC has a password of its own, in file {own(tmp_path)}"]
    changed = [item for item in service.asked if item.startswith("PATCH")]
    assert set(changed) == {f"PATCH /redfish/v1/AccountService/Accounts/{VENDORS[vendor]}"}
    before = service.asked[: service.asked.index(changed[0])]
    assert set(before) <= {"GET /redfish/v1/", "POST /redfish/v1/SessionService/Sessions"}
    assert (own(tmp_path).stat().st_mode & 0o777, pending(tmp_path).exists()) == (0o600, False)
    assert reads(site) == "SERIAL-3"
    assert not needs_rotation(site)
    assert statuses(ledger) == ["done"]


def test_a_later_change_needs_the_account_by_name(service: Service, tmp_path: Path, ledger: Ledger) -> None:
    service.is_a("dell")
    own(tmp_path).parent.mkdir()
    old = service.rack.store.secret(f"{NODE}-bmc").read_text(encoding="utf-8")
    own(tmp_path).write_text(old, encoding="utf-8")
    site = service.site(password={"file": str(own(tmp_path))})
    assert not needs_rotation(site)
    rotate(ledger, NODE, site, [].append)
    assert own(tmp_path).read_text(encoding="utf-8") != old
    rotate(ledger, NODE, site, [].append)
    assert statuses(ledger) == ["done", "done"]
    assert reads(site) == "SERIAL-3"


def test_a_read_of_a_factory_bmc_names_the_command(service: Service, tmp_path: Path) -> None:
    factory = tmp_path / "factory"
    factory.write_text(FACTORY, encoding="utf-8")
    with (
        Bmc(NODE, service.site(password={"file": str(factory)})) as bmc,
        pytest.raises(BmcPasswordChangeError) as caught,
    ):
        bmc.identify()
    assert str(caught.value) == (
        f"{NODE} BMC {ADDRESS}:{service.server.server_port}: user admin has the password of the factory - "
        "Expected: a password of its own Actual: the BMC refuses everything until it is changed. "
        "Name it in bmc.factory_password, then run `rackready bmc rotate NODE`."
    )


CUTS = {
    "before the pending password": ("prepare", False, "has a password of its own"),
    "pending, not set": ("prepare", True, "the old password works, the new one is set again"),
    "set, not proven": ("works", False, "the pending password works and is now in"),
    "proven, not in place": ("promote", False, "the pending password works and is now in"),
    "in place, not recorded": ("promote", True, "works; the change was not recorded as done"),
}


@pytest.mark.parametrize("where", CUTS)
def test_a_cut_change_is_finished_with_one_try_each(
    service: Service, site: BmcSite, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    step, after, message = CUTS[where]
    owner, name = {
        "prepare": (FileStore, "prepare"),
        "works": (bmc_password._Rotation, "_works"),
        "promote": (FileStore, "promote"),
    }[step]
    with monkeypatch.context() as patched:
        (cut_after if after else cut)(patched, owner, name)
        with pytest.raises(_CutError):
            rotate(ledger, NODE, site, [].append)
    assert statuses(ledger) == ["intent"]
    before = service.logins()
    said: list[str] = []
    rotate(ledger, NODE, site, said.append)
    assert any(message in line for line in said), said
    assert statuses(ledger)[-1] == "done"
    assert not pending(tmp_path).exists()
    assert service.logins() - before <= 4, "the two tries, the change and its proof"
    assert reads(site) == "SERIAL-3"


def test_two_changes_of_one_place_wait_for_each_other(
    service: Service, site: BmcSite, ledger: Ledger, tmp_path: Path
) -> None:
    inside, go = threading.Event(), threading.Event()

    def first() -> None:
        def say(_text: str) -> None:
            inside.set()
            go.wait(10)

        rotate(ledger, NODE, site, say)

    one = threading.Thread(target=first)
    two = threading.Thread(target=rotate, args=(ledger, "node09", site, [].append))
    one.start()
    assert inside.wait(10)
    asked = len(service.asked)
    two.start()
    two.join(0.3)
    assert (two.is_alive(), len(service.asked)) == (True, asked), "it asks nothing before the first has ended"
    go.set()
    one.join()
    two.join()
    assert reads(site) == "SERIAL-3"
    assert {path.name for path in own(tmp_path).parent.iterdir()} == {own(tmp_path).name, ".gitignore"}


@pytest.mark.parametrize("cut_first", [False, True])
@pytest.mark.usefixtures("service")
def test_what_somebody_else_wrote_to_the_place_meanwhile_is_not_replaced(
    site: BmcSite,
    ledger: Ledger,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    cut_first: bool,
) -> None:
    real = FileStore.prepare

    def meanwhile(self: FileStore, make: Callable[[], str]) -> None:
        real(self, make)
        if not cut_first:
            own(tmp_path).write_text("of another device", encoding="utf-8")

    monkeypatch.setattr(FileStore, "prepare", meanwhile)
    if cut_first:
        with monkeypatch.context() as patched:
            cut(patched, FileStore, "promote")
            with pytest.raises(_CutError):
                rotate(ledger, NODE, site, [].append)
        own(tmp_path).write_text("of another device", encoding="utf-8")
    with pytest.raises(SecretUnwritableError) as caught:
        rotate(ledger, NODE, site, [].append)
    assert str(caught.value) == (
        f"secret in file {own(tmp_path)} - Expected: a place for a new password Actual: it was changed by somebody "
        f"else meanwhile; the device has the password in {pending(tmp_path)}. Find out whose secret is there and copy "
        "it to a place of its own, then put the pending one there."
    )
    assert own(tmp_path).read_text(encoding="utf-8") == "of another device"
    pending(tmp_path).replace(own(tmp_path))
    assert reads(site) == "SERIAL-3"


def test_when_neither_works_each_was_tried_once_and_nothing_is_lost(
    service: Service, site: BmcSite, ledger: Ledger, tmp_path: Path
) -> None:
    own(tmp_path).parent.mkdir()
    pending(tmp_path).write_text("pending-password", encoding="utf-8")
    service.is_a("dgx_h100", factory_password="another-one")
    with pytest.raises(BmcLoginError) as caught:
        rotate(ledger, NODE, site, [].append)
    assert str(caught.value) == (
        f"{NODE} BMC {ADDRESS}:{service.server.server_port}: a change of the password of user admin was "
        f"interrupted - Expected: one of the two passwords works Actual: neither the password in {pending(tmp_path)} "
        f"nor the one in file {tmp_path / 'factory'}; each was tried once. Reset the user at the BMC's console, write "
        f"its password to {own(tmp_path)}, remove {pending(tmp_path)}, then run again."
    )
    assert service.logins() == 2
    assert pending(tmp_path).read_text(encoding="utf-8") == "pending-password"


def test_a_bmc_that_locks_at_the_second_failure_is_not_locked_by_a_cut_change(
    service: Service, site: BmcSite, ledger: Ledger, tmp_path: Path
) -> None:
    """The pending password was never set: it fails once, the old one works, and the count begins anew."""
    service.is_a("dgx_h100", factory_password=FACTORY, lockout=2)
    own(tmp_path).parent.mkdir()
    pending(tmp_path).write_text("pending-password", encoding="utf-8")
    rotate(ledger, NODE, site, [].append)
    assert own(tmp_path).read_text(encoding="utf-8") == "pending-password"
    assert reads(site) == "SERIAL-3"


def test_a_locked_account_of_the_rack_refuses_the_right_password_too(service: Service, site: BmcSite) -> None:
    service.is_a("dgx_h100", lockout=2)
    wrong = service.site(username="someone")
    for _ in range(2):
        with pytest.raises(BmcLoginError):
            reads(wrong)
    with pytest.raises(BmcLoginError):
        reads(service.site())
    service.rack.sessions.forget(NODE)
    assert reads(service.site()) == "SERIAL-3"
    assert site.factory_password is not None


def test_a_new_password_goes_into_a_vault(
    service: Service, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.is_a("dell")
    (tmp_path / "password").write_text("open-sesame", encoding="utf-8")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "password"))
    old = service.rack.store.secret(f"{NODE}-bmc").read_text(encoding="utf-8").strip()
    vault = tmp_path / "vault.yml"
    vault.write_bytes(VaultLib().encrypt(f"bmc: {{{NODE}: {old}}}\n", VaultSecret(b"open-sesame")))
    site = service.site(password={"vault": f"{vault}#bmc.{NODE}"})
    said: list[str] = []
    rotate(ledger, NODE, site, said.append)
    assert said == [f"{NODE}: the BMC has a password of its own, in vault file {vault}#bmc.{NODE}"]
    assert reveal(site.password) != old
    assert reads(site) == "SERIAL-3"
    with monkeypatch.context() as patched:
        cut(patched, VaultStore, "promote")
        with pytest.raises(_CutError):
            rotate(ledger, NODE, site, said.append)
    rotate(ledger, NODE, site, said.append)
    assert "the pending password works and is now in" in said[-1]
    assert reads(site) == "SERIAL-3"


def test_a_bmc_that_accepts_and_ignores_is_refused(service: Service, site: BmcSite, ledger: Ledger) -> None:
    service.is_a("dgx_h100", factory_password=FACTORY, ignores_password=True)
    with pytest.raises(BmcLoginError, match="the BMC accepted the change and refuses the new password"):
        rotate(ledger, NODE, site, [].append)


def test_a_place_that_cannot_be_written_is_refused_before_any_request(service: Service, ledger: Ledger) -> None:
    with pytest.raises(BmcPasswordPlaceError) as caught:
        rotate(ledger, NODE, service.site(password={"env": "BMC_PASSWORD"}), [].append)
    assert str(caught.value) == (
        f"{NODE} bmc.password - Expected: file, sops or vault, which rackready writes Actual: environment variable "
        "BMC_PASSWORD. Name such a place in the site file."
    )
    assert service.asked == []


def test_an_unknown_user_is_named(service: Service, tmp_path: Path, ledger: Ledger, site: BmcSite) -> None:
    service.is_a("supermicro")
    own(tmp_path).parent.mkdir()
    own(tmp_path).write_bytes(service.rack.store.secret(f"{NODE}-bmc").read_bytes())
    with pytest.raises(BmcError, match="Expected: an account with UserName admin Actual: 1 accounts, none of that"):
        _renamed(service, ledger, site)


def _renamed(service: Service, ledger: Ledger, site: BmcSite) -> None:
    accounts = service.rack.sessions.accounts
    real = type(accounts).document
    try:
        type(accounts).document = lambda self: real(self) | {"UserName": "root"}  # type: ignore[method-assign]
        rotate(ledger, NODE, site, [].append)
    finally:
        type(accounts).document = real  # type: ignore[method-assign]


def test_no_password_is_in_a_log_the_ledger_or_a_message(
    service: Service, site: BmcSite, ledger: Ledger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    rotate(ledger, NODE, site, said.append)
    secret = own(tmp_path).read_text(encoding="utf-8").strip()
    assert len(secret) == 16
    seen = [caplog.text, *said, *map(str, ledger.entries(NODE)), *map(repr, [site, ledger.entries(NODE)])]
    database = (tmp_path / "ledger.sqlite").read_bytes()
    for word in (secret, FACTORY):
        assert not any(word in text for text in seen)
        assert word.encode() not in database
    assert service.logins() == 2


def test_new_passwords_satisfy_every_vendors_policy() -> None:
    found = {new_password() for _ in range(200)}
    assert len(found) == 200
    for word in found:
        assert len(word) == 16
        assert all(any(map(kind, word)) for kind in (str.islower, str.isupper, str.isdigit))
        assert len(set(word) & set("-_.+")) == 1


def test_provisioning_changes_it_at_first_contact(
    service: Service, site: BmcSite, ledger: Ledger, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    ssh = {"address": "127.85.2.3", "port": 1, "user": "root", "private_key": str(key)}
    args = NodeArgs.model_validate(
        {"env": "x", "node": NODE, "serial": "SERIAL-3", "bmc": site.model_dump(), "ssh": ssh, "timeout_s": 1}
    )
    service.rack.power.boots = lambda _node: None
    said: list[str] = []
    machine = StackMachine(args, ledger, tmp_path, proceed=lambda: None, say=said.append)
    with pytest.raises(MachineIncompleteError):
        machine.ensure(made=False)
    assert said[0] == f"{NODE}: the BMC has a password of its own, in file {own(tmp_path)}"
    assert said[1] == "boot override Hdd once, power on"
    assert FACTORY not in repr(args.model_dump(mode="json"))
