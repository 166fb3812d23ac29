"""A weight-transfer backend of vLLM that takes tensors from a file in shared memory; runs in vLLM's workers.

    PYTHONPATH=THIS-FOLDER vllm serve ... --weight-transfer-config '{"backend": "agentfly"}' \
        --worker-extension-cls agentfly_transfer.Extension

update_info is {"file": PATH, "size": BYTES, "tensors": [{"name", "dtype", "shape", "offset"}]}; the tensors lie in the
file little-endian and row-major. A file of another size is refused, because tensors cut off would load as noise.
"""

import mmap
import os
from dataclasses import dataclass, field

import torch
from vllm.distributed.weight_transfer import WeightTransferEngine, WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, UnquantizedEmbeddingMethod
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.platforms import current_platform

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def repack_tied_head(model):
    """On a CPU vLLM multiplies with a packed copy of each matrix. A head that is tied to the embeddings gets no weights of
    its own in a reload, so its copy stays the old one (seen in 0.32.0): pack it anew."""
    if not current_platform.is_cpu():
        return
    for module in model.modules():
        if isinstance(module, ParallelLMHead) and isinstance(module.quant_method, UnquantizedEmbeddingMethod):
            module.quant_method.process_weights_after_loading(module)


@dataclass
class InitInfo(WeightTransferInitInfo):
    pass


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    file: str = ""
    size: int = 0
    tensors: list = field(default_factory=list)


class SharedMemoryEngine(WeightTransferEngine):
    init_info_cls, update_info_cls = InitInfo, UpdateInfo

    def init_transfer_engine(self, info):
        pass  # nothing is kept between updates

    def start_weight_update(self):
        initialize_layerwise_reload(self.model)

    def finish_weight_update(self):
        finalize_layerwise_reload(self.model, self.model_config)
        repack_tied_head(self.model)

    def update_weights(self, info):
        self.receive_weights(self.parse_update_info(info))

    def receive_weights(self, info):
        with open(info.file, "rb") as f:
            size = os.fstat(f.fileno()).st_size
            if size != info.size:
                raise ValueError(f"{info.file} has {size} bytes, the trainer wrote {info.size}")
            with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as memory:
                self.model.load_weights(self.tensors(memory, info.tensors))

    @staticmethod
    def tensors(memory, entries):
        for e in entries:
            dtype = DTYPES[e["dtype"]]
            count = torch.Size(e["shape"]).numel()
            data = bytearray(memory[e["offset"]:e["offset"] + count * dtype.itemsize])  # a copy: the file goes away
            yield e["name"], torch.frombuffer(data, dtype=dtype).reshape(e["shape"])

    def shutdown(self):
        pass


if "agentfly" not in WeightTransferEngineFactory._registry:
    WeightTransferEngineFactory.register_engine("agentfly", SharedMemoryEngine)


class Extension:
    """Named on vLLM's command line: its methods become the workers', which /collective_rpc calls."""

    def agentfly_present(self):
        return None

    def agentfly_after_reload(self):
        repack_tied_head(self.model_runner.get_model())
