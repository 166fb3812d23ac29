package modelfile

import (
	"context"
	"crypto/sha1" //nolint:gosec // the hash that git names blobs by
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/agentfly/agentfly/internal/retry"
)

// file makes sure that one file of the snapshot is there and checked.
func (h *Hub) file(ctx context.Context, id HubID, commit, name, repo string) error {
	link := filepath.Join(repo, "snapshots", commit, filepath.FromSlash(name))
	if _, err := os.Stat(link); err == nil { // links are made after the check
		return nil
	}
	address := h.Endpoint + "/" + id.Org + "/" + id.Name + "/resolve/" + commit + "/" + escapePath(name)
	blob, err := h.blob(ctx, id, address, name, filepath.Join(repo, "blobs"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return fmt.Errorf("modelfile: %w", err)
	}
	target, err := filepath.Rel(filepath.Dir(link), blob)
	if err != nil {
		return fmt.Errorf("modelfile: %w", err)
	}
	if err := os.Remove(link); err != nil && !os.IsNotExist(err) { // a link to a blob that was deleted
		return fmt.Errorf("modelfile: %w", err)
	}
	if err := os.Symlink(target, link); err != nil {
		return fmt.Errorf("modelfile: %w", err)
	}
	return nil
}

func escapePath(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = strings.NewReplacer("%", "%25", "?", "%3F", "#", "%23", " ", "%20").Replace(p)
	}
	return strings.Join(parts, "/")
}

// meta is what the hub tells of a file: hash names the blob and checks it.
type meta struct {
	hash string // 64 digits: SHA-256 of the content; 40: git's SHA-1 of the blob
	size int64  // -1: not told
}

// metaOf reads X-Linked-ETag and X-Linked-Size (large files), else ETag and Content-Length. Redirects to a file store do
// not carry them, so the chain is followed by hand as long as it stays on the hub.
func (h *Hub) metaOf(ctx context.Context, address string) (meta, error) {
	client := *h.Client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for range 5 {
		request, err := http.NewRequestWithContext(ctx, http.MethodHead, address, nil)
		if err != nil {
			return meta{}, err
		}
		request.Header.Set("User-Agent", "agentfly")
		request.Header.Set("Accept-Encoding", "identity")
		if h.Token != "" {
			request.Header.Set("Authorization", "Bearer "+h.Token)
		}
		reply, err := client.Do(request)
		if err != nil {
			return meta{}, &networkError{withoutAddress(err)}
		}
		reply.Body.Close()
		etag, size := reply.Header.Get("X-Linked-ETag"), reply.Header.Get("X-Linked-Size")
		if etag == "" && reply.StatusCode >= 300 && reply.StatusCode < 400 {
			to, err := reply.Location()
			if err != nil || to.Host != request.URL.Host || to.Scheme != request.URL.Scheme {
				return meta{}, fmt.Errorf("the hub sends it elsewhere without telling its hash")
			}
			address = to.String()
			continue
		}
		if etag == "" {
			if err := h.status(reply, "this file"); err != nil {
				return meta{}, err
			}
			etag, size = reply.Header.Get("ETag"), reply.Header.Get("Content-Length")
		}
		m := meta{hash: strings.Trim(strings.TrimPrefix(etag, "W/"), `"`), size: -1}
		if !isHex(m.hash, 40) && !isHex(m.hash, 64) {
			return meta{}, fmt.Errorf("the hub tells the hash %q, expected SHA-256 or git's SHA-1", m.hash)
		}
		if n, err := strconv.ParseInt(size, 10, 64); err == nil && n >= 0 {
			m.size = n
		}
		return m, nil
	}
	return meta{}, errors.New("too many redirects")
}

// blob downloads a file to its blob, or finds it there.
func (h *Hub) blob(ctx context.Context, id HubID, address, name, blobs string) (string, error) {
	var m meta
	err := h.retry(ctx, func() (progress bool, err error) {
		ctx, cancel := context.WithTimeout(ctx, h.Stall)
		defer cancel()
		m, err = h.metaOf(ctx, address)
		return false, err
	})
	if err != nil {
		return "", fmt.Errorf("modelfile: %s of %s: %w", name, id, err)
	}
	blob := filepath.Join(blobs, m.hash)
	if _, err := os.Stat(blob); err == nil {
		return blob, nil
	}
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		return "", fmt.Errorf("modelfile: %w", err)
	}
	part := blob + ".incomplete"
	if err := h.retry(ctx, func() (bool, error) { return h.fetch(ctx, address, name, part, m) }); err != nil {
		hint := ""
		if _, e := os.Stat(part); e == nil {
			hint = "; what has come in is kept, run the command again to resume"
		}
		return "", fmt.Errorf("modelfile: %s of %s: %w%s", name, id, err, hint)
	}
	got, err := hashFile(part, m.hash)
	if err != nil {
		return "", err
	}
	if got != m.hash {
		if err := os.Remove(part); err != nil {
			return "", fmt.Errorf("modelfile: %w", err)
		}
		return "", fmt.Errorf("modelfile: %s of %s has the hash %s, but the hub says %s; the file was removed, run the command again", name, id, got, m.hash)
	}
	if err := os.Rename(part, blob); err != nil {
		return "", fmt.Errorf("modelfile: %w", err)
	}
	return blob, SyncDir(blobs)
}

