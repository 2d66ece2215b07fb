from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rackready.drivers import redfish
from rackready.drivers.redfish import Bmc, BootTarget, PowerAction
from rackready.drivers.redfish_errors import BmcError, BmcIdentityError, BmcLoginError, BmcTlsError, BmcUnreachableError
from rackready.drivers.redfish_read import read
from rackready.model.serials import SerialKind
from rackready.model.site import Bmc as BmcSite
from tests.stacks.fake_rack import FakeNode, FakeRack, Redfish

parsed = Redfish.parse_request


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redfish, "_PAUSE_S", 0.01)


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[FakeRack]:
    made = FakeRack(tmp_path / "rack", 1, net=78)
    yield made
    made.stop()


@pytest.fixture
def node(rack: FakeRack) -> FakeNode:
    return rack.nodes[0]


def bmc(rack: FakeRack, **changes: object) -> Bmc:
    return Bmc("node01", BmcSite.model_validate({**rack.site()["racks"][0]["nodes"][0]["bmc"], **changes}))


def test_identifies_the_machine_and_closes_its_session(rack: FakeRack, node: FakeNode) -> None:
    with bmc(rack) as client:
        found = client.identify()
        assert len(node.sessions) == 1
    assert (found.serial, found.manufacturer, found.model, found.power) == ("FAKE-0001", "FAKE", "DGXH100", "Off")
    assert node.sessions == set()


def test_serial_number_of_the_chassis_counts_where_the_system_has_none(rack: FakeRack, node: FakeNode) -> None:
    node.in_system = False
    with bmc(rack) as client:
        assert client.identify().serial == "FAKE-0001"


def test_boots_once_and_powers_on_and_off(rack: FakeRack, node: FakeNode) -> None:
    node.power_lag_s = 0.3
    with bmc(rack) as client:
        client.set_boot_once(BootTarget.PXE)
        assert client.power(PowerAction.ON, wait_s=10) == "On"
        assert client.power(PowerAction.ON, wait_s=10) == "On"
        assert client.power(PowerAction.OFF, wait_s=10) == "Off"
    assert node.asked == ["boot Pxe Once", "On", "GracefulShutdown"]


def test_a_poll_is_one_request(rack: FakeRack, monkeypatch: pytest.MonkeyPatch) -> None:
    """BMCs crash under polling: the address of the system is looked up once a session."""
    asked: list[str] = []
    monkeypatch.setattr(Redfish, "parse_request", lambda self: parsed(self) and (asked.append(self.path) or True))
    with bmc(rack) as client:
        assert [client.observe() for _ in range(3)] == ["Off"] * 3
    assert asked.count("/redfish/v1/Systems") == 1
    assert asked.count("/redfish/v1/Systems/1") == 3


def test_power_is_cut_when_the_system_does_not_go_down(
    rack: FakeRack, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redfish, "_GRACEFUL_OFF_S", 0.1)
    rack.set_power(node, "On")
    real = rack.reset
    monkeypatch.setattr(
        rack, "reset", lambda which, kind: which.asked.append(kind) if kind == "GracefulShutdown" else real(which, kind)
    )
    with bmc(rack) as client:
        assert client.power(PowerAction.OFF, wait_s=10) == "Off"
    assert node.asked == ["GracefulShutdown", "ForceOff"]


def test_a_bmc_without_sessions_is_asked_with_basic_authentication(rack: FakeRack, node: FakeNode) -> None:
    node.has_sessions = False
    with bmc(rack) as client:
        assert client.observe() == "Off"


@pytest.mark.parametrize("sessions", [True, False])
def test_a_refused_login_is_said_once_and_never_tried_again(
    rack: FakeRack, node: FakeNode, tmp_path: Path, *, sessions: bool
) -> None:
    node.has_sessions = sessions
    wrong = tmp_path / "wrong"
    wrong.write_text("not-the-password")
    with bmc(rack, password={"file": str(wrong)}) as client, pytest.raises(BmcLoginError) as caught:
        client.identify()
    where = f"node01 BMC 127.78.1.1:{rack.bmc_port}"
    assert (
        str(caught.value) == f"{where}: Redfish refused the login of user admin - Expected: HTTP 200 Actual: 401. "
        f"Check the password in file {wrong}."
    )
    assert node.logins == 1
    assert "not-the-password" not in str(caught.value)


