"""C sources that vendor packages carry in compiled form: the NVML library and the launcher of NCCL's tests."""
