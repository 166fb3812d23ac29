//go:build unix

package agentfly_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/view/viewtest"
)

// released is a folder as scripts/release.sh makes it, with a program and a fetch.py that say how they were called.
func released(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "a folder")
	launcher, err := os.ReadFile("scripts/launcher.sh")
	require.NoError(t, err)
	for name, text := range map[string]string{
		"bin/agentfly":     string(launcher),
		"libexec/agentfly": "#!/bin/sh\nfor a; do echo \"<$a>\"; done\nexit 3\n",
		"share/fetch.py": `import os, sys
here = os.path.dirname(os.path.abspath(__file__))
print("fetched", *sys.argv[1:], file=sys.stderr)
lib = os.path.join(here, "..", "cache", "libtorch-1", "torch", "lib")
os.makedirs(lib, exist_ok=True)
open(os.path.join(lib, "libtorch_cpu.so"), "w").close()
print(os.path.dirname(os.path.realpath(lib)))
`,
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o755)) //nolint:gosec // programs
	}
	return dir
}

// The launcher of a release fetches libtorch once, and hands its arguments and its status on as they are, by way of a link too.
func TestALaunchedReleaseFetchesOnce(t *testing.T) {
	needPython(t)
	if exec.Command("python3", "-m", "pip", "--version").Run() != nil {
		t.Skip("python3 has no pip: apt-get install python3-pip")
	}
	dir := released(t)
	link := filepath.Join(t.TempDir(), "agentfly")
	require.NoError(t, os.Symlink(filepath.Join(dir, "bin", "agentfly"), link))
	said := "<chat>\n<two words>\n<>\n"
	for _, want := range []string{"fetched pinned-libtorch\n" + said, said} {
		out, err := exec.Command(link, "chat", "two words", "").CombinedOutput()
		var status *exec.ExitError
		require.ErrorAs(t, err, &status)
		require.Equal(t, 3, status.ExitCode(), "%s", out)
		require.Equal(t, want, string(out))
	}
	require.FileExists(t, filepath.Join(dir, "libtorch", "torch", "lib", "libtorch_cpu.so"))

	require.NoError(t, os.Remove(filepath.Join(dir, "libtorch"))) // a cache that was deleted leaves a link to nothing: it is fetched anew
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "libtorch")))
	out, err := exec.Command(link, "chat").CombinedOutput()
	require.Error(t, err)
	require.Equal(t, "fetched pinned-libtorch\n<chat>\n", string(out))
}

// Without python3 the first use says what to install, and leaves nothing behind.
func TestALaunchedReleaseSaysWhatItNeeds(t *testing.T) {
	dir, path := released(t), t.TempDir()
	for _, name := range []string{"sh", "dirname", "readlink"} {
		at, err := exec.LookPath(name)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(at, filepath.Join(path, name)))
	}
	c := exec.Command(filepath.Join(dir, "bin", "agentfly"), "version")
	c.Env = []string{"PATH=" + path}
	out, err := c.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, "agentfly: the first use fetches libtorch with python3 and pip; install them: apt-get install python3 python3-pip ca-certificates\n", string(out))
	require.NoFileExists(t, filepath.Join(dir, "libtorch"))
}

// An exported CDPATH has cd look for a relative folder elsewhere first: bin/agentfly ran what lay beside another folder's bin.
func TestALaunchedReleaseIgnoresCDPATH(t *testing.T) {
	dir, elsewhere := released(t), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "libtorch", "torch", "lib"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "libtorch", "torch", "lib", "libtorch_cpu.so"), nil, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(elsewhere, "bin"), 0o755))
	c := exec.Command("bin/agentfly", "chat")
	c.Dir, c.Env = dir, append(os.Environ(), "CDPATH="+elsewhere)
	out, err := c.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, "<chat>\n", string(out))
}

