"""The server of releases, and the reader of reports: what is given out, what is taken, and from which node."""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from rackready.drivers import release_report, release_server
from rackready.drivers.release_report import ReportError, ReportUncheckedError, read_report
from rackready.drivers.release_server import ReleaseServer
from rackready.model.problems import RackreadyError
from tests.unit.pull.world import NODE, SITE, World
from tests.waiting import until

STEP = "If the node was reinstalled, run `rackready hostkey accept`; then run the phase again."
AGENT = "Run the phase again: it installs the agent again."


def document(**changed: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "site": SITE,
        "node": NODE,
        "sequence": 5,
        "release": "a" * 64,
        "mode": "apply",
        "agent": "b" * 64,
        "began": 1.0,
        "ended": 2.0,
        "exit_code": 0,
        "timed_out": False,
        "sealed": "",
        "failure": None,
    } | changed


FAILURE = {"code": "expired", "where": "node01: order", "expected": "x", "actual": "y", "next_step": "Z."}


def sent_with(key: Path, found: dict[str, Any], name: str = "rackready-report") -> bytes:
    packed = gzip.compress(json.dumps(found).encode())
    argv = ["ssh-keygen", "-Y", "sign", "-f", str(key), "-n", name]
    signature = subprocess.run(argv, input=packed, capture_output=True, check=True).stdout.decode()
    return json.dumps({"report": base64.b64encode(packed).decode(), "signature": signature}).encode()


def sent(world: World, found: dict[str, Any], key: str = "ssh_host_ed25519_key", **names: str) -> bytes:
    return sent_with(world.ssh / key, found, **names)


def asked_at(
    port: int, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    out = (answer.status, answer.read().decode(errors="replace").strip(), dict(answer.getheaders()))
    connection.close()
    return out


def asked(world: World, *words: Any) -> tuple[int, str, dict[str, str]]:
    assert world.server is not None
    return asked_at(int(world.server.server_address[1]), *words)


def test_health_objects_and_orders_are_given_out(world: World) -> None:
    blob = world.put(b"content")
    world.order(5)
    assert asked(world, "GET", "/health")[:2] == (200, "ok")
    status, text, headers = asked(world, "GET", f"/objects/sha256/{blob['sha256']}")
    assert (status, text) == (200, "content")
    assert (headers["Cache-Control"], headers["Content-Length"]) == ("public, max-age=31536000, immutable", "7")
    status, _, headers = asked(world, "GET", f"/orders/{NODE}.json")
    assert (status, headers["Cache-Control"]) == (200, "no-store")


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/objects", "/objects/sha256/", "/orders/", "/orders/../secret", "/orders/..%2fsecret", "//etc/passwd"),
        *(
            "/objects/sha256/../../../secret",
            "/secret",
            "/orders/.node01.json.new",
            "/reports/node01/5-apply",
            "/orders/a",
        ),
        *(
            "/orders/link.json",
            "/health/",
            "/objects/sha256/" + "A" * 64,
            "/orders/node01.json?x",
            "/orders/node01.json%00",
        ),
    ],
)
def test_nothing_else_is_given_out(world: World, path: str) -> None:
    (world.tmp / "secret").write_text("secret")
    (world.release / "secret").write_text("secret")
    (world.release / "orders/link.json").symlink_to(world.tmp / "secret")
    world.order(5)
    status, text, _ = asked(world, "GET", path)
    assert (status, text) == (404, "not found")


@pytest.mark.parametrize("method", ["POST", "DELETE", "HEAD"])
def test_other_methods_are_refused(world: World, method: str) -> None:
    assert asked(world, method, "/health")[0] == 501


def test_a_report_is_stored_as_it_came(world: World) -> None:
    body = sent(world, document())
    assert asked(world, "PUT", f"/reports/{NODE}/5-apply", body)[:2] == (201, "stored")
    file = world.reports / NODE / "5-apply.json"
    assert file.read_bytes() == body
    assert file.stat().st_mode & 0o777 == 0o600
    assert asked(world, "PUT", f"/reports/{NODE}/5-apply", body)[:2] == (200, "known already")
    assert read_report(file, NODE, world.host_key_line).name == "5-apply"