@pytest.mark.parametrize(
    ("ident", "words"),
    [
        (
            "SMC.1.0.OemLicenseNotPassed",
            "Not licensed to perform this request. The following licenses DCMS were needed",
        ),
        ("Base.1.8.1.InsufficientPrivilege", "There are insufficient privileges for the account"),
    ],
)
@pytest.mark.parametrize("sessions", [True, False])
def test_a_refused_request_is_no_refused_login(
    rack: FakeRack, node: FakeNode, monkeypatch: pytest.MonkeyPatch, ident: str, words: str, *, sessions: bool
) -> None:
    """As a Supermicro without a licence answers to SecureBoot (metal3-io/ironic-image, issue 688)."""
    node.has_sessions = sessions
    at, opened = "/redfish/v1/Systems/1/SecureBoot", set[str]()
    message = {"MessageId": ident, "Message": words, "Severity": "Warning"}
    body = {"error": {"code": "Base.v1_10_3.GeneralError", "message": words, "@Message.ExtendedInfo": [message]}}
    get = Redfish.do_GET

    def refused(self: Redfish) -> None:
        opened.update(node.sessions)
        if self.path == at:
            self._answer(403, body)
        else:
            get(self)

    monkeypatch.setattr(Redfish, "do_GET", refused)
    with bmc(rack) as client:
        for _ in range(2):
            with pytest.raises(BmcError) as caught:
                client.get(at)
        assert client.observe() == "Off", "the session is still good"
        walked = read(client, ["Systems/*"], lambda: None)
    assert not isinstance(caught.value, BmcLoginError)
    assert str(caught.value) == (
        f"node01 BMC 127.78.1.1:{rack.bmc_port}: Redfish refused a request of user admin - Expected: success "
        f"Actual: HTTP 403: {ident}: {words}. The login itself is good. Give the user the privilege, or the BMC the "
        "licence, that it names."
    )
    assert walked.documents
    if sessions:
        assert (node.logins, len(opened), node.sessions) == (1, 1, set())


def test_a_login_that_is_refused_with_403_is_a_refused_login(
    rack: FakeRack, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Redfish, "_login", lambda self, _body: self._answer(403, {"error": {"message": "locked"}}))
    with bmc(rack) as client, pytest.raises(BmcLoginError, match="refused the login of user admin"):
        client.identify()
    assert node.sessions == set()


