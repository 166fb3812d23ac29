package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
	"github.com/agentfly/agentfly/view/viewtest"
)

// tab is a page in a real Chromium.
type tab struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // chromedp's handle of the page
}

// chromium starts a browser, or skips where there is none.
func chromium(t *testing.T, width, height int) tab {
	t.Helper()
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WindowSize(width, height), chromedp.DisableGPU,
			chromedp.Flag("disable-component-update", true), chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
		if os.Geteuid() == 0 {
			options = append(options, chromedp.NoSandbox)
		}
		ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
		t.Cleanup(cancel)
		ctx, cancel = chromedp.NewContext(ctx)
		t.Cleanup(cancel)
		require.NoError(t, chromedp.Do(ctx, chromedp.EmulateViewport(int64(width), int64(height))))
		return tab{t, ctx}
	}
	t.Skip("chromium is missing; install it: apt-get install chromium-headless-shell")
	return tab{}
}

func (b tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, steps...))
}

// js evaluates an expression of the page.
func js[T any](b tab, code string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](code, chromedp.EvalAsValue, chromedp.EvalAwaitPromise))
	require.NoError(b.t, err, code)
	return v
}

// open goes to a view and collects what the page complains of.
func (b tab) open(url string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url))
	js[any](b, `void (window.errors = [], addEventListener('error', e => errors.push(e.message)), addEventListener('securitypolicyviolation', e => errors.push('policy: ' + e.violatedDirective)))`)
}

// until waits for the page to make an expression true: long, because other tests' pages are at work beside it.
func (b tab) until(code string) {
	b.t.Helper()
	for late := time.Now().Add(2 * time.Minute); ; {
		if js[bool](b, "!!("+code+")") {
			return
		}
		if time.Now().After(late) {
			require.Fail(b.t, "the page never made this true: "+code, "%s\n%s", js[string](b, "location.href"), js[string](b, "document.body.innerText.slice(0, 3000)"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (b tab) press(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		b.do(chromedp.KeyEvent(k))
	}
}

// tabTo presses the tabulator key until an element has the focus: by keyboard alone.
func (b tab) tabTo(selector string) {
	b.t.Helper()
	for range 80 {
		b.press(kb.Tab)
		if js[bool](b, "document.activeElement.matches("+quote(selector)+")") {
			return
		}
	}
	require.Fail(b.t, "the keyboard does not reach "+selector)
}

func quote(s string) string {
	out, _ := json.Marshal(s)
	return string(out)
}

// clean says that the page reported nothing and ran nothing of what it shows.
func (b tab) clean() {
	b.t.Helper()
	require.Empty(b.t, js[[]string](b, "window.errors"))
	require.Equal(b.t, "undefined", js[string](b, "typeof window.hacked"))
	require.Zero(b.t, js[int](b, "document.querySelectorAll('#app script, #app iframe, #app [onerror], #app [onload], #app a[href^=\"javascript\"]').length"))
}

// shoot writes a picture of the page into the folder that AGENTFLY_SCREENSHOTS names.
func (b tab) shoot(name string) {
	b.t.Helper()
	dir := os.Getenv("AGENTFLY_SCREENSHOTS")
	if dir == "" {
		return
	}
	time.Sleep(400 * time.Millisecond) // for charts, which are drawn after the page
	picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644))
}

// accessible asks axe, where npm has put it.
func (b tab) accessible() {
	b.t.Helper()
	axe, err := os.ReadFile("page/node_modules/axe-core/axe.min.js")
	if err != nil {
		b.t.Log("axe-core is not installed: (cd view/page && npm ci --ignore-scripts)")
		return
	}
	js[any](b, string(axe)+";0")
	found := js[[]string](b, `axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.flatMap(v => v.nodes.map(n => v.id + ': ' + n.html.slice(0, 160) + ' ' + (n.failureSummary || '').slice(0, 300))))`)
	require.Empty(b.t, found)
}

// A person looks at two runs, one of which goes on meanwhile, in a real browser.
func TestThePageInChromium(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"seed-1": {Steps: 40, Groups: 4, Each: 8, Seed: 1}, "seed-2": {Steps: 40, Groups: 4, Each: 8, Seed: 2, Shift: -0.1}})
	b.open(x.url + "/#/overview?run=seed-1")

	// The overview, and a curve that moves while the run goes on.
	b.until("document.querySelectorAll('.card canvas').length >= 11 && document.querySelector('#live .dot')")
	b.until("document.querySelector('#state')?.innerText.startsWith('40 steps, 1280 trajectories')")
	b.shoot("overview")
	b.accessible()
	drawn := `[...document.querySelectorAll('.card canvas')].map(c => c.toDataURL().length).join()`
	value := `document.querySelector('.card[aria-label="Reward"] .legend b').innerText`
	before, last := js[string](b, drawn), js[string](b, value)
	db, err := store.Open(filepath.Join(x.dir, "seed-1", store.File))
	require.NoError(t, err)
	defer db.Close()
	for step := 40; step < 44; step++ {
		require.NoError(t, viewtest.Step(t.Context(), db, viewtest.Size{Steps: 44, Groups: 4, Each: 8, Seed: 1}, x.words, step))
	}
	b.until("document.querySelector('#state').innerText.startsWith('44 steps, 1408 trajectories')")
	b.until(value + " != " + quote(last))
	b.until(drawn + " != " + quote(before))

	// The slider, by keyboard: the values are those of its step.
	b.tabTo("#step")
	b.press(kb.Home, kb.ArrowRight, kb.ArrowRight, kb.ArrowRight)
	b.until("document.querySelector('#at').innerText == '3 of 44'")
	_, series := stepsOf(t, db.Reader)
	b.until(value + " == " + quote(short(series[2]["reward/mean"])))

	// Two runs in one chart, by keyboard.
	b.do(chromedp.Focus(chromedp.CSS("#run")))
	b.tabTo(".compare summary")
	b.press(kb.Enter)
	b.tabTo("input[name=with]")
	b.press(" ")
	b.until("document.querySelectorAll('.card[aria-label=\"Reward\"] .legend li').length == 2")
	b.shoot("compare")
	b.press(" ")
	b.until("document.querySelectorAll('.card[aria-label=\"Reward\"] .legend li').length != 2")

	// A metric behind the search.
	b.do(chromedp.Focus(chromedp.CSS("#metric")))
	b.press("n", "o", "r", "m")
	b.until("document.querySelectorAll('.card').length == 1 && document.querySelector('.card h3').firstChild.textContent == 'update/grad_norm'")

	// The lowest reward, by keyboard, and one of its tokens against the store.
	b.open(x.url + "/#/trajectories?run=seed-1")
	b.until("document.querySelectorAll('tr[data-row]').length > 20")
	b.accessible()
	b.tabTo("#lowest")
	b.press(kb.Enter)
	lowest := worst(t, db.Reader)
	b.until("document.querySelector('tr[data-row=\"0\"]')?.dataset.id == " + quote(lowest.Trajectory.ID))
	b.shoot("trajectories")
	b.tabTo("#list")
	b.press(kb.ArrowDown)
	b.until("document.activeElement.innerText == " + quote(lowest.Trajectory.ID))
	b.press(kb.ArrowDown, kb.ArrowUp, kb.Enter)
	b.until("document.querySelector('#title')?.innerText == " + quote(lowest.Trajectory.ID))
	b.until("document.querySelector('#reward').innerText == " + quote(short(lowest.Trajectory.Return())))
	b.tabTo("#colour")
	b.press("s") // sampling logprob
	b.until("location.hash.includes('colour=logprob')")
	b.tabTo("#tokens")
	b.press(kb.Home, kb.ArrowDown) // the first token that was sampled
	s, u := lowest.Trajectory.Samples[0], lowest.Updates[0]
	at := 0
	for !s.ResponseMask[at] {
		at++
	}
	facts := js[map[string]string](b, `Object.fromEntries([...document.querySelectorAll('#token span')].map(s => [s.firstChild.textContent.trim(), s.querySelector('b').innerText]))`)
	same := func(name string, want float64) {
		t.Helper()
		var got float64
		require.NoError(t, json.Unmarshal([]byte(facts[name]), &got), "%v", facts)
		require.InEpsilon(t, want, got, 1e-6, name)
	}
	require.Equal(t, "1", facts["mask"])
	same("sampling logprob", float64(s.SamplingLogprobs[at]))
	same("trainer logprob", float64(u.OldLogprobs[at]))
	same("advantage", float64(u.Advantages[at]))
	same("entropy", float64(u.Entropy[at]))
	b.tabTo("#colour")
	b.press("e") // entropy
	b.until("location.hash.includes('colour=entropy') && document.querySelector('.means').innerText.includes('before the update')")
	b.clean()

	// Hostile text is text, in the conversation, in the tokens, in the list.
	b.open(x.url + "/#/trajectory?run=seed-1&id=train-3-0-0&colour=difference")
	b.until("document.querySelector('.talk')?.innerText.includes('<script>window.hacked=1</script><img src=x onerror=')")
	b.until("document.querySelector('.talk').innerText.includes('␛[2J⟨202e⟩⟨061c⟩⟨e0041⟩')")
	b.until("document.querySelector('#tokens').textContent.includes('<script>window')")
	b.clean()
	b.accessible()
	b.open(x.url + "/#/trajectories?run=seed-1&text=" + "%3Cscript%3E")
	b.until("document.querySelectorAll('tr[data-row]').length == 6")
	b.clean()

	// The group side by side, and the causes.
	b.open(x.url + "/#/trajectory?run=seed-1&id=train-30-1-2&colour=logprob")
	b.until("document.querySelectorAll('.group a').length == 8 && document.querySelector('#tokens .c1')")
	b.shoot("trajectory")
	b.do(chromedp.Click(chromedp.CSS("#beside")))
	b.until("document.querySelectorAll('.beside article .talk').length == 8")
	b.accessible()
	b.shoot("group")
	// The same task at another step, beside it.
	b.tabTo("#against")
	b.press(kb.ArrowDown)
	b.until("location.hash.includes('against=train-') && document.querySelectorAll('.beside article .talk').length == 2")
	require.Equal(t, "train-30-1-2", js[string](b, "document.querySelector('.beside article').getAttribute('aria-label')"))
	require.Contains(t, js[string](b, "document.querySelectorAll('.beside article')[0].querySelector('.note').innerText"), "step 31, reward ")
	b.until("/^They differ from turn [12] on|^Their turns are the same/.test(document.querySelector('#differs')?.innerText)")
	require.Equal(t, js[bool](b, "document.querySelector('#differs').innerText.startsWith('They differ')"), js[bool](b, "!!document.querySelector('.beside mark')"))
	require.Equal(t, js[string](b, "document.querySelectorAll('.beside .said.user')[0].innerText"), js[string](b, "document.querySelectorAll('.beside .said.user')[1].innerText"), "they are of one task")
	b.accessible()
	b.shoot("against")
	b.open(x.url + "/#/causes?run=seed-1&step=34")
	b.until("document.querySelectorAll('#differences tbody tr').length == 50 && document.querySelector('#tools tbody tr')")
	b.accessible()
	b.shoot("causes")
	b.do(chromedp.Click(chromedp.CSS("#differences tbody a")))
	b.until("document.querySelector('#token b') && document.querySelector('#tokens .on')")
	b.clean()
}

