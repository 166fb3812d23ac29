package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"
)

// serve says where it listens, and ends with its standard input.
func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	faults := flags.Float64("faults", 0, "share of the completions that fail")
	if err := flags.Parse(args); err != nil {
		return err
	}
	w, err := read(flags.Arg(0))
	if err != nil {
		return err
	}
	handler, err := w.server(*faults, 1)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	end, answer := s.Close, s.Serve
	if *faults == 0 {
		end, answer = listener.Close, handler.Serve
	}
	done := make(chan error, 1)
	go func() { done <- answer(listener) }()
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is all that matters
		cancel()
	}()
	fmt.Printf("http://%s\n", listener.Addr())
	select {
	case <-ctx.Done():
	case err := <-done:
		return err
	}
	if err := end(); err != nil {
		return err
	}
	if err := <-done; err != nil && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
