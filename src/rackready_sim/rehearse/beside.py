"""What is beside the machines in a rehearsal: login, software, gates, scheduler, campaign."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rackready.design.handover_of import by_scheduler, handover_views
from rackready.model.several import SeveralHandover
from rackready.model.site import KubernetesHandover, PlugInHandover, Site, SlurmHandover
from rackready_sim.rehearse.fabric import Part
from rackready_sim.rehearse.notes import NOTHING, Note, dropped
from rackready_sim.rehearse.space import shared

Document = dict[str, Any]
_KEY = ".rackready/sim/keys/id_ed25519"
_MIRROR = ".rackready/sim/mirror"
_SECRETS = ".rackready/sim/secrets"
_NO_KEY = "0" * 40
_INCAST, _INCAST_NODES = "cluster/fabric/stress/incast", 3
_KEPT = ("set", "driver_branch", "nic_stack", "nic_max_read_request", "manage_dcgm", "persistence", "allow_downgrade")
_SLURM = ("partition", "drain_wait_s", "validation_reservation")
_KUBERNETES = (
    "taint",
    "node_suffix",
    "labels",
    "evict",
    "evict_local_data",
    "drain_wait_s",
    "api_wait_s",
    "devices_wait_s",
)


def build(site: Site, nodes: Sequence[str], mirror: str, controller: str) -> Part:
    """Return these parts of the rehearsal; ``mirror`` and ``controller`` are addresses that stand for the rack's."""
    part = Part()
    part.keys = {
        "access": _access(site, part),
        "software": _software(site, nodes, mirror, part),
        "gates": _gates(site, nodes, part),
        "handover": _handover(site, nodes, controller, part),
        "campaign": site.campaign.model_dump(mode="json", exclude_defaults=True),
    }
    part.notes += _services(site)
    return part


def _access(site: Site, part: Part) -> Document:
    here = site.access
    if here.proxy_jump is not None:
        part.notes += dropped("jump host", [here.proxy_jump.host], "the simulated nodes are on this machine")
    password = {"sudo_password": {"file": f"{_SECRETS}/sudo"}} if here.sudo_password is not None else {}
    return {"user": here.user, "private_key": _KEY, **password}


def _software(site: Site, nodes: Sequence[str], mirror: str, part: Part) -> Document:
    """Return the same version sets, with packages from the rack's mirror."""
    here = site.software
    out: Document = here.model_dump(mode="json", exclude_defaults=True, include=set(_KEPT))
    if groups := [(group, sorted(group.names & set(nodes))) for group in here.groups]:
        out["groups"] = [
            {"name": group.name, "nodes": names, "set": group.set}
            | ({"driver_branch": group.driver_branch} if group.driver_branch else {})
            for group, names in groups
            if names
        ]
    place = f"http://{mirror}:8080"
    if here.mirror is not None:
        out["mirror"] = {"url": place, "suite": "./", "key": f"{_MIRROR}/mirror.asc"}
    for item in here.repositories:
        kept: Document = {"name": item.name, "kind": item.kind, "systems": item.systems, "url": f"{place}/{item.name}"}
        kept |= {"key": f"{_MIRROR}/{item.name}/mirror.asc", "fingerprint": _NO_KEY}
        out.setdefault("repositories", []).append(kept)
    sources = [here.mirror.url] if here.mirror is not None else [item.url for item in here.repositories]
    reason = "packages have the vendor's names and versions, and the rack's own content and key"
    part.notes.append(Note("package sources", ", ".join(sources), "the rack's mirror", reason))
    if here.upstreams:
        part.notes += dropped("upstreams", (item.name for item in here.upstreams), "nothing is copied from them")
    return out


def _gates(site: Site, nodes: Sequence[str], part: Part) -> Document:
    """Return the same set with the skips of the chosen nodes."""
    here = site.gates
    out: Document = here.model_dump(mode="json", exclude_defaults=True, exclude={"skip"}) | {"set": here.set}
    for entry in [entry for entry in out.get("also", []) if shared(site, json.dumps(entry))]:
        out["also"].remove(entry)
        part.notes.append(
            Note(f"gate {entry['id']}", "added", NOTHING, "its inputs name addresses or hosts of the site")
        )
    skips = [(skip, sorted(skip.names & set(nodes))) for skip in here.skip]
    skips_here = [{"gate": skip.gate, "nodes": names, "reason": skip.reason} for skip, names in skips if names]
    few = len(nodes) < _INCAST_NODES and not any(item["gate"] == _INCAST for item in skips_here)
    if few:
        reason = "incast needs two senders and a receiver; this rehearsal has fewer nodes"
        skips_here.append({"gate": _INCAST, "nodes": list(nodes), "reason": reason})
        part.notes.append(Note(f"gate {_INCAST}", "judged", "a declared skip", reason))
    part.notes += [
        Note(f"gate {item['gate']}", "a declared skip", "the same skip", str(item["reason"]))
        for item in skips_here
        if not (few and item["gate"] == _INCAST)
    ]
    part.notes += [Note(f"gate {item.gate}", f"off until {item.until}", "off", item.reason) for item in here.disabled]
    if here.launcher == "mpijob":
        out.pop("launcher")
        reason = "pods of the simulated cluster run nothing"
        part.notes.append(Note("launcher of gates", "mpijob", "openmpi", reason))
    return out | ({"skip": skips_here} if skips_here else {})


