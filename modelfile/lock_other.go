//go:build !unix

package modelfile

import "context"

// lockRepo does nothing where there is no flock: two pulls of one model must not run at once there.
func lockRepo(context.Context, string) (func(), error) { return func() {}, nil }
