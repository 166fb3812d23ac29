package policy

import (
	"fmt"
	"reflect"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/modelfile"
)

// Reload replaces the weights by those of another folder of the same architecture. Everything is read and checked before
// anything is changed; nobody may read the parameters meanwhile. Tokenizer and template stay as they are.
func (p *Policy) Reload(path string) error {
	files, err := modelfile.Open(path)
	if err != nil {
		return err
	}
	defer files.Close()
	config, err := files.Config()
	if err != nil {
		return err
	}
	if was, is := modelConfig(p.Config), modelConfig(config); !reflect.DeepEqual(was, is) {
		return fmt.Errorf("policy: %s is another architecture than the model that is loaded: %+v, not %+v", files.Path, is, was)
	}
	staged := &staging{parameters: p.Model.Parameters()}
	if err := fill(staged, files, config.TieWordEmbeddings); err != nil {
		return fmt.Errorf("%w (in %s)", err, files.Path)
	}
	defer p.Model.Changed()
	for _, s := range staged.tensors {
		if err := p.Model.SetParameter(s.name, s.dtype, s.data, s.shape); err != nil {
			return fmt.Errorf("policy: reload: %s: %w", s.name, err)
		}
	}
	return nil
}

// staging keeps tensors instead of setting them.
type staging struct {
	parameters []cgo.ParameterInfo
	tensors    []stagedTensor
}

type stagedTensor struct {
	name  string
	dtype cgo.DType
	data  []byte
	shape []int64
}

func (s *staging) Parameters() []cgo.ParameterInfo { return s.parameters }
func (s *staging) Changed()                        {}

func (s *staging) SetParameter(name string, dtype cgo.DType, data []byte, shape []int64) error {
	s.tensors = append(s.tensors, stagedTensor{name, dtype, append([]byte(nil), data...), shape})
	return nil
}
