"""Meaning of exit codes, for the command reference and `rackready help exit-codes`."""

from __future__ import annotations

EXIT_CODES = {
    0: "good: every node passed, or there was nothing to do",
    1: "some node is not good: fail, quarantined, or an error on that node",
    2: "invalid input, refused, or the controller itself could not do it",
    130: "stopped with Ctrl-C; the same command continues",
}
OTHER_MEANINGS = (
    "`plan`: 1 means that the site differs from what was applied. A command with other meanings says so in its --help."
)
