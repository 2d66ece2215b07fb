"""SVG elements of pictures. Text is escaped; colours come from the page's style sheet, for light and dark mode."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def number(value: float) -> str:
    """Return a coordinate: one decimal at most, no trailing zero."""
    return f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, content: str, style: str = "") -> str:
    """Return a line of text at its baseline."""
    css = f' class="{style}"' if style else ""
    return f'<text x="{number(x)}" y="{number(y)}"{css}>{escape(content)}</text>'


def box(x: float, y: float, width: float, height: float, style: str) -> str:
    """Return a rectangle."""
    return f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}" class="{style}"/>'


def line(x1: float, y1: float, x2: float, y2: float, style: str = "line") -> str:
    """Return a straight line."""
    return f'<line x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}" class="{style}"/>'


def strokes(places: Iterable[float], top: float, height: float, style: str) -> str:
    """Return vertical strokes of one height as one element."""
    path = "".join(f"M{number(x)} {number(top)}v{number(height)}" for x in places)
    return f'<path d="{path}" class="{style}"/>'


def picture(size: tuple[float, float], title: str, parts: Iterable[str]) -> str:
    """Return a complete picture with a title for screen readers."""
    width, height = number(size[0]), number(size[1])
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">'
    )
    return "\n".join([head, f"<title>{escape(title)}</title>", *parts, "</svg>"]) + "\n"


def shortened(content: str, width: float, per_letter: float = 5.6) -> str:
    """Return text cut to a width with an ellipsis (10 px letters are about 5.6 px wide)."""
    most = max(1, int(width / per_letter))
    return content if len(content) <= most else content[: most - 1] + "…"


def tail(content: str, width: float, per_letter: float = 5.6) -> str:
    """Return text cut to a width at its beginning: numbered names differ at their ends."""
    most = max(1, int(width / per_letter))
    return content if len(content) <= most else "…" + content[len(content) - most + 1 :]