def test_what_a_play_did_is_not_replaced_by_a_later_refusal(world: World) -> None:
    path = f"/reports/{NODE}/5-apply"
    refused = sent(world, document(failure=FAILURE, exit_code=-1, ended=5.0))
    assert asked(world, "PUT", path, refused)[0] == 201
    assert asked(world, "PUT", path, sent(world, document(ended=3.0)))[0] == 201, (
        "the play came, whatever the clock says"
    )
    assert asked(world, "PUT", path, refused)[0] == 200
    assert world.report("5-apply").failure is None
    compared = f"/reports/{NODE}/5-check"
    assert asked(world, "PUT", compared, sent(world, document(mode="check", ended=9.0)))[0] == 201
    assert asked(world, "PUT", compared, sent(world, document(mode="check", ended=8.0)))[0] == 200, "it is older"


def test_reports_of_others_are_refused(world: World) -> None:
    world.make_host_key("forged")
    path = f"/reports/{NODE}/5-apply"
    forged = sent(world, document(), "forged")
    words = (
        "Expected: signed with the node's pinned host key Actual: another signature, or changed after it was signed."
    )
    assert asked(world, "PUT", path, forged)[:2] == (403, f"node01: report - {words} {STEP}")
    other_use = sent(world, document(), name="file")
    assert asked(world, "PUT", path, other_use)[:2] == (403, f"node01: report - {words} {STEP}")
    changed = json.loads(sent(world, document()))
    changed["report"] = json.loads(sent(world, document(exit_code=2)))["report"]
    assert asked(world, "PUT", path, json.dumps(changed).encode())[:2] == (403, f"node01: report - {words} {STEP}")
    other_node = sent(world, document(node="node02"))
    said = "Expected: node node01 Actual: a report of node02, signed with the key of node01."
    assert asked(world, "PUT", path, other_node)[:2] == (403, f"node01: report - {said} {AGENT}")
    world.known["node02"] = world.known[NODE]
    assert asked(world, "PUT", "/reports/node02/5-apply", sent(world, document()))[0] == 403
    nobody = asked(world, "PUT", "/reports/node09/5-apply", sent(world, document()))
    assert nobody[:2] == (403, "node09: no node of this site with a pinned host key")
    assert asked(world, "PUT", f"/reports/{NODE}/6-apply", sent(world, document()))[:2] == (
        400,
        "node01: report 6-apply: it is 5-apply",
    )
    assert world.stored() == []


@pytest.mark.parametrize(
    "path", ["/reports/node01/x", "/reports/../5-apply", "/reports/node01/5-erase", "/orders/node01.json"]
)
def test_reports_go_nowhere_else(world: World, path: str) -> None:
    assert asked(world, "PUT", path, b"x")[:2] == (404, "not found")


def test_a_report_must_have_a_length_within_bounds(world: World) -> None:
    path = f"/reports/{NODE}/5-apply"
    assert asked(world, "PUT", path, None, {"Content-Length": str(9 << 20)})[:2] == (
        413,
        f"a report has at most {8 << 20} bytes",
    )
    assert asked(world, "PUT", path, None, {"Content-Length": "-1"})[:2] == (411, "a report needs Content-Length")
    assert asked(world, "PUT", path, None, {"Transfer-Encoding": "chunked"})[0] == 411


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "Expected: JSON with report and signature Actual: damaged (JSONDecodeError)."),
        (b"[]", "Expected: JSON with report and signature Actual: damaged (TypeError)."),
        (b'{"report": "!", "signature": ""}', "Expected: JSON with report and signature Actual: damaged (Error)."),
    ],
)
def test_what_is_no_report_is_refused(world: World, body: bytes, words: str) -> None:
    assert asked(world, "PUT", f"/reports/{NODE}/5-apply", body)[:2] == (403, f"node01: report - {words} {AGENT}")


