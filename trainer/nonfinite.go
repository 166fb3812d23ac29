package trainer

import (
	"errors"

	"github.com/agentfly/agentfly/cgo"
)

// ErrNonFinite says that a reward, a logprob, the loss or the gradient of a step was NaN or infinite, so that the
// optimizer step was not taken. The text names the trajectory where one is to blame.
var ErrNonFinite = errors.New("trainer: not finite")

// IsNonFinite reports whether a step failed because a number of it was not finite.
func IsNonFinite(err error) bool {
	return errors.Is(err, ErrNonFinite) || errors.Is(err, cgo.ErrNonFinite)
}
