"""Lists for configuring from a plan: facts of an address, subnets with relays, the tenant of every node."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

import pytest

from rackready.design.plan import Plan, plan_site
from rackready.design.plan_summary import summary
from rackready.model.problems import RackreadyError
from rackready.render import plan_files
from rackready.render.plan_files import write_plan
from rackready.render.plan_tables import plan_tables
from rackready.render.tables import write_csv
from tests.unit.design.written import Change, change, example, parse


def planned(name: str, *changes: Change) -> Plan:
    document = example(name)
    for one in changes:
        one(document)
    return plan_site(parse(document))


def rows(name: str, plan: Plan) -> list[dict[str, str]]:
    file = io.StringIO()
    write_csv(next(table for table in plan_tables(plan) if table.name == name), file)
    return list(csv.DictReader(io.StringIO(file.getvalue())))


def test_an_address_comes_with_what_its_port_needs() -> None:
    found = rows("addresses", planned("b200-4su-roce", change("networks.in_band.vlan", 100)))
    by_key = {(row["device"], row["network"]): row for row in found}
    node = by_key["a02-n1", "in_band"]
    assert (node["address"], node["prefix"], node["vlan"], node["gateway"]) == ("10.21.0.75", "26", "100", "10.21.0.65")
    dpu = by_key["a02-n1-dpu2", "oob"]
    assert (dpu["address"], dpu["prefix"], dpu["vlan"], dpu["gateway"]) == ("10.20.1.19", "24", "", "10.20.1.1")


def test_an_address_that_lies_in_no_pool_is_listed_alone() -> None:
    found = rows(
        "addresses", planned("mixed-metal-virtual", change("racks.0.nodes.0.address", {"first": "192.0.2.11"}))
    )
    assert next(list(row.values()) for row in found if row["device"] == "train-1") == [
        "train-1",
        "in_band",
        "",
        "",
        "192.0.2.11",
        "",
        "",
        "",
        "",
    ]


def test_an_as_number_is_listed_also_without_loopbacks() -> None:
    def alone(document: dict[str, object]) -> None:
        networks = document["networks"]
        assert isinstance(networks, dict)
        del networks["loopbacks"]

    for plan in (planned("b200-4su-roce"), planned("b200-4su-roce", alone)):
        numbers = [
            row["as_number"] for row in rows("addresses", plan) if row["device"] == "spine-001" and row["as_number"]
        ]
        assert numbers == ["4200000008"]


def test_every_subnet_comes_with_gateway_and_relays() -> None:
    found = rows("networks", planned("b200-4su-roce"))
    assert found[0] == dict(
        zip(
            ("network", "rack", "unit", "rail", "plane", "subnet", "gateway", "vlan", "mtu", "dhcp_relays"),
            ("oob", "a01", "", "", "", "10.20.0.0/24", "10.20.0.1", "", "1500", "10.20.255.10 10.20.255.11"),
            strict=True,
        )
    )
    last = found[-1]
    assert (last["network"], last["unit"], last["rail"], last["subnet"], last["vlan"], last["mtu"]) == (
        "compute",
        "4",
        "8",
        "10.128.31.0/24",
        "908",
        "9000",
    )
    # Three networks of 36 racks, and eight rails of four units.
    assert len({row["subnet"] for row in found}) == len(found) == 3 * 36 + 8 * 4


def test_a_network_that_is_not_routed_is_one_subnet() -> None:
    found = rows("networks", planned("mixed-metal-virtual", change("networks.oob.routed", value=False)))
    assert [(row["rack"], row["subnet"], row["gateway"]) for row in found if row["network"] == "oob"] == [
        ("", "10.50.0.0/20", "10.50.0.1")
    ]


def test_every_node_of_a_tenant_is_listed() -> None:
    found = rows("tenants", planned("mixed-metal-virtual"))
    assert [row["node"] for row in found if row["tenant"] == "training"] == ["train-1", "train-2", "train-3", "train-4"]
    assert found[-1] == {
        "tenant": "inference",
        "node": "vm-b10",
        "vlan": "1202",
        "vrf": "inference",
        "vni": "",
        "pkey": "",
    }
    assert {row["pkey"] for row in rows("tenants", planned("h100-1su-infiniband"))} == {"0x8011", "0x8012"}


def test_pages_that_another_process_writes_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned("h100-1su-infiniband")
    document = summary(plan)
    write_plan(plan, document, tmp_path / "here")
    monkeypatch.setattr(plan_files, "APART_FROM", 0)
    write_plan(plan, document, tmp_path / "apart")
    here, apart = (
        {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.*")}
        for name in ("here", "apart")
    )
    assert here == apart
    assert len([path for path in here if path.suffix == ".html"]) == 1 + 9


def test_pages_that_another_process_cannot_write_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned("h100-1su-infiniband")
    monkeypatch.setattr(plan_files, "APART_FROM", 0)
    (tmp_path / "cables/cables-a01.html").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        write_plan(plan, summary(plan), tmp_path)
    monkeypatch.setattr(plan_files, "write_rack_pages", lambda *_: os._exit(9))
    with pytest.raises(
        RackreadyError,
        match="cables/ - Expected: a page a rack Actual: the process that writes them ended before it was done",
    ):
        write_plan(plan, summary(plan), tmp_path)
