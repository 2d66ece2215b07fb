//go:build tools

// Package tools names the program that set-up builds, so that `go mod tidy` keeps its modules in go.mod and go.sum.
package tools

import (
	_ "github.com/versity/versitygw/cmd/versitygw"
)