def test_a_signed_report_of_another_form_is_refused(world: World) -> None:
    with pytest.raises(ReportError) as caught:
        read_report(sent(world, document(extra=1)), NODE, world.host_key_line)
    words = "Expected: a report of version 1 Actual: damaged (ValidationError)."
    assert str(caught.value) == f"node01: report - {words} {AGENT}"


def test_a_report_that_unpacks_to_too_much_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_report, "_LARGEST_OPEN", 100)
    with pytest.raises(ReportError, match=r"damaged \(ValueError\)"):
        read_report(sent(world, document()), NODE, world.host_key_line)


def test_without_a_pinned_key_no_report_counts(world: World) -> None:
    with pytest.raises(ReportError) as caught:
        read_report(sent(world, document()), NODE, "")
    words = "Expected: a pinned host key Actual: none. Run `rackready hostkey accept node01`."
    assert str(caught.value) == f"node01: report - {words}"


def test_a_controller_without_ssh_keygen_loses_no_report(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    body = sent(world, document())
    monkeypatch.setenv("PATH", str(world.tmp))
    with pytest.raises(ReportUncheckedError, match="Install openssh-client on the controller"):
        read_report(body, NODE, world.host_key_line)
    assert asked(world, "PUT", f"/reports/{NODE}/5-apply", body)[0] == 503


def test_slow_clients_hold_nobody_back_and_are_cut_off(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.server is not None
    monkeypatch.setattr(release_server, "_WHOLE_S", 1.0)
    address = ("127.0.0.1", int(world.server.server_address[1]))
    slow = [socket.create_connection(address) for _ in range(20)]
    for one in slow:
        one.sendall(f"PUT /reports/{NODE}/5-apply HTTP/1.1\r\nContent-Length: 100\r\n\r\nx".encode())
    assert asked(world, "GET", "/health")[0] == 200
    slow[0].settimeout(10)
    assert b"408" in slow[0].recv(4096) or slow[0].recv(1) == b""
    for one in slow:
        one.close()
    until(lambda: not world.server._open)


def test_too_many_connections_of_one_address_are_cut_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.server is not None
    monkeypatch.setattr(release_server, "_MOST_OF_ONE", 2)
    address = ("127.0.0.1", int(world.server.server_address[1]))
    idle = [socket.create_connection(address) for _ in range(2)]
    until(lambda: world.server._open["127.0.0.1"] == 2)
    third = socket.create_connection(address)
    third.settimeout(10)
    assert third.recv(1) == b""
    for one in (*idle, third):
        one.close()
    until(lambda: not world.server._open)
    assert asked(world, "GET", "/health")[0] == 200


def test_many_reports_at_once_leave_one_whole_file(world: World) -> None:
    bodies = [sent(world, document(mode="check", ended=float(number))) for number in range(8)]
    threads = [threading.Thread(target=asked, args=(world, "PUT", f"/reports/{NODE}/5-check", body)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert world.report("5-check").ended == 7.0
    assert [file.name for file in (world.reports / NODE).iterdir()] == ["5-check.json"]


def test_an_address_in_use_is_refused(world: World) -> None:
    assert world.server is not None
    port = int(world.server.server_address[1])
    with pytest.raises(RackreadyError) as caught:
        ReleaseServer(("127.0.0.1", port), world.folders)
    assert str(caught.value) == (
        f"127.0.0.1:{port} - Expected: a free port to listen on Actual: Address already in use. Name an address of "
        "this machine and a free port: `ss -ltnp` lists those in use."
    )


def test_lines_of_the_log_have_no_control_sequences(capsys: pytest.CaptureFixture[str]) -> None:
    release_server._say("a\x1b[31m\nb")
    assert capsys.readouterr().err.splitlines()[-1] == "a?[31m?b"
