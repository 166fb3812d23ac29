//go:build !unix

package orchestrator

import "errors"

// lockFolder cannot lock here.
func lockFolder(string) (unlock func(), err error) { return nil, errors.ErrUnsupported }