// Every script that changes its folder first forgets CDPATH.
func TestScriptsIgnoreCDPATH(t *testing.T) {
	scripts := []string{".ci/run"}
	require.NoError(t, filepath.WalkDir("scripts", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			scripts = append(scripts, path)
		}
		return err
	}))
	shell, cd := regexp.MustCompile(`^#!/bin/(ba)?sh\n`), regexp.MustCompile(`(?m)^[^#\n]*\bcd `)
	found := 0
	for _, path := range scripts {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		first := cd.FindIndex(text)
		if !shell.Match(text) || first == nil {
			continue
		}
		found++
		require.True(t, strings.Contains(string(text[:first[0]]), "\nunset CDPATH"), "%s: cd may go to another folder", path)
	}
	require.Greater(t, found, 40)
}

// scripts/install.sh replaces what it wrote before and nothing else, and refuses a folder that it did not write.
func TestInstallKeepsWhatItDidNotWrite(t *testing.T) {
	top := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(top, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o755)) //nolint:gosec // programs
	}
	script, err := os.ReadFile("scripts/install.sh")
	require.NoError(t, err)
	write("checkout/scripts/install.sh", string(script))
	write("checkout/scripts/build_native.sh", "#!/bin/sh\necho "+top+"/native\n")
	write("native/env.sh", "AGENTFLY_LIBTORCH="+top+"/site/torch\n")
	for _, name := range []string{"checkout/bin/agentfly", "checkout/LICENSE", "checkout/README.md", "checkout/examples/new.yaml", "native/lib/libagentfly.so", "native/lib/libcgotorch.so", "site/torch/lib/libc10.so"} {
		write(name, "new\n")
	}
	install := func(to string) (said string, err error) {
		c := exec.Command(filepath.Join(top, "checkout/scripts/install.sh"))
		c.Env = append(os.Environ(), "DEST="+filepath.Join(top, to))
		out, err := c.CombinedOutput()
		return string(out), err
	}

	write("home/bin/agentfly", "a program of that name\n")
	write("home/thesis.txt", "of years\n")
	said, err := install("home")
	require.Error(t, err)
	require.Equal(t, "install: "+top+"/home is not empty and holds no earlier install (bin/agentfly and lib/libagentfly.so); set DEST to another folder\n", said)
	require.FileExists(t, filepath.Join(top, "home/thesis.txt"))
	require.NoDirExists(t, filepath.Join(top, "home/lib"))

	require.NoError(t, os.Mkdir(filepath.Join(top, "a folder"), 0o755))
	said, err = install("a folder")
	require.NoError(t, err, said)
	write("a folder/notes.txt", "mine\n")
	write("a folder/bin/agentfly", "old\n")
	write("a folder/examples/old.yaml", "old\n")
	write("a folder/libtorch/torch/lib/libold.so", "old\n")
	said, err = install("a folder")
	require.NoError(t, err, said)
	for _, name := range []string{"bin/agentfly", "lib/libagentfly.so", "lib/libcgotorch.so", "libtorch/torch/lib/libc10.so", "LICENSE", "README.md", "examples/new.yaml"} {
		text, err := os.ReadFile(filepath.Join(top, "a folder", name))
		require.NoError(t, err)
		require.Equal(t, "new\n", string(text), name)
	}
	require.NoFileExists(t, filepath.Join(top, "a folder/examples/old.yaml"))
	require.NoFileExists(t, filepath.Join(top, "a folder/libtorch/torch/lib/libold.so"))
	require.FileExists(t, filepath.Join(top, "a folder/notes.txt"))
}

