"""A NetBox in memory that answers like its 4.x REST API: pages, nested objects, choices as value and label.

Shapes after the OpenAPI description of NetBox 4 (/api/schema/): lists {count, next, previous, results}, POST of one
object, PATCH of a list of objects. Pages are small whatever is asked for, so that a client which reads only the first
is caught. The link to the next page has another host, as behind a proxy that does not pass its own name on
(netbox-community/pynetbox issue 791). The filter ``site`` refuses a slug that no site has
(netbox-community/netbox issue 5129), except for cables, where it is plain text (CableFilterSet in
netbox/dcim/filtersets.py).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "0123456789abcdef0123456789abcdef01234567"
PAGE = 3
REFS = {
    "manufacturer": "dcim/manufacturers",
    "site": "dcim/sites",
    "rack": "dcim/racks",
    "role": "dcim/device-roles",
    "device_type": "dcim/device-types",
    "device": "dcim/devices",
    "primary_ip4": "ipam/ip-addresses",
    "oob_ip": "ipam/ip-addresses",
}
CHOICES = {"status", "face", "type"}
UNIQUE = {
    "dcim/sites": "slug",
    "dcim/device-types": "slug",
    "dcim/device-roles": "slug",
    "dcim/racks": "name",
    "dcim/devices": "name",
}


class Store:
    """All objects by endpoint and id, and every write as (method, endpoint, body)."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[int, dict[str, Any]]] = {}
        self.writes: list[tuple[str, str, Any]] = []
        self.gets: list[str] = []
        self.last = 0
        self.links = "http://behind.the.proxy.invalid"
        """Address that the links to next pages have."""

    def rows(self, endpoint: str, site: str | None) -> list[dict[str, Any]]:
        """Return the objects of a site. Raises KeyError for a slug that no site has."""
        slugs = {item["slug"] for item in self.objects.get("dcim/sites", {}).values()}
        if site is not None and site not in slugs and endpoint != "dcim/cables":
            raise KeyError(site)
        shown = [self.shown(item) for item in self.objects.get(endpoint, {}).values()]
        return [item for item in shown if site is None or self._site(endpoint, item) == site]

    def _site(self, endpoint: str, item: dict[str, Any]) -> str:
        if endpoint in {"dcim/racks", "dcim/devices"}:
            return str(item["site"]["slug"])
        device = item["a_terminations"][0]["object"]["device"] if endpoint == "dcim/cables" else item["device"]
        return str(self.shown(self.objects["dcim/devices"][device["id"]])["site"]["slug"])

    def brief(self, endpoint: str, number: int) -> dict[str, Any]:
        item = self.objects[endpoint][number]
        names = ("id", "name", "slug", "model", "address", "manufacturer_name")
        out = {name: item[name] for name in names if name in item} | {
            "display": str(item.get("name", item.get("model", item.get("address"))))
        }
        if endpoint == "dcim/interfaces":
            out["device"] = self.brief("dcim/devices", item["device"])
        return out

    def shown(self, item: dict[str, Any]) -> dict[str, Any]:
        out = dict(item)
        for name, value in item.items():
            if name in REFS and value is not None:
                out[name] = self.brief(REFS[name], value)
            elif name in CHOICES:
                out[name] = {"value": value, "label": str(value).title()}
            elif name.endswith("_terminations"):
                out[name] = [{**end, "object": self.brief("dcim/interfaces", end["object_id"])} for end in value]
        if "position" in out:
            out["position"] = float(out["position"])
        if "assigned_object_id" in out:
            out["assigned_object"] = self.brief("dcim/interfaces", out["assigned_object_id"])
        return out

    def create(self, endpoint: str, body: dict[str, Any]) -> dict[str, Any]:
        unique = UNIQUE.get(endpoint)
        if unique and any(item[unique] == body[unique] for item in self.objects.get(endpoint, {}).values()):
            raise ValueError(f"{endpoint} with this {unique} already exists.")
        for name, value in body.items():
            if name in REFS and value not in self.objects[REFS[name]]:
                raise ValueError(f"{name}: {value} is not there")
        self.last += 1
        item = {"id": self.last, **body}
        self.objects.setdefault(endpoint, {})[self.last] = item
        return self.shown(item)


class Handler(BaseHTTPRequestHandler):
    store: Store

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Keep quiet."""

    def _answer(self, code: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("API-Version", "4.4")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _endpoint(self) -> str | None:
        if self.headers.get("Authorization") not in {f"Token {TOKEN}", f"Bearer {TOKEN}"}:
            self._answer(403, {"detail": "Invalid token"})
            return None
        return urlsplit(self.path).path.removeprefix("/api/").strip("/")

    def do_GET(self) -> None:
        endpoint = self._endpoint()
        if endpoint is None:
            return
        self.store.gets.append(self.path)
        asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        try:
            rows = self.store.rows(endpoint, asked.get("site"))
        except KeyError as error:
            why = f"Select a valid choice. {error.args[0]} is not one of the available choices."
            self._answer(400, {"site": [why]})
            return
        rows = [item for item in rows if asked.get("slug") in {None, item.get("slug")}]
        start, size = int(asked.get("offset", 0)), min(PAGE, int(asked.get("limit", PAGE)))
        more = f"{self.store.links}/api/{endpoint}/?limit={size}&offset={start + size}" + (
            f"&site={asked['site']}" if "site" in asked else ""
        )
        after = more if start + size < len(rows) else None
        self._answer(200, {"count": len(rows), "next": after, "previous": None, "results": rows[start : start + size]})

    def _body(self) -> Any:  # noqa: ANN401 - whatever JSON holds
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def do_POST(self) -> None:
        endpoint = self._endpoint()
        if endpoint is None:
            return
        body = self._body()
        self.store.writes.append(("POST", endpoint, body))
        try:
            self._answer(201, self.store.create(endpoint, body))
        except ValueError as error:
            self._answer(400, {"detail": str(error)})

    def do_PATCH(self) -> None:
        endpoint = self._endpoint()
        if endpoint is None:
            return
        body = self._body()
        self.store.writes.append(("PATCH", endpoint, body))
        for change in body:
            self.store.objects[endpoint][change["id"]] |= change
        self._answer(200, [self.store.shown(self.store.objects[endpoint][change["id"]]) for change in body])

    def do_DELETE(self) -> None:
        self.store.writes.append(("DELETE", self.path, None))
        self._answer(405, {"detail": "nothing may be deleted"})


@contextmanager
def netbox() -> Iterator[tuple[str, Store]]:
    """Serve on a free port of this host; give its address and what it holds."""
    store = Store()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"store": store}))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
