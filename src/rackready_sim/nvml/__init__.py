"""C sources of the NVML library and of the launcher of NCCL's tests, which vendor packages contain compiled."""
