package pyenv_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/environmenttest"
	pyenv "github.com/agentfly/agentfly/environments/python"
	"github.com/agentfly/agentfly/resources"
)

// testImage holds no program: the tests lend it this machine's /usr.
const testImage = "localhost/agentfly-test:empty"

// importImage makes testImage once, and says why containers cannot be tested here.
var importImage = sync.OnceValue(func() error {
	if _, err := exec.LookPath("podman"); err != nil {
		return fmt.Errorf("podman is not on PATH; install it: apt-get install podman")
	}
	if _, err := podman("image", "exists", testImage); err == nil {
		return runsHere()
	}
	var image bytes.Buffer
	w := tar.NewWriter(&image)
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "usr", Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: "tmp", Mode: 0o1777},
		{Typeflag: tar.TypeDir, Name: "etc", Mode: 0o755},
		{Typeflag: tar.TypeSymlink, Name: "bin", Linkname: "usr/bin"},
		{Typeflag: tar.TypeSymlink, Name: "lib", Linkname: "usr/lib"},
		{Typeflag: tar.TypeSymlink, Name: "lib64", Linkname: "usr/lib64"},
	} {
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	c := exec.Command("podman", "import", "-", testImage)
	c.Stdin = &image
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("podman imports no image here: %s", out)
	}
	return runsHere()
})

func runsHere() error {
	if out, err := podman("run", "--rm", "--network=none", "--volume=/usr:/usr:ro", testImage, "python3", "-c", "print(1)"); err != nil {
		return fmt.Errorf("podman runs no container here: %s", out)
	}
	return nil
}

func podman(args ...string) (string, error) {
	out, err := exec.Command("podman", args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// testFolder is testImage for apptainer, beside the tests' other files: its path names this test's processes.
var testFolder = sync.OnceValues(func() (string, error) {
	if _, err := exec.LookPath("apptainer"); err != nil {
		return "", fmt.Errorf("apptainer is not on PATH; see apptainer.org/docs/admin")
	}
	folder, err := os.MkdirTemp("", "agentfly-image-")
	for _, name := range []string{"usr", "tmp", "etc", "proc", "sys", "dev", "root", "home", "var/tmp"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(folder, name), 0o755))
	}
	for _, name := range []string{"bin", "lib", "lib64"} {
		err = errors.Join(err, os.Symlink("usr/"+name, filepath.Join(folder, name)))
	}
	if err != nil {
		return "", err
	}
	if out, err := exec.Command("apptainer", "exec", "--userns", "--containall", "--bind=/usr:/usr:ro", folder, "python3", "-c", "print(1)").CombinedOutput(); err != nil {
		return "", fmt.Errorf("apptainer runs no container here: %s", out)
	}
	return folder, nil
})

// inContainers runs a test with each engine that runs here.
func inContainers(t *testing.T, test func(t *testing.T, in func(class string, more map[string]any) map[string]any, running func() string)) {
	params := func(container map[string]any) func(string, map[string]any) map[string]any {
		return func(class string, more map[string]any) map[string]any {
			params := map[string]any{"class": worlds + ":" + class, "container": container}
			for k, v := range more {
				params[k] = v
			}
			return params
		}
	}
	t.Run("podman", func(t *testing.T) {
		if err := importImage(); err != nil {
			t.Skip(err)
		}
		test(t, params(podmans()), func() string {
			out, err := podman("ps", "--all", "--quiet", "--filter", "label=agentfly.lock")
			require.NoError(t, err)
			return out
		})
	})
	of := func(t *testing.T, image string) {
		mounted := func() string {
			out, _ := exec.Command("pgrep", "-f", "squashfuse.*/session/rootfs").Output() // it fails where there are none
			return string(out)
		}
		before := mounted()
		t.Cleanup(func() { // after the test's environments are closed
			require.Eventually(t, func() bool { return mounted() == before }, 10*time.Second, 100*time.Millisecond, "the file system of an image is left")
		})
		test(t, params(apptainers(image)), func() (found string) {
			all, err := filepath.Glob("/proc/[0-9]*/environ")
			require.NoError(t, err)
			for _, one := range all {
				variables, err := os.ReadFile(one)
				if err == nil && bytes.Contains(variables, []byte("APPTAINER_CONTAINER="+image)) {
					found += strings.Split(one, "/")[2] + " "
				}
			}
			return found
		})
	}
	t.Run("apptainer", func(t *testing.T) {
		folder, err := testFolder()
		if err != nil {
			t.Skip(err)
		}
		of(t, folder)
	})
	t.Run("sif", func(t *testing.T) {
		folder, err := testFolder()
		if err != nil {
			t.Skip(err)
		}
		image := filepath.Join(folder, "image.sif")
		if _, err := os.Stat(image); err != nil {
			if out, err := exec.Command("apptainer", "build", "--userns", image, folder).CombinedOutput(); err != nil {
				t.Skipf("apptainer makes no image here: %s", out)
			}
		}
		if out, err := exec.Command("apptainer", "exec", "--userns", "--containall", "--bind=/usr:/usr:ro", image, "true").CombinedOutput(); err != nil {
			t.Skipf("apptainer mounts no image here: %s", out)
		}
		of(t, image)
	})
}

