"""`rackready release serve` as a user starts it: where it listens, whose reports it takes, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rackready.cli.release_serve import HostKeys
from rackready.design.site import load_site
from rackready.paths import EnvPaths
from tests.unit.pull.test_server import asked_at, document, sent_with
from tests.unit.release.world import host_key, pin_keys, write_site

COMMAND = ("release", "serve", "--listen", "127.0.0.1:0")


@contextmanager
def serving(root: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Run the command in a site repository; yield it and the document that it printed when it listened."""
    write_site(root)
    pin_keys(root)
    child = subprocess.Popen(
        [sys.executable, "-m", "rackready", *words, "--env", "sim", "--output", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"RACKREADY_ROOT": str(root)},
    )
    assert child.stdout is not None
    text = ""
    try:
        while not text.rstrip().endswith("}"):
            line = child.stdout.readline()
            assert line, child.stderr.read() if child.stderr else ""
            text += line
        yield child, json.loads(text)
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path, *COMMAND) as (child, shown):
        port = int(shown["port"])
        assert asked_at(port, "GET", "/health")[:2] == (200, "ok")
        assert shown["reports"] == str(tmp_path / ".rackready/sim/node-reports")
        (tmp_path / ".rackready/sim/release/orders").mkdir()
        (tmp_path / ".rackready/sim/release/orders/node01.json").write_text("{}")
        assert asked_at(port, "GET", "/orders/node01.json")[:2] == (200, "{}")
        child.send_signal(number)
        _, log = child.communicate(timeout=120)
        assert child.returncode == 0
        assert '127.0.0.1 "GET /health HTTP/1.1" 200 -' in log.splitlines()


def test_reports_count_by_the_keys_that_are_pinned_now(tmp_path: Path) -> None:
    key = tmp_path / "host"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)], check=True)
    with serving(tmp_path, *COMMAND) as (_, shown):
        body, port = sent_with(key, document()), int(shown["port"])
        assert asked_at(port, "PUT", "/reports/node01/5-apply", body)[0] == 403
        known = EnvPaths(tmp_path, "sim").known_hosts
        (line,) = [line for line in known.read_text().splitlines() if host_key(1) in line]
        public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
        known.write_text(known.read_text().replace(line, f"{line.split()[0]} {public}"))
        assert asked_at(port, "PUT", "/reports/node01/5-apply", body)[:2] == (201, "stored")
        assert asked_at(port, "PUT", "/reports/node77/5-apply", body)[0] == 403


def test_a_node_that_is_added_is_known_and_a_broken_site_file_changes_nothing(tmp_path: Path) -> None:
    write_site(tmp_path)
    pin_keys(tmp_path)
    keys = HostKeys(EnvPaths(tmp_path, "sim"), lambda: load_site("sim", root=tmp_path))
    assert keys("node01") == host_key(1)
    assert keys("gpu01") == ""
    site = tmp_path / "inventories/sim/site.yml"
    text = site.read_text()
    site.write_text("broken: [")
    os.utime(site, ns=(1, 1))
    assert keys("node01") == host_key(1)
    site.write_text(text.replace("node[01-04]", "gpu[01-04]"))
    os.utime(site, ns=(2, 2))
    assert keys("node01") == ""
    assert keys("gpu01") == host_key(1), "the pin is that of the address"


@pytest.mark.parametrize("listen", ["8480", "192.0.2.1", "192.0.2.1:http", "127.0.0.1:70000", ":1"])
def test_an_address_without_port_is_refused(listen: str, tmp_path: Path) -> None:
    write_site(tmp_path)
    argv = [sys.executable, "-m", "rackready", "release", "serve", "--env", "sim", "--listen", listen]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, env=os.environ | {"RACKREADY_ROOT": str(tmp_path)}
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.strip() == (
        f"--listen - Expected: ADDRESS:PORT Actual: '{listen}'. Give both, e.g. --listen 192.0.2.1:8480 or --listen "
        "[2001:db8::1]:8480."
    )
