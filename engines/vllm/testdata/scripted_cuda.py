"""A worker extension for tests of vLLM's NCCL weight transfer on a CPU.

vLLM's own engine, communicator and unpacking run; in the place of CUDA are the memory of the host and streams that do
nothing, in that of libnccl.so.2 the scripted library of cgo/testdata (VLLM_NCCL_SO_PATH).
"""

import contextlib

import torch
from agentfly_transfer import Extension, repack_tied_head  # noqa: F401  vllm serve names one class for everything
from vllm.distributed.device_communicators import pynccl
from vllm.distributed.weight_transfer import nccl_common, nccl_engine, packed_tensor


class Stream:
    cuda_stream = 0

    def synchronize(self):
        pass


class Accelerator:
    """torch.accelerator as the modules of the transfer use it."""

    current_device_index = staticmethod(lambda: "cpu")
    device_index = staticmethod(lambda index: contextlib.nullcontext())


class Torch:
    """torch, but for streams and devices."""

    accelerator = Accelerator
    cuda = type("cuda", (), {"stream": staticmethod(lambda stream: contextlib.nullcontext())})

    def __getattr__(self, name):
        return getattr(torch, name)


pynccl.current_stream = Stream
packed_tensor._get_streams = lambda device, count: tuple(Stream() for _ in range(count))
for module in (pynccl, nccl_common, packed_tensor):
    module.torch = Torch()


class Engine(nccl_engine.NCCLWeightTransferEngine):
    """What the project's extension does for a CPU's packed matrices; a GPU has none."""

    def finish_weight_update(self):
        super().finish_weight_update()
        repack_tied_head(self.model)


nccl_engine.NCCLWeightTransferEngine = Engine
