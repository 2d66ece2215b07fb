"""A node with the agent as it is shipped, and a controller's served folder made by hand as the contract says."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import threading
import time
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from rackready.drivers.release_report import PullReport, read_report
from rackready.drivers.release_server import ReleaseFolders, ReleaseServer

ROOT = Path(__file__).resolve().parents[3]
AGENT = ROOT / "src/rackready/ondevice/pull"
SYSTEM_PYTHON = "/usr/bin/python3"
NODE, SITE = "node01", "5f2c-ledger"
KEY = bytes(range(32))
STUB = """
import json, os, sys, time
request = json.load(sys.stdin)
plan = json.loads({plan!r})
with open(plan["log"], "a") as log:
    log.write(request["mode"] + "\\n")
time.sleep(plan.get("sleep", 0))
while "until" in plan and not os.path.exists(plan["until"]):
    time.sleep(0.02)
if plan.get("die"):
    sys.exit("it broke")
result = {{"exit_code": plan.get("exit", 0), "timed_out": False, "sealed": "", "failure": plan.get("failure")}}
with open(request["run"] + "/result.json", "w") as out:
    json.dump(result, out)
"""


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tar(files: dict[str, bytes], *links: tuple[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        for name, target in links:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return out.getvalue()


def seal(data: dict[str, Any], key: bytes = KEY, node: str = NODE) -> bytes:
    return b"n" * 12 + AESGCM(key).encrypt(b"n" * 12, json.dumps(data).encode(), b"rackready-sealed|" + node.encode())


def python_of_the_system() -> str:
    argv = [SYSTEM_PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


class World:
    """Both sides. The agent runs as a program of the system's own Python."""

    def __init__(self, tmp: Path) -> None:
        self.tmp = tmp
        self.etc, self.state, self.run_folder, self.ssh = (tmp / name for name in ("etc", "state", "run", "ssh"))
        self.release, self.reports = tmp / "release", tmp / "reports"
        for folder in (self.etc, self.ssh, self.release / "orders", self.release / "objects/sha256", self.reports):
            folder.mkdir(parents=True)
        shutil.copytree(AGENT, tmp / "agent/rackready_pull", ignore=shutil.ignore_patterns("__pycache__"))
        self.signer = Ed25519PrivateKey.generate()
        self.host_key_line = self.make_host_key("ssh_host_ed25519_key")
        self.machine = self.fingerprint(self.host_key_line)
        self.folders = ReleaseFolders(self.release, self.reports, lambda node: self.known.get(node, ""))
        self.known = {NODE: self.host_key_line}
        self.log = tmp / "played.log"
        self.server: ReleaseServer | None = None
        self.url, self.path = "", "/usr/bin:/bin"
        self.serve()
        self.install()

    def make_host_key(self, name: str) -> str:
        path = self.ssh / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)], check=True)
        return " ".join(path.with_suffix(".pub").read_text().split()[:2])

    def fingerprint(self, line: str) -> str:
        argv = ["ssh-keygen", "-l", "-f", "-"]
        return subprocess.run(argv, input=line, capture_output=True, text=True, check=True).stdout.split()[1]

    def serve(self, port: int = 0) -> None:
        self.server = ReleaseServer(("127.0.0.1", port), self.folders)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def gives_up_soon(self) -> None:
        """Let the agent try again for a moment only where no server answers."""
        fetch = self.tmp / "agent/rackready_pull/fetch.py"
        text = fetch.read_text(encoding="utf-8")
        assert "_TRIES_S, _LONGEST_PAUSE_S, _OUTAGES = 120.0" in text
        fetch.write_text(text.replace("_OUTAGES = 120.0", "_OUTAGES = 2.0"), encoding="utf-8")

    def away(self) -> int:
        """Stop the server, and return its port."""
        assert self.server is not None
        self.server.shutdown()
        self.server.server_close()
        return int(self.server.server_address[1])

    def install(self, **changed: str) -> None:
        config = {"url": self.url, "node": NODE, "site": SITE, "machine": self.machine} | changed
        (self.etc / "config.json").write_text(json.dumps(config))
        public = self.signer.public_key()
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        (self.etc / "trusted.pem").write_bytes(public.public_bytes(serialization.Encoding.PEM, form))
        (self.etc / "key").write_text(KEY.hex())

    def put(self, data: bytes) -> dict[str, Any]:
        (self.release / "objects/sha256" / sha(data)).write_bytes(data)
        return {"sha256": sha(data), "size": len(data)}

    def stub(self, **plan: Any) -> bytes:
        """Return code whose stage 2 only writes down that it ran."""
        text = STUB.format(plan=json.dumps({"log": str(self.log), **plan}))
        return tar({"src/rackready/__init__.py": b"", "src/rackready/pulled.py": text.encode()})

    def make(self, code: bytes | None = None, wheels: dict[str, bytes] | None = None, **changed: Any) -> dict[str, Any]:
        """Write a release, and return what an order says of it."""
        document = {
            "version": 1,
            "node": NODE,
            "code": self.put(self.stub() if code is None else code),
            "wheels": [{"file": name, **self.put(data)} for name, data in (wheels or {}).items()],
            "files": [],
            "variables": self.put(seal({"node": NODE, "hostvars": {}, "groups": {}})),
            "ansible_core": "2.19.0",
            "python": python_of_the_system(),
        } | changed
        blob = self.put(json.dumps(document, sort_keys=True).encode())
        return {"release": blob["sha256"], "release_size": blob["size"]}

    def order(self, sequence: int, mode: str = "apply", **changed: Any) -> dict[str, Any]:
        """Write the node's present order, and return its payload."""
        now = int(time.time())
        release = {} if "release" in changed else self.make()
        payload = {
            "version": 1,
            "site": SITE,
            "env": "t",
            "node": NODE,
            "machine": self.machine,
            "sequence": sequence,
            "issued": now,
            "expires": now + 3600,
            "mode": mode,
            "phase": "install",
            "playbook": "install.yml",
            "extra": self.put(seal({})),
            "limit_s": 60,
            **release,
        } | changed
        self.write_order(self.envelope(payload))
        return payload

    def envelope(self, payload: dict[str, Any], signer: Ed25519PrivateKey | None = None) -> dict[str, Any]:
        kind, data = "application/vnd.rackready.order+json", json.dumps(payload).encode()
        signed = f"DSSEv1 {len(kind)} {kind} {len(data)} ".encode() + data
        signature = (signer or self.signer).sign(signed)
        encoded = base64.b64encode(data).decode()
        return {
            "payloadType": kind,
            "payload": encoded,
            "signatures": [{"keyid": "", "sig": base64.b64encode(signature).decode()}],
        }

    def write_order(self, envelope: object) -> None:
        (self.release / f"orders/{NODE}.json").write_text(json.dumps(envelope))

    def argv(self, *words: str) -> list[str]:
        places = [
            *("--etc", str(self.etc), "--state", str(self.state)),
            *("--run", str(self.run_folder), "--host-keys", str(self.ssh)),
        ]
        return [SYSTEM_PYTHON, "-E", "-s", "-B", "-m", "rackready_pull", *words, *places]

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.argv(*words),
            cwd=self.tmp / "agent",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={"PATH": self.path},
        )

    def agent(self, *words: str) -> tuple[int, list[str]]:
        """Run the agent to its end; return exit code and lines."""
        child = self.start(*words)
        out, _ = child.communicate(timeout=120)
        return child.returncode, out.splitlines()

    def said(self, *words: str) -> str:
        """Return the line of a refusal: that before the last."""
        code, lines = self.agent(*words)
        assert code == 3, lines
        return lines[-2]

    def played(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []

    def report(self, name: str, key: bytes | None = None) -> PullReport:
        return read_report(self.reports / NODE / f"{name}.json", NODE, self.host_key_line, key)

    def stored(self) -> list[str]:
        return sorted(file.stem for file in self.reports.glob("*/*.json"))

    def state_of(self) -> dict[str, Any]:
        return dict(json.loads((self.state / "state.json").read_text()))
