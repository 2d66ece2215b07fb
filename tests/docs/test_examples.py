"""Facts that pages name and code decides: the ports of the network page, and days that a site file would refuse."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from rackready.design.check_gates import LONGEST_DAYS
from rackready.gates.fabric import incast, mpijob, training
from rackready.gates.fabric.perftest_run import PORT
from rackready.model.bmc import Bmc
from rackready.model.database import Server
from rackready.model.monitoring import Monitoring
from rackready.model.provisioning import ProvisioningService
from rackready.ondevice import rail_files, time_sync

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
RAILS = 8


def test_the_network_page_names_the_ports_of_the_code() -> None:
    text = (DOCS / "howto/network.md").read_text(encoding="utf-8")
    senders = next(each.le for each in incast.Incast.Inputs.model_fields["senders"].metadata if hasattr(each, "le"))
    service, monitoring = ProvisioningService.model_fields, Monitoring.model_fields
    wanted = {
        f"TCP {PORT + 1} to {PORT + RAILS} |",
        f"TCP {PORT + 101} to {PORT + 100 + RAILS} |",
        f"TCP {PORT + 200} to {PORT + 199 + senders} |",
        f"TCP {training._PORT} |",
        f"TCP {mpijob._SSH_PORT} |",
        f"TCP {Bmc.model_fields['port'].default} |",
        f"TCP {Server.model_fields['port'].default} |",
        f"TCP {monitoring['node_port'].default}, {monitoring['dcgm_port'].default} |",
        f"TCP {service['http_port'].default} |",
        f"TCP {service['https_port'].default} |",
    }
    assert {line for line in wanted if line not in text} == set()


def test_no_page_switches_a_gate_off_for_longer_than_a_site_file_may() -> None:
    found = [
        (page.name, date.fromisoformat(day))
        for page in sorted(DOCS.rglob("*.md"))
        for day in re.findall(r"\buntil: (\d{4}-\d\d-\d\d)", page.read_text(encoding="utf-8"))
    ]
    assert found
    assert [entry for entry in found if entry[1] > datetime.now(UTC).date() + timedelta(days=LONGEST_DAYS)] == []


WRITTEN = re.compile(r"/(?:etc|lib/systemd)/[A-Za-z0-9_./-]*rackready[A-Za-z0-9_.-]*")
"""A path of rackready's own in a task, a template or a variable of a role."""
UNITS, DROP_INS = "/etc/systemd/system/rackready-", re.compile(r"^/etc/systemd/system/([a-z-]+)\.service\.d/(.+)$")


def test_the_page_of_what_stays_on_a_node_names_every_file_of_the_roles() -> None:
    page = (DOCS / "howto/leave.md").read_text(encoding="utf-8")
    named = [path.rstrip("*") for path in re.findall(r"`(/[^`]+)`", page)]
    sources = [path for path in (ROOT / "roles").rglob("*") if path.suffix in {".yml", ".j2"}]
    own = [path for path in sources if "molecule" not in path.parts]
    found = {path for source in own for path in WRITTEN.findall(source.read_text(encoding="utf-8"))}
    assert len(found) > 30
    for path in found:
        drop_in = DROP_INS.match(path)
        words = [f"`{drop_in[1]}`", f"`{drop_in[2]}`"] if drop_in else []
        stands = all(word in page for word in words) if drop_in else any(path.startswith(name) for name in named)
        assert stands or path.startswith(UNITS), path
    paths = [rail_files.NETPLAN, rail_files.STANZAS, rail_files.DEVICES, rail_files.FOREIGN, time_sync.DROP_IN]
    assert [path for path in paths if path not in named] == []
