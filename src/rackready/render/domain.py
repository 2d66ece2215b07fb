"""A domain's facts as libvirt's XML. The digest of the XML is in its metadata: it tells a changed domain."""

from __future__ import annotations

import hashlib

from rackready.design.virtual_domain import DomainFacts
from rackready.render.environment import render

_TEMPLATE = "provisioning/domain.xml.j2"


def domain_digest(facts: DomainFacts) -> str:
    """Return the digest of a domain's XML."""
    return hashlib.sha256(render(_TEMPLATE, d=facts, digest="").encode()).hexdigest()


def domain_xml(facts: DomainFacts) -> str:
    """Return a domain as XML, with its digest."""
    return render(_TEMPLATE, d=facts, digest=domain_digest(facts))
