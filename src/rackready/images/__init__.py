"""Images of operating systems and the imaging ramdisk: how they are built from packages, and the store they are in."""
