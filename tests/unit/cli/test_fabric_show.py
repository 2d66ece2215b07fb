"""`rackready fabric --show SWITCH`: the whole candidate, what the switch lacks of it, and no change."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from rackready.campaign import switch_candidate
from rackready.drivers.switch.cumulus_nvue import CumulusNvue
from tests.unit.fabric.fake_nvue import FakeNvue

Call = Callable[..., tuple[int, str, str]]
READS = ("nv show", "nv config show", "nv config revision", "nv config diff")


@pytest.fixture
def leaf(monkeypatch: pytest.MonkeyPatch) -> FakeNvue:
    fake = FakeNvue()
    monkeypatch.setattr(switch_candidate, "open_driver", lambda *_: (CumulusNvue("leaf01", fake), ""))
    return fake


def test_every_command_is_shown_and_nothing_is_loaded(call: Call, leaf: FakeNvue) -> None:
    code, out, err = call("fabric", "--show", "leaf01")
    lines = out.splitlines()
    assert code == 0
    assert "+ nv set qos roce state enabled" in lines
    assert {line[0] for line in lines} == {"+"}
    assert f"leaf01: {len(lines)} of {len(lines)} commands differ from the switch; nothing was changed" in err
    assert all(command.startswith(READS) for command in leaf.sent), leaf.sent


def test_what_the_switch_has_is_not_marked(call: Call, leaf: FakeNvue) -> None:
    leaf.applied[("nv", "set", "interface", "swp1", "link", "mtu")] = "9216"
    code, out, _ = call("fabric", "--show", "leaf01", "--output", "json")
    document = json.loads(out)
    has = [line["command"] for line in document["commands"] if line["state"] == "applied"]
    assert (code, has) == (0, ["nv set interface swp1 link mtu 9216"])
    assert document["differing"] == len(document["commands"]) - 1


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--show", "leaf09"], "--show leaf09 - Expected: one of leaf01, leaf02."),
        (
            ["--show", "leaf01", "--check"],
            "--show: prints one switch and changes nothing - Expected: neither --limit nor --check.",
        ),
        (
            ["--show", "leaf01", "--limit", "node01"],
            "--show: prints one switch and changes nothing - Expected: neither --limit nor --check.",
        ),
    ],
    ids=["switch", "check", "limit"],
)
def test_what_it_cannot_show_is_refused(call: Call, leaf: FakeNvue, words: list[str], text: str) -> None:
    code, _, err = call("fabric", *words)
    assert code == 2
    assert text in err
    assert leaf.sent == []
