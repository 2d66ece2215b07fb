//go:build tools

// Package tools names the programs that set-up builds, so that `go mod tidy` keeps their modules in go.mod and go.sum.
package tools

import (
	_ "filippo.io/age/cmd/age-keygen"
	_ "github.com/getsops/sops/v3/cmd/sops"
)
