"""Kubernetes of the simulated rack: a real control plane on this machine; kwok plays kubelets that have joined."""
