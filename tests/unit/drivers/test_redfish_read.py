"""Gathering over Redfish: links, pages and lists as vendors have them; unreadable resources are recorded."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rackready.drivers.redfish_errors import BmcError, BmcLoginError, BmcSlowError
from rackready.drivers.redfish_read import ROOT, Get, Walk, cleaned

World = dict[str, dict[str, Any]]


def link(address: str) -> dict[str, str]:
    return {"@odata.id": address}


def part(address: str, **fields: Any) -> dict[str, Any]:
    name = address.rsplit("/", 1)[-1]
    return {"@odata.id": address, "@odata.type": "#Part.v1_0_0.Part", "Id": name, "Name": name, **fields}


def service(**more: dict[str, Any]) -> World:
    """Two chassis, the second without sensors; sensors in two pages."""
    return {
        ROOT: {"@odata.id": ROOT, "Chassis": link("/c")},
        "/c": {"@odata.id": "/c", "Members": [link("/c/A"), link("/c/HGX_B")], "Members@odata.count": 2},
        "/c/A": part("/c/A", Sensors=link("/c/A/s"), Drives=[link("/d/1"), link("/d/2")]),
        "/c/HGX_B": part("/c/HGX_B"),
        "/c/A/s": {
            "@odata.id": "/c/A/s",
            "Members": [link("/c/A/s/1"), link("/c/A/s/2")],
            "Members@odata.count": 3,
            "Members@odata.nextLink": "/c/A/s?$skip=2",
        },
        "/c/A/s?$skip=2": {"@odata.id": "/c/A/s", "Members": [link("/c/A/s/3")], "Members@odata.count": 3},
        **{f"/c/A/s/{n}": part(f"/c/A/s/{n}", Reading=n) for n in (1, 2, 3)},
        **{f"/d/{n}": part(f"/d/{n}") for n in (1, 2)},
        **more,
    }


def getter(there: World, asked: list[str] | None = None) -> Get:
    def get(address: str) -> dict[str, Any]:
        if asked is not None:
            asked.append(address)
        if address not in there:
            raise BmcError(f"HTTP 404: {address}")
        return copy.deepcopy(there[address])

    return get


def test_members_of_every_page_are_found_and_a_trail_that_lacks_a_property_ends_quietly() -> None:
    found = Walk(getter(service())).all(["Chassis/*/Sensors/*", "Chassis/*/Thermal"])
    assert found.trails == {"Chassis/*/Sensors/*": ["/c/A/s/1", "/c/A/s/2", "/c/A/s/3"], "Chassis/*/Thermal": []}
    assert (found.unread, sorted(found.documents)) == ({}, ["/c/A/s/1", "/c/A/s/2", "/c/A/s/3"])
    assert found.document()["complete"] is True


def test_every_address_is_asked_once() -> None:
    asked: list[str] = []
    Walk(getter(service(), asked)).all(["Chassis/*", "Chassis/*/Sensors/*", "Chassis/*/Sensors/*"])
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize("trail", ["Chassis/*/Drives", "Chassis/*/Drives/*"])
def test_a_list_of_links_is_followed_as_a_collection_is(trail: str) -> None:
    found = Walk(getter(service())).all([trail])
    assert (found.trails[trail], found.unread) == (["/d/1", "/d/2"], {})


def test_members_are_left_out_by_name_and_not_asked() -> None:
    asked: list[str] = []
    found = Walk(getter(service(), asked)).all(["Chassis/*!hgx_*,x"])
    assert found.trails == {"Chassis/*!hgx_*,x": ["/c/A"]}
    assert "/c/HGX_B" not in asked


def test_a_resource_that_is_linked_and_not_there_is_unread() -> None:
    there = service()
    del there["/c/A/s/2"]
    found = Walk(getter(there)).all(["Chassis/*/Sensors/*"])
    assert found.unread == {"/c/A/s/2": "HTTP 404: /c/A/s/2"}
    assert found.trails["Chassis/*/Sensors/*"] == ["/c/A/s/1", "/c/A/s/3"]


def test_a_collection_that_lists_fewer_than_it_counts_is_unread() -> None:
    there = service()
    del there["/c/A/s"]["Members@odata.nextLink"]
    assert Walk(getter(there)).all(["Chassis/*/Sensors/*"]).unread == {"/c/A/s": "it counts 3 members and lists 2"}


def test_pages_that_never_end_are_unread() -> None:
    there = service()
    there["/c/A/s"].update({"Members@odata.nextLink": "/c/A/s?again"})
    there["/c/A/s?again"] = {"@odata.id": "/c/A/s", "Members": [], "Members@odata.nextLink": "/c/A/s?again"}
    assert Walk(getter(there)).all(["Chassis/*/Sensors/*"]).unread["/c/A/s"].startswith("more than 200 pages")


def test_what_is_no_collection_is_unread() -> None:
    there = service()
    del there["/c/A/s"]["Members"]
    found = Walk(getter(there)).all(["Chassis/*/Sensors/*", "Chassis/*=A/Sensors/*"])
    assert found.unread == {"/c/A/s": "no collection: it has no Members"}
    assert (found.no_members, found.document()["no_members"]) == (["/c/A/s"], ["/c/A/s"])


@pytest.mark.parametrize(
    ("count", "unread"),
    [
        (0, {}),
        (1, {"/c/A/s": "no collection: it has no Members"}),
        (False, {"/c/A/s": "no collection: it has no Members"}),
    ],
)
def test_a_collection_that_counts_no_members_may_list_none(count: int, unread: dict[str, str]) -> None:
    """A DGX H100's BMC answers so for a log without entries."""
    there = service()
    there["/c/A/s"] = {"@odata.id": "/c/A/s", "Members@odata.count": count}
    found = Walk(getter(there)).all(["Chassis/*=A/Sensors/*"])
    assert (found.trails["Chassis/*=A/Sensors/*"], found.unread) == ([], unread)


