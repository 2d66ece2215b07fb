"""Packages of NVSwitch, NCCL and the NICs."""

from __future__ import annotations

from rackready_sim.ib_image import PROGRAMS
from rackready_sim.nvml.build import collective
from rackready_sim.packages.deb import Deb
from rackready_sim.packages.kernel import RHEL_VERSION
from rackready_sim.packages.scripts import ldconfig, service
from rackready_sim.programs.build import launcher

_LIB = "/usr/lib/x86_64-linux-gnu"
_FM_CONFIG = "/usr/share/nvidia/nvswitch/fabricmanager.cfg"
_FM_UNIT = """[Unit]
Description=NVIDIA fabric manager service
After=network-online.target
Requires=network-online.target

[Service]
User=root
PrivateTmp=false
Type=forking
TimeoutStartSec=720
Environment="FM_CONFIG_FILE=/usr/share/nvidia/nvswitch/fabricmanager.cfg"
ExecStart=/usr/bin/nv-fabricmanager -c $FM_CONFIG_FILE
LimitCORE=infinity

[Install]
WantedBy=multi-user.target
"""
_FM_CFG = """# Description: Fabric Manager logging levels
LOG_LEVEL=4
LOG_FILE_NAME=/var/log/fabricmanager.log
LOG_APPEND_TO_LOG=1
DAEMONIZE=1
BIND_INTERFACE_IP=127.0.0.1
STARTING_TCP_PORT=16000
FABRIC_MODE=0
FABRIC_MODE_RESTART=0
FM_CMD_BIND_INTERFACE=127.0.0.1
FM_CMD_PORT_NUMBER=6666
FM_STAY_RESIDENT_ON_FAILURES=0
ACCESS_LINK_FAILURE_MODE=0
TRUNK_LINK_FAILURE_MODE=0
NVSWITCH_FAILURE_MODE=0
ABORT_CUDA_JOBS_ON_FM_EXIT=1
"""
_RDMA = "44.0-2"
"""Version of rdma-core in Debian 12."""
_OPENSM = "3.3.23-2+b1"
"""Version of opensm in Debian 12."""
_OPENSM_UNIT = """[Unit]
Description=Starts the OpenSM InfiniBand fabric Subnet Managers
Documentation=man:opensm(8)
Before=network.target remote-fs-pre.target
ConditionPathExists=/sys/class/infiniband_mad/abi_version

[Service]
Type=oneshot
EnvironmentFile=/etc/default/opensm
ExecStart=/bin/sh -c 'test "$PORTS" = NONE || echo "Starting opensm on following ports: $PORTS"'
RemainAfterExit=on

[Install]
WantedBy=network-online.target
"""
"""Debian's unit; its instances opensm@GUID are left out."""
_DOCA_TOOLS = "2510.0.16-1"
"""Version of mlnx-tools in DOCA 3.2.1 (mlnx-tools-2510.0.16-1 in a public list of its packages for RHEL 10)."""
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "reduce", "sendrecv")


def fabric_packages(version: str, suffix: str) -> list[Deb]:
    """Return the NVSwitch packages of one driver version."""
    full = f"{version}{suffix}"
    program = launcher("fabricmanager", "main", f'sys.argv[1:], "{version}"')
    manager = Deb(
        "nvidia-fabricmanager",
        full,
        "Fabric Manager for NVSwitch based systems",
        {"Conflicts": "nvidia-fabricmanager-580, nvidia-fabricmanager-590", "Provides": "nvidia-fabric-manager"},
        {
            "/usr/bin/nv-fabricmanager": program,
            _FM_CONFIG: _FM_CFG,
            "/usr/lib/systemd/system/nvidia-fabricmanager.service": _FM_UNIT,
        },
        conffiles=(_FM_CONFIG,),
        scripts=service("nvidia-fabricmanager.service", enabled=False),
    )
    nscq = Deb(
        "libnvidia-nscq",
        full,
        "NVSwitch configuration and query library",
        {},
        {f"{_LIB}/libnvidia-nscq.so.{version}": b"\n"},
    )
    return [manager, nscq]