// What was answered while a run was still being read is of a part of it, and is not shown as the whole of it once all is read: the next answer is.
func TestThePageShowsNoPartAsTheWhole(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"run": {Steps: 44, Groups: 4, Each: 8, Seed: 5, Breaks: 30}})
	x.whole(t, "run")
	r, err := x.runs.get("run")
	require.NoError(t, err)
	r.alter(func() { r.loaded = false })
	b.open(x.url + "/")
	b.until("document.querySelector('#state')?.innerText.includes('reading')")
	js[any](b, `void (() => { const ask = window.fetch; window.answered = 0; window.held = undefined;
		window.fetch = async (...of) => { const reply = await ask(...of); await window.held; window.answered++; return reply; }; })()`)
	js[any](b, "void (location.hash = '#/causes?run=run&step=31')")
	b.until("answered >= 5 && document.querySelector('#changes tbody tr')") // one of each card
	require.Zero(t, js[int](b, "document.querySelectorAll('#moved, #tasks').length"), "a part is read")
	js[any](b, "void (window.held = new Promise(go => window.release = go))")
	r.alter(func() { r.loaded = true })
	b.until("document.querySelector('#state') && !document.querySelector('#state').innerText.includes('reading')")
	js[any](b, "new Promise(drawn => setTimeout(drawn, 100))")
	require.Zero(t, js[int](b, "document.querySelectorAll('#moved, #tasks').length"), "what is known is of a part")
	require.Equal(t, 4, js[int](b, "document.querySelectorAll('.causes [role=status]').length"), "each card says so")
	js[any](b, "release()")
	b.until("document.querySelector('#moved') && document.querySelector('#tasks tbody tr') && !document.querySelector('.causes [role=status]')")
	b.clean()
}

// A new user has four questions about a run whose calculator begins to break at step 31, and finds each answer with a few clicks, and by keyboard.
func TestThePageAnswers(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"run": {Steps: 44, Groups: 4, Each: 8, Seed: 5, Breaks: 30}})
	text := func(selector string) string {
		return js[string](b, "document.querySelector("+quote(selector)+").innerText")
	}
	b.open(x.url + "/")
	b.until("document.querySelectorAll('.card canvas').length >= 11")

	// Why did the reward fall? A click on the lowest point of its curve chooses the step, and Causes says it: 2 clicks.
	js[any](b, `void (() => { const o = document.querySelector('.card[aria-label="Reward"] .u-over'), r = o.getBoundingClientRect(), at = {clientX: r.left + r.width * 30 / 43, clientY: r.top + 20, bubbles: true};
		for (const kind of ['mousemove', 'mousedown', 'mouseup', 'click']) o.dispatchEvent(new MouseEvent(kind, at)); })()`)
	b.until("document.querySelector('#at').innerText == '31 of 44'")
	b.do(chromedp.Click(chromedp.CSS("nav a[href*=causes]")))
	b.until("document.querySelector('#moved')")
	require.Regexp(t, `^Its trajectories earned 0\.\d+ in the mean, 0\.\d+ less than those of the 5 steps before, which earned 0\.\d+\. Most of it comes with trajectories in which a call of calculator failed: broken: 0% of all before, \d\d% now\.$`, text("#moved"))
	require.Regexp(t, `^\d of its 4 tasks had been tried in them: they earned 0`, text("#drawn"))
	// Each end leads to as many trajectories as it counts; another stop reason is a filter like others.
	row := js[[]string](b, "[...document.querySelector('#ends tbody tr').children].map(c => c.innerText)")
	b.do(chromedp.Click(chromedp.CSS("#ends tbody a")))
	b.until("document.querySelector('#found b')?.innerText == " + quote(row[1]) + " && document.querySelector('#f-ended')")
	b.accessible()
	b.choose("f-stop", "")
	b.until("!location.hash.includes('ended=') && !document.querySelector('#f-ended')")
	js[any](b, "history.back()")
	b.until("document.querySelector('#moved')")
	b.do(chromedp.Focus(chromedp.CSS("#span")))
	b.press(kb.ArrowUp) // against the step before alone
	b.until("document.querySelector('#moved')?.innerText.includes('less than those of the step before, which')")
	require.Contains(t, text("#ends tbody tr"), ", a call of calculator failed: broken")
	b.accessible()
	b.shoot("causes-fall")
	b.do(chromedp.Click(chromedp.CSS("#ends tbody a")))
	b.until("document.querySelector('tr[data-row]') && document.querySelector('#found').innerText.includes('of 1408 trajectories')")
	require.Equal(t, "1", js[string](b, "document.querySelector('tr[data-row] .col-calls').innerText.match(/(\\d+) failed/)[1]"))

	// Which tool fails, and why? Causes of all steps: 1 click.
	b.open(x.url + "/#/causes?run=run")
	b.until("document.querySelector('#tools .turned')")
	require.Regexp(t, `^calculator\t\d+\t\d+ \(\d+%\)`, text("#tools tbody tr"))
	require.Regexp(t, `^Since step 31 \d\d% of its calls fail, before it \d%\.$`, text("#tools .turned"))
	require.Regexp(t, `^\d+×: Error: the calculator's process ended \(signal: killed\)$`, text("#tools .whys li"))
	require.Equal(t, 1, js[int](b, "document.querySelectorAll('#tools .turned').length"), "search fails as it always did")
	b.tabTo("#tools .turned a")
	b.press(kb.Enter)
	b.until("document.querySelector('#at').innerText == '31 of 44' && document.querySelector('h2').innerText == 'Causes, step 31'")

	// Which tokens differ between engine and trainer? The same page; a click on one shows it in its place.
	b.until("document.querySelector('#differences tbody tr')")
	require.Regexp(t, `^␣calculator\t\d+\t-?[\d.e-]+\t-[\d.]+\t-2\t`, text("#differences tbody tr"))
	b.do(chromedp.Click(chromedp.CSS("#differences tbody a")))
	b.until("document.querySelector('#tokens .on')?.innerText == ' calculator' && document.querySelector('#token').innerText.includes('trainer − engine -2')")

	// Which tasks got worse? The same page again; a click on one lists its trajectories over the steps.
	b.open(x.url + "/#/causes?run=run&step=31")
	b.until("document.querySelector('#tasks tbody tr')")
	worse := js[[]float64](b, "[...document.querySelectorAll('#tasks tbody tr')].map(r => Number(r.cells[4].innerText))")
	require.Greater(t, len(worse), 5)
	require.IsNonDecreasing(t, worse)
	require.Less(t, worse[0], -0.3)
	b.do(chromedp.Click(chromedp.CSS("#tasks tbody a")))
	b.until("/^\\d+ of 1408 trajectories/.test(document.querySelector('#found')?.innerText) && !document.querySelector('#found').innerText.startsWith('1408')")
	b.clean()
}

// A run of more steps than a chart has room for: its curves are thinned, and the values are the store's, at each step of the slider and as the
// run goes on.
func TestThePageOfALongRun(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	size := viewtest.Size{Steps: 2600, Groups: 1, Each: 1, Only: 1, Seed: 1}
	x := serve(t, "", map[string]viewtest.Size{"long": size, "beside": small()})
	db, err := store.Open(filepath.Join(x.dir, "long", store.File))
	require.NoError(t, err)
	defer db.Close()
	_, series := stepsOf(t, db.Reader)
	value := `document.querySelector('.card[aria-label="Reward"] .legend b')?.innerText`
	b.open(x.url + "/#/overview?run=long")
	b.until(value + " == " + quote(short(series[2599]["reward/mean"])))
	told := ""
	for _, place := range []float64{0.1, 0.2, 0.33, 0.5, 0.7, 0.9} {
		b.until(fmt.Sprintf(`(() => { const card = document.querySelector('.card[aria-label="Reward"]'), over = card.querySelector('.u-over'), r = over.getBoundingClientRect();
			for (const kind of ['mouseenter', 'mousemove']) over.dispatchEvent(new MouseEvent(kind, { clientX: r.left + %v * r.width, clientY: r.top + 20, bubbles: true }));
			return ![%s, undefined].includes(card.querySelector('.point')?.innerText); })()`, place, quote(told)))
		told = js[string](b, `document.querySelector('.card[aria-label="Reward"] .point').innerText`)
		var step int
		_, err := fmt.Sscanf(told, "step %d", &step)
		require.NoError(t, err)
		b.until(value + " == " + quote(short(series[step-1]["reward/mean"])))
	}
	js[any](b, `void document.querySelector('.card[aria-label="Reward"] .u-over').dispatchEvent(new MouseEvent('mouseleave'))`)
	for _, step := range []int{1, 2, 778, 1301, 2599} {
		b.open(fmt.Sprintf("%s/#/overview?run=long&step=%d", x.url, step))
		b.until(value + " == " + quote(short(series[step-1]["reward/mean"])))
	}
	b.open(x.url + "/#/overview?run=long&with=beside&step=778")
	b.until(`document.querySelector('.card[aria-label="Reward"] .legend')?.innerText.replace(/\s+/g, ' ').trim().startsWith(` + quote("long "+short(series[777]["reward/mean"])+" at step 778 beside ") + ")")
	b.open(x.url + "/#/overview?run=long")
	for step := 2600; step < 2603; step++ {
		size.Steps = step + 1
		require.NoError(t, viewtest.Step(t.Context(), db, size, x.words, step))
	}
	_, series = stepsOf(t, db.Reader)
	b.until(value + " == " + quote(short(series[2602]["reward/mean"])))
	// A chart out of sight is not drawn anew before it comes into it.
	last := `[...document.querySelectorAll('.card canvas')].at(-1)`
	require.Greater(t, js[float64](b, last+".getBoundingClientRect().top"), 900.0)
	drawn := js[string](b, last+".toDataURL()")
	for step := 2603; step < 2800; step++ {
		size.Steps = step + 1
		require.NoError(t, viewtest.Step(t.Context(), db, size, x.words, step))
	}
	_, series = stepsOf(t, db.Reader)
	b.until(value + " == " + quote(short(series[2799]["reward/mean"])))
	require.Equal(t, drawn, js[string](b, last+".toDataURL()"))
	js[bool](b, last+".scrollIntoView(), true")
	b.until(last + ".toDataURL() != " + quote(drawn))
	require.NoError(t, db.AddStep(t.Context(), 2799, map[string]float64{"reward/mean": 0.4321}, nil)) // it is trained anew
	b.until(value + " == '0.4321'")
	b.clean()
}

