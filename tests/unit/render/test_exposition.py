"""Metrics as text, in Prometheus' exposition format."""

from __future__ import annotations

from rackready.render.exposition import MetricFamily, exposition


def test_a_family_is_written_with_help_type_and_samples() -> None:
    family = MetricFamily("rackready_x", "What it is.")
    family.add(3, {"node": "n1", "rack": "r1"})
    family.add(0.5, {})
    assert exposition([family]) == (
        "# HELP rackready_x What it is.\n# TYPE rackready_x gauge\n"
        'rackready_x{node="n1",rack="r1"} 3\nrackready_x 0.5\n'
    )


def test_a_family_without_samples_is_left_out() -> None:
    assert exposition([MetricFamily("rackready_x", "What it is.")]) == ""


def test_what_a_label_may_not_hold_is_escaped() -> None:
    family = MetricFamily("rackready_x", 'a "word"\\\nand more')
    family.add(1, {"reason": 'a "word"\\\nand more'})
    assert exposition([family]) == (
        '# HELP rackready_x a "word"\\\\\\nand more\n# TYPE rackready_x gauge\n'
        'rackready_x{reason="a \\"word\\"\\\\\\nand more"} 1\n'
    )
