"""lscpu, lsblk, prlimit and swapon for the machine's own parts; other calls go to the distribution's program."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from .. import machine, paths, real, store
from . import tree

State = dict[str, Any]

_LIBAIO = "/usr/lib64/fio/fio-libaio.so"
"""Where fio of the RHEL family looks for the engine (os-linux.h, FIO_EXT_ENG_DIR, changed by fio.spec)."""


def host() -> State:
    """Return the host's part of the state."""
    found: State = store.hardware().get("host", {})
    return found


def drives() -> list[State]:
    """Return the drives that are on the bus."""
    state = store.hardware()
    return [drive for drive in state.get("host", {}).get("drives", []) if machine.present(drive, state)]


def lscpu(argv: list[str]) -> int:
    """Print the processors, as text, with --json or with --parse as util-linux 2.38 does."""
    if not host():
        return real.become("lscpu", argv)
    cpu = host()["cpu"]
    total, offline = tree.cpus(cpu), sorted(cpu["offline"])
    online = [number for number in range(total) if number not in set(offline)]
    if parsed := [word for word in argv if word.startswith(("--parse=", "-p="))]:
        return _parsable(parsed[-1].partition("=")[2], cpu, online)
    nodes = host()["numa_nodes"]
    rows: list[tuple[str, str, int]] = [
        ("Architecture:", "x86_64", 0),
        ("CPU op-mode(s):", "32-bit, 64-bit", 1),
        ("Address sizes:", "52 bits physical, 57 bits virtual", 1),
        ("Byte Order:", "Little Endian", 1),
        ("CPU(s):", str(total), 0),
        ("On-line CPU(s) list:", ranges(online), 1),
        *([("Off-line CPU(s) list:", ranges(offline), 1)] if offline else []),
        ("Vendor ID:", "GenuineIntel", 0),
        ("Model name:", cpu["model"], 1),
        ("CPU family:", "6", 2),
        ("Model:", "143", 2),
        ("Thread(s) per core:", str(cpu["threads"]), 2),
        ("Core(s) per socket:", str(cpu["cores"]), 2),
        ("Socket(s):", str(cpu["sockets"]), 2),
        ("Stepping:", "8", 2),
        ("CPU max MHz:", "3800.0000", 2),
        ("CPU min MHz:", "800.0000", 2),
        ("BogoMIPS:", "4000.00", 2),
        ("NUMA:", "", 0),
        ("NUMA node(s):", str(nodes), 1),
        *[
            (f"NUMA node{node} CPU(s):", ranges(_online(tree.near(cpu, nodes, node), online)), 1)
            for node in range(nodes)
        ],
    ]
    if "-J" in argv or "--json" in argv:
        sys.stdout.write(json.dumps({"lscpu": _nested(rows)}, indent=3) + "\n")
    else:
        sys.stdout.write("".join(f"{'  ' * depth + name:<25}{value}\n" for name, value, depth in rows))
    return 0


def _online(numbers: list[int], online: list[int]) -> list[int]:
    return sorted(set(numbers) & set(online))


def _parsable(columns: str, cpu: State, online: list[int]) -> int:
    """Print the online CPUs with --parse (util-linux 2.38, sys-utils/lscpu.c, print_cpus_parsable)."""
    if columns != "CPU,CORE,SOCKET":
        sys.stderr.write(f"lscpu: unknown column: {columns}\n")
        return 1
    sys.stdout.write(
        "# The following is the parsable format, which can be fed to other\n"
        "# programs. Each different item in every column has an unique ID\n"
        "# starting usually from zero.\n"
        "# CPU,Core,Socket\n"
    )
    for number in online:
        core, socket = tree.place(cpu, number)
        sys.stdout.write(f"{number},{core},{socket}\n")
    return 0


def _nested(rows: list[tuple[str, str, int]]) -> list[State]:
    top: list[State] = []
    stack: list[list[State]] = [top]
    for name, value, depth in rows:
        del stack[depth + 1 :]
        item: State = {"field": name, "data": value or None}
        stack[depth].append(item)
        item["children"] = []
        stack.append(item["children"])
    return [_pruned(item) for item in top]


def _pruned(item: State) -> State:
    children = [_pruned(child) for child in item["children"]]
    return {
        **{key: value for key, value in item.items() if key != "children"},
        **({"children": children} if children else {}),
    }


def ranges(numbers: list[int]) -> str:
    """Return numbers as a list such as 0-55,112-167."""
    out: list[list[int]] = []
    for number in numbers:
        if out and out[-1][1] == number - 1:
            out[-1][1] = number
        else:
            out.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in out)


def lsblk(argv: list[str]) -> int:
    """Print the drives with --json; other calls go to the distribution's program."""
    if "--json" not in argv or not host():
        return real.become("lsblk", argv)
    devices = [
        {
            "path": f"/dev/{drive['name']}n1",
            "model": drive["model"],
            "serial": drive["serial"],
            "size": drive["bytes"],
            "tran": "nvme",
            "rm": False,
        }
        for drive in drives()
    ]
    sys.stdout.write(json.dumps({"blockdevices": devices}, indent=3) + "\n")
    return 0


