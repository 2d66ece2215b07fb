"""The fault matrix of a BMC: what our driver does with each fault, and the exact message."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from rackready.drivers import bmc_password, redfish, redfish_boot, redfish_secure_boot, redfish_task, redfish_update
from rackready.drivers.redfish import Bmc, BootTarget, PowerAction
from rackready.drivers.redfish_boot import secure_boot, set_secure_boot
from rackready.drivers.redfish_errors import BmcError, BmcLoginError, BmcTlsError, BmcUnreachableError
from rackready.drivers.redfish_media import eject, insert
from rackready.drivers.redfish_quirks import Quirks, make_of
from rackready.ledger.store import Ledger
from rackready.model.baseline import FirmwareFile
from rackready.model.bmc_quirk import BmcMake, BmcQuirk
from rackready.profiles import loader
from tests.unit.sim.bmc_service import ADDRESS, NODE, Service, served

OTHER = ":".join(["ab"] * 32)
IMAGE = "https://192.0.2.9/boot.iso"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redfish, "_PAUSE_S", 0.4)
    monkeypatch.setattr(redfish_boot, "_PAUSE_S", 0.01)
    monkeypatch.setattr(redfish_task, "_POLL_S", 0.1)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with served(tmp_path) as found:
        yield found


class Scene:
    """One served BMC with its faults, as the driver knows it from the site file."""

    def __init__(self, service: Service, fault: Fault, folder: Path) -> None:
        self.service, self.folder = service, folder
        service.rack.power.boots = lambda _node: None
        service.rack.power.states[NODE] = fault.power
        service.faulty(**fault.faults)
        self.site = service.site(**fault.site)

    def rotated_after_a_cut(self) -> str:
        """Change the password, cut after the BMC took it; then run again and return what is said."""
        old = self.folder / "password"
        old.write_bytes(self.service.rack.store.secret(f"{NODE}-bmc").read_bytes())
        site = self.service.site(password={"file": str(old)})
        said: list[str] = []
        with Ledger.open(self.folder / "ledger.sqlite") as ledger, pytest.MonkeyPatch.context() as patched:
            patched.setattr(bmc_password._Rotation, "_works", _killed)
            with pytest.raises(_KilledError):
                bmc_password.rotate(ledger, NODE, site, said.append)
            patched.undo()
            bmc_password.rotate(ledger, NODE, site, said.append)
        with Bmc(NODE, site) as bmc:
            bmc.login()
        return " ".join(said).replace(str(self.folder), "{folder}")

    def updated(self) -> None:
        """Update the BMC's firmware."""
        file = self.folder / "bmc.bin"
        file.write_text("rackready-sim-firmware bmc 26.01.01", encoding="utf-8")
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        wanted = FirmwareFile.model_validate({"part": "bmc", "file": str(file), "sha256": sha256})
        with Bmc(NODE, self.site) as bmc:
            redfish_update.update(bmc, wanted, "26.01.01", lambda: None)


class _KilledError(Exception):
    """The process was killed here."""


def _killed(*_args: object) -> None:
    raise _KilledError


def driver(do: Callable[[Bmc], object]) -> Callable[[Scene], object]:
    """Return what asks a BMC through the driver."""

    def ask(scene: Scene) -> object:
        with Bmc(NODE, scene.site) as bmc:
            return do(bmc)

    return ask


def turned_on(wait_s: float) -> Callable[[Scene], object]:
    """Return what powers a machine on whose power state was read before: a BMC lags from there."""

    def ask(bmc: Bmc) -> str:
        bmc.observe()
        return bmc.power(PowerAction.ON, wait_s=wait_s)

    return driver(ask)


class Fault(NamedTuple):
    """One fault: the BMC's faults, keys of the site file, what is asked, the error and its text after `node BMC x:y`.

    ``error`` None: the driver gets over it, and ``text`` is what it returns. ``power``: of the machine before;
    ``resets``: what its power was asked; None: not looked at.
    """

    faults: dict[str, Any]
    site: dict[str, Any]
    ask: Callable[[Scene], object]
    error: type[BmcError] | None
    text: str
    power: str = "Off"
    resets: tuple[str, ...] | None = None


