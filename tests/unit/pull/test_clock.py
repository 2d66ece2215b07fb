"""The clock that roles compare with: the controller's server's, for a play on the node has only the node's own."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest
import yaml

from rackready.ondevice.pull.fetch import clock_offset_s
from rackready.ondevice.pull.problem import PullProblem
from rackready.pulled import Request, prepare
from tests.unit.pull.world import KEY, NODE, ROOT, seal


@contextmanager
def server(date: str | None, status: int = 200) -> Iterator[str]:
    """Serve nothing but that time."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response_only(status)
            if date is not None:
                self.send_header("Date", date)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Be quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{found.server_address[1]}"
        found.shutdown()
        thread.join()


@pytest.mark.parametrize("status", [200, 404])
def test_the_servers_clock_counts_also_where_it_is_a_plain_web_server(status: int) -> None:
    with server(formatdate(time.time() + 3600, usegmt=True), status) as url:
        assert abs(clock_offset_s(url, NODE) - 3600) <= 2


@pytest.mark.parametrize(("date", "said"), [(None, "none"), ("yesterday", "yesterday")])
def test_a_server_that_tells_no_time_proves_nothing(date: str | None, said: str) -> None:
    with server(date) as url, pytest.raises(PullProblem) as refused:
        clock_offset_s(url, NODE)
    step = "Serve the releases with `rackready release serve`, or a web server that sends its time."
    assert str(refused.value) == f"{NODE}: {url} - Expected: the time of the server (Date) Actual: {said}. {step}"


def test_the_offset_reaches_the_play(tmp_path: Path) -> None:
    (tmp_path / "variables").write_bytes(
        seal({"node": NODE, "hostvars": {}, "groups": {}, "group_vars": [], "host_vars": []})
    )
    (tmp_path / "extra").write_bytes(seal({"of_phase": 1}))
    given = {
        "node": NODE,
        "sequence": 7,
        "mode": "apply",
        "playbook": "install.yml",
        "limit_s": 60,
        "python": "python3",
    }
    paths = {"variables": "variables", "extra": "extra", "key": "key", "release": "release", "run": "."}
    found = {name: str(tmp_path / path) for name, path in paths.items()}
    prepare(Request.read({**given, **found, "clock_offset_s": -3600}), KEY)
    extra = json.loads((tmp_path / "extra.json").read_text())
    assert extra == {"of_phase": 1, "rackready_clock_offset_s": -3600}


@pytest.mark.parametrize(("ahead_s", "skew"), [(0, 0), (3600, 3600), (-3600, 3600), (None, 0)])
def test_the_check_of_the_clock_counts_the_offset(ahead_s: int | None, skew: int) -> None:
    text = yaml.safe_load((ROOT / "roles/base/vars/main.yml").read_text())["__base_skew"]
    assert re.search("rackready_clock_offset_s", text)

    def now(utc: bool) -> SimpleNamespace:  # noqa: FBT001 - as Ansible's
        assert utc
        return SimpleNamespace(timestamp=lambda: 1_790_000_000.4)

    known = {} if ahead_s is None else {"rackready_clock_offset_s": ahead_s}
    template = jinja2.Environment(autoescape=True).from_string(text)
    assert template.render(now=now, __base_clock={"stdout": "1790000000"}, **known) == str(skew)
