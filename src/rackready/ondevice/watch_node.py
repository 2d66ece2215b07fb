"""Tell what happens on this node, one JSON document a line: lines of the kernel log at once, GPUs and ports by polling.

Sent to python3 on standard input. Its argument is one JSON object: `cursor` and `since` (where the journal is read
from; neither: from now on), `follow`, `port_poll_s`, `gpu_poll_s`, `beat_s`, `devices` (RDMA devices of planned rails).

Lines: `begin`; `log` (a line of the kernel log about a device); `gpus` (values of `nvidia-smi -q -x`), `links`
(`nvidia-smi nvlink -s`) and `ports` (/sys/class/infiniband), each when it differs from the one before; `beat` (a sign
of life, with the journal's cursor); `end`. Options of journalctl: journalctl(1); fields of its JSON: systemd's
JOURNAL_EXPORT_FORMATS. It ends as soon as nobody reads its output, and leaves nothing running.

nvidia-smi has a thread of its own: one that hangs in the driver (state D) ends for no signal, and must stop neither the
beats nor the other readings. No second one is started while it lives.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any
from xml.etree import ElementTree as ET

FORMAT = "rackready/watch/v1"
WANTED = re.compile(r"NVRM|nvswitch|NVSwitch|EDAC MC\d+: \d+ UE|Memory failure: |mlx5_core .*Link ", re.ASCII)
"""Lines that may report a fault. The controller judges them; everything else stays on the node."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_RUN = "/run"
"""Only root can write there: without root, only this program's own nvidia-smi counts as an earlier one."""
_LATE_S = 30
"""Longest time of a program. Our judgement: nvidia-smi takes seconds; less than the controller's `silent_s`."""
_SMI = "nvidia-smi"
_LATE = 124
"""The code of a program that was late, as of timeout(1)."""
_ONE_LOOK_S = 5 * _LATE_S
"""Longest time of one look: two calls of nvidia-smi, each after an earlier one, and the journal."""
_LONGEST = 2000
"""Characters of a line that are sent: the driver's longest are some hundred."""
_BASE = "/sys/class/infiniband"
_COUNTED = ("sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_uncorrectable")
_OF_GPU = {
    "serial": "serial",
    "uuid": "uuid",
    "recovery": "gpu_recovery_action",
    "threshold": "ecc_errors/aggregate/sram_threshold_exceeded",
    "remap_failed": "remapped_rows/remapped_row_failure",
    "remap_pending": "remapped_rows/remapped_row_pending",
    "hot": "clocks_event_reasons/clocks_event_reason_hw_thermal_slowdown",
    "hot_old": "clocks_throttle_reasons/clocks_throttle_reason_hw_thermal_slowdown",
}
_LOCK = threading.Lock()
_LIVE: list[subprocess.Popen[bytes]] = []
"""Calls of nvidia-smi: the last one, and earlier ones that have not ended."""
Document = dict[str, Any]


def tell(document: Document) -> None:
    """Write one line. The program ends when nobody reads it."""
    text = json.dumps(document, sort_keys=True)
    with _LOCK:
        try:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
        except (OSError, ValueError):
            for child in _LIVE:
                child.kill()
            os._exit(0)


