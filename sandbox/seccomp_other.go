//go:build linux && !amd64

package sandbox

import "golang.org/x/net/bpf"

// deniedHere are those that only this architecture has.
var deniedHere, deniedToOwnersHere []uint32

// setIDHere are the older calls that give a file its mode: there are none.
func setIDHere() []bpf.Instruction { return nil }
