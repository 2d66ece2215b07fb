"""Make a network interface of the compute fabric lossless for RoCE: `roce.py apply|verify FILE [INTERFACE...]`.

The unit rackready-roce@INTERFACE.service runs `apply` at every boot and whenever the interface comes back after a
reset: none of these settings survives either. `verify` changes nothing and prints one JSON document with everything
that is not as wanted.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

FORMAT = "rackready/roce/v2"
Run = Callable[..., "tuple[int, str]"]
CHANGES = "/run/rackready/link-changes"
"""Folder of the records of changes that took a link down: one file per interface, read by gate links."""
UP_AGAIN_S = 60
"""Longest wait for a link after such a change; judgement: a link of 400 Gb/s may train for tens of seconds."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The NIC's tools are in sbin, which not every login has on its path."""


def run_command(*argv: str) -> tuple[int, str]:
    """Run a program; return its exit code and its output. A missing program is code 127."""
    environment = {**os.environ, "PATH": _PATH, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False, env=environment
        )
    except FileNotFoundError:
        return 127, f"{argv[0]}: not installed"
    except subprocess.TimeoutExpired:
        return 124, f"{argv[0]}: no end within 60 s"
    return done.returncode, done.stdout.decode("utf-8", "replace")


class Roce:
    """One interface. ``config``: written by role host_roce; ``root``: "/" except in tests."""

    def __init__(self, config: dict[str, Any], run: Run = run_command, root: Path = Path("/")) -> None:
        self.config = config
        self.netdev = str(config["netdev"])
        self.device = str(config["rdma_device"])
        self._run = run
        self._root = root
        self._gateway = str(config.get("gateway", ""))
        self._source = str(config["address"]).split("/", maxsplit=1)[0]
        self._ofed = self._net("ecn")
        self._inbox = root / "sys/kernel/debug/mlx5" / str(config.get("pci", "")) / "cc_params"
        # The class for all of a port's programs. Only OFED's driver has one; else each program sets its own.
        self._class_path = root / "sys/class/infiniband" / self.device / "tc/1/traffic_class"

    def apply(self) -> list[str]:
        """Set everything that no network manager sets; return the refused settings."""
        managed = self.config.get("manager", "none") != "none"
        own = [] if managed else self._address() + self._routes()
        return own + self._flow_control() + self._congestion() + self._rdma_cm()

    def _address(self) -> list[str]:
        mtu, address = str(self.config["mtu"]), str(self.config["address"])
        out = self._do("ip", "link", "set", "dev", self.netdev, "mtu", mtu, "up")
        return out + self._do("ip", "address", "replace", address, "dev", self.netdev)

    def _routes(self) -> list[str]:
        table = str(self.config.get("table", ""))
        out = [line for words in self._wanted_routes() for line in self._do("ip", "route", "replace", *words)]
        if self._gateway and self._rule_table() != table:
            out += self._do("ip", "rule", "add", "from", self._source, "lookup", table, "priority", table)
        return out

    def _wanted_routes(self) -> list[tuple[str, ...]]:
        """Return the routes of a routed fabric: a table of the rail's own, where a rule sends its source address.

        Without the rule, every rail would leave by the first one, and switches would drop or misplace it. Without the
        rail's own subnet in the table, neighbours on the same leaf would be reached through its gateway.
        """
        if not self._gateway:
            return []
        table, via = str(self.config["table"]), ("via", self._gateway, "dev", self.netdev)
        subnet = str(ip_interface(str(self.config["address"])).network)
        near = (subnet, "dev", self.netdev, "scope", "link", "table", table)
        far = [(str(prefix), *via, "metric", table) for prefix in self.config["routes"]]
        return [near, ("default", *via, "table", table), *far]

    def _absent_routes(self) -> list[str]:
        """Return the wanted routes that the kernel does not have; a network manager's may say more."""
        _, text = self._run("ip", "-4", "route", "show", "table", "all")
        lines = text.splitlines()
        return [" ".join(way) for way in self._wanted_routes() if not any(_is_route(line, way) for line in lines)]

    def _rule_table(self) -> str:
        """Return the table that the rule of this interface's source address names, empty without a rule."""
        _, text = self._run("ip", "-4", "rule", "show")
        found = re.search(rf"\bfrom {re.escape(self._source)} lookup (\S+)", text)
        return found.group(1) if found else ""

    def _flow_control(self) -> list[str]:
        now, wanted, out = self._qos(), self._wanted_pfc(), list[str]()
        if now["trust"] != "dscp" or now["pfc"] != wanted:
            flags = ",".join("1" if priority in wanted else "0" for priority in range(8))
            argv = ("mlnx_qos", "-i", self.netdev, "--trust", "dscp", "--pfc", flags)
            out = self._do(*argv) if now["pfc"] == wanted else self._flap(*argv)
            now = self._qos()
        out += self._dscp(now["dscp_priority"])
        pause = self._pause()
        if "on" in pause.values():  # ethtool fails when nothing changes
            out += self._do("ethtool", "-A", self.netdev, *[word for side in sorted(pause) for word in (side, "off")])
        return out

    def _flap(self, *argv: str) -> list[str]:
        """Run what takes the link down for a moment, wait for it, and record for the gate that it was no fault.

        Linux, mlx5/core/en_dcbnl.c, mlx5e_dcbnl_ieee_setpfc: a changed PFC toggles the port's link. The record is one
        line: the kernel log's last time before and after. /run and that log's clock both begin anew at each boot.
        """
        if self._read(self._net("carrier")) != "1":
            return self._do(*argv)
        begun, out, deadline = self._logged(), self._do(*argv), time.monotonic() + UP_AGAIN_S
        while not out:
            time.sleep(1)  # the driver reports a changed link after the program has ended
            if self._read(self._net("carrier")) == "1":
                break
            if time.monotonic() >= deadline:
                out = [f"link after `{' '.join(argv)}` - Expected: up again within {UP_AGAIN_S} s Actual: down"]
        place = self._root / CHANGES.lstrip("/") / self.netdev
        place.parent.mkdir(parents=True, exist_ok=True)
        return out + self._write(place, f"{self._read(place)}\n{begun} {self._logged()}".strip())

    def _logged(self) -> str:
        """Return the time of the kernel log's last line, in seconds since boot; 0 for an empty log."""
        times: list[str] = re.findall(r"^\[\s*(\d+\.\d+)\]", self._run("dmesg")[1], re.MULTILINE)
        return times[-1] if times else "0.0"

    def _dscp(self, now: dict[int, int]) -> list[str]:
        differ = [(dscp, priority) for dscp, priority in self._wanted_dscp().items() if now.get(dscp) != priority]
        argv = ("mlnx_qos", "-i", self.netdev, "--dscp2prio")
        return [line for dscp, priority in differ for line in self._do(*argv, f"set,{dscp},{priority}")]

    def _rdma_cm(self) -> list[str]:
        tos = str(self.config["tos"])
        out = self._do("modprobe", "rdma_cm")
        out += self._do("cma_roce_mode", "-d", self.device, "-p", "1", "-m", "2")
        out += self._do("cma_roce_tos", "-d", self.device, "-t", tos)
        return out + (self._write(self._class_path, tos) if self._class_path.exists() else [])

    def _congestion(self) -> list[str]:
        wanted = self._congestion_wanted()
        if not wanted and not self._unread():
            return [f"congestion control - Expected: {self._ofed} or {self._inbox} Actual: neither exists"]
        differ = {path: value for path, value in wanted.items() if self._read(path) != value}
        return [line for path, value in differ.items() for line in self._write(path, value)]

    def _congestion_wanted(self) -> dict[Path, str]:
        """Return file to value: OFED's are in sysfs, those of the kernel's own driver (always ECN) in debugfs."""
        priority, dscp, cnp = (str(self.config[name]) for name in ("priority", "cnp_dscp", "cnp_priority"))
        if (base := self._ofed).is_dir():
            switches = {base / side / "enable" / priority: "1" for side in ("roce_np", "roce_rp")}
            return {**switches, base / "roce_np/cnp_dscp": dscp, base / "roce_np/cnp_802p_prio": cnp}
        if self._inbox.is_dir() and not self._unread():
            return {self._inbox / "np_cnp_dscp": dscp, self._inbox / "np_cnp_prio": cnp}
        return {}

    def _unread(self) -> str:
        """Return why nobody can read or write what a CNP carries; empty where somebody can.

        A kernel in lockdown, as with Secure Boot, refuses debugfs files that are not read-only for all, also to root
        (Linux fs/debugfs/file.c, debugfs_locked_down); these are 0600 (drivers/infiniband/hw/mlx5/cong.c).
        """
        mode = re.search(r"\[(integrity|confidentiality)\]", self._read(self._root / "sys/kernel/security/lockdown"))
        inbox = self._inbox.is_dir() and not self._ofed.is_dir()
        if mode is None or not inbox or self._read(self._inbox / "np_cnp_dscp"):
            return ""
        cause = f"kernel lockdown ({mode.group(1)}) refuses debugfs; use software.nic_stack: doca"
        return f"DSCP and priority of CNPs: {cause} (docs/howto/nic-stack.md)"

    def problems(self, state: dict[str, Any] | None = None) -> list[dict[str, str]]:
        """Return what is not as wanted: what, expected, actual. ``state``: a fresh result of ``state()``, if any."""
        state = self.state() if state is None else state
        wanted = {
            "trust": ("dscp", str(state["trust"])),
            "PFC priorities": (_numbers(self._wanted_pfc()), _numbers(state["pfc"])),
            "RoCE version of rdma_cm": ("v2", str(state["cm_mode"])),
            "ToS of rdma_cm": (str(self.config["tos"]), str(state["cm_tos"])),
            "global pause": ("off", "on" if state["pause"] else "off"),
        }
        if self._class_path.exists():
            wanted["ToS of verbs"] = (str(self.config["tos"]), str(state["traffic_class"]))
        for dscp, priority in self._wanted_dscp().items():
            wanted[f"priority of DSCP {dscp}"] = (str(priority), str(state["dscp_priority"].get(str(dscp), "none")))
        wanted |= {str(path): (value, self._read(path)) for path, value in self._congestion_wanted().items()}
        if not self._congestion_wanted() and not state["unread"]:
            wanted["congestion control"] = (f"{self._ofed} or {self._inbox}", "neither")
        items = [{"what": what, "expected": pair[0], "actual": pair[1]} for what, pair in wanted.items()]
        found = [item for item in items if item["expected"] != item["actual"]]
        return self.address_problems(state["addresses"]) + found

    def address_problems(self, have: list[str] | None = None) -> list[dict[str, str]]:
        """Return what is not as wanted of MTU, address, routes and rule. ``have``: the addresses, if they are read."""
        mtu, have, out = self._read(self._net("mtu")), self._addresses() if have is None else have, []
        if mtu != str(self.config["mtu"]):
            out.append(("MTU", str(self.config["mtu"]), mtu or "none"))
        if self.config["address"] not in have:
            out.append(("address", str(self.config["address"]), ", ".join(have) or "none"))
        if self._gateway:
            out += [(f"route {words}", "present", "absent") for words in self._absent_routes()]
            table, found = str(self.config["table"]), self._rule_table()
            out += [(f"rule for source {self._source}", table, found or "none")] if found != table else []
        return [{"what": what, "expected": expected, "actual": actual} for what, expected, actual in out]

    def state(self) -> dict[str, Any]:
        """Return the interface's state, for people and for the comparison with its switch port."""
        qos = self._qos()
        mode = self._run("cma_roce_mode", "-d", self.device, "-p", "1")[1].lower()
        _, tos = self._run("cma_roce_tos", "-d", self.device)
        return {
            "netdev": self.netdev,
            "mtu": int(self._read(self._net("mtu")) or 0),
            "carrier": self._read(self._net("carrier")) == "1",
            "addresses": self._addresses(),
            "trust": qos["trust"],
            "pfc": qos["pfc"],
            "dscp_priority": {str(dscp): priority for dscp, priority in qos["dscp_priority"].items()},
            "pause": "on" in self._pause().values(),
            "cm_mode": "v2" if "v2" in mode else "v1" if "v1" in mode else "unknown",
            "cm_tos": _number(tos),
            "traffic_class": _number(self._read(self._class_path)) if self._class_path.exists() else None,
            "ecn": self._ecn(),
            "unread": self._unread(),
            **self._link(),
            **self._gids(),
        }

    def _ecn(self) -> bool | None:
        """Return whether the NIC answers marks and slows down for them (always with the kernel's own driver)."""
        if self._ofed.is_dir():
            sides = (self._ofed / side / "enable" / str(self.config["priority"]) for side in ("roce_np", "roce_rp"))
            return all(self._read(side) == "1" for side in sides)
        return True if self._read(self._inbox / "np_cnp_dscp") else None

    def _link(self) -> dict[str, Any]:
        """Return rate in Gb/s and FEC in use (ethtool.c, do_gfec: `Active FEC encoding: RS`); None without a link."""
        _, speed = self._run("ethtool", self.netdev)
        _, fec = self._run("ethtool", "--show-fec", self.netdev)
        rate = re.search(r"^\s*Speed:\s*(\d+)Mb/s", speed, re.MULTILINE)
        active = re.search(r"^Active FEC encodings?:\s*(\w+)\s*$", fec, re.MULTILINE)
        words = {"RS": "rs", "BaseR": "fc", "Off": "off"}
        return {
            "rate_gbps": int(rate.group(1)) // 1000 if rate else None,
            "fec": words.get(active.group(1)) if active else None,
        }

    def _gids(self) -> dict[str, Any]:
        """Return the types of the address's GIDs, and the index of its RoCE v2 GID (None without one).

        Linux, Documentation/ABI/stable/sysfs-class-infiniband: gids/N, gid_attrs/types/N; an IPv4 address is mapped
        into IPv6.
        """
        port = self._root / "sys/class/infiniband" / self.device / "ports/1"
        octets = [int(part) for part in str(self.config["address"]).partition("/")[0].split(".")]
        wanted = "0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}".format(*octets)
        found = {}
        for place in sorted((port / "gids").glob("*"), key=lambda path: int(path.name)):
            if self._read(place) == wanted:
                found[int(place.name)] = self._read(port / "gid_attrs/types" / place.name)
        v2 = [index for index, kind in found.items() if kind == "RoCE v2"]
        return {"gid_types": sorted(set(found.values())), "gid_index": v2[0] if v2 else None}

    def _qos(self) -> dict[str, Any]:
        code, text = self._run("mlnx_qos", "-i", self.netdev)
        return parse_qos(text) if code == 0 else {"trust": "unknown", "pfc": [], "dscp_priority": {}}

    def _pause(self) -> dict[str, str]:
        """Return rx and tx to on or off; empty when the driver does not report them."""
        _, text = self._run("ethtool", "-a", self.netdev)
        return {side.lower(): value for side, value in re.findall(r"^(RX|TX):\s+(on|off)", text, re.MULTILINE)}

    def _addresses(self) -> list[str]:
        _, text = self._run("ip", "-o", "-4", "address", "show", "dev", self.netdev)
        return re.findall(r"\binet (\S+)", text)

    def _wanted_pfc(self) -> list[int]:
        return [int(self.config["priority"])]

    def _wanted_dscp(self) -> dict[int, int]:
        pairs = (("dscp", "priority"), ("cnp_dscp", "cnp_priority"))
        return {int(self.config[dscp]): int(self.config[priority]) for dscp, priority in pairs}

    def _net(self, name: str) -> Path:
        return self._root / "sys/class/net" / self.netdev / name

    def _do(self, *argv: str) -> list[str]:
        code, text = self._run(*argv)
        failed = f"`{' '.join(argv)}` - Expected: success Actual: exit {code}, {' '.join(text.split())[:200]}"
        return [failed] if code else []

    def _read(self, path: Path) -> str:
        try:
            return path.read_text(encoding="ascii").strip()
        except OSError:
            return ""

    def _write(self, path: Path, value: str) -> list[str]:
        try:
            path.write_text(f"{value}\n", encoding="ascii")
        except OSError as error:
            return [f"{path} - Expected: {value} written Actual: {error.strerror}"]
        return []

    def wait(self, seconds: float, pause: Callable[[float], None] = time.sleep) -> list[str]:
        """Wait until interface and RDMA device exist; return what is still missing after so many seconds.

        Both must be of one PCI function, the declared one: at a boot, another card may have one of the names for a
        moment, or keep it, and settings must not go there.
        """
        deadline = time.monotonic() + seconds
        device, pci = self._class_path.parents[2], str(self.config["pci"])
        card = self._root / "sys/bus/pci/devices" / pci if pci else device / "device"
        wanted = [(self._net("mtu"), card / "net" / self.netdev), (device, card / "infiniband" / self.device)]
        while True:
            missing = [[path for path in paths if not path.exists()] for paths in wanted]
            absent = [paths[0] for paths in missing if paths]
            if not absent or time.monotonic() >= deadline:
                return [f"{path} - Expected: there within {seconds:.0f} s Actual: absent" for path in absent]
            pause(0.5)


