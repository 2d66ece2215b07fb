"""The Kubernetes adapter against what a real kube-apiserver 1.35.0 answered."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from rackready.drivers import process
from rackready.drivers.scheduler import kube_node
from rackready.drivers.scheduler.base import JobsUnknownError, NotOursError, SchedulerError, UnknownNodeError
from rackready.drivers.scheduler.kube_api import APPLY, Answer, KubeApi
from rackready.drivers.scheduler.kubernetes import KubernetesAdapter
from rackready.model.kubernetes import Fact, KubernetesHandover

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures/captured/kubernetes"
SHA = "ab" * 32
FACTS: dict[Fact, str] = {"rack": "rack01", "gpu": "h100_sxm"}
OTHERS = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def recorded(name: str) -> Answer:
    found = json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8"))
    return Answer(found["status"], found["body"])


def patched(document: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return a document after a JSON patch (RFC 6902), None where a test fails."""
    made = copy.deepcopy(document)
    for step in patch:
        *keys, last = [key.replace("~1", "/").replace("~0", "~") for key in step["path"].split("/")[1:]]
        here: Any = made
        for key in keys:
            here = here[int(key)] if isinstance(here, list) else here[key]
        if step["op"] == "test":
            found = here[int(last)] if isinstance(here, list) else here[last]
            if found != step["value"]:
                return None
        elif step["op"] == "remove":
            here.pop(int(last) if isinstance(here, list) else last)
        elif isinstance(here, list):
            here.append(step["value"])
        else:
            here[last] = step["value"]
    return made


@dataclass
class Server:
    """An API server with one node. ``meanwhile``: what others do to the node between our read and our patch, once."""

    where = "Kubernetes context prod at https://192.0.2.6:6443"

    now: dict[str, Any]
    pods: list[dict[str, Any]] = field(default_factory=list)
    evictions: dict[str, Answer] = field(default_factory=dict)
    applies: Answer | None = None
    refuses: Answer | None = None
    meanwhile: list[Callable[[dict[str, Any]], None]] = field(default_factory=list)
    sent: list[Any] = field(default_factory=list)
    evicted: list[str] = field(default_factory=list)
    looks: list[list[dict[str, Any]]] = field(default_factory=list)
    """Pods of the first looks, before those of ``pods``."""

    def node(self, name: str) -> Answer:
        if name != self.now["metadata"]["name"]:
            return Answer(404, {"message": f'nodes "{name}" not found'})
        return Answer(200, copy.deepcopy(self.now))

    def patch_node(self, _name: str, body: Any, content_type: str, manager: str) -> Answer:  # noqa: ANN401 - JSON
        assert manager == "rackready"
        self.sent.append(body)
        if self.refuses is not None:
            return self.refuses
        if content_type == APPLY:
            if self.applies is None:
                self.now["metadata"]["resourceVersion"] = "applied"
            return self.applies or self.node(self.now["metadata"]["name"])
        while self.meanwhile:
            self.meanwhile.pop()(self.now)
        made = patched(self.now, body)
        if made is None:
            return recorded("patch_test_failed")
        self.now = made
        return self.node(self.now["metadata"]["name"])

    def pods_on(self, _name: str) -> Answer:
        return self.refuses or Answer(200, {"items": self.looks.pop(0) if self.looks else self.pods})

    def evict(self, namespace: str, pod: str, body: dict[str, Any]) -> Answer:
        assert body["deleteOptions"]["preconditions"]["uid"]
        self.evicted.append(f"{namespace}/{pod}")
        return self.evictions.get(pod, Answer(201, {}))


def node(name: str, **spec: Any) -> dict[str, Any]:
    """A recorded node, as node01, with other values below spec."""
    raw = recorded(name).body
    raw["metadata"]["name"] = "node01"
    raw["spec"] |= spec
    return raw


def adapter(server: Server, *, patience_s: float = 0, **settings: Any) -> KubernetesAdapter:
    handover = KubernetesHandover.model_validate(
        {"kind": "kubernetes", "kubeconfig": "/k", "context": "prod", **settings}
    )
    return KubernetesAdapter(cast("KubeApi", server), handover, patience_s=patience_s, bind_s=0)


def shown(server: Server) -> tuple[str, bool, bool, bool, str, str]:
    now = adapter(server).show("node01")
    return now.state, now.usable, now.drained, now.ours, now.reason, now.by


def test_a_registered_node_is_held_by_us_and_not_certified() -> None:
    expected = ("Ready; taints: ours", False, True, True, "rackready: not certified yet", "rackready")
    assert shown(Server(node("node_registered"))) == expected


