"""The way to an API server: logins that are refused, outages that are waited for, and those that are not."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from rackready.drivers.process import STOP, Interrupted
from rackready.drivers.scheduler import kube_api
from rackready.drivers.scheduler.base import SchedulerError
from rackready.drivers.scheduler.kube_api import KubeApi, connect
from rackready.model.kubernetes import KubernetesHandover

NODE = {"kind": "Node", "metadata": {"name": "node01"}}


@dataclass
class Script:
    """Answers in order: (status, body); the last one again and again. None closes the connection."""

    answers: list[tuple[int, Any] | None]
    asked: list[str] = field(default_factory=list)
    port: int = 0

    def next(self, path: str) -> tuple[int, Any] | None:
        self.asked.append(path)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def script() -> Iterator[Script]:
    script = Script([(200, NODE)])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = script.next(self.path)
            if found is None:
                self.close_connection = True
                return
            body = found[1] if isinstance(found[1], bytes) else json.dumps(found[1]).encode()
            self.send_response(found[0])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - the base class names it so

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    script.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield script
    server.shutdown()


def api(script: Script, patience_s: float = 5.0) -> KubeApi:
    settings = client.Configuration(host=f"http://127.0.0.1:{script.port}")
    settings.retries = 0
    return KubeApi(client.ApiClient(settings), "Kubernetes context prod", patience_s)


def test_an_outage_is_waited_for(script: Script) -> None:
    script.answers = [None, (503, b"<html>"), (500, {"message": "etcdserver: leader changed"}), (200, NODE)]
    assert api(script, 30).node("node01").body == NODE
    assert len(script.asked) == 4


def test_an_outage_beyond_the_limit_is_an_error_and_the_next_request_fails_at_once(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.answers = [(503, {"message": "the server is\n starting"})]
    away = api(script, 1)
    began = time.monotonic()
    with pytest.raises(SchedulerError) as caught:
        away.node("node01")
    assert str(caught.value) == (
        "Kubernetes context prod - Expected: an answer within 1 s Actual: the server is starting. "
        "Check that the API server runs and can be reached, then run again."
    )
    assert time.monotonic() - began >= 1
    asked = len(script.asked)
    with pytest.raises(SchedulerError, match="the server is starting"):
        away.node("node02")
    assert len(script.asked) == asked, "a rack of nodes does not wait for each of them"
    monkeypatch.setattr(kube_api, "_SILENT_S", 0)
    script.answers = [(200, NODE)]
    assert away.node("node01").ok


def test_nobody_there_is_told(script: Script) -> None:
    script.port = 1
    with pytest.raises(SchedulerError, match=r"Actual: .*Connection refused"):
        api(script, 0).node("node01")


def test_a_stop_of_the_operator_ends_the_wait(script: Script) -> None:
    script.answers = [(503, {})]
    threading.Timer(0.5, STOP.set).start()
    try:
        with pytest.raises(Interrupted):
            api(script, 60).node("node01")
    finally:
        STOP.clear()


EVICTION = {"metadata": {"name": "web", "namespace": "team"}, "deleteOptions": {"preconditions": {"uid": "u"}}}


@pytest.mark.parametrize("status", [400, 403, 422, 429, 500])
def test_a_refused_eviction_is_an_answer(script: Script, status: int) -> None:
    script.answers = [(status, {"message": "no"})]
    assert api(script).evict("team", "web", EVICTION).status == status
    assert script.asked == ["/api/v1/namespaces/team/pods/web/eviction"], "it is not asked for again"


@pytest.mark.parametrize("away", [None, (503, {}), (504, {})])
def test_an_eviction_waits_for_an_api_server_that_is_away(script: Script, away: tuple[int, Any] | None) -> None:
    script.answers = [away, (201, {})]
    assert api(script).evict("team", "web", EVICTION).ok
    assert len(script.asked) == 2


def test_a_rate_limit_of_a_question_is_waited_for(script: Script) -> None:
    script.answers = [(429, {"message": "too many requests"}), (200, {"items": []})]
    assert api(script).pods_on("node01").ok
    assert script.asked[0] == "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode01"


def test_a_server_that_has_not_read_the_roles_yet_is_asked_again(script: Script) -> None:
    script.answers = [(403, {"message": "nodes is forbidden"}), (200, NODE)]
    assert api(script, 5).node("node01").ok
    assert len(script.asked) == 2


def test_rights_that_stay_away_are_waited_for_once(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_api, "_RIGHTS_S", 0.5)
    script.answers = [(403, {"message": "nodes is forbidden"})]
    without = api(script, 60)
    with pytest.raises(SchedulerError, match="403: nodes is forbidden"):
        without.node("node01")
    asked = len(script.asked)
    assert asked > 1
    with pytest.raises(SchedulerError, match="403: nodes is forbidden"):
        without.node("node02")
    assert len(script.asked) == asked + 1, "a rack of nodes does not wait for each of them"


@pytest.mark.parametrize("status", [401, 403])
def test_a_login_without_rights_is_told(script: Script, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_api, "_RIGHTS_S", 0)
    script.answers = [(status, {"message": 'User "x" cannot get resource "nodes"'})]
    with pytest.raises(SchedulerError) as caught:
        api(script).node("node01")
    assert str(caught.value) == (
        "Kubernetes context prod - Expected: a login with the rights of docs/howto/kubernetes.md "
        f'Actual: {status}: User "x" cannot get resource "nodes". Correct the user of handover.context, or its '
        "ClusterRole."
    )


def kubeconfig(folder: Path, **cluster: Any) -> Path:
    document = {
        "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.6:6443", **cluster}}],
        "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    path.chmod(0o600)
    return path


def handover(path: Path, context: str = "prod") -> KubernetesHandover:
    return KubernetesHandover.model_validate({"kind": "kubernetes", "kubeconfig": path, "context": context})


def test_a_kubeconfig_gives_the_server_of_its_context(tmp_path: Path) -> None:
    made = connect(handover(kubeconfig(tmp_path)), writes=False)
    assert made.where == "Kubernetes context prod at https://192.0.2.6:6443"
    made.close()


def refusal(path: Path, context: str = "prod") -> str:
    with pytest.raises(SchedulerError) as caught:
        connect(handover(path, context), writes=False)
    return str(caught.value)


def test_a_kubeconfig_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path)
    assert refusal(path, "dev") == (
        f"kubeconfig {path} - Expected: context dev Actual: its contexts: prod. Correct handover.context."
    )
    path.chmod(0o640)
    assert refusal(path) == (
        f"kubeconfig {path} - Expected: readable by its owner only Actual: mode 0640. Run `chmod 600 {path}`."
    )
    path.write_text("[]\n", encoding="utf-8")
    put = "Put the kubeconfig of rackready's user there (mode 0600), or correct handover.kubeconfig."
    assert refusal(path) == (
        f"kubeconfig {path} - Expected: a kubeconfig Actual: a file without clusters and contexts. {put}"
    )
    path.unlink()
    assert refusal(path) == (f"kubeconfig {path} - Expected: a kubeconfig Actual: no such file. {put}")


@pytest.mark.parametrize(
    ("cluster", "actual"),
    [
        ({"insecure-skip-tls-verify": True}, "insecure-skip-tls-verify: true"),
        ({"server": "http://192.0.2.6:8080"}, "http://192.0.2.6:8080"),
    ],
)
def test_an_api_server_that_is_not_verified_is_refused(tmp_path: Path, cluster: dict[str, Any], actual: str) -> None:
    path = kubeconfig(tmp_path, **cluster)
    assert refusal(path) == (
        f"kubeconfig {path} - Expected: an API server verified by TLS in context prod Actual: {actual}. "
        "Give the cluster its https address and certificate-authority."
    )


BY_HAND = (
    "Run it by hand, as the user that rackready runs as and with the args and env of the kubeconfig, and correct what "
    "it says."
)


def by_plug_in(folder: Path, says: str, **user: Any) -> Path:
    """A kubeconfig whose user logs in by a plug-in that prints this."""
    path = kubeconfig(folder)
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    plug_in = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/echo", "args": [says]}
    document["users"][0]["user"] = {"exec": {**plug_in, "interactiveMode": "Never"}, **user}
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def credential(**status: str) -> str:
    return json.dumps(
        {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"x": "", **status}}
    )


@pytest.mark.parametrize("says", ["no session, log in first", credential()])
def test_a_plug_in_that_gives_no_login_is_told(tmp_path: Path, says: str) -> None:
    assert refusal(by_plug_in(tmp_path, says)) == (
        "Kubernetes context prod - Expected: a login of handover.kubeconfig Actual: exec plug-in `/bin/echo` gave "
        f"neither a token nor a client certificate. {BY_HAND}"
    )


def test_a_plug_in_that_cannot_be_run_is_told(tmp_path: Path) -> None:
    path = by_plug_in(tmp_path, "")
    path.write_text(path.read_text(encoding="utf-8").replace("/bin/echo", "/none/aws"), encoding="utf-8")
    assert "Actual: exec plug-in `/none/aws` gave neither a token nor a client certificate." in refusal(path)


@pytest.mark.parametrize(
    ("says", "user"),
    [
        (credential(token="t"), {}),
        (credential(clientCertificateData="c", clientKeyData="k"), {}),
        ("not asked", {"token": "t"}),
    ],
)
def test_a_user_with_a_plug_in_and_a_login_is_connected(
    tmp_path: Path, says: str, user: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ApiClient", lambda settings: settings)
    connect(handover(by_plug_in(tmp_path, says, **user)), writes=False)


def test_a_login_of_a_plug_in_that_is_refused_names_it(script: Script) -> None:
    script.answers = [(401, {"message": "Unauthorized"})]
    settings = client.Configuration(host=f"http://127.0.0.1:{script.port}")
    settings.retries = 0
    asked = KubeApi(client.ApiClient(settings), "Kubernetes context prod", 5, "aws")
    with pytest.raises(SchedulerError) as caught:
        asked.node("node01")
    assert str(caught.value) == (
        "Kubernetes context prod - Expected: a login with the rights of docs/howto/kubernetes.md Actual: 401: "
        f"Unauthorized. Exec plug-in `aws` makes this login. {BY_HAND}"
    )


def test_a_login_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path)
    login = "token: t\n    client-certificate: /none\n    client-key: /none"
    path.write_text(path.read_text(encoding="utf-8").replace("token: t", login), encoding="utf-8")
    text = refusal(path)
    assert text.startswith("Kubernetes context prod - Expected: a login of handover.kubeconfig Actual: ")
    assert text.endswith("Try `kubectl --context` with the same file.")
