"""A node of the simulated rack below a temporary root: its programs answer host gates without SSH or a container."""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import io
import json
import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from rackready.design.facts import node_facts
from rackready.design.site import load_site
from rackready.gates.base import Command, GateFacts, Output
from rackready.gates.engine.registry import gate
from rackready.model.outcome import Verdict
from rackready.ondevice import host_read, names, trusted_programs
from rackready_sim import faults
from rackready_sim.hardware import build_state
from rackready_sim.programs.hwsim import firmware, hwd, kmsg, machine, paths, rdmatree, store
from rackready_sim.programs.hwsim.dcgm import engine
from rackready_sim.programs.hwsim.dcgm import main as dcgm
from rackready_sim.programs.hwsim.host import chrony, dmidecode, mlxlink, smartctl, tools, tree
from rackready_sim.programs.hwsim.smi import main as smi
from tests.gates import laid_out

VERSION = "580.173.02"
PROGRAMS: dict[str, Callable[[list[str]], int]] = {
    "lscpu": tools.lscpu,
    "lsblk": tools.lsblk,
    "prlimit": tools.prlimit,
    "swapon": tools.swapon,
    "fio": tools.fio,
    "dmidecode": dmidecode.main,
    "smartctl": smartctl.main,
    "chronyc": chrony.chronyc,
    "mlxlink": mlxlink.main,
    "dmesg": kmsg.main,
    "nvidia-smi": lambda argv: smi.main(argv, VERSION),
    "dcgmi": lambda argv: dcgm.main(argv, "4.6.0"),
}
Patched = Any
ADDRESS, SERVER = "192.0.2.11", "192.0.2.2"
SHIPPED = "as the package ships it\n"
LOGIN = "HOME=/root\nLANG=C\nLC_ALL=C\nPATH=/usr/sbin:/usr/bin\nSHELL=/bin/bash\nUSER=root\n"
SECONDS = 60.0
"""How long every command takes."""


