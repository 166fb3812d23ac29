//go:build !unix

package orchestrator

import "errors"

// errLocked says that another process has the folder.
var errLocked = errors.New("the folder is locked")

// lockFolder cannot lock here.
func lockFolder(string) (unlock func(), err error) { return nil, errors.ErrUnsupported }