def run(*argv: str, lock: int = -1) -> tuple[int, str]:
    """Run a program; return its exit code and its output. A missing program is code 127, a late one 124.

    A late one is killed and not waited for: it may not end. ``lock``: a file whose lock it keeps until it has ended.
    """
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": _PATH, "LC_ALL": "C"},
            pass_fds=[lock] if lock >= 0 else [],
        )
    except FileNotFoundError:
        return 127, f"{argv[0]}: not installed"
    except OSError as error:
        return 126, f"{argv[0]}: {error.strerror}"
    if argv[0] == _SMI:
        _LIVE[:] = [*(one for one in _LIVE if one.poll() is None), child]
    if lock >= 0:
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(child.pid).encode(), 0)
    try:
        said, _ = child.communicate(timeout=_LATE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        return _LATE, f"{argv[0]}: no end within {_LATE_S} s"
    return child.returncode, said.decode("utf-8", "replace")


def smi(*words: str) -> tuple[int, str]:
    """Run nvidia-smi when no earlier one runs, also none of an earlier watch; as `run`."""
    path = f"{_RUN}/rackready-watch-nvidia-smi"
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        lock = -1
    try:
        end = time.monotonic() + _LATE_S
        while not alone(lock):
            if time.monotonic() >= end:
                return _LATE, f"nvidia-smi: an earlier one has not ended{ended(lock, path)}"
            time.sleep(0.2)
        return run(_SMI, *words, lock=lock)
    finally:
        if lock >= 0:
            os.close(lock)


def alone(lock: int) -> bool:
    """Return whether no nvidia-smi of a watch runs; then the lock is ours."""
    if any(one.poll() is None for one in _LIVE):
        return False
    try:
        if lock >= 0:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def ended(lock: int, path: str) -> str:
    """Kill the nvidia-smi that holds the lock, left by a watch that was killed itself. Return it in words."""
    try:
        pid = int(os.pread(lock, 20, 0))
        held = [os.readlink(f"/proc/{pid}/fd/{one}") for one in os.listdir(f"/proc/{pid}/fd")]  # noqa: PTH115, PTH208
        if path in held:
            os.kill(pid, signal.SIGKILL)
    except (OSError, ValueError):
        return ""
    return f" (process {pid})"


def read(path: str) -> str:
    """Return a small file's text, "" when it cannot be read."""
    try:
        with open(path) as file:  # noqa: PTH123 - as little as possible is imported on nodes
            return file.read().strip()
    except OSError:
        return ""


def gpus(code: int, text: str) -> Document:
    """Return the values of a report of `nvidia-smi -q -x`. ``problem``: why there are none."""
    start, end = text.find("<nvidia_smi_log"), text.find("</nvidia_smi_log>")
    said = " ".join((text[:start] if start >= 0 else text).split())[-300:] if code else ""
    if start < 0 or end < 0 or "<!ENTITY" in text:
        return {"code": code, "problem": said or "no report of nvidia-smi -q -x", "gpus": []}
    try:
        root = ET.fromstring(text[start:end] + "</nvidia_smi_log>")  # noqa: S314 - without entities
    except ET.ParseError as error:
        return {"code": code, "problem": f"the report is damaged: {error}", "gpus": []}
    return {
        "code": code,
        "said": said,
        "driver": (root.findtext("driver_version") or "").strip(),
        "gpus": [_gpu(element) for element in root.findall("gpu")],
    }


def _gpu(element: ET.Element) -> Document:
    found: Document = {name: (element.findtext(path) or "").strip() for name, path in _OF_GPU.items()}
    found["hot"] = found["hot"] or found.pop("hot_old")
    found.pop("hot_old", None)
    counts = [(element.findtext(f"ecc_errors/volatile/{name}") or "").strip() for name in _COUNTED]
    found["uncorrected"] = sum(int(count) for count in counts if count.isdigit())
    return {"pci": element.get("id", ""), **found}


def ports(devices: list[str]) -> Document:
    """Return state, rate and link failures of the ports of planned rails; null for a device that is not there."""
    found: Document = {}
    for device in devices:
        base = f"{_BASE}/{device}/ports/1"
        downed = read(f"{base}/counters/link_downed")
        found[device] = (
            {
                "state": read(f"{base}/state"),
                "rate": read(f"{base}/rate"),
                "downed": int(downed) if downed.isdigit() else 0,
            }
            if os.path.isdir(base)  # noqa: PTH112
            else None
        )
    return found


_JOURNAL = ("journalctl", "_TRANSPORT=kernel", "--output=json", "--no-pager", "--quiet")


def place(since: float | None) -> str:
    """Return the cursor of the last line now, or of the last one before a time; empty where there is none.

    Without it, a node whose kernel says nothing for days would have no place from which a later watch goes on.
    """
    until = [f"--until=@{int(since)}"] if since else []
    _code, text = run(*_JOURNAL, "--reverse", "--lines=1", *until)  # without --reverse, 252 ignores --until here
    try:
        found = json.loads(text.strip().rsplit("\n", 1)[-1])
    except ValueError:
        return ""
    return str(found.get("__CURSOR", "")) if isinstance(found, dict) else ""


def journal(wanted: Document) -> list[str]:
    """Return the call of journalctl: the kernel's lines of every boot since the cursor."""
    argv = [*_JOURNAL]
    if wanted.get("cursor"):
        argv += [f"--after-cursor={wanted['cursor']}", "--no-tail"]
    elif wanted.get("since"):
        argv += [f"--since=@{int(wanted['since'])}", "--no-tail"]
    else:
        argv += ["--lines=0"]
    return argv + (["--follow"] if wanted["follow"] else [])


class Journal:
    """Reads the journal line by line. ``cursor``: of the last line, whatever it was about."""

    def __init__(self, wanted: Document) -> None:
        """Start journalctl."""
        self.cursor = str(wanted.get("cursor") or "") or place(wanted.get("since"))
        self.child = subprocess.Popen(
            journal({**wanted, "cursor": self.cursor}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PATH": _PATH, "LC_ALL": "C"},
        )

    def follow(self) -> None:
        """Tell every line that may report a fault, to the end of the output."""
        for raw in self.child.stdout or ():
            self.line(raw)

    def line(self, raw: bytes) -> None:
        """Tell one line."""
        try:
            entry = json.loads(raw)
        except ValueError:
            return
        if not isinstance(entry, dict) or "__CURSOR" not in entry:
            return
        text = message(entry.get("MESSAGE"))
        if WANTED.search(text):
            tell(
                {
                    "log": {
                        "cursor": entry["__CURSOR"],
                        "boot": entry.get("_BOOT_ID", ""),
                        "at": int(entry.get("__REALTIME_TIMESTAMP", 0)) / 1e6,
                        "text": text[:_LONGEST],
                    }
                }
            )
        self.cursor = entry["__CURSOR"]

    def end(self) -> str:
        """End journalctl and return what it said."""
        self.child.kill()
        said = (self.child.stderr.read() if self.child.stderr else b"").decode("utf-8", "replace")
        self.child.wait()
        return " ".join(said.split())[:300]


def message(value: object) -> str:
    """Return a message of the journal: a text, or a list of bytes where it is not UTF-8."""
    if isinstance(value, list):
        return bytes(byte for byte in value if isinstance(byte, int) and 0 <= byte < 256).decode("utf-8", "replace")  # noqa: PLR2004
    return value if isinstance(value, str) else ""


class Polled:
    """Readings that are told when they differ from the one before."""

    def __init__(self, wanted: Document) -> None:
        """Know the rates."""
        self.wanted = wanted
        self.told: dict[str, Document] = {}
        self.due = 0.0

    def look(self, now: float) -> None:
        """Read the ports when they are due."""
        if now >= self.due:
            self.due = now + self.wanted["port_poll_s"]
            self.differs("ports", ports(self.wanted["devices"]))

    def follow(self) -> None:
        """Read the GPUs, again and again unless one look is wanted."""
        while True:
            begun = time.monotonic()
            try:
                self.gpus()
            except Exception as error:  # noqa: BLE001 - a thread that ended would look like GPUs without a fault
                self.differs("gpus", gpus(1, f"{type(error).__name__}: {error}"))
            if not self.wanted["follow"]:
                return
            time.sleep(max(1.0, begun + self.wanted["gpu_poll_s"] - time.monotonic()))

    def gpus(self) -> None:
        """Read the GPUs and their links. A late nvidia-smi is told as such, and not called for the links."""
        code, text = smi("-q", "-x")
        self.differs("gpus", gpus(code, text))
        if code != _LATE:
            code, text = smi("nvlink", "-s")
        if code != _LATE:
            self.differs("links", {"code": code, "text": text[:65536]})

    def differs(self, name: str, found: Document) -> None:
        """Tell a reading unless it is that of before."""
        if self.told.get(name) != found:
            self.told[name] = found
            tell({name: found, "at": time.time()})


def main(wanted: Document) -> int:
    """Tell what happens until nobody reads it or the journal ends."""
    tell(
        {
            "begin": FORMAT,
            "boot": read("/proc/sys/kernel/random/boot_id").replace("-", ""),
            "at": time.time(),
        }
    )
    log = Journal(wanted)
    reader = threading.Thread(target=log.follow, daemon=True)
    reader.start()
    polled = Polled(wanted)
    looks = threading.Thread(target=polled.follow, daemon=True)
    looks.start()
    beat = time.monotonic() + (0.0 if wanted["follow"] else wanted["beat_s"])
    end = time.monotonic() + _ONE_LOOK_S
    while True:
        polled.look(time.monotonic())
        if time.monotonic() >= beat:
            beat = time.monotonic() + wanted["beat_s"]
            tell({"beat": {"cursor": log.cursor}, "at": time.time()})
        for part in (reader,) if wanted["follow"] else (reader, looks):
            part.join(1)
        if not reader.is_alive() and (wanted["follow"] or not looks.is_alive()):
            break
        if not wanted["follow"] and time.monotonic() >= end:
            break
    alive = reader.is_alive()
    said = log.end()
    code = 0 if not (alive or wanted["follow"] or said) else 1
    tell({"beat": {"cursor": log.cursor}, "at": time.time()})
    tell({"end": said or f"journalctl ended (exit code {log.child.returncode})", "code": code})
    return code


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