// Steps that a resumed run trains anew are drawn anew, though there are as many as before: in curves, in a band and among the causes.
func TestThePageOfStepsThatAreTrainedAnew(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"run": small(), "beside": small()})
	db, err := store.Open(filepath.Join(x.dir, "run", store.File))
	require.NoError(t, err)
	defer db.Close()
	_, series := stepsOf(t, db.Reader)
	anew := func(from, to int, reward float64) {
		for step := from; step < to; step++ {
			require.NoError(t, db.AddStep(t.Context(), step, map[string]float64{"reward/mean": reward}, nil))
		}
	}
	value := `document.querySelector('.card[aria-label="Reward"] .legend b')?.innerText`
	b.open(x.url + "/#/overview?run=run")
	b.until(value + " == " + quote(short(series[11]["reward/mean"])))
	anew(8, 12, 0.4321)
	b.until(value + " == '0.4321'")
	anew(10, 13, 0.1234) // the stream may tell of them together with a new step
	b.until(value + " == '0.1234' && document.querySelector('#state').innerText.startsWith('13 steps')")
	for step, want := range map[string]string{"8": short(series[7]["reward/mean"]), "9": "0.4321", "10": "0.4321", "11": "0.1234", "12": "0.1234"} {
		b.do(chromedp.Navigate(x.url + "/#/overview?run=run&step=" + step))
		b.until(value + " == " + quote(want))
	}
	b.open(x.url + "/#/overview?run=run&with=beside&band=1")
	asked := "performance.getEntriesByType('resource').filter(e => e.name.includes('/api/bands?')).length"
	b.until(asked + " == 1 && document.querySelector('#state')?.innerText.startsWith('13 steps, 192 trajectories')")
	anew(12, 13, 0.2345)
	b.until(asked + " == 2")
	b.open(x.url + "/#/causes?run=run&step=13")
	b.until("document.querySelector('#changes tbody tr')?.innerText.startsWith('reward/mean\t0.1234\t0.2345')")
	anew(12, 13, 0.3456)
	b.until("document.querySelector('#changes tbody tr')?.innerText.startsWith('reward/mean\t0.1234\t0.3456')")
	b.clean()
}

// A page that is left alone shows the run that took the place of its own, as after train --overwrite, also where its store could not be opened for
// a while.
func TestThePageOfARunThatIsMadeAgain(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"run": small()})
	dir := filepath.Join(x.dir, "run")
	made := func(seed uint64) {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, viewtest.Run(t.Context(), dir, viewtest.Size{Steps: 12, Groups: 4, Each: 4, Seed: seed}, x.words))
		db, err := store.OpenReader(filepath.Join(dir, store.File))
		require.NoError(t, err)
		defer db.Close()
		_, series := stepsOf(t, db)
		b.until(`document.querySelector('.card[aria-label="Reward"] .legend b')?.innerText == ` + quote(short(series[11]["reward/mean"])) + " && document.querySelector('#live .dot')")
	}
	b.open(x.url + "/#/overview?run=run")
	b.until("document.querySelector('.card[aria-label=\"Reward\"] .legend b') && document.querySelector('#state') && document.querySelector('#live .dot')")
	made(7)
	made(8)
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, store.File), []byte("no store"), 0o600))
	b.until("document.querySelector('header .alert')?.innerText.includes('cannot be read as a store') && document.querySelector('#live').innerText == 'not connected'")
	time.Sleep(8 * time.Second) // a browser asks again within this time, and is told that there is no such run
	made(9)
	b.clean()
}

// endTrajectory stores the trajectory of a group of two.
func endTrajectory(ctx context.Context, db *store.Store, step, index int) error {
	s := &trajectory.Sample{}
	s.AppendObservation([]int32{0})
	if err := s.AppendResponse([]int32{1}, []float32{-1}, []int32{int32(step - 2)}); err != nil {
		return err
	}
	tr := &trajectory.Trajectory{ID: store.ID(store.Train, step, 0, index), TaskID: "a", Step: step, Index: index, Samples: []*trajectory.Sample{s}}
	return db.AddTrajectory(ctx, store.Train, trajectory.Task{ID: "a"}, tr)
}

// trainStep stores a step that trained the group.
func trainStep(ctx context.Context, db *store.Store, step int) error {
	return errors.Join(
		db.Admit(ctx, store.Admission{Phase: store.Train, Step: step, Task: trajectory.Task{ID: "a"}, Size: 2, Version: int32(step - 2)}),
		db.AddBatch(ctx, store.Batch{Step: step, Version: int32(step), Groups: []store.GroupRef{{Step: step}}}),
		db.AddStep(ctx, step, map[string]float64{"reward/mean": 0.5}, nil),
	)
}

// An open trajectory, and a list of them, follow the run: the group grows, and the update tells how stale it was.
func TestThePageOfATrajectoryThatIsTrained(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"run": small()})
	db, err := store.Open(filepath.Join(x.dir, "run", store.File))
	require.NoError(t, err)
	defer db.Close()
	ended := func(step, index int) { require.NoError(t, endTrajectory(t.Context(), db, step, index)) }
	trained := func(step int) { require.NoError(t, trainStep(t.Context(), db, step)) }
	ended(12, 0)
	stale := "[...document.querySelectorAll('.tiles div')].find(d => d.querySelector('dt').innerText == 'staleness')?.querySelector('dd').innerText"
	b.open(x.url + "/#/trajectory?run=run&id=train-12-0-0")
	b.until(stale + " == 'not trained' && document.querySelectorAll('.group a').length == 1 && document.querySelector('#state').innerText.startsWith('12 steps, 193 trajectories')")
	ended(12, 1)
	b.until("document.querySelectorAll('.group a').length == 2")
	trained(12)
	b.until(stale + " == '2'")

	ended(13, 0)
	b.open(x.url + "/#/trajectories?run=run&from=14")
	cell := "document.querySelector('tr[data-id=train-13-0-0] .col-staleness')?.innerText"
	b.until(cell + " == '–' && document.querySelector('#state').innerText.startsWith('13 steps, 195 trajectories')")
	trained(13)
	b.until(cell + " == '2'")
	b.clean()
}

// The token that somebody looks at stays the one, and what has the focus keeps it, while the run goes on.
func TestThePageKeepsItsPlaceAmongTokens(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"run": small()})
	db, err := store.Open(filepath.Join(x.dir, "run", store.File))
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, endTrajectory(t.Context(), db, 12, 0))
	b.open(x.url + "/#/trajectory?run=run&id=train-12-0-0&token=0")
	at := "document.querySelector('#token b')?.innerText"
	b.until(at + " == '1 of 2' && document.activeElement.id == 'tokens' && document.querySelector('#state').innerText.startsWith('12 steps, 193 trajectories')")
	b.press(kb.ArrowRight)
	b.until(at + " == '2 of 2'")
	b.do(chromedp.Focus(chromedp.CSS("#show")))
	require.NoError(t, endTrajectory(t.Context(), db, 12, 1))
	require.NoError(t, db.AddStep(t.Context(), 12, map[string]float64{"reward/mean": 0.5}, nil))
	b.until("document.querySelectorAll('.group a').length == 2")
	require.Equal(t, "show 2 of 2", js[string](b, "document.activeElement.id + ' ' + "+at))
	require.True(t, js[bool](b, "document.querySelector('#tokens [data-i=\"1\"]').classList.contains('on')"))
	b.clean()
}

// A trajectory is asked for again until the step is stored that trained it, and those beside it once; it stays where asking again fails.
func TestThePageAsksForATrajectoryWhileItGrows(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"run": small()})
	var asked atomic.Int64
	var fails atomic.Bool
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/trajectory" {
			asked.Add(1)
			if fails.Load() {
				fail(w, http.StatusInternalServerError, "no room")
				return
			}
		}
		x.ServeHTTP(w, r)
	}))
	defer h.Close()
	defer x.Close()
	db, err := store.Open(filepath.Join(x.dir, "run", store.File))
	require.NoError(t, err)
	defer db.Close()
	step := 12
	next := func() {
		require.NoError(t, endTrajectory(t.Context(), db, step, 0))
		require.NoError(t, trainStep(t.Context(), db, step))
		step++
		b.until(fmt.Sprintf("document.querySelector('#state')?.innerText.startsWith('%d steps, %d trajectories')", step, 180+step))
		time.Sleep(200 * time.Millisecond) // what the page asks for now is asked
	}
	b.open(h.URL + "/#/trajectory?run=run&id=train-3-0-0")
	b.until("document.querySelector('#title') && document.querySelector('#state')?.innerText.startsWith('12 steps, 192 trajectories')")
	time.Sleep(200 * time.Millisecond)
	first := asked.Load()
	next()
	require.Equal(t, first, asked.Load(), "it is trained")
	b.do(chromedp.Click(chromedp.CSS("#beside")))
	b.until("document.querySelectorAll('.beside article .talk').length == 4")
	next()
	require.Equal(t, first+4, asked.Load(), "those beside it do not change")

	require.NoError(t, endTrajectory(t.Context(), db, 20, 0))
	b.open(h.URL + "/#/trajectory?run=run&id=train-20-0-0")
	b.until("document.querySelector('#title')?.innerText == 'train-20-0-0' && document.querySelectorAll('.group a').length == 1")
	time.Sleep(200 * time.Millisecond)
	fails.Store(true)
	before := asked.Load()
	require.NoError(t, db.AddStep(t.Context(), step, map[string]float64{"reward/mean": 0.5}, nil))
	require.Eventually(t, func() bool { return asked.Load() > before }, 20*time.Second, 50*time.Millisecond)
	time.Sleep(200 * time.Millisecond)
	require.True(t, js[bool](b, "document.querySelector('#title')?.innerText == 'train-20-0-0'"))
	fails.Store(false)
	require.NoError(t, endTrajectory(t.Context(), db, 20, 1))
	b.until("document.querySelectorAll('.group a').length == 2")
	b.clean()
}