def nccl_packages(nccl: str, tests: str, name: str = "libnccl2") -> list[Deb]:
    """Return NCCL and its tests; the tests are the site's own build with MPI."""
    release = nccl.split("-", maxsplit=1)[0]
    library = Deb(
        name,
        nccl,
        "NVIDIA Collective Communication Library",
        {},
        {f"{_LIB}/libnccl.so.{release}": f"NCCL version {nccl}\n"},
        {f"{_LIB}/libnccl.so.2": f"libnccl.so.{release}"},
        scripts=ldconfig(),
    )
    version = tests.split("-", maxsplit=1)[0]
    files: dict[str, bytes | str] = {f"/usr/bin/{name}_perf": collective(name, version) for name in COLLECTIVES}
    return [
        library,
        Deb(
            "nccl-tests",
            tests,
            "NCCL performance tests, built with MPI",
            {"Depends": name, "Recommends": "openmpi-bin"},
            files,
        ),
    ]


def rdma_packages(*, rpm: bool) -> list[Deb]:
    """Return the operating system's RDMA libraries: names and version of Debian 12, names of the RHEL family."""
    if rpm:
        return [
            Deb(name, RHEL_VERSION, "RDMA core userspace", {}, _readme(name)) for name in ("rdma-core", "libibverbs")
        ]
    libraries = [
        Deb(name, _RDMA, summary, {}, _readme(name))
        for name, summary in (
            ("rdma-core", "RDMA core userspace infrastructure and documentation"),
            ("ibverbs-providers", "User space provider drivers for libibverbs"),
        )
    ]
    return [*libraries, *_infiniband()]


def _infiniband() -> list[Deb]:
    """Return Debian 12's tools of InfiniBand and its subnet manager: launchers of Debian's own programs."""
    tools: dict[str, bytes | str] = {
        f"/usr/sbin/{name}": launcher("ib.tools", "main", f'"{name}", sys.argv[1:]') for name in PROGRAMS
    }
    manager: dict[str, bytes | str] = {
        "/usr/sbin/opensm": launcher("ib.tools", "opensm"),
        "/usr/lib/systemd/system/opensm.service": _OPENSM_UNIT,
        "/etc/default/opensm": "PORTS=ALL\n",
    }
    return [
        Deb("infiniband-diags", _RDMA, "InfiniBand diagnostic programs", {}, tools),
        Deb(
            "opensm",
            _OPENSM,
            "InfiniBand subnet manager",
            {},
            manager,
            conffiles=("/etc/default/opensm",),
            scripts=service("opensm.service", enabled=True),
        ),
    ]


def _readme(name: str) -> dict[str, bytes | str]:
    return {f"/usr/share/doc/{name}/README": f"{name}\n"}


def nic_packages(perftest: str, doca: str, profile: str = "") -> list[Deb]:
    """Return RDMA performance tests built with CUDA, and the NIC tools.

    ``profile``: version of the package doca-ofed, which brings its own NIC tools; empty: the mirror has none.
    """
    tests: dict[str, bytes | str] = {
        f"/usr/bin/{name}": launcher("perf.perftest", "main", f'"{name}", sys.argv[1:]')
        for name in ("ib_write_bw", "ib_write_lat", "ib_read_lat")
    }
    tools: dict[str, bytes | str] = {
        f"/usr/{place}/{name}": launcher("nic.tools", name)
        for place, name in (
            ("bin", "mlnx_qos"),
            ("sbin", "cma_roce_mode"),
            ("sbin", "cma_roce_tos"),
            ("sbin", "show_gids"),
            ("sbin", "ibdev2netdev"),
        )
    }
    needs = {"Depends": f"mlnx-tools (>= {_DOCA_TOOLS})"}
    return [
        Deb(
            "perftest", perftest, "InfiniBand verbs performance tests, with GPUDirect", {"Replaces": "perftest"}, tests
        ),
        *(
            Deb("mlnx-tools", version, "tools for NVIDIA network adapters", {"Depends": "python3"}, tools)
            for version in ((doca, _DOCA_TOOLS) if profile else (doca,))
        ),
        *([Deb("doca-ofed", profile, "DOCA-OFED profile", needs, _readme("doca-ofed"))] if profile else []),
    ]
