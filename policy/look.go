package policy

import (
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/modelfile"
)

// Look opens what Load opens, but for the weights: they must be there and are not read. The policy has no Model, and cannot be sampled,
// trained or saved.
func Look(path string) (*Policy, error) {
	files, err := modelfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	p := &Policy{}
	if p.Config, p.Text, p.kept, err = loadFiles(files); err != nil {
		return nil, err
	}
	if !files.HasWeights() {
		_, err := files.Tensor(embedding) // says which files are missing
		return nil, err
	}
	return p, checkShapes(p.Config, files)
}

// LookScratch is Scratch without the model.
func LookScratch(c ScratchConfig, alphabet, chatTemplate string) (*Policy, error) {
	text, vocab, err := scratchText(alphabet, chatTemplate)
	if err != nil {
		return nil, err
	}
	config, err := c.config(vocab)
	return &Policy{Config: config, Text: text}, err
}

// DeviceOf is the device that a policy is loaded to: auto and "" are cuda where libtorch and the driver have it, otherwise cpu.
func DeviceOf(device string) string { return Options{Device: device}.device() }

// HasDevice tells whether the device is there; one of a program without libtorch is unknown, and counts as there.
func HasDevice(device string) bool {
	return device != "cuda" || !cgo.Available() || cgo.CUDADevices() > 0
}