// The program and the Python module have one version, and the container file installs packages that README.md lists.
func TestPackagesAgree(t *testing.T) {
	project, err := os.ReadFile("python/pyproject.toml")
	require.NoError(t, err)
	require.Contains(t, string(project), "\nversion = \""+agentfly.Version+"\"\n")
	module, err := os.ReadFile("python/agentfly/__init__.py")
	require.NoError(t, err)
	require.Contains(t, string(module), "\n__version__ = \""+agentfly.Version+"\"\n")

	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	listed := strings.Fields(regexp.MustCompile(`(?m)^apt-get install (.*)$`).FindStringSubmatch(string(readme))[1])
	container, err := os.ReadFile("Containerfile")
	require.NoError(t, err)
	installs := regexp.MustCompile(`apt-get install -y --no-install-recommends ([^&]*) &&`).FindAllStringSubmatch(string(container), -1)
	require.Len(t, installs, 2)
	for _, one := range installs {
		for _, name := range strings.Fields(one[1]) {
			require.Contains(t, listed, name, "Containerfile installs what README.md does not list")
		}
	}
	module, err = os.ReadFile("go.mod")
	require.NoError(t, err)
	goVersion := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(module))[1]
	require.Contains(t, string(container), "golang:"+goVersion+"-")
}

// What `go install` makes, the program without libtorch, has the commands that docs/install.md lists, and the others say what they lack.
func TestTheProgramWithoutLibtorch(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs the compiler; leave -short out")
	}
	program := filepath.Join(t.TempDir(), "agentfly")
	build := exec.Command("go", "build", "-o", program, "./cmd/agentfly")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	dir := t.TempDir()
	run := filepath.Join(dir, "runs", "made")
	require.NoError(t, viewtest.Run(t.Context(), run, viewtest.Size{Steps: 2, Groups: 1, Each: 2}, &viewtest.Words{}))
	job, err := os.ReadFile("examples/tiny.yaml")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(run, "job.yaml"), job, 0o600))
	has, lacks := []string{
		"version", "init " + dir + "/first --yes", "job validate examples/tiny.yaml", "job effective examples/tiny.yaml", "job schema", "job memory examples/tiny.yaml", "tools list",
		"rewards list", "env list", "env play frozenlake --solve", "agents list", "algorithms list", "engines list", "model info examples/tiny/model",
		"model import examples/tiny/model " + dir + "/m", "runs " + dir + "/runs", "status " + run, "compare " + run + " " + run, "plot " + run, "export " + run + " csv",
		"import --help", "view --help", "control --help", "inspect trajectory --run " + run, "resources --help", "doctor --help", "build --help", "completion bash",
	}, []string{
		"try examples/tiny.yaml", "train examples/tiny.yaml --output " + dir + "/r", "eval examples/frozenlake.yaml", "rollout examples/tiny.yaml",
		"chat examples/tiny/model", "serve examples/tiny/model --port 0", "gateway examples/tiny/model --listen 127.0.0.1:0 --output " + dir + "/g",
		"env demonstrate examples/frozenlake.yaml --tasks 1", "inspect score --model examples/tiny/model",
	}
	for _, args := range has {
		out, err := exec.Command(program, strings.Fields(args)...).CombinedOutput()
		require.NoError(t, err, "%s: %s", args, out)
	}
	for _, args := range lacks {
		out, err := exec.Command(program, strings.Fields(args)...).CombinedOutput()
		require.Error(t, err, args)
		require.Contains(t, string(out), "this binary was built without the torch tag; take a release archive, or run make build in a checkout", args)
	}
	page, err := os.ReadFile("docs/install.md")
	require.NoError(t, err)
	lists := regexp.MustCompile("(?s)\\slibtorch\\.\\sIt\\shas\\s(.*?)\\.\\s(`try`.*?)\\send\\swith").FindStringSubmatch(string(page))
	require.Len(t, lists, 3)
	for i, tried := range [][]string{has, lacks} {
		var named []string
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(lists[i+1], -1) {
			named = append(named, strings.TrimSuffix(m[1], " --no-torch"))
		}
		of := func(args string) func(name string) bool {
			return func(name string) bool { return strings.HasPrefix(args+" ", name+" ") }
		}
		for _, name := range named {
			require.True(t, name == "replay" || slices.ContainsFunc(tried, func(args string) bool { return of(args)(name) }), "%s is not tried; replay alone needs a run that was trained", name)
		}
		for _, args := range tried {
			require.True(t, args == "version" || slices.ContainsFunc(named, of(args)), "docs/install.md does not name %s", args)
		}
	}
}
