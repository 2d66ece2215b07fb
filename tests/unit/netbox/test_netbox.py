"""Export to NetBox and import from it: reads every page, repeats safely, deletes nothing, keeps the token secret.

What NetBox does not know is listed, never guessed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rackready.design.netbox.compare import steps, taken
from rackready.design.netbox.items import items
from rackready.design.netbox.to_site import site_of
from rackready.design.plan import Plan, plan_site
from rackready.design.wiring import cables
from rackready.drivers.netbox import Netbox, NetboxError
from rackready.model.problems import RackreadyError
from tests.unit.cli.test_commands import project, rackready
from tests.unit.design.written import Change, change, example, parse
from tests.unit.netbox.fake_netbox import PAGE, TOKEN, Store, netbox

__all__ = ["project"]


@pytest.fixture
def served() -> Iterator[tuple[str, Store]]:
    with netbox() as found:
        yield found


def planned(*changes: Change, name: str = "lab-4-nodes") -> Plan:
    document = example(name)
    for apply in changes:
        apply(document)
    return plan_site(parse(document))


def export(url: str, plan: Plan) -> list[str]:
    client = Netbox(url, TOKEN)
    known = client.known(plan.site.name)
    todo = steps(items(plan), known)
    client.write(todo, known)
    return [step.text for step in todo]


def test_round_trip_gives_the_same_nodes_and_links(served: tuple[str, Store]) -> None:
    url, _ = served
    plan = planned()
    export(url, plan)
    found = Netbox(url, TOKEN).read("lab", ("dcim.racks", "dcim.devices", "dcim.cables"))
    made = site_of("lab", found, "gpu-node")
    document = example("lab-4-nodes")
    again = {**{key: document[key] for key in ("access", "software", "fabric", "gates", "handover")}, **made.document}
    again["switches"] = [
        {**switch, "os": "cumulus_nvue", "password": {"env": "LEAF_PASSWORD"}} for switch in again["switches"]
    ]
    site = parse(again)
    assert [(node.name, node.platform, node.unit, node.address, node.bmc.address) for node in site.nodes()] == [
        (node.name, node.platform, node.unit, node.address, node.bmc.address) for node in plan.site.nodes()
    ]
    assert cables(site) == cables(plan.site)
    assert [(switch.name, switch.model, switch.address) for switch in site.switches] == [
        (item.name, item.model, item.address) for item in plan.site.switches
    ]
    assert made.left_out == ()
    assert "node node01: bmc.password" in made.missing
    assert "node node01: serial" in made.missing
    assert "switch leaf02: os" in made.missing


def test_second_export_does_nothing_and_a_change_alone_is_written(served: tuple[str, Store]) -> None:
    url, store = served
    export(url, planned())
    done = len(store.writes)
    assert export(url, planned()) == []
    assert len(store.writes) == done
    serial = change("racks.0.nodes.0.serial", {"first": 5, "text": "S{n}"})
    assert export(url, planned(serial)) == [
        f"change devices node0{number}: serial: - -> S{number + 4}" for number in range(1, 5)
    ]
    assert {method for method, _, _ in store.writes} == {"POST", "PATCH"}


@pytest.mark.parametrize("name", ["h100-1su-infiniband", "mixed-metal-virtual"])
def test_sites_with_a_topology_and_with_virtual_nodes_are_written_once(served: tuple[str, Store], name: str) -> None:
    url, store = served
    plan = planned(name=name)
    texts = export(url, plan)
    assert len(store.objects["dcim/cables"]) == sum(
        link.node in {node.name for node in plan.site.nodes()} for link in plan.fabric.endpoints
    )
    assert export(url, plan) == []
    assert not any("vm-a" in text for text in texts)


def test_interrupted_export_goes_on(served: tuple[str, Store]) -> None:
    url, store = served
    plan = planned()
    client = Netbox(url, TOKEN)
    client.write(steps(items(plan), client.known("lab"))[:40], client.known("lab"))
    before = len(store.writes)
    export(url, plan)
    assert export(url, plan) == []
    assert len([1 for method, _, _ in store.writes[before:] if method == "POST"]) + 40 == sum(
        len(rows) for rows in store.objects.values()
    )


def test_what_others_keep_in_netbox_stays(served: tuple[str, Store]) -> None:
    url, store = served
    export(url, planned())
    store.create("dcim/devices", {"name": "theirs", "site": 1, "role": 5, "device_type": 4})
    device = next(item for item in store.objects["dcim/devices"].values() if item["name"] == "node01")
    device["comments"] = "mind the cable"
    assert export(url, planned()) == []
    assert device["comments"] == "mind the cable"


def test_what_the_plan_does_not_know_is_never_written_over(served: tuple[str, Store]) -> None:
    """The plan has placeholders for makers and types of interfaces; people have corrected them since."""
    url, store = served
    export(url, planned())
    maker = store.create("dcim/manufacturers", {"name": "Dell", "slug": "dell"})["id"]
    own = {"manufacturer": maker, "model": "PowerEdge R760xa", "u_height": 2.0}
    for kind in store.objects["dcim/device-types"].values():
        kind.update(own)
    for port in store.objects["dcim/interfaces"].values():
        port["type"] = "400gbase-x-osfp"
    assert export(url, planned()) == []
    assert all(own.items() <= kind.items() for kind in store.objects["dcim/device-types"].values())
    assert {port["type"] for port in store.objects["dcim/interfaces"].values()} == {"400gbase-x-osfp"}


def test_the_placeholder_of_a_maker_comes_with_a_model_that_needs_it(served: tuple[str, Store]) -> None:
    url, store = served
    maker = store.create("dcim/manufacturers", {"name": "Dell", "slug": "dell"})["id"]
    for item in items(planned()):
        if item.kind == "dcim.device-types":
            store.create("dcim/device-types", {**item.fields, "manufacturer": maker})
    export(url, planned())
    assert [row["name"] for row in store.objects["dcim/manufacturers"].values()] == ["Dell"]


def test_masks_that_people_gave_addresses_stay(served: tuple[str, Store]) -> None:
    url, store = served
    export(url, planned())
    for item in store.objects["ipam/ip-addresses"].values():
        item["address"] = item["address"].replace("/32", "/24")
    assert export(url, planned()) == []
    assert {item["address"].partition("/")[2] for item in store.objects["ipam/ip-addresses"].values()} == {"24"}


def test_the_same_address_in_a_vrf_is_another_one(served: tuple[str, Store]) -> None:
    url, store = served
    export(url, planned())
    first = next(iter(store.objects["ipam/ip-addresses"].values()))
    other = next(
        item["id"] for item in reversed(store.objects["dcim/interfaces"].values()) if item["name"] == "in-band"
    )
    store.create("ipam/ip-addresses", {**first, "assigned_object_id": other, "vrf": {"id": 7, "name": "blue"}})
    assert export(url, planned()) == []


def test_an_address_of_somebody_else_is_not_taken(served: tuple[str, Store]) -> None:
    url, store = served
    export(url, planned())
    device = store.create("dcim/devices", {"name": "theirs", "site": 1, "role": 5, "device_type": 4})
    port = store.create("dcim/interfaces", {"name": "eth0", "device": device["id"], "type": "virtual"})
    held = next(item for item in store.objects["ipam/ip-addresses"].values() if item["address"] == "192.0.2.11/32")
    held["assigned_object_id"] = port["id"]
    wanted = items(planned())
    known = Netbox(url, TOKEN).known("lab")
    assert [str(item) for item in taken(wanted, known)] == [
        (
            "address 192.0.2.11 - Expected: free, or assigned to node01 in-band Actual: assigned to theirs eth0. "
            "Release it in NetBox, or plan another address."
        )
    ]
    held["assigned_object_id"] = next(
        item["id"] for item in store.objects["dcim/interfaces"].values() if item["name"] == "bmc"
    )
    assert taken(wanted, Netbox(url, TOKEN).known("lab")) == []
    assert "change ip-addresses 192.0.2.11: assigned_object_id: node01 bmc -> node01 in-band" in export(url, planned())


def test_export_stops_before_an_address_of_somebody_else(project: Path, served: tuple[str, Store]) -> None:
    url, store = served
    token = project / "token"
    token.write_text(TOKEN + "\n", encoding="utf-8")
    call = ("export", "netbox", "--env", "lab", "--url", url, "--token-file", str(token), "--yes")
    assert rackready(project, *call).returncode == 0
    next(item for item in store.objects["dcim/devices"].values() if item["name"] == "node02")["name"] = "theirs"
    before = len(store.writes)
    done = rackready(project, *call)
    assert (done.returncode, done.stdout, len(store.writes)) == (2, "", before)
    assert done.stderr.startswith("site sim cannot be exported; nothing was written.\n  address ")


def test_racks_of_one_name_are_not_merged() -> None:
    found = {
        "dcim.racks": [{"name": "a01", "u_height": 42}, {"name": "a01", "u_height": 48}],
        "dcim.devices": [],
        "dcim.cables": [],
    }
    with pytest.raises(RackreadyError) as caught:
        site_of("lab", found, "gpu-node")
    assert (
        str(caught.value) == "site lab in NetBox: rack a01 - Expected: one rack of that name Actual: several. "
        "Rename them there, location by location."
    )


def test_a_device_without_a_name_is_left_out() -> None:
    device = {
        "id": 17,
        "name": None,
        "device_type": {"model": "dgx_h100"},
        "role": {"slug": "gpu-node"},
        "rack": {"name": "a01"},
    }
    found = {"dcim.racks": [{"name": "a01", "u_height": 42}], "dcim.devices": [device], "dcim.cables": []}
    assert site_of("lab", found, "gpu-node").left_out == ("device 17: has no name", "rack a01: kept, but has no nodes")


def test_every_page_is_read(served: tuple[str, Store]) -> None:
    url, store = served
    export(url, planned())
    interfaces = Netbox(url, TOKEN).read("lab", ("dcim.interfaces",))["dcim.interfaces"]
    assert len(interfaces) == len(store.objects["dcim/interfaces"]) > 20 * PAGE
    assert len({item["id"] for item in interfaces}) == len(interfaces)


def test_the_token_goes_to_no_address_that_an_answer_names(served: tuple[str, Store]) -> None:
    url, store = served
    export(url, planned())
    with netbox() as (elsewhere, other):
        store.links = elsewhere
        found = Netbox(url, TOKEN).read("lab", ("dcim.interfaces",))
    assert (len(found["dcim.interfaces"]), other.gets) == (len(store.objects["dcim/interfaces"]), [])


def test_names_that_others_gave_shared_objects_stay(served: tuple[str, Store]) -> None:
    url, store = served
    store.create("dcim/sites", {"name": "Frankfurt DC 1", "slug": "lab", "status": "active"})
    store.create("dcim/device-roles", {"name": "GPU Node", "slug": "gpu-node"})
    store.create("dcim/manufacturers", {"name": "As planned", "slug": "as-planned"})
    export(url, planned())
    changed = {place for method, place, _ in store.writes if method == "PATCH"}
    assert changed == {"dcim/devices"}  # their addresses
    assert [row["name"] for row in store.objects["dcim/sites"].values()] == ["Frankfurt DC 1"]
    assert "GPU Node" in [row["name"] for row in store.objects["dcim/device-roles"].values()]
    assert export(url, planned()) == []


def test_what_is_not_understood_is_listed(served: tuple[str, Store]) -> None:
    url, store = served
    export(url, planned())
    kind = store.create("dcim/device-types", {"model": "Mystery 9000", "slug": "mystery", "manufacturer": 2})["id"]
    role = next(item["id"] for item in store.objects["dcim/device-roles"].values() if item["slug"] == "leaf")
    store.create("dcim/devices", {"name": "box", "site": 1, "role": role, "device_type": kind})
    cable = next(iter(store.objects["dcim/cables"].values()))
    cable["b_terminations"] = []
    made = site_of("lab", Netbox(url, TOKEN).read("lab"), "gpu-node")
    assert made.left_out == (
        "device box: role leaf, model Mystery 9000: neither a node in a rack nor a known switch model",
        f"cable {cable['id']}: does not connect two interfaces",
    )


def test_refusals_say_why_and_never_the_token(served: tuple[str, Store]) -> None:
    url, _ = served
    wrong = "f" * 40
    with pytest.raises(NetboxError) as caught:
        Netbox(url, wrong).read("lab")
    assert str(caught.value) == (
        f'NetBox {url} - Expected: an answer Actual: 403 {{"detail": "Invalid token"}}. '
        "Check address, token and its permissions, then run again."
    )
    with pytest.raises(NetboxError) as gone:
        Netbox("http://127.0.0.1:9", wrong).read("lab")
    assert "ConnectionError" in str(gone.value)
    assert wrong not in str(caught.value) + str(gone.value)
    with pytest.raises(NetboxError, match=r"begins with https:// Actual: http\. The token would go unencrypted\."):
        Netbox("http://netbox.example.com", wrong)


def test_export_shows_first_and_writes_with_yes(project: Path, served: tuple[str, Store]) -> None:
    url, store = served
    file = project / "token"
    file.write_text(TOKEN + "\n", encoding="utf-8")
    options = ("export", "netbox", "--env", "lab", "--url", url, "--token-file", str(file))
    shown = rackready(project, *options)
    assert (shown.returncode, store.writes) == (1, []), shown.stderr
    assert shown.stdout.startswith("NetBox differs (")
    assert shown.stdout.endswith("nothing was written. Add --yes to write it\n")
    written = rackready(project, *options, "--yes", "-v", "--output", "json")
    assert written.returncode == 0, written.stderr
    assert json.loads(written.stdout)["written"] is True
    assert f"drivers.netbox: {url}: no site has the slug sim\n" in written.stderr
    steps = json.loads(written.stdout)["steps"]
    assert [step for step in steps if f"drivers.netbox: {url}: {step}\n" not in written.stderr] == []
    assert rackready(project, *options).stdout == "no difference\n"
    assert TOKEN not in shown.stdout + shown.stderr + written.stdout + written.stderr


def test_import_writes_a_new_file_and_lists_what_is_missing(project: Path, served: tuple[str, Store]) -> None:
    url, _ = served
    export(url, planned())
    (project / "token").write_text(TOKEN, encoding="utf-8")
    target = project / "new.yml"
    options = ("import", "netbox", "lab", "--url", url, "--token-file", str(project / "token"), "--into", str(target))
    done = rackready(project, *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"4 nodes and 32 links written to {target}\nto be filled in (")
    assert target.read_text(encoding="utf-8").startswith(
        "# From NetBox. Complete by hand what NetBox does not have:\n#   access:"
    )
    assert len(yaml.safe_load(target.read_text(encoding="utf-8"))["links"]) == 32
    again = rackready(project, *options)
    assert again.returncode == 2
    assert (
        again.stderr
        == f"--into {target} - Expected: a new file Actual: it exists. Name another file, and compare the two.\n"
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            (),
            (
                "environment variable NETBOX_TOKEN - Expected: an API token of NetBox Actual: nothing. "
                "Give --token-file FILE, or set NETBOX_TOKEN.\n"
            ),
        ),
        (
            ("--token-file", "gone"),
            (
                "--token-file gone - Expected: a file that holds the API token Actual: No such file or directory. "
                "Correct the path.\n"
            ),
        ),
    ],
)
def test_missing_token_is_refused(project: Path, options: tuple[str, ...], text: str) -> None:
    done = rackready(project, "export", "netbox", "--env", "lab", "--url", "https://netbox.example.com", *options)
    assert (done.returncode, done.stderr) == (2, text)


def test_a_file_that_holds_more_than_a_token_is_refused_and_not_shown(project: Path) -> None:
    (project / "token").write_text("password,hunter2\nof another thing\n", encoding="utf-8")
    done = rackready(
        project, "export", "netbox", "--env", "lab", "--url", "https://127.0.0.1:1", "--token-file", "token"
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "--token-file token - Expected: an API token of NetBox and nothing else "
        "Actual: several words, or characters that no token has. Correct it.\n"
    )


def test_unknown_site_is_refused(project: Path, served: tuple[str, Store]) -> None:
    url, _ = served
    (project / "token").write_text(TOKEN, encoding="utf-8")
    done = rackready(
        project,
        "import",
        "netbox",
        "gone",
        "--url",
        url,
        "--token-file",
        str(project / "token"),
        "--into",
        str(project / "new.yml"),
    )
    assert done.returncode == 2
    assert (
        done.stderr == f"site gone in {url} - Expected: a site with this slug Actual: none. "
        "Correct the slug, or the token's permissions.\n"
    )
    assert not (project / "new.yml").exists()
