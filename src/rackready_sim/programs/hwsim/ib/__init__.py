"""InfiniBand of the simulated rack: a real ibsim, and Debian's real tools that talk to it."""
