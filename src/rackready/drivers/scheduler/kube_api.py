"""The API server of one context of a kubeconfig. While it does not answer it is asked again, within a limit."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import urllib3
import yaml

from rackready.drivers.process import STOP, check_stop
from rackready.drivers.scheduler.base import SchedulerError
from rackready.model.kubernetes import KubernetesHandover

if TYPE_CHECKING:
    from kubernetes.client import ApiClient, CustomObjectsApi

_CONNECT_S, _ANSWER_S = 5.0, 30.0
"""Limits of one request. Judgement: the API server ends a request by itself after 60 s (--request-timeout)."""
_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 5.0
"""Pauses between tries: short at first, since a restart of the API server takes some seconds. Our judgement."""
_SILENT_S = 10.0
"""Pause between two tries once the limit of an outage is over. Our judgement."""
_TOO_MANY = 429
_BROKEN = frozenset({500, 502, 503, 504})
"""Answers of a server, or of the load balancer before it, that may pass: no etcd leader, starting up."""
_UNKNOWN_USER, _FORBIDDEN = 401, 403
_RIGHTS_S = 10.0
"""How long a request that was forbidden is sent again, s. An API server that has just started answers before it has
read the ClusterRoles, and forbids everything until then (seen with 1.35). Judgement."""

MPIJOBS = ("kubeflow.org", "v2beta1")
"""Group and version of MPIJobs (Kubeflow MPI Operator, docs/api)."""
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the API server: HTTP status, and the object or the Status (docs: API concepts)."""

    status: int
    body: dict[str, Any]

    @property
    def ok(self) -> bool:
        """Return whether the request was carried out."""
        return 200 <= self.status < 300  # noqa: PLR2004 - RFC 9110, 15.3

    @property
    def told(self) -> str:
        """Return the server's own words about a refusal, on one line."""
        return " ".join(str(self.body.get("message") or f"HTTP {self.status}").split())


