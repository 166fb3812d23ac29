package cli

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/internal/doctor"
	"github.com/agentfly/agentfly/sandbox"
)

func (e *env) doctor(x *cli.Context) error {
	t := doctor.Torch{CUDADevices: cgo.CUDADevices()}
	if cgo.Available() {
		t.Version = cgo.TorchVersion()
	}
	missing := 0
	for _, check := range doctor.Run(x.Context, t, openSandbox, ".") {
		line := fmt.Sprintf("%-10s %-8s %s", check.Name, check.State, check.Found)
		if check.Remedy != "" {
			line += " -> " + check.Remedy
		}
		if _, err := fmt.Fprintln(e.text, line); err != nil {
			return err
		}
		if check.State == doctor.Missing {
			missing++
		}
	}
	if missing > 0 {
		return fmt.Errorf("doctor: %d thing(s) that training needs are missing", missing)
	}
	return nil
}

// openSandbox is the sandbox of a job that does not choose one.
func openSandbox(ctx context.Context) (string, error) {
	box, err := sandbox.Open(ctx, sandbox.Auto)
	if err != nil {
		return "", err
	}
	return box.Kind(), nil
}

func (e *env) printVersion(*cli.Context) error {
	torch := "none (built without the torch tag)"
	if cgo.Available() {
		torch = cgo.TorchVersion()
	}
	_, err := fmt.Fprintf(e.text, "agentfly %s\nlibtorch %s\ncuda     %d device(s)\n", e.version, torch, cgo.CUDADevices())
	return err
}