@pytest.mark.parametrize("broken", [False, True])
def test_members_come_with_one_request_where_the_service_expands_and_one_by_one_where_it_only_says_so(
    *, broken: bool
) -> None:
    there = service()
    there[ROOT]["ProtocolFeaturesSupported"] = {"ExpandQuery": {"NoLinks": True}}
    del there["/c/A/s"]["Members@odata.nextLink"]
    there["/c/A/s"]["Members@odata.count"] = 2
    if not broken:
        there["/c/A/s?$expand=.($levels=1)"] = {**there["/c/A/s"], "Members": [there["/c/A/s/1"], there["/c/A/s/2"]]}
    asked: list[str] = []
    found = Walk(getter(there, asked)).all(["Chassis/*/Sensors/*"])
    assert [document["Reading"] for document in found.documents.values()] == [1, 2]
    assert ("/c/A/s/1" in asked) is broken


def log_entry(number: int, **fields: Any) -> dict[str, Any]:
    """An entry of a log of NVIDIA's, as its collection shows it."""
    return {
        **part(f"/c/A/log/{number}"),
        "@odata.type": "#LogEntry.v1_15_0.LogEntry",
        "Created": "2026-03-02T07:11:40+00:00",
        **fields,
    }


@pytest.mark.parametrize(
    ("copy", "asked_itself"),
    [
        (log_entry(1), True),
        (log_entry(1, Severity=None), True),
        (log_entry(1, Severity="OK"), False),
        (log_entry(1, MessageSeverity="OK"), False),
        ({**link("/c/A/log/1"), "@odata.type": "#LogEntry.v1_15_0.LogEntry", "Severity": "OK"}, True),
        ({**link("/c/A/log/1"), "@odata.type": "#LogEntry.v1_15_0.LogEntry"}, True),
    ],
    ids=["no severity", "severity null", "whole", "older property", "neither id nor name", "a link with its type"],
)
def test_a_member_that_comes_embedded_with_less_than_gates_read_is_asked_for_by_itself(
    copy: dict[str, Any], *, asked_itself: bool
) -> None:
    there = service(
        **{"/c/A/log": {"@odata.id": "/c/A/log", "Members": [copy]}, "/c/A/log/1": log_entry(1, Severity="Critical")}
    )
    there["/c/A"]["Log"] = link("/c/A/log")
    asked: list[str] = []
    found = Walk(getter(there, asked)).all(["Chassis/*/Log/*"])
    assert ("/c/A/log/1" in asked, found.documents["/c/A/log/1"].get("Severity") == "Critical") == (
        asked_itself,
        asked_itself,
    )


