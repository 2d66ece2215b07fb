"""Maintainer scripts that several packages share."""

from __future__ import annotations


def service(unit: str, *, enabled: bool) -> dict[str, str]:
    """Return the scripts of a package with a unit: enabled and started, or only installed."""
    act = (
        f"systemctl enable --quiet {unit} || true; systemctl restart {unit} || true"
        if enabled
        else f"systemctl try-restart {unit} || true"
    )
    after = f"if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; {act}; fi\n"
    before = (
        f'if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl disable --now --quiet {unit} || true; fi\n'
    )
    return {
        "postinst": after,
        "prerm": before,
        "postrm": "if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi\n",
    }


def ldconfig() -> dict[str, str]:
    """Return the scripts of a package with a shared library."""
    return {"postinst": "ldconfig\n", "postrm": "ldconfig\n"}
