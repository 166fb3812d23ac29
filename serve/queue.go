package serve

import (
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/agentfly/agentfly/dialects"
)

// queue bounds what is answered at once: completions that run or wait, texts that are tokenized, and the bytes of their requests.
type queue struct {
	most             int          // completions, and texts
	maxBody, maxHeld int64        // bytes of a request, and of all of them
	completions      atomic.Int64 // admitted, and requests for them whose text is tokenized
	texts            atomic.Int64 // requests of /tokenize and /detokenize
	held             atomic.Int64 // bytes of the requests that are being answered
}

// places are what a request takes of a queue: one while its text is turned into tokens, then one for each completion.
// A request without a place computes and samples nothing. /tokenize and /detokenize have a queue of their own, as long
// as that of the completions: they are answered while those are sampled.
type places struct {
	queue *atomic.Int64
	most  int64
	what  string // it holds, for errors
	n     int64
}

// enter takes the first place of a request in the queue of the completions, or of texts. leave must be called.
func (q *queue) enter(texts bool) (*places, error) {
	p := &places{queue: &q.completions, most: int64(q.most), what: "completions are running"}
	if texts {
		p.queue, p.what = &q.texts, "texts are being tokenized"
	}
	return p, p.need(1)
}

// with calls f with a first place.
func (q *queue) with(texts bool, f func(*places) error) error {
	p, err := q.enter(texts)
	if err != nil {
		return err
	}
	defer p.leave()
	return f(p)
}

// tooMany refuses more completions than the queue ever holds.
func (q *queue) tooMany(prompts, n int) error {
	return badf("n", "%d prompts or more of %d completions each are more than the %d that the queue holds", prompts, n, q.most)
}

// need takes places until there are n, or none where the queue has not so many left.
func (p *places) need(n int) error {
	more := int64(n) - p.n
	if more <= 0 {
		return nil
	}
	if now := p.queue.Add(more); now > p.most {
		p.queue.Add(-more)
		return &dialects.Error{Status: http.StatusTooManyRequests, Message: fmt.Sprintf("the queue is full: %d %s or waiting, %d are allowed; try again later", now-more-p.n, p.what, p.most)}
	}
	p.n += more
	return nil
}

// leave gives the places back; a second call does nothing.
func (p *places) leave() {
	p.queue.Add(-p.n)
	p.n = 0
}