def test_an_embedded_member_that_lacks_what_the_trail_goes_on_with_is_asked_for_by_itself_once() -> None:
    there = service()
    there["/c"]["Members"] = [part("/c/A"), part("/c/HGX_B")]
    asked: list[str] = []
    found = Walk(getter(there, asked)).all(["Chassis/*", "Chassis/*/Sensors/*", "Chassis/*/Thermal"])
    assert found.trails["Chassis/*/Sensors/*"] == ["/c/A/s/1", "/c/A/s/2", "/c/A/s/3"]
    assert (asked.count("/c/A"), asked.count("/c/HGX_B"), "Sensors" in found.documents["/c/A"]) == (1, 1, True)


def test_an_embedded_member_that_cannot_be_read_by_itself_is_unread() -> None:
    there = service(**{"/c/A/log": {"@odata.id": "/c/A/log", "Members": [log_entry(7)]}})
    there["/c/A"]["Log"] = link("/c/A/log")
    found = Walk(getter(there)).all(["Chassis/*/Log/*"])
    assert (found.trails["Chassis/*/Log/*"], found.unread) == ([], {"/c/A/log/7": "HTTP 404: /c/A/log/7"})


def test_a_refused_login_ends_it_at_once() -> None:
    def get(_address: str) -> dict[str, Any]:
        raise BmcLoginError("no")

    with pytest.raises(BmcLoginError):
        Walk(get).all(["Chassis/*"])


def slowly(there: World, slow: str, *, hangs: bool = False) -> Get:
    """Answer for everything but one address in time; afterwards for nothing where the BMC hangs."""
    late = []
    get = getter(there)

    def answer(address: str) -> dict[str, Any]:
        if address == slow or (hangs and late):
            late.append(address)
            raise BmcSlowError("slow")
        return get(address)

    return answer


def test_a_resource_that_takes_too_long_is_unread_and_the_others_are_kept() -> None:
    found = Walk(slowly(service(), "/c/HGX_B")).all(["Chassis/*"])
    assert (found.trails["Chassis/*"], found.unread) == (["/c/A"], {"/c/HGX_B": "slow"})


def test_a_bmc_that_answers_nothing_any_more_ends_it() -> None:
    with pytest.raises(BmcSlowError):
        Walk(slowly(service(), "/c/HGX_B", hangs=True)).all(["Chassis/*"])


def test_a_property_with_a_dot_in_its_name_is_followed() -> None:
    there = service()
    there["/c/A"]["@Redfish.Settings"] = {"SettingsObject": link("/c/A/SD")}
    there["/c/A/SD"] = part("/c/A/SD")
    assert Walk(getter(there)).all(["Chassis/*/@Redfish.Settings.SettingsObject"]).trails == {
        "Chassis/*/@Redfish.Settings.SettingsObject": ["/c/A/SD"]
    }


def test_no_secret_and_no_noise_is_kept() -> None:
    said = {
        "Id": "Bios",
        "@odata.etag": "1",
        "Actions": {},
        "Attributes": {
            "AdminPassword": "hunter2",
            "Users": [{"Token": "abc"}],
            "PasswordSet": True,
            "SetupPassword": "",
        },
    }
    assert cleaned(said) == {
        "Id": "Bios",
        "Attributes": {
            "AdminPassword": "(left out)",
            "Users": [{"Token": "(left out)"}],
            "PasswordSet": True,
            "SetupPassword": "",
        },
    }


def test_one_member_is_taken_by_the_last_word_of_its_address_and_no_other_is_read() -> None:
    asked: list[str] = []
    found = Walk(getter(service(), asked)).all(["Chassis/*=A/Sensors/*=3", "Chassis/*=a", "Chassis/*=HGX"])
    assert found.trails == {"Chassis/*=A/Sensors/*=3": ["/c/A/s/3"], "Chassis/*=a": [], "Chassis/*=HGX": []}
    assert asked == [ROOT, "/c", "/c/A", "/c/A/s", "/c/A/s?$skip=2", "/c/A/s/3"]