def _handover(site: Site, nodes: Sequence[str], controller: str, part: Part) -> Document:
    """Return the scheduler of the chosen nodes; a file where they are of several schedulers, since a rack has one."""
    here = site.handover
    if isinstance(here, SeveralHandover):
        views = by_scheduler(site, nodes)
        others = [view.called for view in handover_views(site) if view.called not in {item.called for item in views}]
        part.notes += dropped("parts of handover", others, "no chosen node is in them; --limit chooses nodes")
        if len(views) == 1:
            return _handover(views[0].site, nodes, controller, part)
        reason = "a rack has one scheduler; --limit with nodes of one part rehearses that part's"
        part.notes.append(Note("schedulers", ", ".join(view.called for view in views), "a file", reason))
    if isinstance(here, SlurmHandover):
        return _slurm(here, controller, part)
    if isinstance(here, KubernetesHandover):
        return _kubernetes(here, controller, part)
    if isinstance(here, PlugInHandover):
        reason = "the scheduler of a plug-in is not simulated; the list of ready nodes is a file"
        part.notes.append(Note("scheduler", here.scheduler, "a file", reason))
    return {"kind": "file", "path": ".rackready/sim/ready.txt"}


def _slurm(here: SlurmHandover, controller: str, part: Part) -> Document:
    kept = here.model_dump(mode="json", exclude_defaults=True, include=set(_SLURM))
    reason = "the rack's slurmctld knows the nodes, drained, as a cluster whose owners added them"
    part.notes.append(Note("scheduler", "your Slurm", "Slurm 22.05 of Debian on one controller", reason))
    if here.files is not None:
        text = "`rackready slurm diff` shows the lines for your cluster"
        part.notes.append(Note("Slurm's files", f"{here.files.folder}, {here.files.distribution}", NOTHING, text))
    if here.validation_qos is not None or here.validation_user != "root":
        text = "the rack's Slurm has no accounting and no other user"
        part.notes.append(Note("validation jobs", here.validation_qos or here.validation_user, "root, no QOS", text))
    munge = {"munge_key": {"file": f"{_SECRETS}/munge"}}
    return {"kind": "slurm", "controller": controller, "private_key": _KEY, **munge, **kept}


def _kubernetes(here: KubernetesHandover, controller: str, part: Part) -> Document:
    kept = here.model_dump(mode="json", exclude_defaults=True, include=set(_KUBERNETES))
    text = "the rack's control plane is real, its kubelets are played: no pod runs"
    part.notes.append(Note("scheduler", "your Kubernetes", "a control plane on this machine", text))
    if here.node_names:
        part.notes += dropped("names in Kubernetes", here.node_names, "nodes have their own names in the rehearsal")
    if here.join is None or here.join.kubeadm is None:
        text = "nodes of the simulated cluster join by kubeadm"
        part.notes.append(Note("joining", "others, or your own command", "kubeadm", text))
    keys = ".rackready/sim/kubernetes/rackready.kubeconfig"
    join = {
        "endpoint": f"{controller}:6443",
        "token": {"file": f"{_SECRETS}/kubernetes-join"},
        "ca_hashes": [f"sha256:{'0' * 64}"],
    }
    return {"kind": "kubernetes", "kubeconfig": keys, "context": "sim", "join": {"kubeadm": join}, **kept}


def _services(site: Site) -> list[Note]:
    """Return services that others run: nothing of them is asked."""
    manager = site.fabric.infiniband
    ufm = [manager.ufm.url] if manager is not None and manager.ufm is not None else []
    has_monitoring = bool(site.monitoring.model_dump(exclude_defaults=True))
    has_keys = bool(site.certificates.model_dump(exclude_defaults=True))
    return [
        *dropped("UFM", ufm, "not asked and not simulated"),
        *dropped("monitoring", ["monitoring"] if has_monitoring else [], "no receiver of alerts is told"),
        *dropped(
            "signing keys", ["certificates"] if has_keys else [], "certificates are signed with a key of the rehearsal"
        ),
    ]
