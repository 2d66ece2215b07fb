"""The imaging agent: runs in the ramdisk, standard library only, and writes the image that its plan names.

The ramdisk has it as a package of its own, ``agent``: relative imports only.
"""
