//go:build tools

// Package tools names a package of each module, so that `go mod tidy` keeps the modules.
package tools

import (
	_ "github.com/NVIDIA/gpu-operator/api/nvidia/v1"
	_ "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)
