//go:build torch

package agentfly_test

import (
	"bufio"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly"
)

// A teacher behind vLLM's routes says what the same teacher says in this process.
func TestDistillationFromAServer(t *testing.T) {
	model := filepath.Join(trainJob(t, "examples/tiny_sft.yaml", "--set", "data.eval=", "--set", "eval.every=0", "--set", "sft.epochs=5"), "checkpoints", "last")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	reader, writer := io.Pipe()
	status := make(chan int, 1)
	var errs strings.Builder
	go func() {
		status <- agentfly.Run(ctx, []string{"agentfly", "serve", model, "--port", "0"}, strings.NewReader(""), writer, &errs)
		writer.Close()
	}()
	url := ""
	lines := bufio.NewScanner(reader)
	for url == "" && lines.Scan() {
		if _, after, ok := strings.Cut(lines.Text(), " on "); ok {
			url = after
		}
	}
	require.NotEmpty(t, url, "%s", &errs)
	go func() { _, _ = io.Copy(io.Discard, reader) }() // ends with the writer

	args := []string{"--set", "trainer.steps=2", "--set", "data.eval=", "--set", "eval.every=0"}
	local := metricsOf(t, trainJob(t, "examples/tiny_distill.yaml", append(args, "--set", "distill.teacher.path="+model)...), "distill/reverse_kl")
	remote := metricsOf(t, trainJob(t, "examples/tiny_distill.yaml", append(args, "--set", "distill={teacher: {urls: ["+url+"]}}")...), "distill/reverse_kl")
	require.Len(t, remote, 2)
	for i := range local {
		require.InDelta(t, local[i]["distill/reverse_kl"], remote[i]["distill/reverse_kl"], 1e-3)
	}
	require.InDelta(t, local[0]["update/loss"], remote[0]["update/loss"], 1e-4)
	require.InEpsilon(t, local[0]["update/grad_norm"], remote[0]["update/grad_norm"], 1e-5)
	cancel()
	require.Zero(t, <-status, "%s", &errs)
}
