"""Local package mirrors: copies of exactly what a version set needs, made by the tools of apt and dnf."""
