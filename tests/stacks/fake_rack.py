"""A rack for tests of provisioning: BMCs with the Redfish that we use, over TLS, and hosts with sshd while powered on.

It has sockets and threads of this process, so the code under test may run in any other process. Every BMC records its
requests.
"""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import socket
import ssl
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import paramiko
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

_RESET = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"


def free_port(address: str) -> int:
    with socket.socket() as sock:
        sock.bind((address, 0))
        return int(sock.getsockname()[1])


@dataclass
class FakeNode:
    """One machine. ``asked``: its changes, such as "boot Hdd Once", "On"; power shows ``power_lag_s`` later."""

    name: str
    bmc: str
    address: str
    serial: str
    password: str
    power: str = "Off"
    power_lag_s: float = 0.0
    boot_s: float = 0.0
    faults: list[int] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    logins: int = 0
    sessions: set[str] = field(default_factory=set)
    asked_something: threading.Event = field(default_factory=threading.Event)
    has_sessions: bool = True
    in_system: bool = True
    override: tuple[str, str] = ("None", "Disabled")
    """The boot override: target and how long."""
    image: str = ""
    """URL of what is in its CD slot, of a BMC that has one (fake_media)."""
    loading: list[str] | None = None
    """What its slot was asked to hold and does not show yet, of a BMC that does so in the background."""
    secure_boot: bool = False
    secure_job: bool | None = None
    """The state to which a job of the BIOS turns it at the next start, of an iDRAC (fake_media)."""
    stuck: bool = False
    """Whether its BIOS carries out no job."""
    unlicensed: bool = False
    """Whether its BMC refuses a change of Secure Boot, of an iDRAC (fake_media)."""
    dark: bool = False
    """Without mains: its BMC answers nothing, and has forgotten its sessions."""
    identity: dict[str, str] = field(default_factory=dict)
    """Properties of its system beside the serial number, such as Dell's SKU."""
    more: Callable[[], dict[str, dict[str, Any]]] = dict
    """More documents of its BMC by address; the one at ``/redfish/v1/`` is added to its service root."""
    resets: tuple[str, ...] = ("On", "ForceOff", "GracefulShutdown", "ForceRestart")
    answers: dict[str, str] = field(default_factory=dict)
    """Output of further commands of its sshd."""
    ssh: FakeSsh | None = None
    host_key: paramiko.PKey = field(default_factory=lambda: paramiko.ECDSAKey.generate(bits=256))

    def boots(self) -> int:
        """How often it was powered on or reset."""
        return sum(item in {"On", "ForceOn", "ForceRestart", "GracefulRestart"} for item in self.asked)


class FakeSsh:
    """An sshd that knows one command. Listens from start to stop, and breaks its connections when it stops."""

    def __init__(
        self, address: str, port: int, host_key: paramiko.PKey, authorized: str, answers: dict[str, str]
    ) -> None:
        self._authorized = authorized
        self._host_key = host_key
        self.boot_id = str(uuid.uuid4())
        self._answers = answers
        self._sock = socket.create_server((address, port))
        self._transports: list[paramiko.Transport] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._sock.accept()
            except OSError:
                return
            transport = paramiko.Transport(client)
            transport.add_server_key(self._host_key)
            self._transports.append(transport)
            try:
                transport.start_server(server=_Shell(self._authorized, self.boot_id, self._answers))
            except (EOFError, paramiko.SSHException, OSError):
                transport.close()

    def stop(self) -> None:
        self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        for transport in self._transports:
            transport.close()
        self._thread.join(timeout=5)


class _Shell(paramiko.ServerInterface):
    def __init__(self, authorized: str, boot_id: str, answers: dict[str, str]) -> None:
        self._authorized = authorized
        self._answers = answers
        self._boot_id = boot_id

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        good = username == "root" and key.get_base64() == self._authorized
        return paramiko.AUTH_SUCCESSFUL if good else paramiko.AUTH_FAILED

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002 - paramiko's interface
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:  # noqa: ARG002
        return paramiko.OPEN_SUCCEEDED if kind == "session" else paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        answers = {"cat /proc/sys/kernel/random/boot_id": f"{self._boot_id}\n", **self._answers}
        text = answers.get(command.decode())

        def answer() -> None:
            channel.sendall((text or "").encode())
            channel.send_exit_status(127 if text is None else 0)
            channel.close()

        threading.Timer(0.01, answer).start()
        return True


