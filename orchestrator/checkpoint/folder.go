package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentfly/agentfly/modelfile"
)

// PointTo makes link a symbolic link to name beside it, in one step.
func PointTo(link, name string) error {
	if err := os.RemoveAll(link + ".new"); err != nil {
		return err
	}
	if err := os.Symlink(name, link+".new"); err != nil {
		return err
	}
	if err := os.Rename(link+".new", link); err != nil {
		return err
	}
	return modelfile.SyncDir(filepath.Dir(link))
}

// RemoveUnfinished removes the checkpoints in a folder that were being written when their process was killed.
func RemoveUnfinished(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("orchestrator: checkpoints: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".step-") || !strings.HasSuffix(e.Name(), ".tmp") { // as modelfile.ReplaceDir names them
			continue
		}
		if err := os.RemoveAll(filepath.Join(folder, e.Name())); err != nil {
			return fmt.Errorf("orchestrator: checkpoints: %w", err)
		}
	}
	return nil
}
