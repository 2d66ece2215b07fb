"""Lines, patches and hashes of SONiC; patches are applied by the rack's own reading of RFC 6902."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rackready.drivers.switch.sonic_bgp import parse_announced
from rackready.drivers.switch.sonic_counters import parse, script
from rackready.drivers.switch.sonic_text import (
    hashes_script,
    lines_of,
    missing,
    overlay,
    parse_config,
    parse_hash,
    parse_hashes,
    parse_line,
    patch,
)
from rackready.format_error import FormatError
from rackready_sim.programs.hwsim.switch.sonic.gcu import simulate

HAVE = {
    "PORT": {"Ethernet0": {"lanes": "0,1", "mtu": "9216", "speed": "800000", "admin_status": "up"}},
    "VLAN": {"Vlan901": {"vlanid": "901"}},
    "INTERFACE": {"Ethernet8": {}, "Ethernet8|10.0.0.0/31": {}},
}


@pytest.mark.parametrize(
    "line",
    [
        "set PORT|Ethernet0 description node01 rail1 (rackready)",
        "set INTERFACE|Ethernet8|10.0.0.0/31",
        "remove VLAN|Vlan901",
        "remove PORT|Ethernet0 mtu",
    ],
)
def test_a_line_survives_a_round_trip(line: str) -> None:
    assert str(parse_line(line)) == line


@pytest.mark.parametrize(
    "line", ["", "set", "set PORT", "set |Ethernet0 mtu 1", "set PORT|Ethernet0 mtu", "nv set x|y z 1"]
)
def test_what_is_no_line_is_refused(line: str) -> None:
    with pytest.raises(FormatError, match="no command of SONiC"):
        parse_line(line)


def test_a_value_of_two_lines_is_refused() -> None:
    with pytest.raises(FormatError, match="a value of one line"):
        lines_of({"PORT": {"Ethernet0": {"description": "x\nset BUFFER_POOL|a size 1"}}})


@pytest.mark.parametrize(
    ("commands", "paths"),
    [
        (["set VLAN|Vlan902 vlanid 902"], ["/VLAN/Vlan902"]),
        (["set SCHEDULER|a type STRICT"], ["/SCHEDULER"]),
        (["set PORT|Ethernet0 mtu 1500"], ["/PORT/Ethernet0/mtu"]),
        (["remove VLAN|Vlan901"], ["/VLAN"]),
        (["remove INTERFACE|Ethernet8|10.0.0.0/31"], ["/INTERFACE/Ethernet8|10.0.0.0~131"]),
        (["remove PORT|Ethernet0 mtu"], ["/PORT/Ethernet0/mtu"]),
        (["set VLAN|Vlan901 vlanid 901"], []),
    ],
)
def test_a_patch_has_what_differs_and_leads_to_the_target(commands: list[str], paths: list[str]) -> None:
    target = overlay(HAVE, commands)
    operations = patch(HAVE, target)
    assert [operation["path"] for operation in operations] == paths
    assert simulate(operations, HAVE) == target
    assert missing(commands, target) == []
    assert simulate(patch(target, HAVE), target) == HAVE


def test_a_port_keeps_the_fields_that_it_needs() -> None:
    after = overlay(HAVE, ["remove PORT|Ethernet0 mtu", "remove PORT|Ethernet0 admin_status"])
    assert after["PORT"]["Ethernet0"] == {"lanes": "0,1", "mtu": "9100", "speed": "800000", "admin_status": "down"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{'mtu': '9216', 'description': 'node01'}", {"mtu": "9216", "description": "node01"}),
        ("""{'description': "it's"}""", {"description": "it's"}),
        ("""{"it's": 'x'}""", {"it's": "x"}),
        ('{"mtu":"9216"}', {"mtu": "9216"}),
        ("{}", {}),
    ],
)
def test_a_hash_is_read_as_old_and_new_releases_print_it(text: str, found: dict[str, str]) -> None:
    assert parse_hash(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "usage: sonic-db-cli [-h]",
        "{'mtu': '9216'",
        "{'mtu': 9216}",
        """{'a': "it's "x""}""",
        '{"mtu":9216}',
        "{'a', 'b'}",
    ],
)
def test_another_shape_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse_hash(text)


def test_hashes_end_with_a_mark() -> None:
    text = "== PORT_TABLE:Ethernet0\n{'mtu': '9216'}\n== \n"
    assert parse_hashes(text) == {"PORT_TABLE:Ethernet0": {"mtu": "9216"}}
    assert parse_hashes("== \n") == {}
    with pytest.raises(FormatError, match="cut off after PORT_TABLE:Ethernet0"):
        parse_hashes(text.removesuffix("== \n"))
    with pytest.raises(FormatError, match="unexpected line 'Traceback"):
        parse_hashes("Traceback (most recent call last):\n== \n")
    assert "APPL_DB KEYS" in hashes_script("APPL_DB", ["PORT_TABLE:*"])


@pytest.mark.parametrize("text", ["", "[]", '{"VLAN": {}}', '{"PORT": {"Ethernet0": "up"}}', '{"PORT": []}'])
def test_another_configuration_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse_config(text)


def _counters() -> str:
    own = {f"SAI_PORT_STAT_PFC_{number}_{way}_PKTS": "0" for number in range(8) for way in ("RX", "TX")}
    own |= {"SAI_PORT_STAT_PFC_3_RX_PKTS": "5", "SAI_PORT_STAT_PFC_3_TX_PKTS": "7"}
    own |= {f"SAI_PORT_STAT_IF_{way}_{what}": "1" for way in ("IN", "OUT") for what in ("ERRORS", "DISCARDS")}
    lines = ["== Ethernet0 PORT", str(own)]
    for number in range(8):
        queue = {"SAI_QUEUE_STAT_DROPPED_PACKETS": "2", "SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS": str(number)}
        group = {"SAI_INGRESS_PRIORITY_GROUP_STAT_DROPPED_PACKETS": "3"}
        lines += [f"== Ethernet0:{number} QUEUE", str(queue), f"== Ethernet0:{number} PG", str(group)]
    return "\n".join([*lines, "== ", ""])


def test_counters_are_read() -> None:
    found = parse(_counters())["Ethernet0"]
    assert (found.marked, found.pauses[3], found.dropped_in, found.dropped_out, found.errors) == (
        28, 12, (3,) * 8, (2,) * 8, 4,
    )  # fmt: skip
    assert "Ethernet0 Ethernet8" in script(["Ethernet0", "Ethernet8"])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("_WRED_ECN_MARKED_", "_OTHER_", r"Ethernet0:0 QUEUE: .*`sudo counterpoll wredqueue enable`"),
        ("PRIORITY_GROUP_STAT_DROPPED", "OTHER", r"Ethernet0:0 PG: .*`sudo counterpoll pg-drop enable`"),
        ("3_RX_PKTS': '5'", "3_RX_PKTS': 'N/A'", r"Ethernet0 PORT: .* is 'N/A' instead of a number"),
        ("== Ethernet0 PORT", "== ", "text after the end"),
    ],
)
def test_missing_counters_are_refused(old: str, new: str, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        parse(_counters().replace(old, new))


UNMAPPED = '{"unmapped": "yes"}'


def without(text: str, *names: str) -> str:
    """The counters of a switch whose maps lack these queues and groups."""
    lines = text.splitlines()
    for name in names:
        lines[lines.index(f"== {name}") + 1] = UNMAPPED
    return "\n".join([*lines, ""])


def test_queues_and_groups_without_a_buffer_are_not_counted() -> None:
    found = parse(without(_counters(), "Ethernet0:7 QUEUE", *(f"Ethernet0:{one} PG" for one in (1, 2, 5, 6, 7))))
    port = found["Ethernet0"]
    assert (port.marked, port.dropped_in, port.dropped_out) == (21, (3, 0, 0, 3, 3, 0, 0, 0), (2,) * 7 + (0,))
    assert (port.uncounted_in, port.uncounted_out) == ({1, 2, 5, 6, 7}, {7})
    whole = parse(_counters())["Ethernet0"]
    assert (whole.uncounted_in, whole.uncounted_out) == (set(), set())
    assert dataclasses.replace(port, errors=9).since(port).uncounted_out == {7}


@pytest.mark.parametrize(("kind", "group"), [("PG", "pg-drop"), ("QUEUE", "queue")])
def test_a_map_without_the_port_is_refused(kind: str, group: str) -> None:
    said = rf"Ethernet0: COUNTERS_{kind}_NAME_MAP has nothing of this port; `sudo counterpoll {group} enable`"
    with pytest.raises(FormatError, match=said):
        parse(without(_counters(), *(f"Ethernet0:{one} {kind}" for one in range(8))))
    with pytest.raises(FormatError, match="Ethernet0: COUNTERS_PORT_NAME_MAP has nothing of this port"):
        parse(without(_counters(), "Ethernet0 PORT"))


def test_counters_of_a_failed_command_are_refused() -> None:
    with pytest.raises(FormatError, match="exit code 1: nothing said"):
        parse("", 1)
    with pytest.raises(FormatError, match="no counters"):
        parse("== \n")


FAKE = """#!/bin/sh
echo "$*" >>calls
case "$*" in
    *_NAME_MAP) cat "$3" ;;
    *) echo '{"kept": "yes"}' ;;