class Node:
    """One simulated node below ``self.root``: in ``root``, an empty folder, or where an earlier test laid it out."""

    def __init__(self, root: Path, patch: Patched, name: str = "node01") -> None:
        kept = laid_out.free(name, patch)
        self.root, self.name = kept.root if kept else root, name
        patch.setattr(paths, "ROOT", self.root)
        patch.setattr("os.geteuid", lambda: 0)
        patch.setattr(rdmatree, "ipv4", lambda netdev: "192.168.1.11" if netdev.startswith("enp") else None)
        patch.setattr(rdmatree, "mtu", lambda _netdev: 9000)
        patch.setattr(machine, "open_driver", lambda: VERSION)
        patch.setattr("time.sleep", lambda _seconds: None)
        patch.setattr(tree, "_systemctl", lambda *_words: None)
        patch.setattr(engine, "reachable", lambda: True)
        self.state = build_state(load_site("sim"), name)
        self.missing: set[str] = set()
        if kept is None:
            self._lay_out()
        self.devices = hwd.Devices()
        if kept is None:
            laid_out.keep(name, root, patch)

    def _lay_out(self) -> None:
        for nic in self.state["nics"]:
            self.put(f"/sys/class/net/{nic['netdev']}/carrier", "1")
        self.put("/etc/security/limits.d/90-rackready.conf", "root hard memlock unlimited\n")
        self.put("/run/hw/booted", "")
        self.put("/proc/uptime", "4000.12 9000.00")
        for program in ("all_reduce_perf", "nvidia-smi", "smartctl"):
            self.put(f"/usr/bin/{program}", SHIPPED.rstrip())
        self.put("/etc/hosts", f"127.0.0.1 localhost\n{ADDRESS} {self.name}")
        self.put("/etc/resolv.conf", f"nameserver {SERVER}")
        self.put("/proc/sys/kernel/random/boot_id", f"5f0c7d1e-0000-4000-8000-{self.name.removeprefix('node'):0>12}")
        self.put("/proc/cmdline", self.state["host"]["cmdline"])
        self.save()
        with store.change() as runtime:
            uuids = [gpu["uuid"] for gpu in self.state["gpus"]]
            runtime.update(
                {
                    **store.fresh(),
                    "modules": {"nvidia": {"version": VERSION}},
                    "persistence": dict.fromkeys(uuids, True),
                }
            )
            runtime["dcgm"] = {"driver": VERSION, "gpus": uuids}
            runtime["fabric"] = {"state": "Completed", "pid": 1}
        self.put("/run/nv-hostengine.pid", "1")
        kmsg.say(f"Linux version {paths.kernel()}")
        firmware.lay_out()
        tree.report(self.state)

    def put(self, path: str, text: str) -> None:
        place = paths.at(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text + "\n")

    def save(self) -> None:
        self.put("/opt/hw/state.json", json.dumps(self.state))

    def inject(self, fault: str, **params: Any) -> None:
        faults.inject(self.state, fault, **params)
        self.save()
        self.devices.step()

    def answer(self, command: Command) -> Output:
        """Do what a command asks of this node, as host_read would."""
        if command.stdin:
            wanted = json.loads(command.argv[-1])
            text, code = self.said(wanted), 0
        else:
            said = self.run(list(command.argv))
            text, code = said["stdout"], said["exit_code"]
            self.put("/proc/uptime", f"{float(paths.at('/proc/uptime').read_text().split()[0]) + SECONDS:.2f} 9000.00")
        return Output(key=command.key, node=command.node, command="here", exit_code=code, stdout=text, seconds=SECONDS)

    def said(self, wanted: Mapping[str, Any]) -> str:
        """Return what one of our scripts prints."""
        if "libraries" in wanted:
            files = {name: self.program(f"/usr/bin/{name}") for name in ("all_reduce_perf", "nvidia-smi", "smartctl")}
            return complete_document(trusted_programs, {"files": files})
        if "resolve" in wanted:
            hosts = [
                (name, line.split()[0])
                for line in paths.at("/etc/hosts").read_text().splitlines()
                for name in line.split()[1:]
            ]
            server = paths.at("/etc/resolv.conf").read_text().split()[1]
            found = {
                "hostname": self.name,
                "hosts": hosts,
                "addresses": ["127.0.0.1", ADDRESS],
                "resolved": {self.name: [ADDRESS]},
            }
            return complete_document(
                names, {**found, "servers": [{"address": server, "answer": "NXDOMAIN" if server == SERVER else None}]}
            )
        return sealed(self.document(wanted))

    def program(self, path: str) -> dict[str, str]:
        """Return a file and what its package shipped in its place, as the script has it."""
        text = paths.at(path).read_bytes()
        md5, sha256 = hashlib.md5(text, usedforsecurity=False).hexdigest(), hashlib.sha256(text).hexdigest()
        wanted = hashlib.md5(SHIPPED.encode(), usedforsecurity=False).hexdigest()
        return {
            "path": path,
            "real": path,
            "package": "nccl-tests",
            "version": "2.19.6-1",
            "md5": md5,
            "sha256": sha256,
            "wanted": wanted,
        }

    def document(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        done: dict[str, Any] = {}
        for spec in wanted["commands"]:
            each = spec.get("each")
            if each is None:
                done[spec["key"]] = self.run(spec["argv"], spec.get("keep"))
                continue
            for item in json.loads(done[each["of"]]["stdout"] or "{}").get(each["list"], []):
                value = item[each["field"]]
                done[f"{spec['key']} {value}"] = self.run([value if word == "{}" else word for word in spec["argv"]])
        files = {pattern: self.files(pattern) for pattern in wanted["files"]}
        return {"format": "rackready/host-read/v1", "commands": done, "files": files, "complete": True}

    def run(self, argv: list[str], keep: str | None = None) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "argv": argv,
            "exit_code": None,
            "stdout": "",
            "stderr": "",
            "missing": False,
            "timed_out": False,
        }
        if argv[0] in self.missing:
            return {**answer, "missing": True}
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = self.other(argv) if argv[0] not in PROGRAMS else PROGRAMS[argv[0]](argv[1:])
        lines = out.getvalue().splitlines()
        kept = [line for line in lines if keep is None or _found(keep, line)]
        return {
            **answer,
            "exit_code": code,
            "stdout": "".join(f"{line}\n" for line in kept),
            "stderr": err.getvalue(),
            "lines": len(lines),
        }

    def other(self, argv: list[str]) -> int:
        """Answer for the distribution's own programs, from the same state."""
        if argv[:2] == ["systemctl", "list-units"]:
            for name in ("ssh.service", "chrony.service"):
                print(f"{name} loaded active running {name}")  # noqa: T201 - what the program prints
            print("data.mount loaded active mounted /data")  # noqa: T201 - the same
            for name in self.state["host"]["failed_services"]:
                print(f"{name} loaded failed failed {name.removesuffix('.service')}")  # noqa: T201 - the same
            return 0
        if argv[:2] == ["sh", "-c"] and argv[2].endswith("echo complete"):
            lists = {
                "env": LOGIN,
                "sshd": "port 22\nacceptenv LANG\nacceptenv LC_*\npermituserenvironment no\n",
                "dpkg": "",
            }
            print(f"{lists[argv[2].split()[0]]}complete")  # noqa: T201 - the same
            return 0
        if argv[:2] == ["systemctl", "is-active"]:
            print("\n".join("active" for _ in argv[2:]))  # noqa: T201 - the same
            return 0
        if argv[0] == "lspci":
            print(self.lspci())  # noqa: T201 - the same
            return 0
        raise AssertionError(f"no answer for {argv}")

    def lspci(self) -> str:
        """Print bridges from configuration space, in the words of pciutils 3.9."""
        bridges = [
            folder
            for folder in sorted(paths.at("/sys/bus/pci/devices").iterdir())
            if (folder / "class").read_text().strip() == "0x060400"
        ]
        return "\n".join(_lspci(folder.name, (folder / "config").read_bytes()) for folder in bridges)

    def files(self, pattern: str) -> dict[str, str]:
        found = {}
        first = Path(re.split(r"[*\[]", pattern, maxsplit=1)[0] + "x").parent
        for place in paths.at(str(first)).rglob("*") if "*" in pattern else [paths.at(pattern)]:
            name = "/" + place.relative_to(self.root).as_posix()
            if place.is_file() and _same(name, pattern):
                found[name] = place.read_text().strip()
        return found


