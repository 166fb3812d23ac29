//go:build !torch

package main

import "github.com/agentfly/agentfly"

// losses is empty in a binary without libtorch, which cannot train.
func losses() []agentfly.Option { return nil }
