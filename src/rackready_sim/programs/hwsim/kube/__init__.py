"""kubeadm of a node, and what kubelet does until it is registered; the cluster is a real one."""
