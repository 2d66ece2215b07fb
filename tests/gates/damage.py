"""Damage to an output, for tests with hypothesis: cut off, lines lost, foreign, exchanged or said twice."""

from __future__ import annotations

from hypothesis import strategies as st


@st.composite
def damages(draw: st.DrawFn) -> tuple[str, list[float], str]:
    kind = draw(st.sampled_from(["cut", "drop", "noise", "swap", "double"]))
    places = draw(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=4))
    return kind, places, draw(st.text(alphabet="\x00\ufffd{}[]:,\"'#-. xNA019\n", max_size=12))


def apply(original: str, damage: tuple[str, list[float], str]) -> str:
    kind, places, noise = damage
    if kind == "cut":
        return original[: int(places[0] * len(original))]
    lines = original.splitlines()
    for place in places:
        at = int(place * len(lines)) if lines else 0
        if kind == "drop" and lines:
            del lines[at]
        elif kind == "noise":
            lines.insert(at, noise)
        elif kind == "swap" and len(lines) > 1:
            lines[at - 1], lines[at] = lines[at], lines[at - 1]
        elif kind == "double" and lines:
            lines.insert(at, lines[at])
    return "\n".join(lines)