esac
"""
OWN = {"valid": True, "peerId": "(unspec)", "path": "", "weight": 32768}
HEARD = {"valid": True, "peerId": "10.1.1.1", "path": "65201"}
"""As FRRouting prints them (bgpd/bgp_route.c, route_vty_out)."""


@pytest.mark.parametrize(
    ("paths", "announced"),
    [([OWN], True), ([HEARD, OWN], True), ([HEARD], False), ([OWN | {"valid": False}], False), ([], False)],
    ids=["own", "own and another's", "another's", "own without a route", "none"],
)
def test_only_valid_routes_of_the_switch_itself_are_announced(
    paths: list[dict[str, object]],
    announced: bool,  # noqa: FBT001 - a case
) -> None:
    found = parse_announced(json.dumps({"vrfName": "default", "routes": {"10.0.0.1/32": paths}}))
    assert found == ({"10.0.0.1/32"} if announced else set())


def test_a_bgp_table_of_another_form_is_refused() -> None:
    assert parse_announced("{}") == frozenset()
    for text in ("[]", '{"routes": []}', "% Unknown command"):
        with pytest.raises(FormatError):
            parse_announced(text)


FORMS: dict[str, Callable[[dict[str, str]], str]] = {
    "as Python": str,
    "JSON": json.dumps,
    "JSON without spaces": lambda found: json.dumps(found, separators=(",", ":")),
}
"""Ways in which releases of `sonic-db-cli` print a hash."""


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_maps_of_names_are_read_once(tmp_path: Path, form: Callable[[dict[str, str]], str]) -> None:
    program = tmp_path / "bin/sonic-db-cli"
    program.parent.mkdir()
    program.write_text(FAKE, encoding="utf-8")
    program.chmod(0o755)
    ports = [f"Ethernet{4 * number}" for number in range(4)]
    numbered = [f"{port}:{number}" for port in ports for number in range(8)]
    some = [name for name in numbered if name.endswith((":0", ":3", ":7"))]
    for kind, names in {"PORT": ports, "QUEUE": numbered, "PG": some}.items():
        oids = {name: f"oid:0x{kind.encode().hex()}{place:04x}" for place, name in enumerate(names)}
        (tmp_path / f"COUNTERS_{kind}_NAME_MAP").write_text(form(oids), encoding="utf-8")
    env = {"PATH": f"{program.parent}:/usr/bin:/bin"}
    asked = ["Ethernet0", "Ethernet4"]
    done = subprocess.run(
        ["sh", "-c", script(asked)], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    found = parse_hashes(done.stdout)
    assert len(found) == 2 * 17
    unmapped = {f"{port}:{number} PG" for port in asked for number in (1, 2, 4, 5, 6)}
    assert {name for name, one in found.items() if one == json.loads(UNMAPPED)} == unmapped
    assert all(one == {"kept": "yes"} for name, one in found.items() if name not in unmapped)
    calls = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert len(calls) == 1 + 3 + 2 * 12
    assert "-j COUNTERS_DB HGETALL COUNTERS:oid:0x504f52540001" in calls, "Ethernet4, not Ethernet40"
    assert "-j COUNTERS_DB HGETALL COUNTERS:oid:0x50470005" in calls, "priority group 7 of Ethernet4"
