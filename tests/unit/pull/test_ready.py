"""What the role asks of a node before its timer runs: each program does once what an order needs."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from rackready.ondevice.pull.report import agent_digest
from tests.unit.pull.world import AGENT, ROOT, World, python_of_the_system

AGAIN = "Run the phase again on the controller: it installs the agent again."
ROLE = ROOT / "roles/pull_agent"


def refusal(world: World, *words: str) -> dict[str, str]:
    code, lines = world.agent("check", *words)
    assert code == 1
    found: dict[str, str] = json.loads(lines[0])
    return found


def test_a_node_that_can_pull_says_with_what(world: World) -> None:
    code, lines = world.agent("check", "--python", python_of_the_system())
    key = world.ssh / "ssh_host_ed25519_key"
    assert code == 0
    assert lines[0].startswith(f"node01: reports are signed with {key}, orders verified by openssl, releases run by /")


@pytest.mark.parametrize(("text", "actual"), [("junk", "unusable (ValueError)"), ("00" * 16, "16 bytes")])
def test_a_key_that_is_none_is_refused(world: World, text: str, actual: str) -> None:
    (world.etc / "key").write_text(text)
    assert refusal(world) == {
        "code": "config",
        "where": str(world.etc / "key"),
        "expected": "a key of 32 bytes in hexadecimal",
        "actual": actual,
        "next_step": AGAIN,
    }


def test_a_node_without_the_python_of_releases_is_refused(world: World) -> None:
    assert refusal(world, "--python", "3.98")["expected"] == "Python 3.98"


def test_a_host_key_that_does_not_sign_is_refused(world: World) -> None:
    key = world.ssh / "ssh_host_ed25519_key"
    key.write_text("no key")
    found = refusal(world)
    assert (found["code"], found["next_step"]) == ("sign", f"Look at {key} on the node.")


@pytest.mark.parametrize(
    ("program", "code", "actual"),
    [
        ("exit 3", "openssl", "exit code 3"),
        ("echo 'pkeyutl: Unknown option: -rawin'; exit 1", "openssl", "pkeyutl: Unknown option: -rawin"),
        ('[[ " $* " == *" -verify "* ]] && exit 1; exec /usr/bin/openssl "$@"', "openssl", "it does not"),
    ],
)
def test_an_openssl_that_verifies_nothing_is_refused(world: World, program: str, code: str, actual: str) -> None:
    folder = world.tmp / "bin"
    folder.mkdir()
    (folder / "openssl").write_text(f"#!/bin/bash\n{program}\n")
    (folder / "openssl").chmod(0o755)
    world.path = f"{folder}:/usr/bin:/bin"
    found = refusal(world)
    assert found["code"] == code
    assert found["actual"] == actual


def test_without_openssl_no_order_counts(world: World) -> None:
    folder = world.tmp / "bin"
    folder.mkdir()
    (folder / "ssh-keygen").symlink_to("/usr/bin/ssh-keygen")
    world.path = str(folder)
    world.order(5)
    assert world.said() == (
        "node01: order - Expected: openssl 3 on the node Actual: openssl does not run ([Errno 2] No such file or "
        "directory: 'openssl'). Install openssl on the node."
    )


def test_the_role_copies_every_file_of_the_agent() -> None:
    variables = yaml.safe_load((ROLE / "vars/main.yml").read_text())
    copied = [str(item["path"]).rpartition("/")[2] for item in variables["__pull_agent_files"] if ".py" in item["path"]]
    assert copied == sorted(path.name for path in AGENT.glob("*.py"))
    read = re.findall(r"__pull_agent_source ~ '(\w+\.py)', rstrip=false", (ROLE / "vars/main.yml").read_text())
    assert read == copied


def test_the_unit_starts_what_these_tests_start(world: World) -> None:
    unit = (ROLE / "templates/rackready-pull.service.j2").read_text()
    words = world.argv("run")
    assert f"ExecStart={' '.join(words[: words.index('run')])}\n" in unit
    assert "UMask" not in unit, "modules inherit it"


def test_the_controller_and_the_node_name_the_agent_alike(world: World) -> None:
    world.order(5)
    world.agent()
    assert world.report("5-apply").agent == agent_digest()
