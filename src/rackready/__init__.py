"""rackready: takes a GPU rack from powered-off metal to production, and proves it.

This file imports no third party: Ansible ships the package's ``ondevice`` folder to nodes as module_utils, and any
third-party import here would break every module there.
"""

__version__ = "0.1.0"
