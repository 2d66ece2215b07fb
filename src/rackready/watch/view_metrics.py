"""What the watch sees, as the metrics that its conditions read."""

from __future__ import annotations

from collections.abc import Iterator

from rackready.design.endpoints import unit_of
from rackready.design.monitoring.condition import Act
from rackready.design.monitoring.watch_conditions import FAULT
from rackready.model.site import Site
from rackready.render.exposition import MetricFamily
from rackready.watch.view import WatchView


def metrics(found: WatchView, site: Site) -> Iterator[MetricFamily]:
    """Yield the metrics that the conditions of the watch read."""
    own = {"site": site.name}
    beat = MetricFamily("rackready_watch_beat_timestamp_seconds", "Last sign of life of rackready watch.")
    if found.beat:
        beat.add(float(found.beat["at"]), own)
    storm = MetricFamily("rackready_watch_storm", "1 while faults on too many nodes keep watch from draining.")
    storm.add(1 if found.storm.get("active") else 0, own)
    posts = MetricFamily("rackready_watch_tickets_waiting", "Tickets that the webhook has not taken yet.")
    posts.add(found.unposted, own)
    watched = MetricFamily(
        "rackready_node_watched", "1 for a node in production that is watched, 0 for one that is not."
    )
    fault = MetricFamily(FAULT, "Faults that watch found and nobody closed: 1 for each.")
    faulty = {(one.node, one.condition, one.part) for one in (*found.open, *found.waiting) if one.act != Act.RECORD}
    for rack in site.racks:
        for node in rack.nodes:
            place = {"site": site.name, "rack": rack.name, "unit": str(unit_of(site, rack)), "node": node.name}
            if node.name in found.unwatched or node.name in found.nodes:
                watched.add(0 if node.name in found.unwatched else 1, place)
            for _, condition, part in sorted(item for item in faulty if item[0] == node.name):
                fault.add(1, {**place, "condition": condition, "part": part})
    yield from (beat, storm, posts, watched, fault)