def test_a_cordon_of_others_is_told_with_its_manager() -> None:
    raw = node("node_cordoned_by_kubectl", taints=[OTHERS])
    state = "Ready,SchedulingDisabled by kubectl-cordon; taints: nvidia.com/gpu=present:NoSchedule"
    assert shown(Server(raw)) == (state, False, True, False, "cordoned", "kubectl-cordon")
    del raw["metadata"]["managedFields"]
    assert shown(Server(raw))[5] == "somebody", "without the record of managers no cordon is ours"


def test_a_node_that_is_not_ready_may_come_back_by_itself() -> None:
    raw = node("node_registered", taints=[])
    raw["status"]["conditions"][0] |= {"status": "Unknown", "reason": "NodeStatusUnknown", "message": "stopped posting"}
    now = adapter(Server(raw)).show("node01")
    assert (now.usable, now.down, now.on_offer, now.reason) == (False, True, True, "NodeStatusUnknown: stopped posting")


def test_an_unknown_node_is_told_how_to_join() -> None:
    with pytest.raises(UnknownNodeError) as caught:
        adapter(Server(node("node_registered")), node_suffix=".x").show("node01")
    assert str(caught.value) == (
        "node01: unknown to Kubernetes context prod at https://192.0.2.6:6443 - Expected: a Node node01.x "
        'Actual: nodes "node01.x" not found. Let it join with '
        "`--register-with-taints=rackready.io/held:NoSchedule`, then run again."
    )


def test_an_unknown_node_of_a_site_that_lets_rackready_join_it_is_told_when() -> None:
    with pytest.raises(UnknownNodeError) as caught:
        adapter(Server(node("node_registered")), node_suffix=".x", join={"command": ["j", "{taint}"]}).show("node01")
    assert str(caught.value).endswith("not found. Phase handover lets it join, once it is certified.")


def test_an_offer_takes_away_our_taint_cordon_and_reason_and_nothing_else() -> None:
    raw = node("node_drained")
    raw["spec"]["taints"].insert(0, OTHERS)
    server = Server(copy.deepcopy(raw))
    assert adapter(server).release("node01") is True
    raw["spec"]["taints"].pop(1)
    del raw["spec"]["unschedulable"], raw["metadata"]["annotations"]["rackready.io/reason"]
    assert server.now == raw
    assert adapter(server).release("node01") is False
    assert len(server.sent) == 1


def test_an_offer_that_races_with_others_is_made_anew() -> None:
    server = Server(node("node_registered"))

    def theirs(raw: dict[str, Any]) -> None:
        raw["spec"]["taints"].insert(0, OTHERS)
        raw["metadata"]["resourceVersion"] = "later"

    server.meanwhile = [theirs]
    assert adapter(server).release("node01") is True
    assert server.now["spec"]["taints"] == [OTHERS]
    assert [step["op"] for step in server.sent[1]] == ["test", "test", "remove"]
    assert server.sent[1][1]["path"] == "/spec/taints/1", "the place of our taint moved"


def test_a_node_that_changes_for_ever_is_an_error_in_the_end() -> None:
    server = Server(node("node_registered"), refuses=recorded("patch_test_failed"))
    with pytest.raises(SchedulerError) as caught:
        adapter(server).release("node01")
    assert str(caught.value) == (
        "node01: change taint and cordon, Kubernetes context prod at https://192.0.2.6:6443 - Expected: done "
        "Actual: 422: the server rejected our request due to an error in our request. "
        "Nothing was changed by this request. See docs/howto/kubernetes.md."
    )
    assert len(server.sent) == 20


@pytest.mark.parametrize("held", [True, False])
def test_a_cordon_of_others_is_not_undone(*, held: bool) -> None:
    server = Server(node("node_cordoned_by_kubectl", **({} if held else {"taints": [OTHERS]})))
    with pytest.raises(NotOursError) as caught:
        adapter(server).release("node01")
    assert str(caught.value) == (
        "node01: cordoned in Kubernetes by kubectl-cordon - Expected: no cordon, or one of field manager rackready "
        "Actual: unschedulable: true. rackready never undoes somebody else's cordon: when it is settled, "
        f"`kubectl uncordon node01`{', then run again: our taint stays until then' if held else ''}."
    )
    assert server.sent == []