// An answer that takes longer than the run takes for a step arrives.
func TestThePageWaitsForWhatTakesLong(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"run": small()})
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains([]string{"/api/trajectory", "/api/tools", "/api/trajectories"}, r.URL.Path) {
			time.Sleep(4 * time.Second)
		}
		x.ServeHTTP(w, r)
	}))
	defer h.Close()
	defer x.Close()
	db, err := store.Open(filepath.Join(x.dir, "run", store.File))
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, endTrajectory(t.Context(), db, 20, 0))
	step := 12
	for view, shown := range map[string]string{"trajectory?run=run&id=train-20-0-0": "#title", "causes?run=run": "#tools tbody tr", "trajectories?run=run": "tr[data-row]"} {
		b.open(h.URL + "/#/" + view)
		for late := time.Now().Add(8 * time.Second); time.Now().Before(late); { // a step is told of each two seconds
			require.NoError(t, db.AddStep(t.Context(), step, map[string]float64{"reward/mean": 0.5}, nil))
			step++
			b.until(fmt.Sprintf("document.querySelector('#state')?.innerText.startsWith('%d steps')", step))
		}
		assert.True(t, js[bool](b, "!!document.querySelector("+quote(shown)+")"), view)
	}
	b.clean()
}

// As many runs as may stand beside each other are told apart.
func TestThePageTellsRunsApart(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	sizes, address := map[string]viewtest.Size{}, "/#/overview?run=seed-0"
	for i := range 12 {
		sizes[fmt.Sprint("seed-", i)] = viewtest.Size{Steps: 3, Groups: 1, Each: 1, Seed: uint64(i)}
		address += fmt.Sprint("&with=seed-", i)
	}
	x := serve(t, "", sizes)
	b.open(x.url + address)
	b.until("document.querySelectorAll('.compare .swatch').length == 11 && document.querySelectorAll('.card[aria-label=\"Reward\"] .legend li').length == 8")
	require.Equal(t, 11, js[int](b, "new Set([...document.querySelectorAll('.compare .swatch')].map(s => s.innerHTML)).size"))
	require.Equal(t, 8, js[int](b, "new Set([...document.querySelectorAll('.card[aria-label=\"Reward\"] .legend .swatch')].map(s => s.innerHTML)).size"))
	b.shoot("apart")
	b.accessible()

	// Their mean and band, which the server puts together of all steps.
	chart := `document.querySelector('.card[aria-label="Reward"] canvas').toDataURL()`
	apart := js[string](b, chart)
	b.do(chromedp.Click(chromedp.CSS("#band")))
	b.until(chart + " != " + quote(apart))
	require.Equal(t, 1, js[int](b, "performance.getEntriesByType('resource').filter(e => e.name.includes('/api/bands?')).length"))
	b.shoot("band")
	b.accessible()
	b.do(chromedp.Click(chromedp.CSS("#band")))
	b.until(chart + " == " + quote(apart))
	b.clean()
}

// A band is of the runs that are chosen: until that of others has come, their lines are drawn.
func TestThePageDrawsNoBandOfOtherRuns(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	sizes := map[string]viewtest.Size{}
	for i, name := range []string{"a", "b", "c"} {
		sizes[name] = viewtest.Size{Steps: 9, Groups: 1, Each: 1, Seed: uint64(i)}
	}
	x := serve(t, "", sizes)
	chart, legend := `document.querySelector('.card[aria-label="Reward"] canvas')?.toDataURL()`, `document.querySelector('.card[aria-label="Reward"] .legend')?.innerText`
	b.open(x.url + "/#/overview?run=a&with=b")
	b.until(legend + ".includes('b')")
	lines := js[string](b, "new Promise(drawn => setTimeout(() => drawn("+chart+"), 300))")
	b.do(chromedp.Click(chromedp.CSS("#band")))
	b.until(chart + " != " + quote(lines))
	js[any](b, `void (() => { const ask = window.fetch; window.fetch = (...of) => String(of[0]).includes('bands') ? new Promise(() => {}) : ask(...of); })()`)
	js[any](b, "void (location.hash = '#/overview?run=a&with=c&band=1')")
	b.until("document.querySelector('#band').checked && " + legend + ".includes('c')")
	shown := js[string](b, "new Promise(drawn => setTimeout(() => drawn("+chart+"), 300))")
	js[any](b, "void (location.hash = '#/overview?run=a&with=c')")
	b.until("!document.querySelector('#band').checked")
	require.True(t, shown == js[string](b, "new Promise(drawn => setTimeout(() => drawn("+chart+"), 300))"), "the band is of a and b")
	b.clean()
}

// No run is left out in silence: a thirteenth cannot be ticked, and of an address that names more the page says how many are not drawn.
func TestThePageSaysWhichRunsItLeavesOut(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	sizes, address := map[string]viewtest.Size{}, "/#/overview?run=seed-0"
	for i := range 14 {
		sizes[fmt.Sprint("seed-", i)] = viewtest.Size{Steps: 1, Groups: 1, Each: 1, Seed: uint64(i)}
		if i < 12 {
			address += fmt.Sprint("&with=seed-", i)
		}
	}
	x := serve(t, "", sizes)
	b.open(x.url + address)
	b.until("document.querySelectorAll('.compare .swatch').length == 11")
	require.Equal(t, 2, js[int](b, "document.querySelectorAll('.compare input:disabled').length"))
	require.Equal(t, "Shown beside it in the curves; at most 12 are drawn", js[string](b, "document.querySelector('.compare legend').textContent"))
	require.False(t, js[bool](b, "!!document.querySelector('#undrawn')"))
	b.open(x.url + address + "&with=seed-12&with=seed-13")
	b.until("document.querySelector('#undrawn')?.innerText == 'At most 12 runs are drawn: 2 of those that the address names are left out.'")
	b.clean()
}

// Of more runs than a page lists, the ones that were written last are listed, the page says how many are not, and all can be asked for.
func TestThePageOfManyRuns(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	one := viewtest.Size{Steps: 2, Groups: 1, Each: 1, Seed: 1}
	x := serve(t, "", map[string]viewtest.Size{"r0001": one, "r1002": one})
	old := time.Now().Add(-time.Hour)
	for i := 2; i < 1002; i++ {
		dir := filepath.Join(x.dir, fmt.Sprintf("r%04d", i))
		require.NoError(t, os.Mkdir(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, store.File), []byte("no store"), 0o600))
		require.NoError(t, os.Chtimes(filepath.Join(dir, store.File), old, old))
	}
	older := old.Add(-time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(x.dir, "r0001", store.File), older, older))
	got := get[struct {
		Runs []struct{ Name string }
		Left int
	}](t, x, "/api/runs", nil)
	require.Len(t, got.Runs, 1000)
	require.Equal(t, "r1002", got.Runs[0].Name)
	require.Equal(t, 2, got.Left)
	for _, name := range []string{"r0001", "r1002"} {
		require.Equal(t, 2, get[struct{ Total int }](t, x, "/api/curves", url.Values{"run": {name}}).Total)
	}
	b.open(x.url + "/#/overview")
	b.until("document.querySelector('#left')?.innerText.includes('2 older runs')")
	require.Equal(t, "r1002", js[string](b, "document.querySelector('#run').value")) // not r0001, which was only looked at
	b.clean()
}

// What a run does now is what its process wrote, which the page follows; a process that is gone, and an end, are said.
func TestThePageSaysWhatARunDoesNow(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"run": small()})
	folder := runfolder.New(filepath.Join(x.dir, "run"), false)
	host, err := os.Hostname()
	require.NoError(t, err)
	b.open(x.url + "/#/now?run=run")
	b.until("document.querySelector('#standing')?.innerText.startsWith('This run wrote nothing')")
	n := runfolder.Now{Host: host, PID: os.Getpid(), Started: time.Now().Add(-time.Minute), Written: time.Now(), Since: time.Now(), Doing: "waiting for the batch of step 3", Waits: []runfolder.Wait{
		{Part: "tool " + viewtest.Hostile, Count: 7, Oldest: "train-2-0-1", Seconds: 12}, {Part: "engine", Count: 1, Oldest: "train-2-0-2-0", Seconds: 1},
	}, Engine: []runfolder.Load{{Server: "http://127.0.0.1:8001", Running: 12, Slots: 64, Waiting: 3}, {Server: "http://127.0.0.1:8002", Slots: 64, Down: "down: no answer " + viewtest.Hostile}}}
	n.Groups = &schedule.Groups{Sampling: 3, Ended: 2, Training: 4, Batch: 4, Most: 12, Behind: 1, Staleness: 1}
	require.NoError(t, folder.WriteNow(n))
	pool := runfolder.Pool{Name: "sandbox", Size: 4, InUse: 4, Waiting: 2, Queue: []runfolder.Holder{{Name: "train-2-1-3"}}}
	require.NoError(t, folder.WriteResources(runfolder.Resources{Host: host, PID: os.Getpid(), Written: time.Now(), Pools: []runfolder.Pool{pool}}))
	b.until("document.querySelector('#standing')?.innerText.startsWith('Running: process " + fmt.Sprint(os.Getpid()) + "') && document.querySelectorAll('#waits tbody tr').length == 2")
	require.Contains(t, js[string](b, "document.querySelector('#waits tbody tr').innerText"), "7\t12.0 s\ttrain-2-0-1")
	require.Contains(t, js[string](b, "document.querySelector('#pools tbody tr').innerText"), "sandbox\t4 of 4\t0\t0\t2")
	require.Equal(t, "http://127.0.0.1:8001\t12 of 64\t3\tserving", js[string](b, "document.querySelector('#engine tbody tr').innerText"))
	require.Contains(t, js[string](b, "document.querySelectorAll('#engine tbody tr')[1].innerText"), "8002\t0 of 64\t0\tdown: no answer <script>")
	require.Equal(t, "being sampled\n3\nwait for their update\n2\nin the update\n4\npolicy versions behind\n1", js[string](b, "document.querySelector('#groups').innerText"))
	require.Equal(t, "waiting for the batch of step 3", js[string](b, "document.querySelector('#doing').innerText"))
	require.Equal(t, "does, for", js[string](b, "[...document.querySelector('.tiles').querySelectorAll('dt')].map(x => x.innerText).join(', ')"), "what is sampled is told by the run, in its groups: the log does not know what was given up")
	b.accessible()
	b.shoot("now")
	n.Doing, n.Written, n.Waits = "the update of step 3", time.Now(), nil
	require.NoError(t, folder.WriteNow(n))
	b.until("document.querySelector('#doing').innerText == 'the update of step 3' && !document.querySelector('#waits')")
	n.Written = time.Now().Add(-time.Hour) // killed
	require.NoError(t, folder.WriteNow(n))
	b.until("document.querySelector('#standing[role=alert]')?.innerText.includes('wrote nothing for 60 min')")
	b.accessible()
	n.Ended, n.Error = runfolder.EndedFailed, "the engine is gone "+viewtest.Hostile
	require.NoError(t, folder.WriteNow(n))
	b.until("document.querySelector('#standing').innerText.startsWith('The run is over: failed')")
	require.Contains(t, js[string](b, "document.querySelector('#standing').innerText"), "the engine is gone <script>")
	b.clean()
}

