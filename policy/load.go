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

	kept   kept
	device string
}

// Device is where the model lies: cpu, cuda or cuda:N.
func (p *Policy) Device() string { return p.device }

// kept is what a saved folder takes over from the original one.
type kept struct {
	files     map[string][]byte // by name, see keptFiles
	templates map[string]string // named chat templates other than those of Text
}

// Options say how a policy is loaded.
type Options struct {
	// Device is auto (CUDA where libtorch and the driver have it, otherwise the CPU), cpu, cuda or cuda:N. "" is auto.
	Device string
	// BFloat16 lets forwards and backwards compute in bfloat16; parameters and optimizer stay float32.
	BFloat16 bool
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

// model makes an empty model.
func (o Options) model(c *modelfile.Config) (*cgo.Model, error) {
	m, err := cgo.NewModel(modelConfig(c), o.device())
	if err != nil || !o.BFloat16 {
		return m, err
	}
	if err := m.SetDType(cgo.BF16); err != nil {
		m.Close() // its error would say nothing new
		return nil, err
	}
	return m, nil
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
	return load(path, o, func(p *Policy, files *modelfile.Model) (err error) {
		p.Config, p.Text, p.kept, err = loadFiles(files)
		return err
	})
}

// LoadWeights opens a model without its tokenizer, which its folder need not have: for token ids alone. Its Text is nil, and
// it cannot be saved.
func LoadWeights(path string, o Options) (*Policy, error) {
	return load(path, o, func(p *Policy, files *modelfile.Model) (err error) {
		p.Config, err = files.Config()
		return err
	})
}

func load(path string, o Options, read func(p *Policy, files *modelfile.Model) error) (*Policy, error) {
	files, err := modelfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	p := &Policy{device: o.device()}
	if err := read(p, files); err != nil {
		return nil, err
	}
	if !files.HasWeights() {
		_, err := files.Tensor(embedding) // says which files are missing
		return nil, err
	}
	if p.Model, err = o.model(p.Config); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	if err := fill(p.Model, files, p.Config.TieWordEmbeddings); err != nil {
		p.Model.Close() // its error would say nothing new
		return nil, fmt.Errorf("%w (in %s)", err, files.Path)
	}
	return p, nil
}

// loadFiles reads everything but the weights and checks that tokenizer and model fit.
func loadFiles(m *modelfile.Model) (*modelfile.Config, *Text, kept, error) {
	k := kept{files: map[string][]byte{}}
	config, err := m.Config()
	if err != nil {
		return nil, nil, k, err
	}
	text, err := loadText(m)
	if err != nil {
		return nil, nil, k, err
	}
	if n := text.Tokenizer.Size(); n > config.VocabSize {
		return nil, nil, k, fmt.Errorf("policy: %s: the tokenizer has %d tokens, but vocab_size is %d; tokenizer and model do not belong together", m.Path, n, config.VocabSize)
	}
	if k.templates, err = m.ChatTemplates(); err != nil {
		return nil, nil, k, err
	}
	delete(k.templates, "default")
	delete(k.templates, toolUse)
	for _, name := range keptFiles {
		data, err := m.File(name)
		if err != nil {
			return nil, nil, k, err
		}
		if data != nil {
			k.files[name] = data
		}
	}
	return config, text, k, nil
}

// Close frees the model, where there is one.
func (p *Policy) Close() error {
	if p.Model == nil {
		return nil
	}
	return p.Model.Close()
}
