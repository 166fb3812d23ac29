package serve

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/internal/wording"
)

// models are the names under which the one model is served.
type models struct {
	names   []string // replies carry the first
	root    string
	created int64
	maxLen  int
}

type modelInfo struct {
	ID      string  `json:"id"`
	Object  string  `json:"object"`
	Created int64   `json:"created"`
	Owner   string  `json:"owned_by"`
	Root    string  `json:"root"`
	Parent  *string `json:"parent"`
	MaxLen  int     `json:"max_model_len"`
}

func (m *models) info(name string) modelInfo {
	return modelInfo{ID: name, Object: "model", Created: m.created, Owner: "agentfly", Root: m.root, MaxLen: m.maxLen}
}

func (m *models) list(w http.ResponseWriter, _ *http.Request) {
	data := []modelInfo{}
	for _, name := range m.names {
		data = append(data, m.info(name))
	}
	reply(w, http.StatusOK, map[string]any{"object": "list", "data": data})
}

func (m *models) one(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if !slices.Contains(m.names, name) {
		fail(w, m.check(&name))
		return
	}
	reply(w, http.StatusOK, m.info(name))
}

// check knows the names under which the model is served; none is fine.
func (m *models) check(name *string) error {
	if name == nil || *name == "" || slices.Contains(m.names, *name) {
		return nil
	}
	return &dialects.Error{Status: 404, Message: fmt.Sprintf("The model `%s` does not exist.", wording.Clip(*name, maxName)), Param: "model"}
}