def sealed(document: Mapping[str, Any]) -> str:
    """Return a document as host_read prints it: with the digest of what it holds."""
    return json.dumps({**document, "digest": host_read.digest(document["commands"], document["files"])})


def complete_document(script: ModuleType, held: Mapping[str, Any]) -> str:
    """Return a document of one of our scripts with its digest."""
    document = json.loads(json.dumps(held))
    return json.dumps({**document, "format": script.FORMAT, "digest": script.digest(document), "complete": True})


def _same(name: str, pattern: str) -> bool:
    parts, wanted = name.split("/"), pattern.split("/")
    return len(parts) == len(wanted) and all(
        fnmatch.fnmatchcase(part, want) for part, want in zip(parts, wanted, strict=True)
    )


def _found(pattern: str, line: str) -> bool:
    return re.search(pattern, line) is not None


_PORTS = {4: "Root Port", 5: "Upstream Port", 6: "Downstream Port"}
_FLAGS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")


def _lspci(address: str, space: bytes) -> str:
    primary, secondary, subordinate = space[0x18:0x1B]
    port = _PORTS[struct.unpack_from("<H", space, 0x6A)[0] >> 4 & 0xF]
    control = struct.unpack_from("<H", space, 0x226)[0]
    flags = " ".join(f"{name}{'+' if control >> bit & 1 else '-'}" for bit, name in enumerate(_FLAGS))
    return (
        f"{address} PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0) (prog-if 00 [Normal decode])\n"
        f"\tControl: I/O+ Mem+ BusMaster+ SpecCycle- MemWINV- VGASnoop- ParErr- Stepping- SERR- FastB2B- DisINTx+\n"
        f"\tBus: primary={primary:02x}, secondary={secondary:02x}, subordinate={subordinate:02x}, sec-latency=0\n"
        f"\tCapabilities: [68] Express (v2) {port}, MSI 00\n"
        "\tCapabilities: [220 v1] Access Control Services\n\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ "
        "UpstreamFwd+ EgressCtrl- DirectTrans+\n"
        f"\t\tACSCtl:\t{flags}\n"
    )


def facts(*names: str) -> GateFacts:
    site = load_site("sim")
    known = {f"node{number:02d}": f"192.0.2.{10 + number}" for number in range(1, 5)}
    return GateFacts(
        nodes={name: node_facts(site, name) for name in names}, fabric=site.fabric, fleet=len(names), names=known
    )


def judged(gate_id: str, nodes: Mapping[str, Node], inputs: Mapping[str, object] | None = None) -> Verdict:
    """Plan, ask the nodes, and judge, stage by stage."""
    known = facts(*nodes)
    found = gate(gate_id, inputs)
    run = found.plan(known, list(nodes))[0]
    outputs = {}
    for command in sorted(run.commands, key=lambda item: item.stage):
        paths.ROOT = nodes[command.node].root
        outputs[command.key] = nodes[command.node].answer(command)
    return found.evaluate(known, run, outputs)