func podmans() map[string]any {
	return map[string]any{"image": testImage, "engine": "podman", "options": []string{"--volume=/usr:/usr:ro"}}
}

func apptainers(folder string) map[string]any {
	return map[string]any{"image": folder, "options": []string{"--bind=/usr:/usr:ro"}}
}

// An environment in a container keeps what environments promise, and nothing of its containers is left.
func TestConformanceInAContainer(t *testing.T) {
	inContainers(t, func(t *testing.T, in func(string, map[string]any) map[string]any, running func() string) {
		environmenttest.Run(t, environmenttest.Case{
			Tasks: 4, Random: 4, Kill: kill,
			Source: func(t testing.TB) environments.Source {
				s, err := pyenv.Kind().New(t.Context(), resources.New(resources.Options{}), in("Words", map[string]any{"deterministic": true, "success": 1}))
				require.NoError(t, err)
				return s
			},
		})
		require.Empty(t, running())
	})
}

// A worker in a container sees neither the files nor the processes nor the network of this machine.
func TestAContainerSeesNothingAround(t *testing.T) {
	inContainers(t, func(t *testing.T, in func(string, map[string]any) map[string]any, running func() string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		here, err := filepath.Abs(worlds)
		require.NoError(t, err)
		look := fmt.Sprintf("%s %d", here, l.Addr().(*net.TCPAddr).Port)
		for _, c := range []struct {
			params map[string]any
			want   string
		}{
			{map[string]any{"class": worlds + ":Around"}, "True"},
			{in("Around", nil), `False [12] ConnectionRefusedError`}, // apptainer has a process beside the worker
		} {
			e := environment(t, source(t, c.params))
			_, err = e.Reset(t.Context(), environments.Start{})
			require.NoError(t, err)
			r, err := e.Step(t.Context(), environments.Action{Text: look})
			require.NoError(t, err)
			require.Regexp(t, "^"+c.want, r.Observation[0].Text)
		}
	})
}

