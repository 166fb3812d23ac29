package policy

import (
	"fmt"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/modelfile"
)

// Policy is a model that can be sampled, trained and saved.
type Policy struct {
	Model  *cgo.Model
	Config *modelfile.Config
	*Text

	origin    map[string][]byte // files of the original folder that a saved one keeps, by name
	templates map[string]string // the model's other named templates
}

// Options say how a policy is loaded.
type Options struct {
	// Device is auto (CUDA where libtorch and the driver have it, otherwise the CPU), cpu, cuda or cuda:N. "" is auto.
	Device string
}

// device resolves auto.
func (o Options) device() string {
	if o.Device != "" && o.Device != "auto" {
		return o.Device
	}
	if cgo.CUDADevices() > 0 {
		return "cuda"
	}
	return "cpu"
}

// keptFiles are copied from the original folder into a saved one, because transformers reads them and training does not
// change them. config.json, tokenizer.json, tokenizer_config.json and the templates are written anew.
var keptFiles = []string{
	"generation_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model",
	"tokenizer_config.json",
}

// Load opens a folder, a .gguf file or a hub id that is on this machine, and copies its weights to the device as float32.
// Every parameter must be in the files exactly once with the right shape, and nothing else may be.
func Load(path string, o Options) (*Policy, error) {
	files, err := modelfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	p := &Policy{origin: map[string][]byte{}}
	if p.Config, err = files.Config(); err != nil {
		return nil, err
	}
	if p.Text, err = loadText(files); err != nil {
		return nil, err
	}
	if n := p.Tokenizer.Size(); n > p.Config.VocabSize {
		return nil, fmt.Errorf("policy: %s: the tokenizer has %d tokens, but vocab_size is %d; tokenizer and model do not belong together", files.Path, n, p.Config.VocabSize)
	}
	if p.templates, err = files.ChatTemplates(); err != nil {
		return nil, err
	}
	delete(p.templates, "default")
	for _, name := range keptFiles {
		data, err := files.File(name)
		if err != nil {
			return nil, err
		}
		if data != nil {
			p.origin[name] = data
		}
	}
	if !files.HasWeights() {
		_, err := files.Tensor(embedding) // says which files are missing
		return nil, err
	}
	if p.Model, err = cgo.NewModel(modelConfig(p.Config), o.device()); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	if err := fill(p.Model, files, p.Config.TieWordEmbeddings); err != nil {
		p.Model.Close() // its error would say nothing new
		return nil, fmt.Errorf("%w (in %s)", err, files.Path)
	}
	return p, nil
}

// Close frees the model.
func (p *Policy) Close() error { return p.Model.Close() }