def test_a_session_that_is_gone_is_opened_again_whatever_the_status(
    rack: FakeRack, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = {"error": {"@Message.ExtendedInfo": [{"MessageId": "Base.1.8.1.NoValidSession", "Message": "none"}]}}
    may = Redfish._may

    def checked(self: Redfish) -> bool:
        if self.headers.get("X-Auth-Token", "") in node.sessions:
            return may(self)
        self._answer(403, gone)
        return False

    monkeypatch.setattr(Redfish, "_may", checked)
    with bmc(rack) as client:
        client.observe()
        node.sessions.clear()
        assert client.observe() == "Off"
    assert node.logins == 2


def test_nothing_there(rack: FakeRack) -> None:
    with (
        bmc(rack, port=1) as client,
        pytest.raises(
            BmcUnreachableError,
            match=r"node01 BMC 127\.78\.1\.1:1: unreachable - Expected: .* Actual: .*refused.* Check bmc\.address",
        ),
    ):
        client.identify()


def test_a_certificate_that_nobody_vouches_for_is_refused_before_the_password_is_sent(
    rack: FakeRack, node: FakeNode
) -> None:
    with (
        bmc(rack, ca=None) as client,
        pytest.raises(
            BmcTlsError,
            match=r"TLS - Expected: a certificate for 127\.78\.1\.1 signed by an authority .* "
            r"Actual: .*verify failed.*bmc\.ca",
        ),
    ):
        client.identify()
    assert node.logins == 0


def test_a_missing_ca_file_is_named(rack: FakeRack) -> None:
    with (
        bmc(rack, ca="/nowhere/ca.pem") as client,
        pytest.raises(BmcTlsError, match=r"Expected: a PEM file at /nowhere/ca\.pem Actual: none"),
    ):
        client.identify()


def test_another_machine_is_refused_and_untouched(rack: FakeRack, node: FakeNode) -> None:
    with bmc(rack) as client, pytest.raises(BmcIdentityError) as refused:
        client.require("OTHER")
    assert str(refused.value) == (
        f"node01 BMC {node.bmc}:{rack.bmc_port}: answers for another machine, nothing was done to it - "
        "Expected: serial OTHER Actual: system FAKE-0001, chassis FAKE-0001. "
        "Correct serial or bmc.address of node01 in the site file, or the cabling of its BMC."
    )
    assert node.asked == []


def chassis(number: int, serial: str) -> dict[str, Any]:
    return {
        "@odata.id": f"/redfish/v1/Chassis/{number}",
        "Id": str(number),
        "Name": "chassis",
        "ChassisType": "RackMount",
        "SerialNumber": serial,
    }


def dell(node: FakeNode) -> None:
    """Answer as an iDRAC: SerialNumber is the board's, SKU the Service Tag; and list a second chassis."""
    node.identity = {"Manufacturer": "Dell Inc.", "SerialNumber": "MXFC400123", "SKU": "8XYZ123"}
    members = [{"@odata.id": f"/redfish/v1/Chassis/{number}"} for number in (1, 2)]
    node.more = lambda: {
        "/redfish/v1/": {"Chassis": {"@odata.id": "/redfish/v1/Chassis"}},
        "/redfish/v1/Chassis": {"@odata.id": "/redfish/v1/Chassis", "Name": "Chassis", "Members": members},
        "/redfish/v1/Chassis/1": {**chassis(1, "MXFC400123"), "SKU": "8XYZ123"},
        "/redfish/v1/Chassis/2": {**chassis(2, "TRAY-7"), "Oem": {"Acme": {"BoardSerialNumber": "BOARD-9"}}},
    }


@pytest.mark.parametrize(
    ("serial", "kind"),
    [
        ("8XYZ123", "any"),
        ("8XYZ123", "sku"),
        ("MXFC400123", "any"),
        ("MXFC400123", "system"),
        ("MXFC400123", "board"),
        ("TRAY-7", "any"),
        ("TRAY-7", "chassis"),
        ("BOARD-9", "board"),
    ],
)
def test_any_number_that_the_bmc_reports_identifies_the_machine(
    rack: FakeRack, node: FakeNode, serial: str, kind: SerialKind
) -> None:
    dell(node)
    with bmc(rack) as client:
        assert client.require(serial, kind).manufacturer == "Dell Inc."


@pytest.mark.parametrize(("serial", "kind"), [("8XYZ123", "system"), ("TRAY-7", "sku"), ("BOARD-9", "chassis")])
def test_a_number_of_another_kind_does_not(rack: FakeRack, node: FakeNode, serial: str, kind: SerialKind) -> None:
    dell(node)
    with bmc(rack) as client, pytest.raises(BmcIdentityError) as refused:
        client.require(serial, kind)
    shown = {"system": "system", "sku": "SKU", "chassis": "chassis"}[kind]
    assert (
        f"Expected: serial {serial} ({shown}) Actual: system MXFC400123, SKU 8XYZ123, chassis MXFC400123, "
        "chassis TRAY-7, board MXFC400123, board BOARD-9." in str(refused.value)
    )
    assert node.asked == []


def test_a_fault_that_passes_is_waited_out(rack: FakeRack, node: FakeNode) -> None:
    node.faults = [503]
    with bmc(rack) as client:
        assert client.observe() == "Off"


def test_a_fault_that_stays_is_an_error(rack: FakeRack, node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redfish.time, "sleep", lambda _seconds: None)
    node.faults = [503] * 50
    with bmc(rack) as client, pytest.raises(BmcError, match="Expected: success Actual: HTTP 503"):
        client.observe()


def test_a_reset_is_never_sent_twice(rack: FakeRack, node: FakeNode) -> None:
    with bmc(rack) as client:
        client.observe()
        system = client.system()
        client.system = lambda: system  # type: ignore[method-assign]
        node.faults = [500]
        with pytest.raises(BmcError, match="HTTP 500"):
            client._reset(redfish.sushy.ResetType.ON)
    assert node.asked == []


def test_a_power_state_that_does_not_come_is_an_error(rack: FakeRack, node: FakeNode) -> None:
    node.power_lag_s = 3
    with (
        bmc(rack) as client,
        pytest.raises(BmcError, match=r"power - Expected: On within 0 s Actual: Off\. Look at the BMC's event log"),
    ):
        client.power(PowerAction.ON, wait_s=0.1)


def test_one_caller_at_a_time(rack: FakeRack) -> None:
    with bmc(rack):
        assert not bmc(rack)._lock.acquire(blocking=False)
    assert bmc(rack)._lock.acquire(blocking=False)
    bmc(rack)._lock.release()


@pytest.mark.parametrize(
    "target",
    ["", "https://192.0.2.9/redfish/v1/x", "//192.0.2.9/redfish/v1/x"],
    ids=["none", "elsewhere", "elsewhere-in-short"],
)
def test_an_action_that_is_not_of_this_service_is_not_asked_for(rack: FakeRack, node: FakeNode, target: str) -> None:
    with bmc(rack) as one, pytest.raises(BmcError) as caught:
        one.send(target, {"PowerState": "Off"})
    where = f"node01 BMC {node.bmc}:{rack.bmc_port}"
    assert (
        str(caught.value) == f"{where}: action - Expected: a target below /redfish/ Actual: {target or 'none'}. "
        "Update the BMC's firmware."
    )
    assert node.logins == 0
