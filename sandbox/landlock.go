package sandbox

import (
	"context"
	"errors"
)

func openLandlock(context.Context) (*Sandbox, error) { return nil, errors.New("not built") }

func openNone() (*Sandbox, error) { return nil, errors.New("sandbox: none: not built") }