def test_a_node_that_is_not_ready_is_not_offered() -> None:
    raw = node("node_registered")
    raw["status"]["conditions"] = []
    with pytest.raises(SchedulerError) as caught:
        adapter(Server(raw)).release("node01")
    assert str(caught.value) == (
        "node01: offered in Kubernetes - Expected: Ready within 0 s Actual: kubelet has not reported yet. "
        "It stays held. Look at kubelet on the node: `journalctl -u kubelet`."
    )


def test_a_drain_taints_cordons_and_takes_the_certificate_away_in_one_patch() -> None:
    raw = node("node_registered", taints=[OTHERS])
    raw["metadata"]["annotations"] = {"theirs": "1", "rackready.io/certificate": SHA}
    raw["metadata"]["labels"]["rackready.io/certificate"] = SHA[:40]
    server = Server(copy.deepcopy(raw))
    assert adapter(server).drain("node01", "install is about to change: x") is True
    raw["spec"] |= {"unschedulable": True, "taints": [OTHERS, {"key": "rackready.io/held", "effect": "NoSchedule"}]}
    raw["metadata"]["annotations"] = {"theirs": "1", "rackready.io/reason": "rackready: install is about to change: x"}
    del raw["metadata"]["labels"]["rackready.io/certificate"]
    assert server.now == raw
    assert len(server.sent) == 1
    assert server.sent[0][0]["path"] == "/metadata/resourceVersion", "nothing that came in between is overwritten"
    assert adapter(server).drain("node01", "install is about to change: x") is False


def test_a_node_without_any_taint_or_annotation_is_drained() -> None:
    raw = node("node_registered")
    del raw["spec"]["taints"]
    raw["metadata"].pop("annotations", None)
    server = Server(raw)
    assert adapter(server, taint="example.com/wait=yes:NoSchedule").drain("node01", "x") is True
    assert server.now["spec"]["taints"] == [{"key": "example.com/wait", "value": "yes", "effect": "NoSchedule"}]


def test_a_drain_leaves_the_cordon_of_others_theirs() -> None:
    server = Server(node("node_cordoned_by_kubectl", taints=[]))
    assert adapter(server).drain("node01", "x") is True
    assert "/spec/unschedulable" not in [step["path"] for step in server.sent[0]]
    assert adapter(server).show("node01").reason == "rackready: x"


def test_labels_are_applied_with_the_uid_and_only_the_ones_that_the_site_wants() -> None:
    server = Server(node("node_registered"))
    made = adapter(server, labels={"rack": "topology.example.com/rack", "gpu": None})
    assert made.label("node01", FACTS, SHA) is True
    meta = server.sent[0]["metadata"]
    assert meta["labels"] == {"topology.example.com/rack": "rack01", "rackready.io/certificate": SHA[:40]}
    assert meta["annotations"] == {"rackready.io/certificate": SHA}
    assert meta["uid"] == server.now["metadata"]["uid"], "else the API server makes a node that is gone"
    assert made.label("node01", FACTS, SHA) is False


def test_a_label_of_another_manager_is_reported_and_not_forced() -> None:
    server = Server(node("node_registered"), applies=recorded("apply_conflict"))
    with pytest.raises(SchedulerError) as caught:
        adapter(server).label("node01", FACTS, SHA)
    assert str(caught.value) == (
        "node01: labels in Kubernetes - Expected: values that only field manager rackready sets "
        'Actual: .metadata.labels.rackready.io/rack: conflict with "topograph". Nothing was overwritten, and this run '
        "does not offer the node. Let the other manager give the label up, or name another key in handover.labels "
        "(null: no label)."
    )


def test_a_dead_certificate_and_reason_without_our_prefix_are_ours_all_the_same() -> None:
    raw = node("node_drained")
    raw["metadata"]["annotations"][kube_node.REASON] = "by hand"
    assert adapter(Server(raw)).show("node01").reason == "rackready: by hand"


def pod(name: str, **changes: Any) -> dict[str, Any]:
    """A recorded pod of a ReplicaSet under another name, with other metadata and volumes."""
    raw = copy.deepcopy(recorded("pods").body["items"][0])
    raw["metadata"] |= {"name": name, **changes.pop("metadata", {})}
    raw["spec"]["volumes"] = changes.pop("volumes", [])
    raw["status"] |= changes
    return raw