def parse_qos(text: str) -> dict[str, Any]:
    """Return trust, lossless priorities and DSCP to priority from the output of `mlnx_qos -i INTERFACE`."""
    trust = re.search(r"^Priority trust state:\s*(\S+)", text, re.MULTILINE)
    enabled = re.search(r"^\s+enabled\s+((?:[01]\s+){7}[01])", text, re.MULTILINE)
    flags = enabled.group(1).split() if enabled else []
    mapping = {}
    for priority, codes in re.findall(r"^\s*prio:(\d) dscp:([\d,]+)", text, re.MULTILINE):
        mapping.update({int(code): int(priority) for code in codes.split(",") if code})
    return {
        "trust": trust.group(1) if trust else "unknown",
        "pfc": [at for at, flag in enumerate(flags) if flag == "1"],
        "dscp_priority": mapping,
    }


def _is_route(line: str, words: tuple[str, ...]) -> bool:
    """Return whether a line of `ip route show table all` is a route; without a table it is in main."""
    pairs = [" ".join(words[at : at + 2]) for at in range(1, len(words), 2)]
    same = line.startswith(f"{words[0]} ") and (" table " in line) == ("table" in words)
    return same and all(f" {pair} " in f"{line} " for pair in pairs)


def _numbers(values: list[int]) -> str:
    return ",".join(str(value) for value in values) or "none"