class KubeApi:
    """One cluster. ``where`` names it in messages, ``plug_in`` the command that makes the login, "" for another login.

    Every request may be sent twice: patches carry a ``test``, applies and evictions of a uid change nothing the second
    time.
    """

    def __init__(self, client: ApiClient, where: str, patience_s: float, plug_in: str = "") -> None:
        from kubernetes.client import CoreV1Api  # noqa: PLC0415 - takes a third of a second

        self._client, self.where, self._patience_s, self._plug_in = client, where, patience_s, plug_in
        self._core = CoreV1Api(client)
        self._away_since: float | None = None
        self._gave_up: tuple[float, str] | None = None
        self._refused_since: float | None = None

    def node(self, name: str) -> Answer:
        """Return a Node object."""
        return self._asked(lambda options: self._core.read_node(name, **options))

    def patch_node(self, name: str, body: Any, content_type: str, manager: str) -> Answer:  # noqa: ANN401 - JSON
        """Change a Node object."""
        return self._asked(
            lambda options: self._core.patch_node(
                name, body, field_manager=manager, _content_type=content_type, **options
            )
        )

    def pods_on(self, name: str) -> Answer:
        """Return the pods of a node, of all namespaces."""
        chosen = f"spec.nodeName={name}"
        return self._asked(lambda options: self._core.list_pod_for_all_namespaces(field_selector=chosen, **options))

    def evict(self, namespace: str, pod: str, body: dict[str, Any]) -> Answer:
        """Ask for a pod's eviction. What refuses it is an answer about this pod: a budget (429), two (500), a webhook.

        Only an API server that is away is asked again.
        """
        from kubernetes.client import V1Eviction  # noqa: PLC0415 - as above

        wanted = V1Eviction.model_validate(body)
        return self._asked(
            lambda options: self._core.create_namespaced_pod_eviction(pod, namespace, wanted, **options), final=True
        )

    def create_mpijob(self, namespace: str, body: dict[str, Any]) -> Answer:
        """Make an MPIJob. A request that was sent twice may find its own job: 409."""
        return self._asked(lambda options: self._custom().create_namespaced_custom_object(
            *MPIJOBS, namespace, "mpijobs", body, field_manager="rackready", **options))  # fmt: skip

    def mpijob(self, namespace: str, name: str, *, cleaning: bool = False) -> Answer:
        """Return an MPIJob."""
        return self._asked(
            lambda options: self._custom().get_namespaced_custom_object(
                *MPIJOBS, namespace, "mpijobs", name, **options
            ),
            cleaning=cleaning,
        )

    def delete_mpijob(self, namespace: str, name: str, *, cleaning: bool = False) -> Answer:
        """Delete an MPIJob; it is there until its pods are gone (propagation policy Foreground)."""
        return self._asked(
            lambda options: self._custom().delete_namespaced_custom_object(
                *MPIJOBS, namespace, "mpijobs", name, propagation_policy="Foreground", **options
            ),
            cleaning=cleaning,
        )

    def pods_of(self, namespace: str, selector: str) -> Answer:
        """Return the pods of a namespace with these labels."""
        return self._asked(
            lambda options: self._core.list_namespaced_pod(namespace, label_selector=selector, **options)
        )

    def warnings_of(self, namespace: str, name: str) -> Answer:
        """Return the events by which controllers warn of an object."""
        chosen = f"involvedObject.name={name},type=Warning"
        return self._asked(
            lambda options: self._core.list_namespaced_event(namespace, field_selector=chosen, **options)
        )

    def log_of(self, namespace: str, pod: str) -> tuple[Answer, str]:
        """Return the answer, and the whole log of a pod with one container."""
        kept = [""]

        def send(options: dict[str, Any]) -> Any:  # noqa: ANN401 - the client's response
            reply: Any = self._core.read_namespaced_pod_log(pod, namespace, **options)
            kept[0] = reply.data.decode(errors="replace")
            return reply

        return self._asked(send), kept[0]

    def _custom(self) -> CustomObjectsApi:
        from kubernetes.client import CustomObjectsApi  # noqa: PLC0415 - as above

        return CustomObjectsApi(self._client)

    def close(self) -> None:
        """Close connections."""
        self._client.close()  # type: ignore[no-untyped-call]

    def _asked(self, send: Callable[[dict[str, Any]], Any], *, final: bool = False, cleaning: bool = False) -> Answer:
        """Return the answer. ``final``: 403, 429 and 500 are answers, too; ``cleaning``: a stop does not end it.

        Raises SchedulerError at the limit.

        The limit is of one outage, not of one request. After it the server is tried once every ``_SILENT_S`` seconds,
        and every request between two tries fails at once: a rack of nodes does not wait for each of them.
        """
        pause_s = _PAUSE_S
        if self._gave_up is not None and time.monotonic() - self._gave_up[0] < _SILENT_S:
            raise self._away(self._gave_up[1])
        while True:
            if not cleaning:
                check_stop()
            answer, trouble = self._once(send)
            if answer is not None and (final and answer.status in {_TOO_MANY, 500}):
                trouble = ""
            now = time.monotonic()
            if answer is not None and answer.status == _FORBIDDEN and not final:
                trouble = self._refused(answer, now)
            elif answer is not None and not trouble:
                self._away_since = self._gave_up = self._refused_since = None
                return answer
            self._away_since = now if self._away_since is None else self._away_since
            if now - self._away_since >= self._patience_s:
                self._gave_up = now, trouble
                raise self._away(trouble)
            (time.sleep if cleaning else STOP.wait)(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _refused(self, answer: Answer, now: float) -> str:
        """Return why a request is sent again that was forbidden. Raises SchedulerError once that does not pass."""
        self._refused_since = now if self._refused_since is None else self._refused_since
        if now - self._refused_since >= min(_RIGHTS_S, self._patience_s):
            raise self._no_rights(answer)
        return answer.told

    def _no_rights(self, answer: Answer) -> SchedulerError:
        step = "Correct the user of handover.context, or its ClusterRole."
        if self._plug_in and answer.status == _UNKNOWN_USER:
            step = f"Exec plug-in `{self._plug_in}` makes this login. {_BY_HAND}"
        return SchedulerError(
            self.where,
            expected="a login with the rights of docs/howto/kubernetes.md",
            actual=f"{answer.status}: {answer.told}",
            next_step=step,
        )

    def _away(self, trouble: str) -> SchedulerError:
        return SchedulerError(
            self.where,
            expected=f"an answer within {self._patience_s:g} s",
            actual=trouble,
            next_step="Check that the API server runs and can be reached, then run again.",
        )

    def _once(self, send: Callable[[dict[str, Any]], Any]) -> tuple[Answer | None, str]:
        """Return the answer of one request, and why it is to be sent again. Raises SchedulerError without a login."""
        from kubernetes.client.exceptions import ApiException  # noqa: PLC0415 - as above
        from kubernetes.config.config_exception import ConfigException  # noqa: PLC0415

        try:
            reply = send({"_preload_content": False, "_request_timeout": (_CONNECT_S, _ANSWER_S)})
            answer = Answer(reply.status, _document(reply.data))
        except ApiException as error:
            if not error.status:
                return None, _one_line(error.reason)
            answer = Answer(error.status, _document(error.body))
        except urllib3.exceptions.HTTPError as error:
            return None, _one_line(getattr(error, "reason", None) or error)
        except ConfigException as error:
            raise no_login(self.where, error) from error
        if answer.status == _UNKNOWN_USER:
            raise self._no_rights(answer)
        return answer, answer.told if answer.status in {*_BROKEN, _TOO_MANY} else ""


def connect(handover: KubernetesHandover, *, writes: bool) -> KubeApi:
    """Return the API of the site's cluster. Nothing is asked yet.

    ``writes``: a renewed token may be written to the kubeconfig. Raises SchedulerError for a kubeconfig that cannot be
    used, or that does not verify the API server.
    """
    from kubernetes import client, config  # noqa: PLC0415 - takes a third of a second
    from kubernetes.config.config_exception import ConfigException  # noqa: PLC0415

    where = f"Kubernetes context {handover.context}"
    require_usable(handover.kubeconfig, handover.context)
    settings = client.Configuration()
    try:
        config.load_kube_config(  # type: ignore[no-untyped-call]
            str(handover.kubeconfig), handover.context, client_configuration=settings, persist_config=writes
        )
        plug_in = _plug_in(handover.kubeconfig, handover.context)
    except (ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise no_login(where, error) from error
    if plug_in and not settings.api_key and not settings.cert_file:
        raise _no_login_of(where, plug_in)
    settings.retries = 0  # we ask again ourselves, and say so
    return KubeApi(client.ApiClient(settings), f"{where} at {settings.host}", handover.api_wait_s, plug_in)


_BY_HAND = (
    "Run it by hand, as the user that rackready runs as and with the args and env of the kubeconfig, and correct what "
    "it says."
)


def _plug_in(path: Path, context: str) -> str:
    """Return the command of the exec plug-in that logs the user of a context in, "" for another login."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    contexts = {item["name"]: item["context"] for item in document["contexts"]}
    users = {item["name"]: item.get("user") or {} for item in document.get("users") or []}
    user = users.get(contexts[context].get("user"), {})
    if user.get("token") or user.get("tokenFile"):
        return ""  # the client takes these first
    return str((user.get("exec") or {}).get("command", ""))


def _no_login_of(where: str, plug_in: str) -> SchedulerError:
    """Return the error of a plug-in that gave no login. Its arguments are not named: they may hold a secret.

    The client logs why and goes on as system:anonymous (kubernetes 37.0.2, kube_config._load_from_exec_plugin).
    """
    return SchedulerError(
        where,
        expected="a login of handover.kubeconfig",
        actual=f"exec plug-in `{plug_in}` gave neither a token nor a client certificate",
        next_step=_BY_HAND,
    )


def no_login(where: str, error: Exception) -> SchedulerError:
    """Return the error of a login that cannot be made from the kubeconfig."""
    return SchedulerError(
        where,
        expected="a login of handover.kubeconfig",
        actual=_one_line(error),
        next_step="Try `kubectl --context` with the same file.",
    )


_PUT = "Put the kubeconfig of rackready's user there (mode 0600)"


def require_usable(path: Path, context: str) -> None:
    """Raise SchedulerError unless the file has the context, closed to others, and its API server is verified by TLS."""
    try:
        mode = path.stat().st_mode
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        clusters = {item["name"]: item["cluster"] for item in document["clusters"]}
        contexts = {item["name"]: item["context"] for item in document["contexts"]}
    except OSError as error:
        actual = "no such file" if isinstance(error, FileNotFoundError) else error.strerror or _one_line(error)
        raise _unusable(path, "a kubeconfig", actual, f"{_PUT}, or correct handover.kubeconfig.") from error
    except (UnicodeDecodeError, yaml.YAMLError, TypeError, KeyError) as error:
        actual = "a file without clusters and contexts"
        raise _unusable(path, "a kubeconfig", actual, f"{_PUT}, or correct handover.kubeconfig.") from error
    if mode & 0o077:
        raise _unusable(path, "readable by its owner only", f"mode {mode & 0o777:04o}", f"Run `chmod 600 {path}`.")
    if context not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        raise _unusable(path, f"context {context}", f"its contexts: {known}", "Correct handover.context.")
    cluster = clusters.get(contexts[context].get("cluster"), {})
    server = str(cluster.get("server", "no server"))
    if not server.startswith("https://") or cluster.get("insecure-skip-tls-verify"):
        actual = server if not server.startswith("https://") else "insecure-skip-tls-verify: true"
        step = "Give the cluster its https address and certificate-authority."
        raise _unusable(path, f"an API server verified by TLS in context {context}", actual, step)


def _unusable(path: Path, expected: str, actual: str, step: str) -> SchedulerError:
    return SchedulerError(f"kubeconfig {path}", expected=expected, actual=actual, next_step=step)


def _document(data: bytes | str | None) -> dict[str, Any]:
    """Return a JSON object, empty for anything else: a load balancer answers in HTML."""
    try:
        found = json.loads(data or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _one_line(value: object) -> str:
    return " ".join(str(value).split())