class FakeRack:
    """BMCs on 127.77.1.k, hosts on 127.77.2.k, in a folder that holds keys, passwords and certificates."""

    def __init__(self, folder: Path, count: int, *, net: int = 77, kind: type[Redfish] | None = None) -> None:
        self.folder = folder
        self.nodes = [
            FakeNode(f"node{k:02}", f"127.{net}.1.{k}", f"127.{net}.2.{k}", f"FAKE-{k:04}", f"secret-of-{k}")
            for k in range(1, count + 1)
        ]
        self.bmc_port = free_port(self.nodes[0].bmc)
        self.ssh_port = free_port(self.nodes[0].address)
        self._lock = threading.Lock()
        self._ca = Authority()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ca.pem").write_bytes(self._ca.pem())
        self._authorized = _client_key(folder / "id_ed25519")
        self._servers: list[ThreadingHTTPServer] = []
        for node in self.nodes:
            self.serve(node, kind or Redfish)

    def node(self, name: str) -> FakeNode:
        return next(node for node in self.nodes if node.name == name)

    def stop(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()
        for node in self.nodes:
            self.set_power(node, "Off")

    def set_power(self, node: FakeNode, state: str) -> None:
        """What a hand at the machine's power button does: no request to the BMC is counted."""
        with self._lock:
            node.power = state
            if state == "Off" and node.ssh is not None:
                node.ssh.stop()
                node.ssh = None
        if state == "On" and node.boot_s > 0:
            threading.Timer(node.boot_s, self._boot, (node,)).start()
        elif state == "On":
            self._boot(node)

    def mains(self, node: FakeNode, *, on: bool) -> None:
        """Switch the mains of a node and its BMC; a machine with power again waits to be switched on."""
        node.dark = not on
        node.sessions.clear()
        if not on:
            self.set_power(node, "Off")

    def _boot(self, node: FakeNode) -> None:
        with self._lock:
            if node.power == "On" and node.ssh is None and node.boot_s >= 0:
                node.ssh = FakeSsh(node.address, self.ssh_port, node.host_key, self._authorized, node.answers)

    def site(self, **timeouts: int) -> dict[str, Any]:
        """The racks, access and campaign of a site file for this rack."""
        nodes = []
        for node in self.nodes:
            password = self.folder / f"{node.name}-bmc"
            if not password.exists():
                password.write_text(node.password)
            bmc = {
                "address": node.bmc,
                "port": self.bmc_port,
                "username": "admin",
                "password": {"file": str(password)},
                "ca": str(self.folder / "ca.pem"),
            }
            nodes.append({"name": node.name, "serial": node.serial, "address": node.address, "bmc": bmc})
        access = {"user": "root", "port": self.ssh_port, "private_key": str(self.folder / "id_ed25519")}
        return {
            "access": access,
            "racks": [{"name": "rack01", "nodes": nodes}],
            "campaign": {"provision_timeout_s": 20, **timeouts},
        }

    def reset(self, node: FakeNode, kind: str) -> None:
        node.asked.append(kind)
        node.asked_something.set()
        state = "Off" if kind in {"GracefulShutdown", "ForceOff"} else "On"
        if kind == "FullPowerCycle":
            self.mains(node, on=False)
            self.mains(node, on=True)
            return
        if kind == "ForceRestart":
            self.set_power(node, "Off")
        threading.Timer(node.power_lag_s, self.set_power, (node, state)).start()

    def serve(self, node: FakeNode, kind: type[Redfish]) -> None:
        """Serve the BMC of a machine, or another service that speaks Redfish, until the rack is stopped."""
        rack = self

        class Handler(kind):  # type: ignore[valid-type,misc]
            machine = node
            owner = rack

        server = _Server((node.bmc, self.bmc_port), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        cert = self.folder / f"{node.name}.pem"
        cert.write_bytes(self._ca.issue(node.bmc))
        context.load_cert_chain(cert)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self._servers.append(server)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away, or does not trust us, is what some tests are about."""


class Redfish(BaseHTTPRequestHandler):
    """As much of Redfish as a BMC needs for us: service root, sessions, one system, its reset and its boot override."""

    machine: FakeNode
    owner: FakeRack
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass

    def parse_request(self) -> bool:
        """Drop the connection of a service without power."""
        if self.machine.dark:
            self.close_connection = True
            return False
        return super().parse_request()

    def do_GET(self) -> None:
        if self.path.rstrip("/") == "/redfish/v1":
            self._answer(200, self._service_root())
        elif self._may():
            body = self._documents().get(self.path)
            self._answer(
                200 if body else 404, body or {"error": {"code": "Base.1.0.ResourceMissing", "message": self.path}}
            )

    def _documents(self) -> dict[str, dict[str, Any]]:
        return {
            "/redfish/v1/Systems": _systems(),
            "/redfish/v1/Systems/1": self._system(),
            "/redfish/v1/Chassis/1": self._chassis(),
        } | self.machine.more()

    def do_POST(self) -> None:
        body = self._body()
        if self.path == "/redfish/v1/SessionService/Sessions":
            self._login(body)
        elif self._may():
            self._act(body)

    def _act(self, body: dict[str, Any]) -> None:
        if self.path == _RESET:
            self.owner.reset(self.machine, body["ResetType"])
            self._answer(204, None)

    def do_PATCH(self) -> None:
        body = self._body()
        if self._may():
            boot = body["Boot"]
            self.machine.asked.append(f"boot {boot['BootSourceOverrideTarget']} {boot['BootSourceOverrideEnabled']}")
            self.machine.override = (boot["BootSourceOverrideTarget"], boot["BootSourceOverrideEnabled"])
            self._answer(204, None)

    def do_DELETE(self) -> None:
        self.machine.sessions.discard(self.headers.get("X-Auth-Token", ""))
        self._answer(204, None)

    def _may(self) -> bool:
        if self.machine.faults:
            self._answer(self.machine.faults.pop(0), {"error": {"code": "Base.1.0.GeneralError", "message": "busy"}})
            return False
        basic = "Basic " + base64.b64encode(f"admin:{self.machine.password}".encode()).decode()
        if self.headers.get("X-Auth-Token", "") in self.machine.sessions or (
            not self.machine.has_sessions and self.headers.get("Authorization") == basic
        ):
            return True
        if not self.machine.has_sessions:
            self.machine.logins += 1
        self._answer(401, {"error": {"code": "Base.1.0.InsufficientPrivilege", "message": "no"}})
        return False

    def _login(self, body: dict[str, str]) -> None:
        self.machine.logins += 1
        if (body.get("UserName"), body.get("Password")) != ("admin", self.machine.password):
            self._answer(401, {"error": {"code": "Base.1.0.ResourceAtUriUnauthorized", "message": "no"}})
            return
        token = uuid.uuid4().hex
        self.machine.sessions.add(token)
        self._answer(201, {"Id": "1"}, {"X-Auth-Token": token, "Location": "/redfish/v1/SessionService/Sessions/1"})

    def _body(self) -> dict[str, Any]:
        return dict(json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}"))

    def _answer(self, status: int, body: dict[str, Any] | None, headers: dict[str, str] | None = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for key, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
            **(headers or {}),
        }.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(data)

    def _service_root(self) -> dict[str, Any]:
        root: dict[str, Any] = {
            "@odata.id": "/redfish/v1/",
            "Id": "Root",
            "Name": "Root",
            "RedfishVersion": "1.5.0",
            "Systems": {"@odata.id": "/redfish/v1/Systems"},
            **self.machine.more().get("/redfish/v1/", {}),
        }
        if self.machine.has_sessions:
            root["Links"] = {"Sessions": {"@odata.id": "/redfish/v1/SessionService/Sessions"}}
        return root

    def _system(self) -> dict[str, Any]:
        return {
            "@odata.id": "/redfish/v1/Systems/1",
            "Id": "1",
            "Name": self.machine.name,
            "Manufacturer": "FAKE",
            "Model": "DGXH100",
            "PowerState": self.machine.power,
            **({"SerialNumber": self.machine.serial} if self.machine.in_system else {}),
            **self.machine.identity,
            "Boot": {
                "BootSourceOverrideEnabled": self.machine.override[1],
                "BootSourceOverrideTarget": self.machine.override[0],
                "BootSourceOverrideTarget@Redfish.AllowableValues": ["Pxe", "Hdd", "UefiHttp"],
            },
            "Actions": {
                "#ComputerSystem.Reset": {
                    "target": _RESET,
                    "ResetType@Redfish.AllowableValues": list(self.machine.resets),
                }
            },
            "Links": {"Chassis": [{"@odata.id": "/redfish/v1/Chassis/1"}]},
        }

    def _chassis(self) -> dict[str, Any]:
        return {
            "@odata.id": "/redfish/v1/Chassis/1",
            "Id": "1",
            "Name": "chassis",
            "ChassisType": "RackMount",
            "SerialNumber": self.machine.serial,
        }


def _systems() -> dict[str, Any]:
    members = [{"@odata.id": "/redfish/v1/Systems/1"}, {"@odata.id": "/redfish/v1/Systems/HGX_Baseboard_0"}]
    return {"@odata.id": "/redfish/v1/Systems", "Name": "Systems", "Members": members, "Members@odata.count": 2}


def _client_key(path: Path) -> str:
    key = ed25519.Ed25519PrivateKey.generate()
    data = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    path.write_bytes(data)
    path.chmod(0o600)
    return str(paramiko.Ed25519Key.from_private_key_file(str(path)).get_base64())


class Authority:
    """A certificate authority that lives as long as a test."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test CA")])
        self._cert = self._sign(self._name, self._key.public_key(), x509.BasicConstraints(ca=True, path_length=0), None)

    def pem(self) -> bytes:
        return self._cert.public_bytes(serialization.Encoding.PEM)

    def issue(self, address: str) -> bytes:
        """Return key and certificate (PEM) of a server at an address."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, address)])
        san = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        cert = self._sign(name, key.public_key(), x509.BasicConstraints(ca=False, path_length=None), san)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return private + cert.public_bytes(serialization.Encoding.PEM)

    def _sign(
        self,
        name: x509.Name,
        public: ec.EllipticCurvePublicKey,
        basic: x509.BasicConstraints,
        san: x509.SubjectAlternativeName | None,
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=5))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(basic, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if san is not None:
            builder = builder.add_extension(san, critical=False)
        return builder.sign(self._key, hashes.SHA256())