def _number(text: str) -> int:
    found = re.search(r"(\d+)\s*$", text)
    return int(found.group(1)) if found else 0


def verified(config: dict[str, Any], run: Run = run_command, root: Path = Path("/")) -> dict[str, Any]:
    """Return the state of one interface and everything about it that is not as wanted."""
    roce = Roce(config, run, root)
    if absent := roce.wait(0):
        problem = {"what": "device", "expected": "the interface and its RDMA device", "actual": "; ".join(absent)}
        return {"netdev": roce.netdev, "problems": [problem], "state": {}}
    state = roce.state()  # once: each reading starts several programs
    return {"netdev": roce.netdev, "problems": roce.problems(state), "state": state}


def applied(config: dict[str, Any]) -> list[str]:
    """Apply the configuration of one interface; return the refused settings."""
    roce = Roce(config)
    return [f"{roce.netdev}: {line}" for line in roce.wait(float(config.get("wait_s", 60))) or roce.apply()]


def main(argv: list[str]) -> int:
    """Apply or verify a file's interfaces (those named, or all); the exit code is 0 when everything is as wanted."""
    configs = json.loads(Path(argv[2]).read_text(encoding="utf-8"))
    chosen = [configs[name] for name in argv[3:] or sorted(configs)]
    if argv[1] == "apply":
        refused = [line for config in chosen for line in applied(config)]
        sys.stderr.writelines(f"{line}\n" for line in refused)
        return 1 if refused else 0
    with ThreadPoolExecutor(max_workers=8) as pool:
        found = list(pool.map(verified, chosen))
    unread = [f"{item['netdev']}: {item['state']['unread']}" for item in found if item["state"].get("unread")]
    sys.stdout.write(json.dumps({"format": FORMAT, "interfaces": found, "unmeasured": unread, "complete": True}) + "\n")
    return 1 if any(item["problems"] for item in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
