//go:build torch

package trainer

// nonFinite marks an error as ErrNonFinite without changing its text.
type nonFinite struct{ error }

func (e nonFinite) Unwrap() error        { return e.error }
func (e nonFinite) Is(target error) bool { return target == ErrNonFinite }
