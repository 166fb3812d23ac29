// Outside is a program of a user's, in a Go module outside agentfly's. Each kind of extension stands in a file of its own, once as a value
// and once as a factory. e2e/outside_test.go builds and runs it.
package main

import (
	"slices"

	"github.com/agentfly/agentfly"
)

func main() {
	agentfly.Main(slices.Concat(newTools, newRewards, newFormats, newAgents, newEstimators, newLosses, newEngines, newEnvironments)...)
}
