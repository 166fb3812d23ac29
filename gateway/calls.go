package gateway

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/trajectory"
)

// calls are those of a session: by what they ask for, where each branch of an agent may have asked the same, and by their numbers, which their ids
// end with.
type calls struct {
	byAsked  map[asking][]*call // in the order in which they came
	byNumber map[int]*call
	arrived  int // calls that were asked for, but for retries: the number of the next one
}

func newCalls() calls { return calls{byAsked: map[asking][]*call{}, byNumber: map[int]*call{}} }

func (l *calls) add(c *call) {
	l.byAsked[c.asks] = append(l.byAsked[c.asks], c)
	l.byNumber[c.number] = c
	l.arrived = max(l.arrived, c.number+1)
}

// repeated is the call that a request asks for once more; nil: it is a new one. A request with the mark of a call is that call. Else what decides is
// whether the reply was read, because most clients mark nothing: one that sends the same again after an answer wants another one, and one that was
// left by all its clients is asked for again. One that is marked as a retry is, if there is none of these, of one call that failed, which is sampled
// anew; else of one that waits still; else of what was sent last.
//
// An agent may sample a prompt several times side by side. So a request without a mark never repeats a call whose client still waits, one that is marked
// as a retry does only if that client tried less often, and a call that failed is asked for once more only once: of several the one that was tried most
// often, but less often than the retry, because the others are of clients that come again later. No request repeats a call of before a fork that did not
// come yet.
func (l *calls) repeated(q asked) (found *call) {
	same := l.byAsked[q.asks()]
	best, anew := 0, false
	for _, c := range same {
		fits, failed := 0, c.failed()
		switch left := c.waiting == 0 && c.readers == 0; {
		case c.coming || failed && c.tries >= q.tries:
		case q.mark != "" && q.mark == c.mark:
			fits = 5
		case q.mark != "" && c.mark != "": // its sender tells the two apart
		case failed:
			fits = 3
		case left:
			fits = 4
		case q.tries > c.tries && c.waiting > 0:
			fits = 2
		case q.tries > 0 && c.waiting == 0:
			fits = 1
		}
		if fits == 0 || fits < best || failed && fits == best && c.tries < found.tries {
			continue
		}
		found, best, anew = c, fits, failed // of those that fit as well the one that was tried most often, if they failed, and the newest
	}
	if anew {
		l.byAsked[q.asks()] = slices.DeleteFunc(same, func(c *call) bool { return c == found })
		return nil
	}
	return found
}

// recorded is the first call of before a fork that a request asks for and that did not come yet; nil: there is none.
func (l *calls) recorded(q asked) *call {
	for _, c := range l.byAsked[q.asks()] {
		if c.coming {
			c.coming, c.mark = false, q.mark
			return c
		}
	}
	return nil
}

// next is the first call of before a fork that did not come yet; nil: there is none.
func (l *calls) next() (first *call) {
	for _, c := range l.byNumber {
		if c.coming && (first == nil || c.turn < first.turn) {
			first = c
		}
	}
	return first
}

// read tells which turns were asked for by calls, and whether a reply of them was read. Whether one was that an earlier process gave is not known: it
// counts as read.
func (l *calls) read() map[int]bool {
	read := map[int]bool{}
	for _, c := range l.byNumber {
		read[c.turn] = read[c.turn] || c.readers > 0 || c.adopted
	}
	return read
}

// goesOn says that an agent went on after the reply of a turn, which it has read then; -1: of none.
func (l *calls) goesOn(turn int) {
	for _, c := range l.byNumber {
		if turn >= 0 && c.turn == turn {
			c.readers = max(c.readers, 1)
		}
	}
}

// named is the call of a reply by its id, before which its dialect put a prefix; nil: there is none.
func (l *calls) named(id string) *call {
	n, err := strconv.Atoi(id[strings.LastIndexByte(id, '-')+1:])
	if c := l.byNumber[n]; err == nil && c != nil && strings.HasSuffix(id, c.id) {
		return c
	}
	return nil
}

// ended tells whether the call has its reply or its error.
func (c *call) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// failed tells whether the call has an error for its reply.
func (c *call) failed() bool { return c.ended() && c.err != nil }

// begun tells whether a reply, which is there or being sampled, begins with what the fork is within.
func (l *calls) begun() bool {
	for _, c := range l.byNumber {
		if c.begun && !c.failed() {
			return true
		}
	}
	return false
}

// numberOf is the number of a recorded call: its own, where it was stored and is not taken, else the next one.
func (l *calls) numberOf(in *trajectory.Incoming) int {
	if n := in.Call - 1; n >= 0 && l.byNumber[n] == nil {
		return n
	}
	return l.arrived
}

// callName is the name of a call.
func callName(session string, number int) string { return session + "-" + strconv.Itoa(number) }

// asking is what a request asks for: an API, and the digest of a body, which means something else to another API.
type asking struct {
	dialect string
	digest  key
}

func (q asked) asks() asking { return asking{q.dialect, q.Digest} }

// call is a request and its reply.
type call struct {
	id      string
	session string // whose call it is: the trajectory's that it was recorded for, before a fork
	number  int    // as they came
	asks    asking
	mark    string // Idempotency-Key; "": none
	tries   int    // how often its client had sent it before, as the newest request for it says
	created time.Time
	done    chan struct{} // closed when reply or err is there
	reply   dialects.Reply
	err     error
	turn    int   // of the trajectory; -1: none
	waiting int   // clients that wait for it
	readers int   // clients that have read the whole reply
	adopted bool  // before this process began; whether it was read is not known
	coming  bool  // it was recorded before the fork, and the agent did not make it again yet
	begun   bool  // its reply begins with Tree.Begun
	after   *said // that its words go on after, where something is sampled for it; nil: none

	recorded bool // an earlier process recorded a reply to what it asks for, which was not taken when it came
}