def test_pods_are_evicted_and_those_that_stay_are_told_with_their_cause() -> None:
    daemon = [{"kind": "DaemonSet", "name": "dcgm", "controller": True}]
    server = Server(
        node("node_drained"),
        pods=[
            pod("bare", metadata={"ownerReferences": []}),
            pod("budget"),
            pod("daemon", metadata={"ownerReferences": daemon}),
            pod("disk", volumes=[{"name": "scratch", "emptyDir": {}}]),
            pod("gone"),
            pod("leaves", metadata={"deletionTimestamp": "2026-11-27T18:00:00Z"}),
            pod("over", phase="Succeeded"),
            pod("shm", volumes=[{"name": "shm", "emptyDir": {"medium": "Memory"}}]),
            pod("static", metadata={"annotations": {"kubernetes.io/config.mirror": "1"}}),
            pod("two"),
        ],
        evictions={
            "budget": recorded("evict_budget"),
            "two": recorded("evict_two_budgets"),
            "gone": Answer(404, {"message": "gone"}),
        },
    )
    ((name, left),) = adapter(server).vacate(["node01"])
    assert name == "node01"
    assert isinstance(left, list)
    assert {job.name: job.stays for job in left} == {
        "bare": "no controller makes it again, so it is not evicted",
        "budget": "The disruption budget web-budget needs 2 healthy pods and has 2 currently",
        "disk": "emptyDir scratch would be lost, and handover.evict_local_data is false",
        "leaves": "is ending",
        "shm": "is ending",
        "two": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
    }
    assert server.evicted == ["default/budget", "default/gone", "default/shm", "default/two"]
    assert next(job.user for job in left if job.name == "bare") == "no controller"


@pytest.mark.parametrize("status", [400, 403, 422])
def test_a_pod_whose_eviction_is_refused_keeps_no_other_from_being_asked(status: int) -> None:
    told = 'pods "a" is forbidden: namespace team is being terminated'
    server = Server(node("node_drained"), pods=[pod("a"), pod("b")], evictions={"a": Answer(status, {"message": told})})
    ((_, left),) = adapter(server).vacate(["node01"])
    assert isinstance(left, list)
    assert {job.name: job.stays for job in left} == {
        "a": f"its eviction was refused: {status}: {told}",
        "b": "is ending",
    }
    assert server.evicted == ["default/a", "default/b"]


def test_a_site_may_evict_local_data_or_nothing() -> None:
    disk = pod("disk", volumes=[{"name": "scratch", "emptyDir": {}}])
    server = Server(node("node_drained"), pods=[disk])
    ((_, left),) = adapter(server, evict_local_data=True).vacate(["node01"])
    assert (server.evicted, isinstance(left, list) and left[0].stays) == (["default/disk"], "is ending")
    server.evicted = []
    ((_, left),) = adapter(server, evict=False).vacate(["node01"])
    assert (server.evicted, isinstance(left, list) and left[0].stays) == ([], "")


@pytest.mark.parametrize("evict", [True, False])
@pytest.mark.parametrize("pods", [["web"], []])
def test_a_node_that_we_do_not_hold_is_neither_evicted_nor_empty(pods: list[str], *, evict: bool) -> None:
    server = Server(node("node_registered", taints=[]), pods=[pod(name) for name in pods])
    ((_, error),) = adapter(server, evict=evict).vacate(["node01"])
    assert str(error) == (
        "node01: evict its pods - Expected: held by our taint rackready.io/held:NoSchedule Actual: Ready. "
        "No pod was evicted. Somebody changed the node meanwhile; run again."
    )
    assert server.evicted == []