// A step that keeps the interpreter's lock ends at its deadline, and its container with it.
func TestAHungContainerIsRemoved(t *testing.T) {
	inContainers(t, func(t *testing.T, in func(string, map[string]any) map[string]any, running func() string) {
		s := source(t, in("Native", nil))
		e := environment(t, s)
		_, err := e.Reset(t.Context(), environments.Start{})
		require.NoError(t, err)
		require.NotEmpty(t, running())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = e.Step(ctx, environments.Action{Text: "go"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, e.Close())
		require.Empty(t, running())
	})
}

// heldImage is the folder that holdContainer's container of apptainer has; empty: it is one of podman.
const heldImage = "AGENTFLY_TEST_IMAGE"

// holdContainer begins a step that hangs in a container, and waits until it is killed.
func holdContainer() {
	ctx := context.Background()
	container := podmans()
	if folder := os.Getenv(heldImage); folder != "" {
		container = apptainers(folder)
	}
	s, err := pyenv.Kind().New(ctx, resources.New(resources.Options{}), map[string]any{"class": worlds + ":Native", "container": container})
	if err == nil {
		var e environments.Environment
		if e, err = s.New(ctx, "test"); err == nil {
			if _, err = e.Reset(ctx, environments.Start{}); err == nil {
				go func() {
					time.Sleep(time.Second)
					fmt.Println("held")
				}()
				_, err = e.Step(ctx, environments.Action{Text: "go"})
			}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// The container of a run that was killed goes with the next start; that of a run that goes on stays.
func TestTheNextStartCollectsContainers(t *testing.T) {
	inContainers(t, func(t *testing.T, in func(string, map[string]any) map[string]any, running func() string) {
		class, err := filepath.Abs(worlds)
		require.NoError(t, err)
		own := filepath.Dir(filepath.Dir(class))
		words := map[string]any{"class": class + ":Words"}
		here := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(here, "tmp"), 0o755))
		t.Chdir(here)
		t.Setenv("TMPDIR", "tmp") // which is another one elsewhere
		other := environment(t, source(t, in("Words", words)))
		t.Chdir(t.TempDir())
		_, err = other.Reset(t.Context(), environments.Start{})
		require.NoError(t, err)
		living := running()

		c := exec.Command(os.Args[0])
		c.Dir = own
		c.Env = append(os.Environ(), orphans+"=container", "TMPDIR="+t.TempDir())
		if image := in("", nil)["container"].(map[string]any)["image"].(string); image != testImage {
			c.Env = append(c.Env, heldImage+"="+image)
		}
		c.Stderr = os.Stderr
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "held\n", line)
		require.NotEqual(t, living, running())
		require.NoError(t, c.Process.Kill())
		_ = c.Wait() // it was killed

		for _, one := range c.Env {
			if dir, ok := strings.CutPrefix(one, "TMPDIR="); ok {
				t.Setenv("TMPDIR", dir)
			}
		}
		s := source(t, in("Words", words))
		_, err = s.(environments.Sweeper).Sweep(t.Context(), "test")
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.Eventually(t, func() bool { return running() == living }, 20*time.Second, 100*time.Millisecond)
		_, err = other.Reset(t.Context(), environments.Start{})
		require.NoError(t, err)
	})
}

func TestContainersThatCannotBe(t *testing.T) {
	needPython(t)
	for want, params := range map[string]map[string]any{
		"container.image is missing; write the name of an image that has a Python":        {"container": map[string]any{"engine": "podman"}},
		`there is no container engine "lxc"; allowed: podman, docker, apptainer`:          {"container": map[string]any{"image": "x", "engine": "lxc"}},
		"container and sandboxed are both given; leave one of them out":                   {"container": map[string]any{"image": "x"}, "sandboxed": true},
		"show names what a sandbox shows; write sandboxed: true with it, or leave it out": {"container": map[string]any{"image": "x"}, "show": []string{"/"}},
	} {
		params["class"] = worlds + ":Words"
		_, err := open(t, params)
		require.ErrorContains(t, err, want)
	}
	t.Setenv("PATH", t.TempDir())
	for engine, want := range map[string]string{"": "podman or docker is not on PATH; install it: apt-get install podman", "docker": "docker is not on PATH; install it: apt-get install docker.io", "apptainer": "apptainer is not on PATH; install it: see apptainer.org/docs/admin"} {
		_, err := pyenv.Kind().New(t.Context(), resources.New(resources.Options{}), map[string]any{"class": worlds + ":Words", "container": map[string]any{"image": "x", "engine": engine}})
		require.ErrorContains(t, err, "the container engine "+want)
	}
}

func TestAnImageThatIsNotThere(t *testing.T) {
	t.Run("podman", func(t *testing.T) {
		if err := importImage(); err != nil {
			t.Skip(err)
		}
		_, err := open(t, map[string]any{"class": worlds + ":Words", "container": map[string]any{"image": "localhost/nowhere:1", "engine": "podman"}})
		require.ErrorContains(t, err, `the image "localhost/nowhere:1" is not on this machine`)
		require.ErrorContains(t, err, "podman pull localhost/nowhere:1")
	})
	t.Run("apptainer", func(t *testing.T) {
		if _, err := exec.LookPath("apptainer"); err != nil {
			t.Setenv("PATH", t.TempDir()+":"+os.Getenv("PATH"))
			require.NoError(t, os.WriteFile(filepath.Join(strings.Split(os.Getenv("PATH"), ":")[0], "apptainer"), nil, 0o755)) // nothing runs it
		}
		_, err := open(t, map[string]any{"class": worlds + ":Words", "container": map[string]any{"image": "./nowhere.sif"}})
		require.ErrorContains(t, err, `nowhere.sif" is not on this machine; it is a .sif file or a folder with a root file system: apptainer pull `)
	})
}