// retry repeats f while it fails for reasons of the network; attempts that make progress do not count.
func (h *Hub) retry(ctx context.Context, f func() (progress bool, err error)) error {
	for failed := 0; ; {
		progress, err := f()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var status *httpError
		var network *networkError
		if !errors.As(err, &network) && !(errors.As(err, &status) && status.temporary) {
			return err
		}
		if failed++; progress {
			failed = 0
		}
		if failed > h.Retries {
			return err
		}
		if err := h.Sleep(ctx, retry.Backoff{First: 500 * time.Millisecond, Most: 16 * time.Second}.Wait(failed+1)); err != nil {
			return err
		}
	}
}

// networkError is a failure to read from the hub, as opposed to one of the disk.
type networkError struct{ err error }

func (e *networkError) Error() string { return "the connection failed: " + e.err.Error() }
func (e *networkError) Unwrap() error { return e.err }

// fetch appends to part what is missing; progress tells whether bytes came in.
func (h *Hub) fetch(ctx context.Context, address, name, part string, m meta) (progress bool, err error) {
	f, err := os.OpenFile(part, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return false, err
	}
	defer func() {
		if e := f.Close(); e != nil && err == nil {
			err = e
		}
	}()
	have, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return false, err
	}
	if m.size >= 0 && have > m.size { // not a beginning of this file
		if have, err = 0, f.Truncate(0); err != nil {
			return false, err
		}
	}
	if m.size >= 0 && have == m.size {
		return false, f.Sync()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(h.Stall, func() { cancel(fmt.Errorf("nothing came in for %s", h.Stall)) })
	defer stalled.Stop()
	reply, err := h.get(ctx, address, have)
	if err != nil {
		return false, &networkError{because(ctx, err)}
	}
	defer reply.Body.Close()
	switch {
	case reply.StatusCode == http.StatusRequestedRangeNotSatisfiable: // the size was not told; the hash decides
		return false, f.Sync()
	case reply.StatusCode == http.StatusOK && have > 0: // the server sends all of it again
		if have, err = 0, f.Truncate(0); err != nil {
			return false, err
		}
	case reply.StatusCode == http.StatusPartialContent && !strings.HasPrefix(reply.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", have)):
		return false, fmt.Errorf("the server answers with the range %q, asked from byte %d", reply.Header.Get("Content-Range"), have)
	}
	if err := h.status(reply, "this file"); err != nil {
		return false, err
	}
	if _, err := f.Seek(have, io.SeekStart); err != nil {
		return false, err
	}
	body := &progressReader{r: reply.Body, report: func(n int64) {
		stalled.Reset(h.Stall)
		if h.Progress != nil {
			h.Progress(name, have+n, m.size)
		}
	}}
	_, err = io.Copy(f, body)
	switch {
	case body.err != nil:
		return body.n > 0, &networkError{because(ctx, body.err)}
	case err != nil: // the disk
		return false, err
	case m.size >= 0 && have+body.n < m.size:
		return body.n > 0, &networkError{fmt.Errorf("it ended after %d of %d bytes", have+body.n, m.size)}
	case m.size >= 0 && have+body.n > m.size:
		return false, errors.Join(fmt.Errorf("it has more than the %d bytes that the hub told", m.size), f.Truncate(0))
	}
	return true, f.Sync()
}

// because prefers the reason that a context was cancelled for.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// progressReader counts, and remembers an error of the source so that it can be told from one of the destination.
type progressReader struct {
	r      io.Reader
	n      int64
	err    error
	report func(n int64)
}

func (p *progressReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.n += int64(n)
	p.report(p.n)
	if err != nil && err != io.EOF {
		p.err = err
	}
	return n, err
}

// hashFile computes the kind of hash that like is.
func hashFile(path, like string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("modelfile: %w", err)
	}
	defer f.Close()
	var sum hash.Hash = sha256.New()
	if len(like) == 40 {
		info, err := f.Stat()
		if err != nil {
			return "", fmt.Errorf("modelfile: %w", err)
		}
		sum = sha1.New() //nolint:gosec // see above
		fmt.Fprintf(sum, "blob %d\x00", info.Size())
	}
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("modelfile: reading %s: %w", path, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
