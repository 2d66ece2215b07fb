"""Site facts as plain role variables: the data of the inventory plugin for Ansible.

Role variables are set on groups, so that ``group_vars/`` of an environment can override them. Facts of one node, and
how to reach it, are set on the host. Everything is plain JSON without secrets.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rackready.design.check_groups import domain_nodes, domains_of_nodes
from rackready.design.cuda_compat import compat_packages, package_name
from rackready.design.fabric_software import fabric_software
from rackready.design.facts import driver_branch, driver_set, fabric_document, node_facts
from rackready.design.handover_of import handover_site, handover_views
from rackready.design.infiniband import infiniband_node_vars, infiniband_vars
from rackready.design.monitoring.exporters import (
    exporter_node_vars,
    exporter_platform_vars,
    exporter_scheduler_vars,
    exporter_vars,
)
from rackready.design.nic_stack import needs_umad, nic_cards, nic_names, nic_stack_vars
from rackready.design.repositories import repository_vars
from rackready.design.roce_vars import roce_interfaces, roce_vars
from rackready.design.secrets import readable
from rackready.design.software_of import software_views
from rackready.design.ssh_words import common_args
from rackready.model.base import SecretRef
from rackready.model.kubernetes import KubernetesHandover
from rackready.model.operations import files_of, makes_imex_channel
from rackready.model.profile import GpuProfile, PlatformProfile
from rackready.model.several import SeveralHandover
from rackready.model.site import Node, Site, SlurmHandover
from rackready.model.software import SoftwareProfile
from rackready.model.supply import Figure
from rackready.profiles import loader

_NOT_ON_NODES = {"munge_key", "private_key", "settings", "kubeconfig", "join"}
"""Keys of a handover that only the controller uses."""


def groups(site: Site) -> dict[str, dict[str, Any]]:
    """Return every inventory group: ``{name: {"hosts": [...], "vars": {...}}}``.

    ``nodes`` has the variables of all nodes, ``rack_<name>`` the nodes of a rack, ``platform_<id>`` and ``gpu_<id>``
    the variables of the hardware, ``software_<name>`` and ``variant_<platform>_<name>`` those of nodes with another
    version set, ``part_<name>`` those of one of several schedulers. Characters that Ansible refuses in group names
    become underscores.
    """
    out: dict[str, dict[str, Any]] = {"nodes": {"hosts": [], "vars": site_vars(site)}}
    for rack in site.racks:
        for node in rack.nodes:
            platform = loader.platform(node.platform)
            _member(out, "nodes", node.name)
            _member(out, _group("rack", rack.name), node.name)
            _member(out, _group("platform", platform.id), node.name, platform_vars(site, platform))
            _member(out, _group("gpu", platform.gpu), node.name, gpu_vars(loader.gpu(platform.gpu)))
    _add_software_groups(site, out)
    _add_parts(site, out)
    return out


def _add_parts(site: Site, out: dict[str, dict[str, Any]]) -> None:
    """Add a group for each part of a site with several schedulers, with the variables of its scheduler."""
    if isinstance(site.handover, SeveralHandover):
        for view in handover_views(site):
            for name in view.nodes:
                _member(out, _group("part", view.called), name, scheduler_vars(view.site))


def _add_software_groups(site: Site, out: dict[str, dict[str, Any]]) -> None:
    """Add the groups of nodes with another version set. Their names sort last, so their values win (Ansible)."""
    for view in software_views(site):
        for name in view.nodes if view.group else ():
            platform = loader.platform(site.node(name).platform)
            _member(out, _group("software", view.group), name, software_vars(view.site))
            variant = _group("variant", f"{platform.id}_{view.group}")
            _member(out, variant, name, _fabric_vars(view.site, platform))


def _group(kind: str, name: str) -> str:
    return f"{kind}_{name}".replace("-", "_").replace(".", "_")


def _member(out: dict[str, dict[str, Any]], group: str, host: str, variables: dict[str, Any] | None = None) -> None:
    entry = out.setdefault(group, {"hosts": [], "vars": {}})
    entry["hosts"].append(host)
    entry["vars"].update(variables or {})


def site_vars(site: Site) -> dict[str, Any]:
    """Return the role variables that are the same on every node of the site's version set."""
    return {
        **software_vars(site),
        **({} if isinstance(site.handover, SeveralHandover) else scheduler_vars(site)),
        **exporter_vars(site),
        "rackready_allow_downgrade": site.software.allow_downgrade,
        "rackready_site": site.name,
        "rackready_fabric": fabric_document(site),
    }


