"""The simulated rack's scheduler: Debian's slurmctld and munge, configured for the rack's nodes.

Nodes are configless, unless the site wants files on every node: `slurmd --conf-server <controller>` fetches both
files from the controller. Every node starts
drained, like a new node in a cluster whose owners want it proven first. Where the site lets rackready write the files
(handover.files), the controller knows none of them: only a node of its owner's, which is down.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

from rackready.design.facts import node_facts
from rackready.model.site import Site, SlurmHandover
from rackready_sim.files import write
from rackready_sim.plan import RackPlan

REASON = "rackready: not handed over yet"
_PORTS = (6817, 6818)
_OWNERS = [
    'NodeName=login01 NodeAddr=192.0.2.99 CPUs=4 State=DOWN Reason="being built"',
    "PartitionName=admin Nodes=login01 State=UP",
]
"""Lines of a cluster without our nodes: slurmctld 22.05.8 does not start without any node (tried)."""
_CPUS = {"Boards": 1, "SocketsPerBoard": 2, "CoresPerSocket": 56, "ThreadsPerCore": 2, "RealMemory": 2000000}
"""DGX H100: 2 Xeon 8480C with 56 cores each, 2 TB. Slurm accepts these values without a check (config_overrides)."""


def build(site: Site, plan: RackPlan) -> dict[str, str]:
    """Return slurm.conf and gres.conf of the rack; empty if the site does not hand over to Slurm."""
    if not isinstance(site.handover, SlurmHandover):
        return {}
    if site.handover.files is not None:
        return {"slurm.conf": _slurm_conf(plan, _OWNERS, configless=not site.handover.files.classic)}
    return {
        "slurm.conf": _slurm_conf(plan, ["GresTypes=gpu", *_nodes(site, plan, site.handover.partition)]),
        "gres.conf": _gres_conf(site),
    }


def _nodes(site: Site, plan: RackPlan, partition: str) -> list[str]:
    cpus = " ".join(f"{key}={value}" for key, value in _CPUS.items())
    nodes = [
        f"NodeName={node.name} NodeAddr={plan.machines[node.name].address} {cpus} Gres=gpu:{_gpu(site, node.name)} "
        f'State=DRAIN Reason="{REASON}"'
        for node in site.nodes()
    ]
    names = ",".join(node.name for node in site.nodes())
    return [*nodes, f"PartitionName={partition} Nodes={names} Default=YES MaxTime=INFINITE State=UP"]


def _slurm_conf(plan: RackPlan, more: list[str], *, configless: bool = True) -> str:
    machine = plan.machines["slurmctl"]
    lines = [
        "ClusterName=simrack",
        f"SlurmctldHost={machine.name}({machine.address})",
        f"SlurmctldPort={_PORTS[0]}",
        f"SlurmdPort={_PORTS[1]}",
        "SlurmUser=slurm",
        "AuthType=auth/munge",
        *(["SlurmctldParameters=enable_configless"] if configless else []),
        "SlurmdParameters=config_overrides",
        "StateSaveLocation=/var/lib/slurm/slurmctld",
        "SlurmdSpoolDir=/var/lib/slurm/slurmd",
        "SlurmctldPidFile=/run/slurmctld.pid",
        "SlurmdPidFile=/run/slurmd.pid",
        "SlurmctldLogFile=/var/log/slurm/slurmctld.log",
        "SlurmdLogFile=/var/log/slurm/slurmd.log",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "MpiDefault=none",
        "ReturnToService=1",
        "SlurmdTimeout=30",
        "SlurmctldTimeout=60",
        "SchedulerType=sched/backfill",
        *more,
    ]
    return "\n".join(lines) + "\n"


def _gres_conf(site: Site) -> str:
    lines = []
    for node in site.nodes():
        facts = node_facts(site, node.name)
        lines.append(
            f"NodeName={node.name} Name=gpu Type={_type(facts.gpu.id)} File=/dev/nvidia[0-{facts.platform.gpus - 1}]"
        )
    return "\n".join(lines) + "\n"


def _gpu(site: Site, node: str) -> str:
    facts = node_facts(site, node)
    return f"{_type(facts.gpu.id)}:{facts.platform.gpus}"


def _type(gpu: str) -> str:
    return gpu.split("_", 1)[0]


def seed(root: Path, files: dict[str, str], munge_key: str) -> None:
    """Write the controller's configuration into its file system and enable its services at boot."""
    for name, text in files.items():
        write(root / "etc/slurm" / name, text)
    key = root / "etc/munge/munge.key"
    key.write_bytes(base64.b64decode(munge_key))
    owner = key.parent.stat()
    os.chown(key, owner.st_uid, owner.st_gid)
    key.chmod(0o400)
    wants = root / "etc/systemd/system/multi-user.target.wants"
    for unit in ("munge.service", "slurmctld.service"):
        (wants / unit).unlink(missing_ok=True)
        (wants / unit).symlink_to(f"/lib/systemd/system/{unit}")