FAULTS = {
    "wrong password": Fault(
        {},
        {"password": {"env": "BMC_WRONG"}},
        driver(Bmc.identify),
        BmcLoginError,
        "Redfish refused the login of user admin - Expected: HTTP 200 Actual: 401. Check the password in environment "
        "variable BMC_WRONG.",
    ),
    "TLS mismatch": Fault(
        {},
        {"fingerprint": OTHER},
        driver(Bmc.identify),
        BmcTlsError,
        f"TLS certificate, nothing was sent to it - Expected: SHA-256 {OTHER} Actual: SHA-256 {{shown}}. If the BMC or "
        "its certificate was replaced, compare the value at its console, then correct bmc.fingerprint, or run "
        f"`rackready bmc trust {NODE}`. If `rackready bmc certify {NODE}` was interrupted, run it again.",
    ),
    "password rotation cut in the middle": Fault(
        {},
        {},
        Scene.rotated_after_a_cut,
        None,
        f"{NODE}: a change of the BMC's password was interrupted; the pending password works and is now in file "
        "{folder}/password",
    ),
    "a short 503 storm": Fault({"busy": 2}, {}, driver(Bmc.observe), None, "Off"),
    "a long 503 storm": Fault(
        {"busy": 50},
        {},
        driver(Bmc.observe),
        BmcError,
        "Redfish - Expected: success Actual: HTTP 503: HTTP POST https://{where}/redfish/v1/SessionService/Sessions "
        "returned code 503. Base.1.8.1.ServiceTemporarilyUnavailable: The service is temporarily unavailable. Extended "
        "information: None. Look at the BMC's event log, then run again.",
    ),
    "reboots in the middle, and is back": Fault(
        {"restarts": 0.6}, {}, driver(lambda bmc: bmc.power(PowerAction.ON, wait_s=10)), None, "On", resets=("On",)
    ),
    "reboots in the middle, and stays away: not asked twice to reset": Fault(
        {"restarts": 30},
        {},
        driver(lambda bmc: bmc.power(PowerAction.RESET, wait_s=1)),
        BmcUnreachableError,
        "unreachable - Expected: Redfish answers within 5 s Actual: Remote end closed connection without response. "
        "Check bmc.address, its cable and the route to the out-of-band network.",
        power="On",
        resets=("ForceRestart",),
    ),
    "accepts and ignores a boot override": Fault(
        {"ignores_boot_override": True},
        {},
        driver(lambda bmc: bmc.set_boot_once(BootTarget.PXE)),
        BmcError,
        "boot override - Expected: Pxe, Once Actual: accepted and ignored: it shows None, Disabled. The node was not "
        "powered on. Update the BMC's firmware, or set the boot source at its console.",
        resets=(),
    ),
    "no fault: a boot over HTTP": Fault(
        {}, {}, driver(lambda bmc: bmc.set_boot_once(BootTarget("UefiHttp"))), None, "None"
    ),
    "lags with its power state": Fault({"power_lag": 1}, {}, turned_on(10), None, "On"),
    "lags longer than the wait": Fault(
        {"power_lag": 30},
        {},
        turned_on(1),
        BmcError,
        "power - Expected: On within 1 s Actual: Off. Look at the BMC's event log and console, then run again.",
    ),
    "fails a firmware task": Fault(
        {"task_fails": True},
        {},
        Scene.updated,
        BmcError,
        "firmware update of bmc - Expected: /redfish/v1/TaskService/Tasks/1 Completed Actual: Exception: The image "
        "does not match the component. Other nodes were not updated. Check that the file is for this model, and the "
        "BMC's event log.",
        resets=(),
    ),
    "no fault: a firmware task": Fault({}, {}, Scene.updated, None, "None"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_has_its_outcome_and_message(
    service: Service, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BMC_WRONG", "not-the-password")
    fault = FAULTS[name]
    where = f"{ADDRESS}:{service.server.server_port}"
    scene = Scene(service, fault, tmp_path)
    if fault.error is None:
        assert str(fault.ask(scene)) == fault.text
    else:
        with pytest.raises(BmcError) as caught:
            fault.ask(scene)
        text = fault.text.replace("{where}", where).replace("{shown}", service.shown())
        assert str(caught.value) == f"{NODE} BMC {where}: {text}"
        assert isinstance(caught.value, fault.error)
    if fault.error in {BmcLoginError, BmcTlsError}:
        assert service.logins() == (fault.error is BmcLoginError), "a refused login is not tried again"
    if fault.resets is not None:
        assert tuple(kind for _, kind in service.rack.power.asked) == fault.resets


@pytest.mark.parametrize("vendor", ["dgx_h100", "gb200", "dell", "lenovo", "hpe", "supermicro"])
def test_every_vendors_override_is_set_and_read_back(service: Service, vendor: str) -> None:
    service.is_a(vendor)
    with Bmc(NODE, service.site()) as bmc:
        bmc.set_boot_once(BootTarget.PXE)
    found = service.rack.store.state(NODE) and service.boot()
    assert (found["target"], found["enabled"]) == ("Pxe", "Once")


def test_an_override_in_the_settings_object_is_found(service: Service) -> None:
    service.is_a("dgx_h100", boot_in_settings=True)
    with Bmc(NODE, service.site()) as bmc:
        bmc.set_boot_once(BootTarget.CD)
    assert service.boot() == {"target": "Cd", "enabled": "Once", "mode": "UEFI", "uri": ""}
    assert [item for item in service.asked if item.startswith("PATCH")] == [f"PATCH {service.system()}/SD"]


def test_a_cd_is_inserted_seen_and_ejected(service: Service) -> None:
    service.is_a("lenovo")
    with Bmc(NODE, service.site()) as bmc:
        insert(bmc, IMAGE)
        insert(bmc, IMAGE)  # it is there already
        with pytest.raises(BmcError) as caught:
            insert(bmc, "https://192.0.2.9/other.iso")
        eject(bmc, "https://192.0.2.9/other.iso")  # somebody else's stays
        eject(bmc, IMAGE)
        insert(bmc, "https://192.0.2.9/node03/old.iso")
        insert(bmc, "https://192.0.2.9/node03/new.iso", ours="https://192.0.2.9/node03/")
        eject(bmc, "https://192.0.2.9/node03/")
        insert(bmc, "https://192.0.2.9/other.iso")
    assert str(caught.value).partition(": ")[2] == (
        f"virtual media https://192.0.2.9/other.iso - Expected: a CD slot that takes it Actual: USB1 holds {IMAGE}. "
        "Eject what is inserted, check the BMC's licence for virtual media, or choose another provisioning.boot."
    )
    assert sum("InsertMedia" in item for item in service.asked) == 8, "each without and with TransferProtocolType"


def test_a_dell_that_shows_inserted_after_an_eject_is_believed(service: Service) -> None:
    service.is_a("dell")
    with Bmc(NODE, service.site()) as bmc:
        insert(bmc, IMAGE)
        eject(bmc, IMAGE)
        insert(bmc, IMAGE)
    done = [item.rpartition(".")[2] for item in service.asked if "/Actions/VirtualMedia." in item]
    assert done[-2:] == ["EjectMedia", "InsertMedia"], "the image that it still shows is no proof"


@pytest.mark.parametrize(("vendor", "settled"), [("dell", True), ("lenovo", False)])
def test_a_power_on_that_an_idrac_refuses_after_an_off_is_repeated(
    service: Service, monkeypatch: pytest.MonkeyPatch, vendor: str, *, settled: bool
) -> None:
    service.is_a(vendor)
    service.faulty(settles_s=1.0)
    service.rack.power.states[NODE] = "On"
    service.rack.power.boots = lambda _node: None
    pauses: list[float] = []
    monkeypatch.setattr(
        redfish,
        "time",
        SimpleNamespace(
            monotonic=time.monotonic, sleep=lambda seconds: (pauses.append(seconds), time.sleep(min(seconds, 0.3)))
        ),
    )
    with Bmc(NODE, service.site()) as bmc:
        assert bmc.power(PowerAction.OFF) == "Off"
        if settled:
            assert bmc.power(PowerAction.ON) == "On"
            assert set(pauses) >= {10.0}
        else:
            with pytest.raises(BmcError, match="HTTP 409"):
                bmc.power(PowerAction.ON)
    resets = [kind for _, kind in service.rack.power.asked]
    assert resets == ["GracefulShutdown", "On"] if settled else ["GracefulShutdown"]


def test_secure_boot_is_read_and_set(service: Service) -> None:
    with Bmc(NODE, service.site()) as bmc:
        assert secure_boot(bmc) is False
        assert set_secure_boot(bmc, on=True)
        assert secure_boot(bmc) is False, "from the next boot on"
        assert not set_secure_boot(bmc, on=True), "it is so already"


def test_secure_boot_of_a_dell_is_a_job_for_the_next_start(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.is_a("dell")
    service.rack.power.boots = lambda _node: None
    monkeypatch.setattr(redfish_secure_boot, "_POLL_S", 0.01)
    with Bmc(NODE, service.site()) as bmc:
        assert redfish_secure_boot.by_job(bmc)
        for _ in range(2):
            redfish_secure_boot.order(bmc, on=True, proceed=lambda: None)
        assert redfish_secure_boot.enabled(bmc) is False, "the node is off"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(redfish_secure_boot, "waits", lambda *_: False)
            redfish_secure_boot.order(bmc, on=True, proceed=lambda: None)  # refused, for the job that waits
        bmc.power(PowerAction.ON)
        redfish_secure_boot.wait(bmc, on=True, proceed=lambda: None)
        assert secure_boot(bmc) is True
        assert not redfish_secure_boot.waits(bmc, lambda: None)
    assert sum(item.startswith("PATCH") for item in service.asked) == 2


def test_another_job_of_the_bios_ends_without_the_change(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.is_a("dell")
    service.faulty(bios_job=True)
    service.rack.power.boots = lambda _node: None
    monkeypatch.setattr(redfish_secure_boot, "_POLL_S", 0.01)
    monkeypatch.setattr(redfish_secure_boot, "_WAIT_S", 10.0)
    with Bmc(NODE, service.site()) as bmc:
        redfish_secure_boot.order(bmc, on=True, proceed=lambda: None)
        bmc.power(PowerAction.ON)
        redfish_secure_boot.wait(bmc, on=True, proceed=lambda: None)
        assert (secure_boot(bmc), redfish_secure_boot.waits(bmc, lambda: None)) == (False, False)
    assert not any(item.startswith("PATCH") for item in service.asked)


def test_quirks_are_chosen_by_what_the_bmc_says() -> None:
    dgx = Quirks.of(make_of({"Vendor": "AMI", "Product": "AMI Redfish Server"}), "admin")
    assert dgx.answer("account-uri") == "/redfish/v1/AccountService/Accounts/2"
    assert all(map(dgx.has, ("if-match-any", "boot-all-fields")))
    older = Quirks.of(make_of({"Vendor": None, "Oem": {"Supermicro": {}}}))
    assert older.answer("boot-shown-as", "Pxe") == "UefiBootNext"
    assert Quirks.of(make_of({"Vendor": "Unheard"})).found == ()
    hung = Quirks.of(make_of({"Vendor": "Lenovo"}, {"Model": "ThinkSystem SR675 V3 OVX"}))
    assert hung.of_value("reset-type-instead", "ForceRestart") is not None
    assert Quirks.of(make_of({"Vendor": "Lenovo"}, {"Model": "SR680a V3"})).found == ()


def test_a_range_of_firmware_counts_only_where_the_firmware_is_known() -> None:
    given = {"vendor": ["Dell"], "quirk": "task-gone-is-done", "source": "a test of ranges"}
    quirk = BmcQuirk.model_validate(given | {"firmware_from": "7.00.60.00", "firmware_below": "7.10.30.00"})
    versions = {"": False, "6.10.80.00": False, "7.00.60.00": True, "7.10.05.00": True, "7.10.30.00": False}
    assert {key: quirk.applies(BmcMake(vendor="dell", firmware=key)) for key in versions} == versions


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"quirk": "account-uri"}, "quirk account-uri needs answer"),
        ({"quirk": "retry-message", "tries": 3}, "quirk retry-message needs value"),
        ({"quirk": "if-match-any", "tries": 3}, "tries belong to retry-message, task-missing-tries and to no other"),
        ({"quirk": "if-match-any", "model": "("}, "'(' is no regular expression"),
    ],
)
def test_a_quirk_that_says_too_little_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        BmcQuirk.model_validate({"vendor": ["Dell"], "source": "a test of shapes", **wrong})
    assert message in str(caught.value)


def test_every_quirk_has_a_source_and_is_read_by_the_driver() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (Path(redfish.__file__).parent).glob("*.py"))
    kinds = {quirk.quirk for quirk in loader.bmc_quirks()}
    assert [kind for kind in sorted(kinds) if f'"{kind}"' not in code] == []
