"""NetBox through its REST API (pynetbox): read all pages, create and update objects, delete nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pynetbox
import requests
from pynetbox.core.query import Request

from rackready.design.netbox.compare import Known, NetboxStep, index
from rackready.design.netbox.items import KINDS, Key
from rackready.model.problems import RackreadyError

_log = logging.getLogger(__name__)

PAGE = 250
"""Objects per request; NetBox returns at most 1,000 unless configured otherwise (MAX_PAGE_SIZE)."""
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_SITES = "dcim.sites"
_BY_SITE = {"dcim.racks", "dcim.devices", "dcim.interfaces", "dcim.cables"}
"""Kinds with the filter ``site``. NetBox answers 400 to a slug that no site has, not an empty list
(netbox-community/netbox issue 5129; ModelMultipleChoiceFilter in netbox/dcim/filtersets.py)."""
_T = TypeVar("_T")


class NetboxError(RackreadyError):
    """NetBox did not answer, or refused."""


class Netbox:
    """One NetBox. The token is sent to it alone, and is in no message."""

    def __init__(self, url: str, token: str) -> None:
        """Raise NetboxError for an address to which the token would go unencrypted."""
        parts = urlsplit(url)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
            raise NetboxError(
                url,
                expected="an address that begins with https://",
                actual=parts.scheme or "none",
                next_step="The token would go unencrypted.",
            )
        self._url, self._token = url, token
        self._api = pynetbox.api(url, token=token)

    def read(self, site: str, kinds: Sequence[str] = KINDS) -> dict[str, list[dict[str, Any]]]:
        """Return all objects of these kinds; the site, its racks, devices, interfaces and cables of one slug only.

        A site that is not there has none of them.
        """
        sites = self._rows(_SITES, {"slug": site})
        if not sites:
            _log.info("%s: no site has the slug %s", self._url, site)
        found = {_SITES: sites} if _SITES in kinds else {}
        for kind in kinds:
            if kind in _BY_SITE:
                found[kind] = self._rows(kind, {"site": site}) if sites else []
            elif kind != _SITES:
                found[kind] = self._rows(kind, {})
        return found

    def _rows(self, kind: str, filters: Mapping[str, str]) -> list[dict[str, Any]]:
        rows = self._call(partial(self._pages, kind, filters))
        _log.info("%s: read %d objects of %s", self._url, len(rows), kind)
        return rows

    def _pages(self, kind: str, filters: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the objects of all pages, each asked for by its offset.

        Without an offset, pynetbox follows the link to the next page that the answer has, and sends it the token. That
        link may have another host or http, as behind a proxy (pynetbox/core/query.py, Request.get;
        netbox-community/pynetbox issue 791).
        """
        rows: list[dict[str, Any]] = []
        while True:
            request = Request(
                base=self._endpoint(kind).url,
                filters=dict(filters),
                token=self._token,
                http_session=self._api.http_session,
                limit=PAGE,
                offset=len(rows),
            )
            page = list(request.get())
            rows += page
            if not page or len(rows) >= request.count:
                return rows

    def write(self, steps: Sequence[NetboxStep], known: Known) -> int:
        """Create and update objects one by one, in order, and return how many.

        Objects that were written before an error stay: the next run continues from there.
        """
        ids = {(kind, key): int(item["id"]) for kind, rows in known.items() for key, item in rows.items()}
        for step in steps:
            body = _body(step, ids)
            endpoint = self._endpoint(step.item.kind)
            place = (step.item.kind, step.item.key)
            if step.create:
                made = self._call(partial(endpoint.create, **body))
                ids[place] = int(made.id)
            else:
                self._call(partial(endpoint.update, [{"id": ids[place], **body}]))
            _log.info("%s: %s", self._url, step.text)
        return len(steps)

    def known(self, site: str) -> Known:
        """Return the objects in NetBox, by kind and key."""
        return index(self.read(site))

    def _endpoint(self, kind: str) -> Any:  # noqa: ANN401 - pynetbox publishes no types
        app, _, name = kind.partition(".")
        return getattr(getattr(self._api, app), name.replace("-", "_"))

    def _call(self, work: Callable[[], _T]) -> _T:
        try:
            return work()
        except pynetbox.RequestError as error:
            raise self._error(f"{error.req.status_code} {error.error}") from error
        except (requests.RequestException, pynetbox.ContentError) as error:
            raise self._error(f"{error.__class__.__name__}: {error}") from error

    def _error(self, what: str) -> NetboxError:
        return NetboxError(
            f"NetBox {self._url}",
            expected="an answer",
            actual=what.replace(self._token, "***") if self._token else what,
            next_step="Check address, token and its permissions, then run again.",
        )


def _body(step: NetboxStep, ids: dict[tuple[str, Key], int]) -> dict[str, Any]:
    """Return the request's body: all fields of a new object, the different fields of another one."""
    item = step.item
    wanted = set(item.fields) | set(item.refs) if step.create else set(step.changes)
    body: dict[str, Any] = {name: value for name, value in item.fields.items() if name in wanted}
    body |= {name: ids[ref] for name, ref in item.refs.items() if name in wanted}
    if item.ends is not None and step.create:
        for side, end in zip("ab", item.ends, strict=True):
            body[f"{side}_terminations"] = [{"object_type": "dcim.interface", "object_id": ids["dcim.interfaces", end]}]
    return body