// A page that was opened with the key has buttons for what a run can be asked for, which a keyboard reaches; stopping asks first. A page without the
// key has none.
func TestThePageControlsARun(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"run": small()})
	s, err := New(x.dir, Options{ControlKey: "secret", Errors: io.Discard})
	require.NoError(t, err)
	h := httptest.NewServer(s)
	defer h.Close()
	defer s.Close()
	dir := filepath.Join(x.dir, "run")
	host, err := os.Hostname()
	require.NoError(t, err)
	require.NoError(t, runfolder.New(dir, false).WriteNow(runfolder.Now{Host: host, PID: os.Getpid(), Started: time.Now(), Written: time.Now(), Since: time.Now(), Doing: "the update of step 3"}))
	requests := runfolder.NewRequests(dir)
	asked := func() (out []runfolder.Action) {
		all, err := requests.Next()
		require.NoError(t, err)
		for _, q := range all {
			out = append(out, q.Action)
		}
		return out
	}
	b.open(h.URL + "/#/now?run=run")
	b.until("document.querySelector('#doing')?.innerText == 'the update of step 3'")
	require.False(t, js[bool](b, "!!document.querySelector('#ask-pause')"))
	b.open(h.URL + "/?key=secret")
	b.until("location.search == '' && location.hash.startsWith('#/overview') && document.querySelector('h1')") // it goes there by itself
	b.open(h.URL + "/#/now?run=run")
	b.until("document.querySelector('#ask-pause')")
	b.accessible()
	b.tabTo("#ask-pause")
	b.press(kb.Enter)
	b.until("document.querySelector('#asked').innerText.startsWith('Pause: asked for')")
	require.Equal(t, []runfolder.Action{runfolder.Pause}, asked())
	js[any](b, "void (window.confirm = () => false); document.querySelector('#ask-stop').click()")
	require.Empty(t, asked())
	js[any](b, "void (window.confirm = () => true); document.querySelector('#ask-stop').click()")
	b.until("document.querySelector('#asked').innerText.startsWith('Stop after this step: asked for')")
	require.Equal(t, []runfolder.Action{runfolder.Stop}, asked())
	b.clean()
}

// Dark colours and the width of a phone: nothing is wider than the screen, and axe finds nothing.
func TestThePageOnAPhone(t *testing.T) {
	t.Parallel()
	b := chromium(t, 390, 844)
	x := serve(t, "", map[string]viewtest.Size{"run": {Steps: 12, Groups: 4, Each: 4, Seed: 1}})
	b.open(x.url + "/#/overview")
	b.until("document.querySelector('#theme')")
	b.do(chromedp.Focus(chromedp.CSS("#theme")))
	b.press("d")
	b.until("document.documentElement.dataset.theme == 'dark'")
	for _, view := range []string{"overview", "trajectories", "trajectory?id=train-3-0-0&colour=version", "trajectory?id=train-4-1-1&colour=advantage", "causes", "now"} {
		b.open(x.url + "/#/" + view)
		b.until("document.querySelector('.card canvas, tr[data-row], #tokens span, #tools tbody tr, #standing')")
		require.LessOrEqual(t, js[int](b, "document.documentElement.scrollWidth"), 390, view)
		b.accessible()
		b.clean()
		b.shoot("phone-" + strings.FieldsFunc(view, func(r rune) bool { return r == '?' })[0])
	}
}

func stepsOf(t *testing.T, db *store.Reader) (numbers []int, all []map[string]float64) {
	t.Helper()
	require.NoError(t, db.EachStep(t.Context(), func(n int, m map[string]float64) { numbers, all = append(numbers, n), append(all, m) }))
	return numbers, all
}

// worst is the first trajectory of the list with the lowest reward first.
func worst(t *testing.T, db *store.Reader) (out store.Record) {
	t.Helper()
	order := filter{Sort: "reward", Ascending: true}.order()
	var best *entry
	require.NoError(t, db.Select(t.Context(), store.Selection{}, func(r store.Record) error {
		e := newEntry(r.Phase, r.Trajectory, &interner{})
		if best == nil || order(e, best) < 0 {
			best, out = e, r
		}
		return nil
	}))
	return out
}

// short is how the page writes a number of a curve.
func short(v float64) string {
	digits := 1e3
	if v > -1 && v < 1 {
		digits = 1e4
	}
	out, _ := json.Marshal(math.Round(v*digits) / digits)
	return string(out)
}

// The trajectories of a tree and the samples of a trajectory are drawn with where they fork, and lead to one another, by keyboard too.
func TestThePageDrawsBranches(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"run": small()})
	require.NoError(t, viewtest.Branching(t.Context(), filepath.Join(x.dir, "tree"), x.words))
	lines := `[...document.querySelectorAll('.branches li')].map(l => l.innerText)`
	b.open(x.url + "/#/trajectory?run=tree&id=train-0-0-0.0.0")
	b.until("document.querySelectorAll('.branches circle').length == 12")
	require.Equal(t, []string{
		"0 reward 0, answer", "0.0 reward 0.25, answer, forks off 0 after turn 1", "0.0.0 reward 0.5, answer, forks off 0.0 after turn 2", "1 reward 0.75, answer", "1.0 reward 1, answer, forks off 1 after turn 2",
		"1.1 reward 1.25, answer, forks off 1 within turn 2, behind 4 tokens",
	}, js[[]string](b, lines))
	require.Equal(t, []string{"turn 1 of train-0-0-0", "turn 2 of train-0-0-0.0", "turn 3 of train-0-0-0.0.0", "turn 4 of train-0-0-0.0.0"}, js[[]string](b, `[...document.querySelectorAll('.branches circle.now')].map(c => c.textContent)`))
	require.Contains(t, js[string](b, "document.querySelector('.talk').innerText"), "sampled by train-0-0-0\n")
	b.accessible()
	b.shoot("tree")
	b.open(x.url + "/#/trajectory?run=tree&id=train-0-0-1.1")
	b.until("document.querySelector('#title')?.innerText == 'train-0-0-1.1' && document.querySelectorAll('.branches circle.now').length == 2")
	require.Contains(t, js[string](b, "document.querySelector('.talk').innerText"), "its first 4 tokens sampled by train-0-0-1\n")
	b.tabTo(".branches a")
	b.press(kb.Enter)
	b.until("document.querySelector('#title')?.innerText == 'train-0-0-0' && document.querySelectorAll('.branches circle.now').length == 3")

	b.open(x.url + "/#/trajectory?run=tree&id=train-0-1-0")
	b.until("document.querySelectorAll('.branches circle').length == 6")
	got := js[[]string](b, lines)
	require.Len(t, got, 4)
	require.Regexp(t, `^sample 0 \d+ tokens$`, got[0])
	require.Regexp(t, `^sample 1 \d+ tokens, not trained$`, got[1])
	require.Regexp(t, `^sample 2 \d+ tokens, the first \d+ those of sample 0$`, got[2])
	require.Regexp(t, `^sample 3 \d+ tokens, the first \d+ those of sample 0, not trained$`, got[3])
	require.Equal(t, 4, js[int](b, "document.querySelectorAll('.branches circle.now').length"), "the calls that were trained")
	require.Equal(t, 2, js[int](b, "document.querySelectorAll('.branches .edge.anew').length"), "calls 4 and 5 go on from call 3 with other tokens")
	require.Contains(t, js[string](b, "document.querySelector('.talk').innerText"), "goes on from turn 4")
	b.accessible()
	b.shoot("graph")
	js[any](b, "void document.querySelectorAll('.branches circle.to')[4].dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}))")
	b.until("location.hash.includes('sample=2') && document.querySelector('#sample').value == '2'")
	b.clean()
	b.open(x.url + "/#/trajectory?run=run&id=train-1-0-0")
	b.until("document.querySelector('#tokens span')")
	require.Zero(t, js[int](b, "document.querySelectorAll('.branches').length"), "a chain of one sample has nothing to draw")
}

