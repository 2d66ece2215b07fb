"""The pull agent: fetches this node's signed order and release, applies it, and sends a signed report.

Standard library only, for the system's own Python. The node has it as a package of its own, ``rackready_pull``, below
/usr/local/lib/rackready/pull: relative imports only. Stage 1 is this package; stage 2 is ``rackready.pulled`` of the
release, which runs Ansible.
"""
