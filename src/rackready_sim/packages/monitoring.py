"""Packages of DCGM and of the Container Toolkit."""

from __future__ import annotations

from rackready_sim.packages.deb import Deb
from rackready_sim.programs.build import launcher

_DCGM_UNIT = """[Unit]
Description=NVIDIA DCGM service
After=nvidia-gpu-reset.target network.target

[Service]
User=root
PrivateTmp=false
Environment="DCGM_HOME_DIR=/var/log/nvidia-dcgm"
ExecStartPre=/bin/mkdir -p /var/log/nvidia-dcgm
ExecStart=/usr/bin/nv-hostengine -n --service-account nvidia-dcgm
Restart=on-abort

[Install]
WantedBy=multi-user.target
Alias=dcgm.service
"""
_ACCOUNT = """useradd -Urs /usr/sbin/nologin nvidia-dcgm || [ $? -eq 9 ]
mkdir -p /var/log/nvidia-dcgm
chown nvidia-dcgm:nvidia-dcgm /var/log/nvidia-dcgm
chmod 755 /var/log/nvidia-dcgm
"""
"""All that DCGM's packages do when installed (NVIDIA/DCGM @0d22068 scripts/deb/postinst, @ddd6dcf
scripts/rpm/postinstall; cmake/packaging.cmake names no other script): a host engine that runs stays of its version."""
_CDI_SERVICE = """[Unit]
Description=Refresh NVIDIA CDI specification file
ConditionPathExists=|/usr/bin/nvidia-smi
ConditionPathExists=/usr/bin/nvidia-ctk

[Service]
Type=oneshot
EnvironmentFile=-/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env
ExecCondition=/bin/sh -c "test -e /dev/nvidiactl"
ExecStart=/usr/bin/nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml

[Install]
WantedBy=multi-user.target
"""
_CDI_PATH = """[Unit]
Description=Trigger CDI refresh on NVIDIA driver install / uninstall events

[Path]
PathChanged=/usr/bin/nvidia-ctk
PathChanged=/dev/nvidiactl

[Install]
WantedBy=multi-user.target
"""


def dcgm_packages(version: str) -> list[Deb]:
    """Return DCGM 4 and the old DCGM 3 that it conflicts with."""
    release = version.split(":", 1)[-1].split("-", maxsplit=1)[0]
    same = f"datacenter-gpu-manager-4-core (= {version})"
    engine = launcher("dcgm.engine", "main", f'sys.argv[1:], "{release}"')
    core = Deb(
        "datacenter-gpu-manager-4-core",
        version,
        "NVIDIA data center GPU manager, core",
        {"Conflicts": "datacenter-gpu-manager", "Replaces": "datacenter-gpu-manager", "Depends": "libc6"},
        {
            "/usr/bin/dcgmi": launcher("dcgm.main", "main", f'sys.argv[1:], "{release}"'),
            "/usr/bin/nv-hostengine": engine,
            "/usr/lib/systemd/system/nvidia-dcgm.service": _DCGM_UNIT,
        },
        scripts={"postinst": _ACCOUNT},
    )
    found = [core]
    for cuda in ("cuda12", "cuda13"):
        plugin = {
            f"/usr/libexec/datacenter-gpu-manager-4/plugins/{cuda}/README": "diagnostic plugins\n",
            f"/usr/libexec/datacenter-gpu-manager-4/plugins/{cuda}/nvbandwidth": launcher("perf.copies"),
            f"/usr/bin/dcgmproftester{cuda.removeprefix('cuda')}": launcher("dcgm.proftester"),
        }
        found.append(
            Deb(
                f"datacenter-gpu-manager-4-{cuda}",
                version,
                f"NVIDIA data center GPU manager, {cuda}",
                {"Depends": same},
                plugin,
            )
        )
        closed = {f"/usr/libexec/datacenter-gpu-manager-4/plugins/{cuda}/proprietary": "diagnostic plugins\n"}
        relations = {"Depends": f"{same}, datacenter-gpu-manager-4-proprietary (= {version})"}
        found.append(
            Deb(
                f"datacenter-gpu-manager-4-proprietary-{cuda}",
                version,
                f"closed DCGM plugins, {cuda}",
                relations,
                closed,
            )
        )
    common = {"/usr/libexec/datacenter-gpu-manager-4/proprietary": "diagnostic plugins\n"}
    found.append(Deb("datacenter-gpu-manager-4-proprietary", version, "closed DCGM plugins", {"Depends": same}, common))
    old = Deb(
        "datacenter-gpu-manager",
        "1:3.3.9",
        "NVIDIA data center GPU manager 3",
        {},
        {"/usr/share/doc/datacenter-gpu-manager/README": "DCGM 3\n"},
    )
    return [*found, old]


def container_packages(version: str) -> list[Deb]:
    """Return the four packages of one version of the Container Toolkit."""
    base = Deb(
        "nvidia-container-toolkit-base",
        version,
        "NVIDIA Container Toolkit, base",
        {},
        {
            "/usr/bin/nvidia-ctk": launcher("ctk", "main", f'sys.argv[1:], "{version}"'),
            "/usr/bin/nvidia-container-runtime": '#!/bin/sh\nexec runc "$@"\n',
            "/usr/lib/systemd/system/nvidia-cdi-refresh.service": _CDI_SERVICE,
            "/usr/lib/systemd/system/nvidia-cdi-refresh.path": _CDI_PATH,
        },
        scripts={
            "postinst": "if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; "
            "systemctl enable --quiet --now nvidia-cdi-refresh.path || true; "
            "systemctl enable --quiet nvidia-cdi-refresh.service || true; "
            "systemctl start --no-block nvidia-cdi-refresh.service || true; fi\n",
        },
    )
    config = "/etc/nvidia-container-runtime/config.toml"
    text = (
        "disable-require = false\n\n[nvidia-container-cli]\nload-kmods = true\n\n[nvidia-container-runtime]\nmode = "
        '"auto"\n'
    )
    toolkit = Deb(
        "nvidia-container-toolkit",
        version,
        "NVIDIA Container Toolkit",
        {"Depends": f"nvidia-container-toolkit-base (= {version}), libnvidia-container-tools (= {version})"},
        {config: text, "/usr/bin/nvidia-container-runtime-hook": "#!/bin/sh\nexit 0\n"},
        conffiles=(config,),
    )
    tools = Deb(
        "libnvidia-container-tools",
        version,
        "NVIDIA container runtime library, command line tools",
        {"Depends": f"libnvidia-container1 (= {version})"},
        {"/usr/bin/nvidia-container-cli": f"#!/bin/sh\necho 'cli-version: {version}'\n"},
    )
    library = Deb(
        "libnvidia-container1",
        version,
        "NVIDIA container runtime library",
        {},
        {"/usr/share/doc/libnvidia-container1/README": "library\n"},
    )
    return [toolkit, base, tools, library]
