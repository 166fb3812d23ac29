//go:build !unix

package python

import (
	"errors"
	"syscall"

	"github.com/agentfly/agentfly/sandbox"
)

func startPlain(_, _ []string, _ string) (sandbox.Process, error) {
	return nil, errors.New("python: workers need a Unix system")
}

func writeNow(syscall.RawConn, []byte) bool { return false }
