"""The quick checks that Slurm runs on a node: before and after a job, and from time to time.

``rules``, ``judge`` and ``program`` run on nodes: standard library, readers of ``gates.formats``, Python 3.9. The other
modules run on the machine that runs rackready.
"""
