"""The parts of pulled phases as they really are: the release folder, its server, the agent's role and SSH."""

from __future__ import annotations
