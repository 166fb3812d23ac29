package view

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"github.com/agentfly/agentfly/orchestrator/runfolder"
)

// controlPath is where a page asks a run to pause, to go on, to save itself or to stop. It alone writes.
const controlPath = "/api/control"

// foreign tells whether a page of somebody else's sent a request: a browser says so, and adds the header of this page to none of those.
func foreign(r *http.Request) bool {
	if r.Header.Get("X-Agentfly") == "" {
		return true
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin":
	default:
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host != r.Host
}

// control asks the process of a run for an action.
func (s *Server) control(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", "POST")
		fail(w, http.StatusMethodNotAllowed, "use POST")
		return
	case foreign(r):
		fail(w, http.StatusForbidden, "another site's page must not control runs; a program sends the header X-Agentfly: 1")
		return
	case s.access.key() == "":
		fail(w, http.StatusForbidden, "this page only shows: start agentfly view with --api-key, or use agentfly control RUN")
		return
	case !s.access.controls(r):
		fail(w, http.StatusUnauthorized, "open the address that was printed when the page was started, which has the key, or send Authorization: Bearer KEY")
		return
	}
	action, err := runfolder.ParseAction(r.URL.Query().Get("do"))
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	x, err := s.run(r)
	if err == nil {
		dir := filepath.Join(s.runs.dir, filepath.FromSlash(x.name))
		if err = runfolder.ErrNotRunning; readNow(dir, time.Now()).State == stateRunning {
			err = runfolder.Ask(dir, runfolder.Request{Action: action, By: "the page", At: time.Now()})
		}
	}
	switch {
	case errors.Is(err, errMissing):
		fail(w, http.StatusNotFound, err.Error())
	case errors.Is(err, runfolder.ErrNotRunning):
		fail(w, http.StatusConflict, err.Error())
	case err != nil:
		fail(w, http.StatusInternalServerError, err.Error())
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]runfolder.Action{"asked": action}) // who does not read it needs no error
	}
}