def software_vars(site: Site) -> dict[str, Any]:
    """Return the role variables that depend on the version set."""
    software = loader.software(site.software.set)
    return {
        **repository_vars(site, software.os),
        "base_os": software.os,
        **_driver_vars(site, software),
        **_library_vars(site, software),
        **nic_stack_vars(site, software),
        **roce_vars(site, software),
        **infiniband_vars(site),
    }


def scheduler_vars(site: Site) -> dict[str, Any]:
    """Return the variables of a scheduler: the handover itself, and those of role slurm_node, kubelet or exporters.

    Only the handover phase sets the place of the munge key.
    """
    handover = site.handover
    about = {
        "rackready_handover": handover.model_dump(mode="json", exclude=_NOT_ON_NODES),
        **exporter_scheduler_vars(site),
    }
    if isinstance(handover, KubernetesHandover):
        return {**about, "nvidia_container_toolkit_kubelet": True}
    if not isinstance(handover, SlurmHandover):
        return about
    files = files_of(handover)
    classic = {"slurm_node_folder": str(files.folder)} if files is not None and files.classic else {}
    return {**about, "slurm_node_controller": str(handover.controller), **classic}


def _driver_vars(site: Site, software: SoftwareProfile) -> dict[str, Any]:
    driver = driver_set(site)
    return {
        "nvidia_driver_version": driver.version,
        "nvidia_driver_branch": driver_branch(site),
        "nvidia_driver_packages": dict(driver.packages),
        "nvidia_driver_precompiled": dict(driver.precompiled),
        "nvidia_driver_pinning": driver.pinning,
        "nvidia_driver_stream": driver.stream,
        "nvidia_driver_open": software.open_modules,
        "nvidia_fabricmanager_version": driver.version,
        "nvidia_persistence_packages": dict(driver.persistence),
        "nvidia_persistence_unit": driver.persistence_unit,
        "nvidia_persistence_mode": site.software.persistence,
    }


def _library_vars(site: Site, software: SoftwareProfile) -> dict[str, Any]:
    # DOCA-OFED brings the mft of its own kernel modules (Azure/azhpc-images @8e9d055f, install_nvidiagpudriver.sh).
    mft = {"mft": software.mft} if site.software.nic_stack == "inbox" else {}
    compat, package = compat_packages(software, driver_branch(site)), package_name(software.cuda)
    return {
        "cuda_toolkit_packages": dict(software.cuda_packages),
        "cuda_toolkit_versions": software.toolkits,
        "cuda_toolkit_default": software.cuda,
        "cuda_toolkit_compat": compat,
        "cuda_toolkit_compat_absent": [] if compat else [package],
        "cuda_toolkit_compat_folder": f"/usr/local/cuda-{software.cuda}/compat" if compat else "",
        "nvidia_container_toolkit_version": software.container_toolkit,
        "dcgm_managed": site.software.manage_dcgm,
        "dcgm_version": software.dcgm,
        "dcgm_cuda_major": int(software.cuda.split(".")[0]),
        "gate_tools_packages": {
            software.nccl_package: software.nccl,
            "nccl-tests": software.nccl_tests,
            "perftest": software.perftest,
            **mft,
        },
    }


def platform_vars(site: Site, platform: PlatformProfile) -> dict[str, Any]:
    """Return the role variables that depend on the server model."""
    kernel = platform.kernel_options
    return {
        "host_roce_nccl": site.fabric.nccl.of(platform.id),
        "base_kernel_options": list(kernel.options) if kernel is not None else [],
        "nic_stack_ib_umad": needs_umad(site, platform),
        "nvidia_driver_gpus": platform.gpus,
        "nvidia_fabricmanager_enabled": platform.runs_fabric_manager,
        "nvidia_fabricmanager_gpus": platform.gpus if loader.gpu(platform.gpu).registers else 0,
        **_fabric_vars(site, platform),
        "nvidia_persistence_gpus": platform.gpus,
        "dcgm_nvswitches": int(platform.nvswitches.value) if platform.nvswitches else 0,
        "nvidia_container_toolkit_gpus": platform.gpus,
        "gpu_tuning_gpus": platform.gpus,
        "mps_gpus": platform.gpus,
        "slurm_node_gpus": platform.gpus,
        **exporter_platform_vars(site, platform),
    }


