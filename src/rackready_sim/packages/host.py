"""Packages of the host's tools, named and versioned as in Debian 12, and NVIDIA's firmware tools."""

from __future__ import annotations

from dataclasses import replace

from rackready_sim.packages.deb import Deb
from rackready_sim.packages.kernel import RHEL_VERSION
from rackready_sim.packages.scripts import service
from rackready_sim.programs.build import launcher

_CHRONY_UNIT = """[Unit]
Description=chrony, an NTP client/server
Documentation=man:chronyd(8) man:chronyc(1) man:chrony.conf(5)
Conflicts=openntpd.service ntp.service ntpsec.service
After=network.target

[Service]
ExecStart=/usr/sbin/chronyd -n

[Install]
Alias=chronyd.service
WantedBy=multi-user.target
"""
_CHRONY_CONF = """confdir /etc/chrony/conf.d
pool 2.debian.pool.ntp.org iburst
sourcedir /etc/chrony/sources.d
driftfile /var/lib/chrony/chrony.drift
makestep 1 3
"""
_CHRONY_FILE = "/etc/chrony/chrony.conf"
_ENGINE = "fio-engine-libaio"


def host_packages(mft: str) -> list[Deb]:
    """Return the tools that host gates run, beyond those of the operating system's base, as in Debian 12."""
    versions = {"dmidecode": "3.4-1", "smartmontools": "7.3-1+b1", "fio": "3.33-3"}
    return [_chrony("4.3-2+deb12u3", "chrony.service", _CHRONY_FILE), *_tools(versions), _mft(mft)]


def host_packages_rhel(mft: str) -> list[Deb]:
    """Return the same tools as in the RHEL family: chrony's unit is chronyd.service, its file /etc/chrony.conf."""
    versions = dict.fromkeys(("dmidecode", "smartmontools", "fio"), RHEL_VERSION)
    tools = [_without_libaio(tool) if tool.name == "fio" else tool for tool in _tools(versions)]
    return [_chrony(RHEL_VERSION, "chronyd.service", "/etc/chrony.conf"), *tools, _libaio(), _mft(mft)]


def _without_libaio(fio: Deb) -> Deb:
    """Return fio as fio.spec of Fedora and RHEL has it: engines with libraries of their own are only recommended."""
    return replace(fio, fields={"Recommends": _ENGINE})


def _libaio() -> Deb:
    fields = {"Depends": f"fio (= {RHEL_VERSION})"}
    return Deb(_ENGINE, RHEL_VERSION, "Linux libaio engine for fio", fields, {"/usr/lib64/fio/fio-libaio.so": "\n"})


def _chrony(version: str, unit: str, config: str) -> Deb:
    text = _CHRONY_UNIT if unit == "chrony.service" else _CHRONY_UNIT.replace("Alias=chronyd.service\n", "")
    return Deb(
        "chrony",
        version,
        "Versatile implementation of the Network Time Protocol",
        {"Provides": "time-daemon", "Conflicts": "time-daemon", "Replaces": "time-daemon"}
        if unit == "chrony.service"
        else {},
        {
            "/usr/bin/chronyc": launcher("host.chrony", "chronyc"),
            "/usr/sbin/chronyd": launcher("host.chrony", "chronyd"),
            f"/usr/lib/systemd/system/{unit}": text,
            config: _CHRONY_CONF,
        },
        conffiles=(config,),
        scripts=service(unit, enabled=True),
    )


def _tools(versions: dict[str, str]) -> list[Deb]:
    programs: dict[str, tuple[str, dict[str, bytes | str]]] = {
        "dmidecode": ("SMBIOS/DMI table decoder", {"/usr/sbin/dmidecode": launcher("host.dmidecode")}),
        "smartmontools": (
            "control and monitor storage systems using S.M.A.R.T.",
            {"/usr/sbin/smartctl": launcher("host.smartctl")},
        ),
        "fio": ("flexible I/O tester", {"/usr/bin/fio": launcher("host.tools", "fio")}),
    }
    return [Deb(name, versions[name], summary, {}, files) for name, (summary, files) in programs.items()]


def _mft(version: str) -> Deb:
    tools: dict[str, bytes | str] = {
        "/usr/bin/mlxlink": launcher("host.mlxlink"),
        "/usr/bin/mlxconfig": launcher("nic.mlxconfig"),
        "/usr/bin/mlxfwreset": launcher("nic.fwreset"),
    }
    return Deb("mft", version, "NVIDIA firmware tools", {}, tools)
