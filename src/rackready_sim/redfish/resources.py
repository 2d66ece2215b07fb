"""Form of Redfish resources and collections (DSP0266): identity, type, members."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]


def collection(address: str, kind: str, members: dict[str, Document]) -> dict[str, Document]:
    """Return a collection with its members."""
    listed = [{"@odata.id": item} for item in members]
    head = {
        "@odata.id": address,
        "@odata.type": f"#{kind}Collection.{kind}Collection",
        "Name": f"{kind} Collection",
        "Members@odata.count": len(listed),
    }
    return {address: {**head, "Members": listed}, **members}


def resource(address: str, kind: str, version: str, **fields: Any) -> Document:
    """Return a resource with its type and identity."""
    ident = address.rsplit("/", 1)[-1]
    return {
        "@odata.id": address,
        "@odata.type": f"#{kind}.{version}.{kind}",
        "Id": ident,
        "Name": fields.pop("Name", ident),
        **fields,
    }


def status(state: str, health: str | None) -> Document:
    """Return a Status object."""
    return {"State": state, "Health": health}
