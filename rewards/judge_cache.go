package rewards

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/sashabaranov/go-openai"

	"github.com/agentfly/agentfly/resources"
)

// answers keeps a judge's answers in files, by the content of the question, and asks a question once at a time.
type answers struct {
	folder  string // "": nothing is kept
	mu      sync.Mutex
	pending map[string]*pendingAnswer
}

type pendingAnswer struct {
	done chan struct{}
	text string
	err  error
}

func openAnswers(r *resources.Resources, off bool) (*answers, error) {
	a := &answers{pending: map[string]*pendingAnswer{}}
	if off {
		return a, nil
	}
	folder, err := r.Cache("judge")
	if err != nil {
		return nil, fmt.Errorf("the cache: %w; set no_cache: true to do without", err)
	}
	a.folder = folder
	return a, nil
}

// get returns the kept answer, or asks and keeps it. One that is kept and not good, such as a file that a power cut emptied, counts as missing. An
// error is not kept. Who waits for another's question asks it itself when that fails, for the other may have run out of its own time.
func (a *answers) get(ctx context.Context, kind string, q openai.ChatCompletionRequest, good func(text string) bool, ask func() (string, error)) (text string, cached bool, err error) {
	key, err := contentKey(kind, q)
	if err != nil {
		return "", false, err
	}
	for {
		a.mu.Lock()
		p := a.pending[key]
		mine := p == nil
		if mine {
			p = &pendingAnswer{done: make(chan struct{})}
			a.pending[key] = p
		}
		a.mu.Unlock()
		if mine {
			cached, err := a.answer(key, p, good, ask)
			return p.text, cached, err
		}
		select {
		case <-p.done:
			if p.err == nil {
				return p.text, true, nil
			}
		case <-ctx.Done():
			return "", false, ctx.Err()
		}
	}
}

// answer reads what was kept, or asks, for those who wait. Only one does at a time: between the two nobody else can have asked.
func (a *answers) answer(key string, p *pendingAnswer, good func(text string) bool, ask func() (string, error)) (cached bool, err error) {
	p.err = errors.New("the judge's answer was not waited for") // if ask panics
	defer func() {
		a.mu.Lock()
		delete(a.pending, key)
		a.mu.Unlock()
		close(p.done)
	}()
	if text, ok := a.read(key); ok && good(text) {
		p.text, p.err = text, nil
		return true, nil
	}
	if p.text, p.err = ask(); p.err == nil {
		p.err = a.write(key, p.text)
	}
	return false, p.err
}

// contentKey names a question by what it asks and where; kind is the endpoint and how its answer is read. The endpoint's key is no part.
func contentKey(kind string, q openai.ChatCompletionRequest) (string, error) {
	data, err := json.Marshal(map[string]any{"kind": kind, "model": q.Model, "messages": q.Messages, "max_tokens": q.MaxCompletionTokens})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

func (a *answers) path(key string) string { return filepath.Join(a.folder, key[:2], key+".txt") }

func (a *answers) read(key string) (string, bool) {
	if a.folder == "" {
		return "", false
	}
	data, err := os.ReadFile(a.path(key))
	return string(data), err == nil
}

// write keeps an answer as a whole file or not at all: other runs may share the folder.
func (a *answers) write(key, text string) error {
	if a.folder == "" {
		return nil
	}
	folder := filepath.Dir(a.path(key))
	err := os.MkdirAll(folder, 0o755)
	var f *os.File
	if err == nil {
		f, err = os.CreateTemp(folder, ".new-*")
	}
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
		if err == nil {
			err = os.Rename(f.Name(), a.path(key))
		}
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}
	if err != nil {
		return fmt.Errorf("the judge's answer cannot be kept: %w; set no_cache: true to do without", err)
	}
	return nil
}
