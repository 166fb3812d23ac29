package job

// Local is what the local engine computes on and in.
type Local struct {
	Device   string // cpu, or the device that the model lies on, whose own weights are read there
	BFloat16 bool   // else float32
	Why      string // it is cpu, of a model on a device: the setting; else empty
}

// Local is what the job's local engine computes on and in where the model lies on device (cpu, cuda or cuda:N). On a device that is the type
// which the trainer computes in, because it reads the same weights: an engine.dtype that asks for the other one is refused.
func (j *Job) Local(device string) (Local, error) {
	l := Local{Device: device, BFloat16: j.Model.DType == "bfloat16"}
	switch {
	case device == "cpu":
	case j.Engine.Device == "cpu":
		l.Device, l.Why = "cpu", "engine.device: cpu"
	case j.Deterministic: // products on a device have kernels by the size of a batch
		l.Device, l.Why = "cpu", "deterministic: true"
	}
	if l.Device == "cpu" {
		l.BFloat16 = j.Engine.DType == "bfloat16"
		return l, nil
	}
	computes, also := "float32", "set model.dtype: bfloat16, "
	if l.BFloat16 {
		computes, also = "bfloat16", ""
	}
	if d := j.Engine.DType; d != "auto" && d != computes {
		return l, j.Fail("engine.dtype", "%s, but on %s the local engine reads the weights that the trainer computes with, which are %s (model.dtype); leave engine.dtype out, %sor sample on the CPUs with engine.device: cpu", d, device, computes, also)
	}
	return l, nil
}
