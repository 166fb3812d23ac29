package memory

// Sizes of the C++ sources whose buffers are counted here. TestLimitsAreThoseOfTheSources reads each from its file.
const (
	panelColumns = 16 // panel.h

	tileRows, tileColumns, tileNumbers         = 4096, 256, 4 << 20 // head.cc: of a tile of the logits on a CPU
	chunkRows                                  = 256                // head.cc: of a device's chunk without own kernels
	kernelNumbers, leastKernelRows, kernelRows = 5 << 26, 256, 8192 // head.cc: of a chunk with them
	blockRows, leastBlockRows, mostBlockRows   = 192, 16, 128       // attention.cc: of a block, over the query heads of a key's
	leastRun, gatheredKeys                     = 8, 1 << 16         // decode_device.cc: rows of a run whose keys are gathered, keys of all
	partKeys, partNumbers                      = 128, 1 << 24       // cuda/launch.cc: keys of a part of a row's attention, numbers of all parts
	recordedRows                               = 256                // single_rows.cc: of a step whose launches are recorded
)