def _fabric_vars(site: Site, platform: PlatformProfile) -> dict[str, Any]:
    """Return the role variables that depend on both server model and version set."""
    fabric = fabric_software(loader.software(site.software.set), driver_set(site), platform)
    return {
        "nvidia_fabricmanager_packages": fabric.manager,
        "nvidia_fabricmanager_subnet_packages": fabric.subnet_manager,
        "nvidia_fabricmanager_imex_packages": fabric.imex,
    }


def gpu_vars(gpu: GpuProfile) -> dict[str, Any]:
    """Return the role variables that depend on the GPU model, in watts and MHz.

    Unpublished values are 0, which the role refuses to set.
    """

    def whole(figure: Figure | None) -> int:
        return int(figure.value) if figure is not None else 0

    return {
        "gpu_tuning_power_limit_w": whole(gpu.power.limit),
        "gpu_tuning_power_min_w": whole(gpu.power.min_limit),
        "gpu_tuning_sm_clock_mhz": whole(gpu.power.sm_clock_max),
        "gpu_tuning_sm_clock_min_mhz": whole(gpu.power.sm_clock_min),
    }


def node_vars(site: Site, name: str) -> dict[str, Any]:
    """Return the facts of one node. Raises KeyError if the site has no such node."""
    facts = node_facts(site, name)
    return {
        "rackready_rack": facts.rack,
        "rackready_index": facts.index,
        "rackready_platform": facts.platform.id,
        "rackready_gpu": facts.gpu.id,
        "rackready_gpus": facts.platform.gpus,
        "nic_stack_cards": nic_cards(site, facts),
        "nic_stack_names": nic_names(site, facts),
        "host_lldp_interfaces": [nic.netdev for nic in facts.nics] if site.fabric.kind == "roce" else [],
        "host_roce_interfaces": roce_interfaces(site, facts) if site.fabric.kind == "roce" else [],
        **infiniband_node_vars(site, facts),
        **exporter_node_vars(site, facts),
        "rackready_nics": [asdict(nic) for nic in facts.nics],
        **({"nvidia_fabricmanager_imex_nodes": _domain_addresses(site, name)} if facts.platform.runs_imex else {}),
        **_channel_vars(site, name, facts.platform),
    }


def _channel_vars(site: Site, name: str, platform: PlatformProfile) -> dict[str, bool]:
    """Return whether a node gets the IMEX channel of all jobs; nothing where no IMEX runs."""
    if not platform.runs_imex:
        return {}
    return {"nvidia_fabricmanager_imex_channel": makes_imex_channel(handover_site(site, name).handover)}


def _domain_addresses(site: Site, name: str) -> list[str]:
    """Return the addresses of all nodes in a node's NVLink domain, in the site's order: IMEX reads one list on all."""
    domain = domains_of_nodes(site).get(name)
    return [str(site.node(other).address) for other in domain_nodes(site, domain)] if domain is not None else []


def connection_vars(site: Site, node: Node, known_hosts: Path, jump_socket: str = "") -> dict[str, Any]:
    """Return how Ansible reaches one node: with the key of the site and the host key pinned at provisioning.

    ``jump_socket``: socket of an open connection to the site's jump host, if there is one.
    """
    return {
        "ansible_host": str(node.address),
        "ansible_user": site.access.user,
        "ansible_port": site.access.port,
        "ansible_ssh_private_key_file": str(site.access.private_key),
        "ansible_ssh_common_args": common_args(site, known_hosts, jump_socket),
        **_sudo_vars(site.access.sudo_password),
    }


def _sudo_vars(password: SecretRef | None) -> dict[str, Any]:
    """Return where the password for sudo is kept, never the password: playbooks/group_vars/nodes.yml reads it."""
    if password is None:
        return {}
    place = readable(password)
    return {"rackready_sudo_password_file": str(place.file or ""), "rackready_sudo_password_env": place.env or ""}
