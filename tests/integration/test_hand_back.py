"""A node leaves its tenant on the simulated rack: everything is found, removed, measured again, and handed over."""

from __future__ import annotations

import json

import pytest

from rackready.design.site import load_site
from rackready.drivers.redfish import Bmc
from tests.integration.project import Project

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LIMIT = ("--limit", "node01,node02")
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFTenantsOwnKeyOfThisTestOnlyAAAAAAAAAAAAAAAA eve@laptop"
LEAVE = f"""
mkdir -p /homes; useradd --base-dir /homes --create-home --uid 20001 eve
mkdir -p /homes/eve/.ssh /var/spool/cron/crontabs
echo '{KEY}' | tee -a /root/.ssh/authorized_keys > /homes/eve/.ssh/authorized_keys
echo data > /homes/eve/thesis
echo '@reboot sleep 9999' > /var/spool/cron/crontabs/eve
mkdir /tmp/eve && echo x > /tmp/eve/model && echo x > /dev/shm/eve-shm
chown -R eve /tmp/eve /dev/shm/eve-shm /homes/eve /var/spool/cron/crontabs/eve
setsid su eve -c 'exec sleep 9998' < /dev/null > /dev/null 2>&1 &
sleep 1
"""
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


@pytest.fixture(scope="module")
def rack(project: Project) -> Project:
    """Two nodes in production; homes are the node's own."""
    project.skip_incast("node01", "node02")
    project.change_site({"hand_back": {"empty": ["/homes"]}})
    code, document = project.json("deploy", *LIMIT)
    assert code == 0, project.progress()[-4000:]
    assert {row["name"]: row["state"] for row in document["nodes"]} == {"node01": "ready", "node02": "ready"}
    return project


def test_a_node_returns_from_its_tenant(rack: Project) -> None:
    rack.ssh("node02", LEAVE)
    site = load_site("sim", root=rack.root).node("node02").bmc.known()
    assert site is not None
    theirs = Bmc("node02", site)
    theirs.login()
    boot = rack.ssh("node02", BOOT_ID)

    code, shown = rack.run("hand-back", "node02", "--reason", "lease ended", "--output", "json")
    assert code == 0, shown
    found = {line.split(":")[0]: line for line in json.loads(shown)["found"]}
    assert sorted(found) == ["BMC session", "file", "folder", "key", "process", "schedule"], found
    assert "sleep (eve)" in found["process"]
    assert "/eve (eve)" in found["file"]
    assert found["key"].count("eve@laptop") == 2
    assert rack.ssh("node02", "pgrep -u eve sleep").strip(), "a look changes nothing"

    code, text = rack.run("hand-back", "node02", "--reason", "lease ended", "--yes", "--output", "json")
    assert code == 0, text[-3000:] + rack.progress()[-4000:]
    document = json.loads(text)
    assert document["done"] is True
    rows = {row["name"]: row["state"] for row in document["campaigns"][-1]["nodes"]}
    assert rows == {"node01": "ready", "node02": "ready"}, "node01 was its partner"
    assert rack.ssh("node02", BOOT_ID) != boot
    assert (
        rack.ssh("node02", "ls -A /homes /tmp/eve /dev/shm/eve-shm 2>/dev/null; pgrep -u 20001; true").strip()
        == "/homes:"
    )
    assert "eve@laptop" not in rack.ssh("node02", "cat /root/.ssh/authorized_keys")
    states = {row["name"]: row["state"] for row in rack.json("status")[1]["nodes"]}
    assert (states["node01"], states["node02"]) == ("ready", "ready")

    code, shown = rack.run("hand-back", "node02", "--reason", "again", "--output", "json")
    assert (code, json.loads(shown)["found"]) == (0, [])


def test_an_open_return_keeps_the_node_from_its_certificate(rack: Project) -> None:
    rack.change_site({"hand_back": {"empty": ["/homes"], "keep_users": [], "scratch": ["/scratch"]}})
    code, _ = rack.run("hand-back", "node01", "--reason", "lease ended", "--yes")
    assert code == 2
    assert "/scratch: nothing is mounted there, so its disks are not known" in rack.progress()
    code, document = rack.json("deploy", "--limit", "node01")
    row = document["nodes"][0]
    assert (code, row["state"] == "ready") == (1, False)
    assert "node01: return from its tenant - Expected: ended" in row["reason"]
