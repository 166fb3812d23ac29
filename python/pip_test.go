package python_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Editors see the module when it is installed from the repository, and the decorated functions run without agentfly.
func TestPipInstall(t *testing.T) {
	needPython(t)
	if testing.Short() {
		t.Skip("pip fetches setuptools; leave -short out")
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "source") // pip builds where the source lies
	require.NoError(t, os.CopyFS(filepath.Join(source, "agentfly"), os.DirFS("agentfly")))
	for _, name := range []string{"pyproject.toml", "README.md"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(source, name), text, 0o600))
	}
	venv := filepath.Join(dir, "venv")
	if out, err := exec.CommandContext(t.Context(), "python3", "-m", "venv", venv).CombinedOutput(); err != nil {
		t.Skipf("python3 makes no virtual environment: %v %s", err, out)
	}
	python := filepath.Join(venv, "bin", "python")
	out, err := exec.CommandContext(t.Context(), python, "-m", "pip", "--disable-pip-version-check", "--retries", "1", "--timeout", "10", "install", "-q", "--no-compile", source).CombinedOutput()
	if err != nil && strings.Contains(string(out), "setuptools") {
		t.Skipf("setuptools cannot be fetched: %s", out)
	}
	require.NoError(t, err, "%s", out)
	check := exec.CommandContext(t.Context(), python, "-c", `
import agentfly, os
from agentfly import agent, reward, state, tool

@tool(stateful=True)
def count(by: int = 1):
    state()["n"] = state().get("n", 0) + by
    return state()["n"]

@reward
def one(final_response):
    return 1.0

assert count() == 1 and count(by=2) == 3 and one("x") == 1.0
import sys
if sys.version_info >= (3, 8):
    from importlib.metadata import metadata
    assert metadata("agentfly-go")["License"] == "Apache-2.0"
folder = os.path.dirname(agentfly.__file__)
print(sorted(f for f in os.listdir(folder) if f != "__pycache__"))
`)
	check.Dir = dir
	out, err = check.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "['__init__.py', 'core.py', 'envs.py', 'py.typed', 'rewards.py', 'tools.py']\n", string(out))
}
