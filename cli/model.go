package cli

import (
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/policy"
)

// modelCommands look at models, fetch and convert them.
type modelCommands struct{ *env }

func (c modelCommands) command() *cli.Command {
	return &cli.Command{Name: "model", Usage: "look at and fetch models", Subcommands: []*cli.Command{
		{Name: "info", Usage: "describe a model", ArgsUsage: "MODEL", Flags: []cli.Flag{&cli.BoolFlag{Name: "json"}}, Action: c.info},
		{Name: "pull", Usage: "fetch a model from the hub", ArgsUsage: "ORG/NAME[@REVISION]", Flags: []cli.Flag{plainFlag(), &cli.StringFlag{Name: "file", TakesFile: true, Usage: "only this .gguf `FILE`"}}, Action: c.pull},
		{Name: "import", Usage: "convert a model to a Hugging Face folder", ArgsUsage: "MODEL DIR", Flags: []cli.Flag{&cli.StringFlag{Name: "dtype", Usage: "F32, F16 or BF16; default keeps the 16-bit type that all matrices have, and makes the rest F32"}}, Action: c.convert},
	}}
}

func (c modelCommands) info(x *cli.Context) error {
	path, err := one(x, "a folder, a .gguf or a hub id")
	if err != nil {
		return err
	}
	if _, err := modelfile.Resolve(path); err != nil {
		return usagef("%v", err)
	}
	info, err := modelfile.Describe(path)
	if err != nil {
		return err
	}
	if x.Bool("json") {
		return c.print(info)
	}
	_, err = fmt.Fprintln(c.text, info)
	return err
}

func (c modelCommands) pull(x *cli.Context) error {
	id, err := one(x, "a hub id")
	if err != nil {
		return err
	}
	hub, err := modelfile.HubFromEnv()
	if err != nil {
		return err
	}
	parsed, ok := modelfile.ParseHubID(id)
	if !ok {
		return usagef("%q is no hub id; write ORG/NAME or ORG/NAME@REVISION", id)
	}
	var fetched download
	_, done := c.shown(x, c.rawErr, fetched.lines)
	hub.Progress = fetched.progress
	dir, err := hub.Pull(x.Context, parsed, x.String("file"))
	done()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.text, dir)
	return err
}

func (c modelCommands) convert(x *cli.Context) error {
	if x.NArg() != 2 {
		return usagef("agentfly model import takes a model and the folder to write")
	}
	if _, err := modelfile.Resolve(x.Args().First()); err != nil {
		return usagef("%v", err)
	}
	switch dtype := x.String("dtype"); dtype {
	case "", "F32", "F16", "BF16":
	default:
		return usagef("--dtype is %q; allowed: F32, F16, BF16", dtype)
	}
	if err := policy.Convert(x.Args().Get(0), x.Args().Get(1), modelfile.DType(x.String("dtype"))); err != nil {
		return err
	}
	_, err := fmt.Fprintln(c.text, filepath.Clean(x.Args().Get(1)))
	return err
}