// A trajectory of an evaluation that is open on the page has its group as it grows, until the evaluation has ended; what the same task was answered
// with by later evaluations comes beside it too, also beside one that can no longer change.
func TestThePageOfAnEvaluationThatGoesOn(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"run": small()})
	db, err := store.Open(filepath.Join(x.dir, "run", store.File))
	require.NoError(t, err)
	defer db.Close()
	add := func(step, index int) {
		phase, s := fmt.Sprintf("eval-step-%d", step), &trajectory.Sample{}
		s.AppendObservation([]int32{0})
		require.NoError(t, s.AppendResponse([]int32{1}, []float32{-1}, []int32{0}))
		require.NoError(t, db.AddTrajectory(t.Context(), phase, trajectory.Task{ID: "held"}, &trajectory.Trajectory{ID: store.ID(phase, step, 0, index), TaskID: "held", Step: step, Index: index, Samples: []*trajectory.Sample{s}}))
	}
	done := func(step int) {
		name := fmt.Sprintf("step-%d", step)
		require.NoError(t, db.AddEvaluation(t.Context(), name, step, map[string]any{"name": name, "step": step, "reward": 0.5}))
	}
	group, others := "document.querySelectorAll('.group a').length", "document.querySelectorAll('#against option').length" // one says that none is chosen
	add(12, 0)
	b.open(x.url + "/#/trajectory?run=run&id=eval-step-12-12-0-0")
	b.until(group + " == 1 && document.querySelector('#state').innerText.startsWith('12 steps, 193 trajectories')")
	add(12, 1)
	b.until(group + " == 2")
	require.Zero(t, js[int](b, others))
	done(12)
	b.until("document.querySelector('#state').innerText.startsWith('12 steps, 194 trajectories')")
	for i, step := range []int{20, 30, 40} {
		add(step, 0)
		done(step)
		b.until(fmt.Sprintf("%s == %d", others, 2+i))
	}
	b.open(x.url + "/#/trajectory?run=run&id=train-3-1-2") // it was trained long ago
	b.until("document.querySelector('#title')?.innerText == 'train-3-1-2'")
	task := js[string](b, "document.querySelector('nav[aria-label=group] a').innerText")
	tried := js[int](b, others)
	s := &trajectory.Sample{}
	s.AppendObservation([]int32{0})
	require.NoError(t, s.AppendResponse([]int32{1}, []float32{-1}, []int32{0}))
	require.NoError(t, db.AddTrajectory(t.Context(), "eval-step-50", trajectory.Task{ID: task}, &trajectory.Trajectory{ID: "eval-step-50-50-0-0", TaskID: task, Step: 50, Samples: []*trajectory.Sample{s}}))
	done(50)
	b.until(fmt.Sprintf("%s == %d", others, max(2, tried+1)))
	// The server may hear of an evaluation long before it reads its trajectories.
	tried = js[int](b, others)
	require.NoError(t, db.AddStep(t.Context(), 12, map[string]float64{"reward/mean": 0.5}, nil))
	time.Sleep(3 * soon) // nothing of it can change any more, as far as the page knows
	done(60)
	time.Sleep(3 * soon) // the page was told of it, and has asked
	require.NoError(t, db.AddTrajectory(t.Context(), "eval-step-60", trajectory.Task{ID: task}, &trajectory.Trajectory{ID: "eval-step-60-60-0-0", TaskID: task, Step: 60, Samples: []*trajectory.Sample{s}}))
	b.until(fmt.Sprintf("%s == %d", others, tried+1))
	b.clean()
}

// A run whose evaluations sample a task several times shows pass@k beside the held-out score, by k as numbers go.
func TestThePageOfPassAtK(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", nil)
	require.NoError(t, os.Mkdir(filepath.Join(x.dir, "run"), 0o755))
	db, err := store.Open(filepath.Join(x.dir, "run", store.File))
	require.NoError(t, err)
	require.NoError(t, db.AddStep(t.Context(), 0, map[string]float64{"reward/mean": 0.5}, nil))
	for step, pass := range []map[string]float64{{"1": 0.125, "16": 0.5, "4": 0.25}, {"1": 0.25, "16": 0.75, "4": 0.5}} {
		name := fmt.Sprintf("step-%d", step)
		require.NoError(t, db.AddEvaluation(t.Context(), name, step, map[string]any{"name": name, "step": step, "reward": 0.25, "accuracy": 0.25, "pass": pass}))
	}
	require.NoError(t, db.Close())
	b.open(x.url + "/#/overview?run=run")
	b.until(`document.querySelector('.card[aria-label="Held-out score"] .legend')?.innerText.replace(/\s+/g, ' ').includes('eval/reward 0.25 eval/accuracy 0.25 eval/pass/1 0.25 eval/pass/4 0.5 eval/pass/16 0.75')`)
	b.open(x.url + "/#/overview?run=run&metric=pass")
	b.until(`document.querySelector('.card[aria-label="eval/pass/16"] .legend')?.innerText.includes('0.75')`)
	b.clean()
}

// A run of supervised fine-tuning shows its held-out loss and the step of each conversation; one that failed has no reward.
func TestThePageOfFineTuning(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", nil)
	require.NoError(t, os.Mkdir(filepath.Join(x.dir, "sft"), 0o755))
	db, err := store.Open(filepath.Join(x.dir, "sft", store.File))
	require.NoError(t, err)
	for step := range 3 {
		tr := &trajectory.Trajectory{ID: fmt.Sprintf("sft-%d-0", step), TaskID: "a", Step: step, StopReason: trajectory.StopRecorded}
		if step == 2 {
			tr.Fail(trajectory.OriginEngine, "gone")
		}
		require.NoError(t, db.AddTrajectory(t.Context(), "sft", trajectory.Task{ID: "a"}, tr))
		require.NoError(t, db.AddStep(t.Context(), step, map[string]float64{"sft/loss": 2 - 0.5*float64(step)}, nil))
		require.NoError(t, db.AddEvaluation(t.Context(), fmt.Sprintf("step-%d", step+1), step+1, map[string]any{"name": fmt.Sprintf("step-%d", step+1), "step": step + 1, "loss": 2.25 - 0.5*float64(step)}))
	}
	require.NoError(t, db.Close())
	b.open(x.url + "/#/overview?run=sft")
	b.until(`document.querySelector('.card[aria-label="Loss of fine-tuning"] .legend')?.innerText.replace(/\s+/g, ' ').includes('sft/loss 1 eval/loss 1.25')`)
	b.open(x.url + "/#/trajectories?run=sft&sort=step")
	b.until(`[...document.querySelectorAll('tr[data-row] .col-step')].map(c => c.innerText).join() == '3,2,1'`)
	b.open(x.url + "/#/trajectory?run=sft&id=sft-2-0")
	b.until(`document.querySelector('#reward')?.innerText == '–'`)
	b.open(x.url + "/#/trajectories?run=sft")
	b.until(`document.querySelector('#found')?.innerText.startsWith('3 of 3 trajectories') && [...document.querySelectorAll('tr[data-row] .col-reward')].map(c => c.innerText).join() == '–,–,–'`)
	require.NotContains(t, js[string](b, "document.querySelector('#found').innerText"), "mean reward")
	b.open(x.url + "/#/trajectory?run=sft&id=sft-1-0")
	b.until(`document.querySelector('#title')?.innerText == 'sft-1-0'`)
	require.Equal(t, []string{"no other step", "step 1: reward –", "step 3: reward –"}, js[[]string](b, `[...document.querySelectorAll('#against option')].map(o => o.innerText)`))
	b.choose("against", "sft-0-0")
	b.until(`document.querySelectorAll('.beside article .note').length == 2 && document.querySelectorAll('.beside article .note')[1].innerText.startsWith('step 1, reward ')`)
	b.open(x.url + "/#/trajectory?run=sft&id=sft-1-0")
	b.until(`document.querySelector('#title')?.innerText == 'sft-1-0' && !document.querySelector('.beside')`)
	require.Equal(t, []string{"–", "–"}, js[[]string](b, `[document.querySelector('#reward').innerText, [...document.querySelectorAll('.tiles div')].find(d => d.innerText.startsWith('staleness')).querySelector('dd').innerText]`), "nobody scored it; it is trained")
	b.clean()
}

// What nobody sampled is coloured by nothing that an engine says, and Causes says why it compares nothing.
func TestThePageOfTokensThatNobodySampled(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", nil)
	stored(t, x, "sft", func(db *store.Store) error { return learn(t.Context(), db) })
	b.open(x.url + "/#/causes?run=sft")
	b.until("document.querySelector('.causes')?.innerText.includes('is recorded: no engine sampled its tokens')")
	b.open(x.url + "/#/trajectory?run=sft&id=sft-0-0&colour=ratio")
	b.until("document.querySelector('#colour')")
	require.Equal(t, []string{"mask", "trainer logprob", "advantage", "policy version"}, js[[]string](b, "[...document.querySelectorAll('#colour option')].map(o => o.innerText)"))
	require.Equal(t, "mask", js[string](b, "document.querySelector('#colour').value"))
	b.clean()
}

