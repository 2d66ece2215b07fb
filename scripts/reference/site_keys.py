"""docs/reference/site-file.md, from the models of the site file."""

from __future__ import annotations

import re

from markdown import bounds, cell, code, slug, table, words

from rackready.model.keys import REQUIRED, Key, Section, site_sections

_HEAD = """# Site-file reference

<!-- written by `make reference`: change the models, not this page -->

Every key of `inventories/ENV/site.yml`. [Write a site file](../howto/site-file.md) explains how to begin, and the
short forms: host lists, templates and series. [site.schema.json](site.schema.json) is the same as a JSON schema for
editors. `rackready help racks.nodes.bmc` shows one key in the terminal.

- `[]` in a path is an item of a list, `NAME` a name that you choose.
- **required**: the key must be there, in the item or in its template. *none*: without the key there is no value, and
  its description explains the effect.
- "or series" in a type: the value may also be a [series](#series) or text with placeholders.
- Any key that is not listed here is refused.
"""


def page() -> str:
    """Return the page."""
    sections = site_sections()
    contents = "\n".join(f"- [{code(item.title)}](#{slug(item.title)})" for item in sections)
    return "\n".join([_HEAD, contents, "", *("\n".join(_section(item)) for item in sections)])


def _section(section: Section) -> list[str]:
    lines = [f"## {code(section.title)}", ""]
    lines += [line for paragraph in section.text.split("\n\n") for line in (words(paragraph), "")]
    if section.also:
        lines += [f"Also at: {', '.join(code(path) for path in section.also)}.", ""]
    return lines + table(
        ("key", "type", "default", "bounds", "meaning"), [_row(section.title, key) for key in section.keys]
    )


def _row(section: str, key: Key) -> tuple[str, ...]:
    kind = cell(key.kind)
    if key.inside:
        kind += " (" + ", ".join(f"[{code(title)}](#{slug(title)})" for title in key.inside) + ")"
    default = {
        REQUIRED: "**required**",
        "none": "*none*",
        "empty": "*empty*",
        "its own defaults": "*its own defaults*",
    }.get(key.default, code(key.default))
    return f'<a id="{_anchor(section, key)}"></a>{code(key.name)}', kind, default, bounds(key.bounds), words(key.text)


def _anchor(section: str, key: Key) -> str:
    """Return an anchor that no heading has; mappings of one path (handover) are told apart by their section."""
    path = f"{section}.{key.name}" if "(" in section else key.path
    return re.sub(r"[^\w-]", "", path.replace(".", "-")) + "-"