def prlimit(argv: list[str]) -> int:
    """Print the limit on locked memory that PAM gave this login: a container may not raise its own."""
    if "--memlock" not in argv or not host():
        return real.become("prlimit", argv)
    limit = host()["memlock"] if _configured() == "unlimited" else "8388608"
    sys.stdout.write(f"{limit} {limit}\n")
    return 0


def _configured() -> str:
    """Return the memlock limit that pam_limits sets for root: the last hard one of limits.d, else the default."""
    found = "8388608"
    for path in sorted(paths.at("/etc/security/limits.d").glob("*.conf")):
        for line in path.read_text().splitlines():
            words = line.split("#")[0].split()
            if len(words) == 4 and words[0] in {"root", "*"} and words[1] in {"hard", "-"} and words[2] == "memlock":  # noqa: PLR2004
                found = words[3]
    return found


def swapon(argv: list[str]) -> int:
    """Print the swap areas; other calls go to the distribution's program."""
    if not any(word.startswith("--show") for word in argv) or not host():
        return real.become("swapon", argv)
    sys.stdout.write("".join(f"{name}\n" for name in host()["swaps"]))
    return 0


def fio(argv: list[str]) -> int:
    """Read a drive, or write and read a folder, and print the JSON of fio 3.33."""
    options = [word.removeprefix("--").partition("=") for word in argv]
    values = {name: value for name, mark, value in options if mark}
    engine = values.get("ioengine", "psync")
    if engine == "libaio" and paths.is_rhel() and not paths.at(_LIBAIO).exists():
        return _no_engine(engine)
    place = values.get("filename") or (argv[argv.index("--filename") + 1] if "--filename" in argv else "")
    if place:
        drive = next((item for item in drives() if place == f"/dev/{item['name']}n1"), None)
        if drive is None:
            sys.stderr.write(
                f"fio: pid={os.getpid()}, err=2/file:filesetup.c:745, func=open(O_RDONLY), error=No such file or "
                "directory\n"
            )
            return 1
        rate, errno = float(drive["read_gb_s"]), int(drive.get("read_errno", 0))
        total = int(rate * 1e9) if errno else 0  # a job ends at its first error: here, after a second
        jobs = [_job(values.get("name", "read"), read=rate, total=total, error=errno)]
    else:
        rates = host().get("filesystem", {"read_gb_s": 0.4, "write_gb_s": 0.3})
        number = int(values["size"].rstrip("MG"))
        total = int(values.get("numjobs", "1")) * number * (1 << 30 if values["size"].endswith("G") else 1 << 20)
        jobs = [
            _job("write", write=rates["write_gb_s"], total=total),
            _job("read", read=rates["read_gb_s"], total=total),
        ]
    sys.stdout.write(json.dumps({"fio version": "fio-3.33", **_now(), "jobs": jobs, "disk_util": []}, indent=2) + "\n")
    return _failed(place, jobs)


def _failed(place: str, jobs: list[State]) -> int:
    """Return the number of jobs with an error, which is fio's exit code (backend.c, reap_threads).

    The message is that of io_u.c, __io_u_log_error.
    """
    bad = [job for job in jobs if job["error"]]
    for job in bad:
        words = f"{os.strerror(job['error'])}: read offset={job['read']['io_bytes']}, buflen=1048576"
        sys.stderr.write(f"fio: io_u error on file {place}: {words}\n")
    return len(bad)


def _no_engine(engine: str) -> int:
    """Refuse an engine that is a library of its own (axboe/fio: ioengines.c, load_ioengine; init.c, ioengine_load)."""
    sys.stdout.write(
        f"Engine {engine} not found; Either name is invalid, was not built, or fio-engine-{engine} package is "
        "missing.\n"
    )
    sys.stderr.write(f"fio: engine {engine} not loadable\nfio: failed to load engine\n")
    return 1


def _now() -> State:
    """Return fio's end time, as it prints it above the jobs (stat.c, __show_run_stats)."""
    now = time.time()
    return {"timestamp": int(now), "timestamp_ms": int(now * 1000), "time": time.ctime(now)}


def _job(name: str, read: float = 0.0, write: float = 0.0, total: int = 0, error: int = 0) -> State:
    """Return one job's figures; ``total`` is the bytes to move, 0 for as many as 10 s take."""

    def way(rate: float) -> State:
        seconds = (round(total / rate / 1e9, 3) if total else 10.0) if rate else 0.0
        return {"io_bytes": int(rate * 1e9 * seconds), "bw_bytes": int(rate * 1e9), "bw": int(rate * 1e9 / 1024),
            "iops": rate * 1e9 / 1048576,
                "runtime": int(seconds * 1000), "total_ios": int(rate * 1e9 * seconds / 1048576)}  # fmt: skip

    return {"jobname": name, "groupid": 0, "error": error, "read": way(read), "write": way(write)}
