"""The overlay: real addresses of the simulated rack on this machine, merged over the site file by the normal loader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rackready.design.switch_systems import SYSTEMS
from rackready.design.yaml import dump_yaml
from rackready.model.kubernetes import KubernetesHandover
from rackready.model.site import Site, SlurmHandover, Switch
from rackready_sim import mirror
from rackready_sim.kube import certs
from rackready_sim.plan import BMC_PORT, KUBERNETES_PORT, RackPlan
from rackready_sim.store import Store, write_private

_HEAD = "# Written by `rackready sim up`; removed by `rackready sim down`. Do not edit.\n"


def build(site: Site, plan: RackPlan, store: Store) -> dict[str, Any]:
    """Return the overlay document: addresses, ports, keys and the mirror's URL."""
    document: dict[str, Any] = {
        "access": _access(site, store),
        **({"software": _software(site, plan, store)} if "mirror" in plan.machines else {}),
        "racks": [
            {"name": rack.name, "nodes": [_node(node.name, plan, store) for node in rack.nodes]} for rack in site.racks
        ],
    }
    if site.bmc_authority is not None:
        authority = {"certificate": str(store.tls / "ca.pem"), "key": {"file": str(store.tls / "ca-key.pem")}}
        document["bmc_authority"] = authority
    with_login = [_switch(item, plan, store) for item in site.switches if item.name in plan.machines]
    if with_login:
        document["switches"] = with_login
    if site.provisioning is not None and site.provisioning.service is not None:
        document["provisioning"] = {"service": _boot_service(plan)}
    if isinstance(site.handover, SlurmHandover) and "slurmctl" in plan.machines:
        login = {
            "controller": plan.machines["slurmctl"].address,
            "port": 22,
            "user": "root",
            "private_key": str(store.key),
        }
        document["handover"] = {**login, "munge_key": {"file": str(store.secret("munge"))}}
    if isinstance(site.handover, KubernetesHandover):
        document["handover"] = _kubernetes(site.handover, plan, store)
    return document


def _kubernetes(handover: KubernetesHandover, plan: RackPlan, store: Store) -> dict[str, Any]:
    """Return the login to the cluster, and how nodes join it where the site lets rackready join them."""
    keys = store.base / "kubernetes"
    login: dict[str, Any] = {"kubeconfig": str(keys / f"{certs.PRODUCT}.kubeconfig"), "context": certs.CONTEXT}
    if handover.join is None or handover.join.kubeadm is None:
        return login
    endpoint = f"{plan.gateway}:{KUBERNETES_PORT}"
    token = {"file": str(store.secret(certs.JOINING))}
    return {**login, "join": {"kubeadm": {"endpoint": endpoint, "ca_hashes": [certs.pin(keys)], "token": token}}}


def _boot_service(plan: RackPlan) -> dict[str, Any]:
    """Return this machine's place on the rack's network, where it serves boot files and images."""
    return {"address": plan.gateway, "interface": plan.bridge, "network": str(plan.subnet)}


def _software(site: Site, plan: RackPlan, store: Store) -> dict[str, Any]:
    """Return the URLs and keys of the package sources; the fingerprint is the one that gpg reported."""
    if site.software.mirror is not None:
        return {"mirror": {"url": mirror.url(plan), "key": str(store.mirror / "mirror.asc")}}
    folders = {item.name: store.mirror / item.name for item in site.software.repositories}
    return {
        "repositories": [
            {
                "name": name,
                "url": f"{mirror.url(plan)}/{name}",
                "key": str(folder / "mirror.asc"),
                "fingerprint": (folder / "mirror.fpr").read_text(encoding="utf-8"),
            }
            for name, folder in folders.items()
        ]
    }


def _access(site: Site, store: Store) -> dict[str, Any]:
    access: dict[str, Any] = {"port": 22, "private_key": str(store.key)}
    if site.access.sudo_password is not None:
        access["sudo_password"] = {"file": str(store.secret("sudo"))}
    return access


def _node(name: str, plan: RackPlan, store: Store) -> dict[str, Any]:
    bmc = {
        "address": plan.bmcs[name],
        "port": BMC_PORT,
        "username": "admin",
        "password": {"file": str(store.secret(f"{name}-bmc"))},
        "ca": str(store.tls / "ca.pem"),
    }
    return {"name": name, "address": plan.machines[name].address, "bmc": bmc}


def _switch(switch: Switch, plan: RackPlan, store: Store) -> dict[str, Any]:
    return {
        "name": switch.name,
        "address": plan.machines[switch.name].address,
        "port": 22,
        "username": SYSTEMS[switch.os].username,
        "password": {"file": str(store.secret(switch.name))},
    }


def write(path: Path, document: dict[str, Any]) -> None:
    """Write the overlay, readable by its owner only."""
    write_private(path, _HEAD + dump_yaml(document))