// An address that does not fit is said, and no run is shown with the data of another: one that is not there, one that cannot be read, a step and a
// filter that there are not.
func TestThePageOfWrongAddresses(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"seed-1": small(), "broken": small(), "long": {Steps: 40, Groups: 4, Each: 2, Seed: 3}})
	file := filepath.Join(x.dir, "broken", store.File)
	require.NoError(t, os.Truncate(file, 5000))
	for _, beside := range []string{"-wal", "-shm"} {
		_ = os.Remove(file + beside) // it may not be there
	}
	b.open(x.url + "/")
	b.until("/run=(seed-1|long|broken)/.test(location.hash)") // an address says of which run it is

	b.open(x.url + "/#/trajectories?run=seed-1")
	b.until("document.querySelectorAll('tr[data-row]').length > 5")
	js[any](b, "void (document.querySelector('#run').value = 'broken', document.querySelector('#run').dispatchEvent(new Event('change', {bubbles: true})))")
	b.until("location.hash.includes('run=broken') && document.querySelector('header .alert')?.innerText.startsWith('broken: ')")
	b.until("document.querySelector('#found').innerText.length > 10 && document.querySelectorAll('tr[data-row]').length == 0")
	b.open(x.url + "/#/causes?run=long&step=30&span=20")
	b.until("document.querySelector('#changes tbody tr') && document.querySelector('#drawn')")
	require.Equal(t, "reward/mean", js[string](b, "document.querySelector('#changes tbody td').innerText"))
	js[any](b, "void (document.querySelector('#run').value = 'broken', document.querySelector('#run').dispatchEvent(new Event('change', {bubbles: true})))")
	b.until("document.querySelector('header .alert') && !document.querySelector('#changes')")
	b.open(x.url + "/#/overview?run=seed-1&with=broken")
	b.until("document.querySelectorAll('.card canvas').length > 5 && document.querySelector('#live .dot')") // the broken one takes no curve away
	b.accessible()

	b.open(x.url + "/#/now?run=gone")
	b.until("document.querySelector('#unknown')?.innerText.startsWith('There is no run gone in ')")
	b.accessible()
	b.open(x.url + "/#/causes?run=seed-1&step=999")
	b.until("document.querySelector('h2')?.innerText == 'Causes, step 12' && document.querySelector('#at').innerText == '12 of 12'")
	b.open(x.url + "/#/trajectories?run=seed-1&min=abc")
	b.until("document.querySelector('#found')?.innerText == 'Reward from: “abc” is no number.' && document.querySelectorAll('tr[data-row]').length == 0")
	b.open(x.url + "/#/trajectories?run=seed-1&from=9&to=3")
	b.until("document.querySelector('#found')?.innerText.startsWith('Step: from 9 to 3 is nothing')")
	b.open(x.url + "/#/trajectories?run=seed-1&to=0")
	b.until("document.querySelector('#found')?.innerText.startsWith('Step to: there is no step 0')")
	b.open(x.url + "/#/trajectories?run=seed-1&task=none")
	b.until("document.querySelector('#found')?.innerText.startsWith('0 of 192 trajectories')")
	js[any](b, "void (document.querySelector('#run').value = 'long', document.querySelector('#run').dispatchEvent(new Event('change', {bubbles: true})))")
	b.until("document.querySelector('#found')?.innerText.startsWith('320 of 320 trajectories')") // the task was the other run's

	// The keyboard keeps its place beyond what is loaded, and the way back is that to the list as it was.
	b.tabTo("#list")
	b.press(kb.ArrowDown)
	b.until("document.activeElement.closest('[data-row]')")
	b.open(x.url + "/#/trajectories?run=long&sort=reward")
	b.until("document.activeElement.id == 'list' && document.querySelectorAll('tr[data-row]').length > 5") // the row that had it is gone
	last := "document.activeElement.closest('[data-row]')?.dataset.row == '319'"
	for late := time.Now().Add(2 * time.Minute); !js[bool](b, "!!("+last+")") && time.Now().Before(late); time.Sleep(200 * time.Millisecond) {
		b.press(kb.End) // goes to the last that is loaded, which loads more
		b.until("document.activeElement.closest('#list')")
	}
	b.until(last)
	b.press(kb.Home)
	b.until("document.activeElement.closest('[data-row]')?.dataset.row == '0'")
	b.press(kb.Enter)
	b.until("document.querySelector('#back')")
	b.do(chromedp.Click(chromedp.CSS("#back")))
	b.until("location.hash.includes('sort=reward') && document.querySelectorAll('tr[data-row]').length > 5")

	// The list of another run is that run's, with what the last one was sorted by no more; beside a longer run the step is one of its own.
	js[any](b, "void (document.querySelector('#run').value = 'seed-1', document.querySelector('#run').dispatchEvent(new Event('change', {bubbles: true})))")
	b.until("location.hash.includes('run=seed-1')")
	b.open(x.url + "/#/overview?run=long")
	js[any](b, "void (document.querySelector('#run').value = 'seed-1', document.querySelector('#run').dispatchEvent(new Event('change', {bubbles: true})))")
	b.until("location.hash.includes('run=seed-1')")
	js[any](b, "void document.querySelector('nav a[href*=\"trajectories\"]').click()")
	b.until("location.hash.startsWith('#/trajectories') && location.hash.includes('run=seed-1') && document.querySelector('#found')?.innerText.startsWith('192 of 192 trajectories')")
	b.open(x.url + "/#/causes?run=seed-1&with=long&step=40")
	b.until("document.querySelector('h2')?.innerText == 'Causes, step 12 of seed-1'")

	// Nothing is wider than the narrowest phone.
	b.do(chromedp.EmulateViewport(320, 700))
	for _, view := range []string{"overview", "trajectories", "causes", "now", "trajectory"} {
		b.open(x.url + "/#/" + view + "?run=seed-1&id=train-3-1-0")
		b.until("document.querySelector('main').innerText.length > 60")
		require.LessOrEqual(t, js[int](b, "document.documentElement.scrollWidth"), 320, view)
	}
	b.do(chromedp.EmulateViewport(1280, 900))

	// A curve tells its values where somebody points.
	b.open(x.url + "/#/overview?run=long")
	b.until("document.querySelectorAll('.card canvas').length > 5")
	js[any](b, `void (() => { const o = document.querySelector('.card .u-over'), r = o.getBoundingClientRect(); o.dispatchEvent(new MouseEvent('mousemove', {clientX: r.left + r.width / 2, clientY: r.top + 20, bubbles: true})); })()`)
	b.until("/^step \\d+$/.test(document.querySelector('.card .point')?.innerText)")
	b.clean()
}

// A drawing says what each kind of its marks and lines means, and leads on with the colour and the view that were chosen.
func TestThePageExplainsItsDrawings(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", nil)
	require.NoError(t, viewtest.Branching(t.Context(), filepath.Join(x.dir, "tree"), x.words))
	db, err := store.Open(filepath.Join(x.dir, "tree", store.File))
	require.NoError(t, err)
	defer db.Close()
	failed := &trajectory.Trajectory{ID: store.ID(store.Train, 0, 0, 2), TaskID: "product-000", Index: 2, StopReason: trajectory.StopError, Turns: []trajectory.Turn{{Completion: "I"}}}
	failed.Fail(trajectory.OriginEngine, "gone")
	require.NoError(t, db.AddTrajectory(t.Context(), store.Train, trajectory.Task{ID: "product-000"}, failed))
	drawn := `[...new Set([...document.querySelectorAll('.branches svg :is(path, circle, rect)')].map(x => x.getAttribute('class').replace(' to', '')))].sort()`
	explained := `[...document.querySelectorAll('.drawing .marks li')].map(l => l.querySelector('svg > *').getAttribute('class')).sort()`
	for id, kinds := range map[string][]string{
		"train-0-0-0.0.0": {"bad", "dot", "dot now", "edge", "edge now", "prompt"}, "train-0-0-2": {"bad now", "dot", "edge", "edge now", "prompt"}, "train-0-1-0": {"dot", "dot now", "edge", "edge anew", "prompt"},
	} {
		b.open(x.url + "/#/trajectory?run=tree&id=" + id)
		b.until("document.querySelector('#title')?.innerText == " + quote(id) + " && document.querySelector('.branches circle')")
		require.Equal(t, kinds, js[[]string](b, drawn), id)
		require.Equal(t, kinds, js[[]string](b, explained), id)
		require.Empty(t, js[[]string](b, `[...document.querySelectorAll('.drawing .marks li')].map(l => l.innerText.trim()).filter(s => s.length < 5)`))
		b.accessible()
		b.shoot("marks-" + id)
	}
	b.clean()
}

// A link within a trajectory, to one of its samples or to another of its group, keeps the colour and the view.
func TestThePageKeepsTheColourAlongLinks(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"run": small()})
	require.NoError(t, viewtest.Branching(t.Context(), filepath.Join(x.dir, "tree"), x.words))
	b.open(x.url + "/#/trajectory?run=tree&id=train-0-1-0&colour=logprob&show=tokens")
	b.until("document.querySelectorAll('.branches li a').length == 4")
	b.do(chromedp.Click(chromedp.CSS(".branches li:nth-child(3) a")))
	b.until("location.hash.includes('sample=2')")
	require.Equal(t, "logprob tokens", js[string](b, "document.querySelector('#colour')?.value + ' ' + document.querySelector('#show').value"))
	b.open(x.url + "/#/trajectory?run=run&id=train-3-1-0&colour=logprob&show=tokens&beside=1")
	b.until("document.querySelectorAll('.beside article h3 a').length == 4")
	b.do(chromedp.Click(chromedp.CSS(".beside article:nth-child(2) h3 a")))
	b.until("document.querySelector('#title')?.innerText == 'train-3-1-1' && document.querySelector('#tokens')")
	require.Equal(t, "logprob tokens", js[string](b, "document.querySelector('#colour')?.value + ' ' + document.querySelector('#show').value"))
	b.clean()
}

// choose has a person choose in a select of the page.
func (b tab) choose(id, value string) {
	b.t.Helper()
	js[any](b, fmt.Sprintf("void (document.querySelector('#%s').value = %s, document.querySelector('#%s').dispatchEvent(new Event('change', {bubbles: true})))", id, quote(value), id))
}

// Of a large group those around the trajectory that is open stand side by side, and the page says so.
func TestThePageOfALargeGroup(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"run": {Steps: 1, Groups: 1, Each: 40, Seed: 1}})
	b.open(x.url + "/#/trajectory?run=run&id=train-0-0-30&beside=1")
	b.until("document.querySelectorAll('.beside article .talk').length == 16")
	require.True(t, js[bool](b, "!!document.querySelector('.beside article[aria-label=train-0-0-30]')"))
	require.Equal(t, "16 of the 40 trajectories of the group stand here, those around train-0-0-30.", js[string](b, "document.querySelector('#part')?.innerText"))
	b.accessible()
	b.open(x.url + "/#/trajectory?run=run&id=train-0-0-39&beside=1")
	b.until("document.querySelector('.beside article[aria-label=train-0-0-39] .talk')")
	b.open(x.url + "/#/trajectory?run=run&id=train-0-0-0&beside=1")
	b.until("document.querySelector('.beside article[aria-label=train-0-0-0] .talk')")
	b.clean()
}

// stored makes a run folder with what fill stores.
func stored(t *testing.T, x *served, name string, fill func(db *store.Store) error) {
	t.Helper()
	require.NoError(t, os.Mkdir(filepath.Join(x.dir, name), 0o755))
	db, err := store.Open(filepath.Join(x.dir, name, store.File))
	require.NoError(t, err)
	require.NoError(t, fill(db))
	require.NoError(t, db.Close())
}