def test_a_node_is_empty_once_it_has_no_pods_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that the scheduler had placed there before our taint may be bound after it."""
    waits: list[float] = []
    monkeypatch.setattr(process.STOP, "wait", waits.append)
    server = Server(node("node_drained"), looks=[[]], pods=[pod("late")])
    handover = KubernetesHandover.model_validate({"kind": "kubernetes", "kubeconfig": "/k", "context": "prod"})
    real = KubernetesAdapter(cast("KubeApi", server), handover)
    ((_, left),) = real.vacate(["node01"])
    assert (isinstance(left, list) and left[0].stays, server.evicted, waits) == ("is ending", ["default/late"], [5.0])
    server.pods = []
    assert list(real.vacate(["node01"])) == [("node01", [])]


def test_nodes_without_pods_wait_together(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(process.STOP, "wait", waits.append)
    names = {"node02": "node01", "node03": "node01"}
    found = dict(adapter(Server(node("node_drained")), node_names=names).vacate(["node01", "node02", "node03"]))
    assert (found, len(waits)) == ({"node01": [], "node02": [], "node03": []}, 1)


def test_a_node_that_is_offered_before_the_second_look_is_not_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(node("node_drained"))
    monkeypatch.setattr(process.STOP, "wait", lambda _: setattr(server, "now", node("node_registered", taints=[])))
    ((_, error),) = adapter(server).vacate(["node01"])
    assert str(error).endswith("Actual: Ready. No pod was evicted. Somebody changed the node meanwhile; run again.")


def test_a_node_that_is_not_in_the_cluster_is_empty_without_pods() -> None:
    server = Server(node("node_registered"))
    assert list(adapter(server, node_suffix=".x").vacate(["node01"])) == [("node01", [])]
    server.pods = [pod("web")]
    ((_, left),) = adapter(server, node_suffix=".x").vacate(["node01"])
    assert (isinstance(left, list) and left[0].name, server.evicted) == ("web", [])


@pytest.mark.parametrize("body", [{}, {"items": None}, {"items": {}}])
def test_an_answer_without_a_list_of_pods_leaves_the_jobs_unknown(body: dict[str, Any]) -> None:
    server = Server(node("node_drained"))
    server.pods_on = lambda _name: Answer(200, body)  # type: ignore[method-assign]
    text = (
        "node01: list its pods, Kubernetes context prod at https://192.0.2.6:6443 - Expected: a list `items` "
        "Actual: 200 without one. Its pods are not known. Look at what answers at that address, then run again."
    )
    with pytest.raises(JobsUnknownError) as caught:
        adapter(server).jobs("node01")
    assert str(caught.value) == text
    ((_, error),) = adapter(server).vacate(["node01"])
    assert str(error) == text


def test_pods_that_cannot_be_listed_leave_the_jobs_unknown() -> None:
    server = Server(node("node_drained"), refuses=Answer(400, {"message": "no"}))
    with pytest.raises(JobsUnknownError, match="list its pods"):
        adapter(server).jobs("node01")


def test_what_to_do_about_pods_that_stay_is_told() -> None:
    made = adapter(Server(node("node_drained"), pods=[pod("web")], refuses=None))
    assert made.how_to_end(made.jobs("node01")) == (
        "wait and run again, give a budget that blocks more room, or end them with "
        "`kubectl delete pod --namespace default web`."
    )


def test_a_cordon_that_somebody_sets_during_the_offer_stays() -> None:
    server = Server(node("node_registered"))

    def theirs(_raw: dict[str, Any]) -> None:
        server.now = node("node_cordoned_by_kubectl")

    server.meanwhile = [theirs]
    assert adapter(server).release("node01") is True
    assert server.now["spec"]["unschedulable"] is True
    assert "rackready.io/held" not in [item["key"] for item in server.now["spec"]["taints"]]


def asks(name: str, amount: str, key: str = "limits") -> dict[str, Any]:
    return {"resources": {key: {"cpu": "1", name: amount}}}


@pytest.mark.parametrize(
    ("spec", "phase", "busy"),
    [
        ({"containers": [asks("nvidia.com/gpu", "1")]}, "Running", True),
        ({"containers": [asks("nvidia.com/mig-1g.10gb", "1", "requests")]}, "Pending", True),
        ({"containers": [{}], "initContainers": [asks("rdma/hca_shared", "1")]}, "Running", True),
        ({"containers": [{}], "resourceClaims": [{"name": "gpu"}]}, "Running", True),
        ({"containers": [asks("nvidia.com/gpu", "1")]}, "Succeeded", False),
        ({"containers": [asks("nvidia.com/gpu", "0")]}, "Running", False),
        ({"containers": [asks("memory", "1Gi")]}, "Running", False),
    ],
)
def test_pods_that_have_devices_keep_a_node_busy(spec: dict[str, Any], phase: str, *, busy: bool) -> None:
    server = Server(node("node_registered", taints=[]))
    server.pods = [pod("train") | {"spec": spec, "status": {"phase": phase}}]
    ((name, found),) = adapter(server).not_idle(["node01"], 60.0)
    assert (name, str(found).startswith("job default/train (ReplicaSet/")) == ("node01", busy)
    assert busy or not found


def test_a_cordoned_node_is_not_idle() -> None:
    found = dict(adapter(Server(node("node_cordoned_by_kubectl"))).not_idle(["node01"], 60.0))
    assert str(found["node01"]).startswith("Ready,SchedulingDisabled by kubectl")


def test_a_node_whose_pods_are_not_known_is_no_idle_node() -> None:
    server = Server(node("node_registered", taints=[]))
    server.pods_on = lambda _name: Answer(403, {"message": "pods is forbidden"})  # type: ignore[method-assign]
    assert isinstance(dict(adapter(server).not_idle(["node01"], 60.0))["node01"], JobsUnknownError)
