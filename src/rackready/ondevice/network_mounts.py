"""File systems that lie on other machines, by the type that findmnt(8) and /proc/mounts name."""

NETWORK = (
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse.daos", "fuse.glusterfs", "fuse.juicefs", "fuse.sshfs", "gfs2", "gpfs",
    "lustre", "nfs", "nfs4", "ocfs2", "panfs", "pvfs2", "smb3", "wekafs",
)  # fmt: skip
"""The registered names of their clients (file_system_type.name in the kernel), or the subtype of FUSE."""