// What turns were paid is their sum, and not what rounding leaves of it.
func TestThePageAddsUpTurns(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", nil)
	stored(t, x, "run", func(db *store.Store) error {
		paid, more, taken := 0.1, 0.2, -0.3
		tr := &trajectory.Trajectory{ID: "train-0-0-0", TaskID: "a", Reward: 0.3, RewardParts: map[string]float64{"right": 0.3}, StopReason: trajectory.StopAnswer, Turns: []trajectory.Turn{{Reward: &paid}, {Reward: &more}, {Reward: &taken}}}
		return db.AddTrajectory(t.Context(), store.Train, trajectory.Task{ID: "a"}, tr)
	})
	b.open(x.url + "/#/trajectory?run=run&id=train-0-0-0")
	b.until("document.querySelector('.parts')")
	require.Equal(t, "Reward: right 0.3of it paid for 3 turns 0", js[string](b, "document.querySelector('.parts').innerText"))
	b.clean()
}

// Keys that a browser goes back and forth with are left to it, also where arrow keys move.
func TestThePageLeavesTheBrowserItsKeys(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"run": small()})
	prevented := func(selector, key, with string) bool {
		return js[bool](b, fmt.Sprintf("!document.querySelector(%s).dispatchEvent(new KeyboardEvent('keydown', {key: %s, %s: true, bubbles: true, cancelable: true}))", quote(selector), quote(key), with))
	}
	b.open(x.url + "/#/trajectory?run=run&id=train-3-1-0&token=2")
	b.until("document.querySelector('#token b')?.innerText.startsWith('3 of')")
	require.False(t, prevented("#tokens", "ArrowLeft", "altKey"))
	require.False(t, prevented("#tokens", "ArrowRight", "metaKey"))
	require.True(t, prevented("#tokens", "ArrowLeft", "bubbles"))
	b.open(x.url + "/#/trajectories?run=run")
	b.until("document.querySelectorAll('tr[data-row]').length > 5")
	require.False(t, prevented("#list", "Home", "altKey"))
	require.False(t, prevented("#list", "End", "ctrlKey"))
	require.True(t, prevented("#list", "ArrowDown", "bubbles"))
	b.clean()
}

// A run that is not there any more is said, though another one stands beside it.
func TestThePageOfARunThatIsGone(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"first": small(), "second": small()})
	b.open(x.url + "/#/trajectories?run=first&with=second")
	b.until("document.querySelectorAll('tr[data-row]').length > 5")
	require.NoError(t, os.RemoveAll(filepath.Join(x.dir, "first")))
	b.until("document.querySelector('#unknown')?.innerText.startsWith('There is no run first in ')")
	require.Equal(t, "", js[string](b, "document.querySelector('#run').value"))
	b.accessible()
	b.choose("run", "second")
	b.until("document.querySelector('#found')?.innerText.startsWith('192 of 192')")
	b.clean()
}

// The number of trajectories that are found goes on while somebody reads further down, and is never beyond that of all.
func TestThePageCountsWhileSomebodyReads(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"run": small()})
	db, err := store.Open(filepath.Join(x.dir, "run", store.File))
	require.NoError(t, err)
	defer db.Close()
	found := "document.querySelector('#found')?.innerText"
	b.open(x.url + "/#/trajectories?run=run")
	b.until(found + "?.startsWith('192 of 192') && document.querySelector('#state').innerText.startsWith('12 steps, 192')")
	js[any](b, "void (document.querySelector('#list').scrollTop = 3000)")
	b.until("document.querySelector('tr[data-row=\"95\"]')")
	row := js[string](b, "document.querySelector('tr[data-row=\"95\"]').dataset.id")
	require.NoError(t, endTrajectory(t.Context(), db, 12, 0))
	b.until("document.querySelector('#state').innerText.startsWith('12 steps, 193')")
	b.until(found + ".startsWith('193 of 193')")
	require.Equal(t, row, js[string](b, "document.querySelector('tr[data-row=\"95\"]').dataset.id"), "who reads keeps the rows")
	js[any](b, "void (document.querySelector('#list').scrollTop = 0)")
	b.until("document.querySelector('tr[data-row=\"0\"]')?.dataset.id == 'train-12-0-0'")
	b.clean()
}

// Who goes back to a list finds it where it was, also beyond its first page.
func TestThePageGoesBackToItsPlace(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"run": {Steps: 50, Groups: 4, Each: 4, Seed: 1}})
	b.open(x.url + "/#/trajectories?run=run")
	b.until("document.querySelectorAll('tr[data-row]').length > 5")
	b.until("document.querySelector('#list').scrollTop = 32 * 550, document.querySelector('tr[data-row=\"550\"]')") // each page that is loaded lets it scroll further
	id := js[string](b, "document.querySelector('tr[data-row=\"550\"]').dataset.id")
	js[any](b, "void document.querySelector('tr[data-row=\"550\"] a').click()")
	b.until("document.querySelector('#title')?.innerText == " + quote(id))
	js[any](b, "history.back()")
	b.until("document.querySelector('tr[data-row=\"550\"]')?.dataset.id == " + quote(id))
	require.Equal(t, 32*550, js[int](b, "document.querySelector('#list').scrollTop"))
	b.clean()
}

// Arrow keys go on from the rows that are seen where the one that had the focus was scrolled away.
func TestThePageMovesFromTheRowsThatAreSeen(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"run": {Steps: 40, Groups: 4, Each: 4, Seed: 1}})
	b.open(x.url + "/#/trajectories?run=run")
	b.until("document.querySelectorAll('tr[data-row]').length > 20 && document.querySelector('#found b')?.innerText == '640'")
	js[any](b, "document.querySelector('tr[data-row=\"1\"] a').focus()")
	js[any](b, "void (document.querySelector('#list').scrollTop = 150*32)")
	b.until("document.activeElement.id == 'list'")
	b.press(kb.ArrowDown)
	b.until("document.activeElement.closest('[data-row]')")
	require.GreaterOrEqual(t, js[float64](b, "document.querySelector('#list').scrollTop"), 4700.0)
	b.clean()
}

// A text that is being typed stays while the run goes on, and is that of the view it was typed in.
func TestThePageKeepsWhatIsTyped(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"run": small()})
	b.open(x.url + "/#/trajectories?run=run")
	b.until("document.querySelectorAll('tr[data-row]').length > 5")
	js[any](b, `void (() => { const f = document.querySelector('#f-text'), type = (c) => { f.value += c; f.dispatchEvent(new InputEvent('input', {bubbles: true})) };
		type('c'); document.querySelector('.col-reward button').click(); setTimeout(() => type('alc'), 60); })()`)
	time.Sleep(400 * time.Millisecond)
	require.Equal(t, "calc", js[string](b, "document.querySelector('#f-text').value"))
	js[any](b, "void (() => { const f = document.querySelector('#f-text'); f.value = 'search'; f.dispatchEvent(new InputEvent('input', {bubbles: true})); document.querySelector('nav a[href*=causes]').click(); for (const t = performance.now(); performance.now() < t + 200;); })()") // a page that is busy is told of its new address later than the typing ends
	time.Sleep(400 * time.Millisecond)
	require.NotContains(t, js[string](b, "location.hash"), "text=")
	b.clean()
}

// Names and numbers of any length are shown whole or cut where they stand: nothing is wider than the screen, and a number is never cut.
func TestThePageOfLongNames(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", nil)
	long := strings.Repeat("averylongname", 20)
	stored(t, x, "run", func(db *store.Store) error {
		var errs []error
		for i, reward := range []float64{-1.234e12, 1.5e300, -1.25e-5, 0.3333} {
			s := &trajectory.Sample{}
			s.AppendObservation([]int32{0, 1})
			paid, taken := 0.1, -0.1
			tr := &trajectory.Trajectory{ID: store.ID(store.Train, 123, i, 0), TaskID: long, Step: 123, Group: i, Samples: []*trajectory.Sample{s}, Reward: reward, RewardParts: map[string]float64{long: reward}, StopReason: trajectory.StopAnswer}
			tr.Turns = []trajectory.Turn{{Completion: long, Reward: &paid}, {Completion: long, Reward: &taken}}
			errs = append(errs, db.AddTrajectory(t.Context(), store.Train, trajectory.Task{ID: long}, tr))
		}
		return errors.Join(append(errs, db.AddStep(t.Context(), 123, map[string]float64{"reward/mean": 1, "errors/" + long: 2}, nil))...)
	})
	for _, width := range []int{1280, 800, 360} {
		b.do(chromedp.EmulateViewport(int64(width), 900))
		for view, shown := range map[string]string{"overview": ".card canvas", "trajectory": "#tokens", "causes": "#ends, .causes", "now": ".tiles", "trajectories": "tr[data-row]"} {
			b.open(x.url + "/#/" + view + "?run=run&id=train-123-0-0")
			b.until("document.querySelector(" + quote(shown) + ")")
			assert.LessOrEqual(t, js[int](b, "document.documentElement.scrollWidth"), width, view)
			b.shoot(fmt.Sprintf("long-%s-%d", view, width))
		}
		assert.Empty(t, js[[]string](b, "[...document.querySelectorAll('.list :is(.col-id, .col-reward, .col-step)')].filter(c => c.scrollWidth > c.clientWidth).map(c => c.innerText)"), "%d", width)
	}
	b.clean()
}

// Who points at the evaluation before training, at step 0, reads its values and not the last ones.
func TestThePageTellsWhatWasBeforeTraining(t *testing.T) {
	t.Parallel()
	b := chromium(t, 1280, 900)
	x := serve(t, "", map[string]viewtest.Size{"run": small()}) // its first evaluation is of step 0
	b.open(x.url + "/#/overview?run=run")
	legend := `document.querySelector('.card[aria-label="Held-out score"] .legend').innerText.replace(/\s+/g, ' ')`
	b.until("document.querySelectorAll('.card canvas').length > 5 && " + legend + ".trim().startsWith('eval/reward 0.4137')")
	js[any](b, `void (() => { const o = document.querySelector('.card[aria-label="Held-out score"] .u-over'), r = o.getBoundingClientRect(); o.dispatchEvent(new MouseEvent('mousemove', {clientX: r.left + 2, clientY: r.top + 20, bubbles: true})); })()`)
	b.until(legend + ".endsWith('step 0')")
	require.Equal(t, "eval/reward 0.15 eval/accuracy 0.135 step 0", strings.TrimSpace(js[string](b, legend)))
	b.clean()
}
