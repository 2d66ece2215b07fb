"""Metrics as text in Prometheus' exposition format, as node_exporter's textfile collector reads it.

Source: prometheus/docs, content/docs/instrumenting/exposition_formats.md. The collector refuses timestamps
(prometheus/node_exporter @a7dcc3a0, collector/textfile.go), so none are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A gauge with its samples."""

    name: str
    help: str
    samples: list[tuple[Labels, float]] = field(default_factory=list)

    def add(self, value: float, labels: Labels) -> None:
        """Add a sample."""
        self.samples.append((labels, value))


def exposition(families: Iterable[MetricFamily]) -> str:
    """Return the text of all families that have samples. Every family is a gauge: a run counts nothing up."""
    return "".join(_family(family) for family in families if family.samples)


def _family(family: MetricFamily) -> str:
    lines = [f"# HELP {family.name} {_escaped(family.help, quote=False)}", f"# TYPE {family.name} gauge"]
    lines += [f"{family.name}{_labels(labels)} {_number(value)}" for labels, value in family.samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    inside = ",".join(f'{name}="{_escaped(value, quote=True)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _escaped(text: str, *, quote: bool) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
