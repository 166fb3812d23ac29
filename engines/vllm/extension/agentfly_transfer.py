"""A weight-transfer backend of vLLM that takes tensors from a file in shared memory or over Gloo; runs in vLLM's workers.

    PYTHONPATH=THIS-FOLDER vllm serve ... --weight-transfer-config '{"backend": "agentfly"}' \
        --worker-extension-cls agentfly_transfer.Extension

Shared memory: init_info is {}, update_info {"file": PATH, "size": BYTES, "tensors": [{"name", "dtype", "shape", "offset"}]}; the
tensors lie in the file little-endian and row-major. A file of another size is refused, because tensors cut off would load
as noise.

Memory of the trainer's card: init_info is {}, update_info {"names", "dtype_names", "shapes", "memory": HANDLE}, one for each chunk,
whose tensors lie back to back in it. HANDLE is a CUipcMemHandle in base64. The trainer writes the next chunk there once this one
was answered, so it is copied first.

Gloo: init_info is {"master_address", "master_port", "rank_offset", "world_size", "packed_buffer_size_bytes", "timeout"},
update_info {"names", "dtype_names", "shapes"}, as vLLM's own NCCL engine has them, and the chunks are cut alike. The trainer
is rank 0 and serves the store. A chunk is two broadcasts: its size (8 bytes, little-endian), then its bytes. Keys of the
store: agentfly/state/RANK says "BEAT ENTERED KIND OPERATION\nTEXT" and changes every second, so that the trainer sees who lives;
KIND f and TEXT say why this rank failed. Gloo's own keys are under agentfly/gloo.
"""

import base64
import ctypes
import hmac
import mmap
import os
import threading
from dataclasses import dataclass, field
from datetime import timedelta

import torch
from torch.distributed import BroadcastOptions, PrefixStore, ProcessGroupGloo, TCPStore
from vllm.distributed.weight_transfer import WeightTransferEngine, WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.distributed.weight_transfer.packed_tensor import unpack_tensor
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
    master_address: str = ""
    master_port: int = 0
    rank_offset: int = 1
    world_size: int = 0
    packed_buffer_size_bytes: int = 0
    timeout: float = 60.0  # seconds


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    file: str = ""
    size: int = 0
    tensors: list = field(default_factory=list)
    names: list = field(default_factory=list)
    dtype_names: list = field(default_factory=list)
    shapes: list = field(default_factory=list)
    memory: str = ""


class GlooGroup:
    """This worker's end of the process group. A thread tells the store that it lives."""

    def __init__(self, info, rank):
        self.rank, self.chunk = rank, info.packed_buffer_size_bytes
        timeout = timedelta(seconds=info.timeout)
        connect = lambda: TCPStore(info.master_address, info.master_port, None, False, timeout, wait_for_workers=False)
        self.beat, self.entered, self.kind, self.text = 0, 0, "-", ""
        self.stopped, self.told, self.own = threading.Event(), threading.Lock(), connect()
        self.tell()
        self.thread = threading.Thread(target=self.live, daemon=True)
        self.thread.start()
        store = PrefixStore("agentfly/gloo", connect())
        options = ProcessGroupGloo._Options()
        options._timeout = timeout
        # as cgo/src/collective.cc chooses: the loopback device where the trainer is on this machine
        local = info.master_address in ("127.0.0.1", "localhost")
        options._devices = [ProcessGroupGloo.create_device(hostname="127.0.0.1") if local else ProcessGroupGloo.create_default_device()]
        self.group = ProcessGroupGloo(store, rank, info.world_size, options)

    def tell(self):
        with self.told:
            self.beat += 1
            self.own.set(f"agentfly/state/{self.rank}", f"{self.beat} {self.entered} {self.kind} receive\n{self.text}")

    def live(self):
        while not self.stopped.wait(1.0):
            try:
                self.tell()
            except RuntimeError:
                return  # the trainer is gone; whoever waits for it will say so

    def broadcast(self, tensor):
        self.entered += 1
        options = BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        self.group.broadcast([tensor], options).wait()

    def receive(self, size):
        head = torch.zeros(8, dtype=torch.uint8)
        self.broadcast(head)
        announced = int.from_bytes(bytes(head.tolist()), "little")
        if announced != size:
            raise ValueError(f"the trainer sends a chunk of {announced} bytes where one of {size} is due")
        data = torch.empty(size, dtype=torch.uint8)
        if size > 0:
            self.broadcast(data)
        return data

    def fail(self, error):
        self.kind, self.text = "f", " ".join(str(error).split())[:300]
        try:
            self.tell()
        except RuntimeError:
            pass  # nobody is left to read it

    def close(self):
        self.stopped.set()
        self.thread.join()
        self.group = None


class DeviceMemory:
    """Memory of another process on this worker's card, as long as it is open."""

    def __init__(self, handle, size):
        from vllm.distributed.device_communicators.cuda_wrapper import CudaRTLibrary, cudaIpcMemHandle_t

        self.runtime = CudaRTLibrary()
        padded = handle.ljust(ctypes.sizeof(cudaIpcMemHandle_t), b"\0")
        self.pointer = self.runtime.cudaIpcOpenMemHandle(cudaIpcMemHandle_t.from_buffer_copy(padded))
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (self.pointer.value, True), "version": 3}

    def copy(self):
        """Its bytes in memory of this process."""
        data = torch.as_tensor(self, device="cuda").clone()
        torch.cuda.synchronize()
        return data

    def close(self):
        self.runtime.CUDART_CHECK(self.runtime.lib.cudaIpcCloseMemHandle(self.pointer))


class AgentFlyEngine(WeightTransferEngine):
    init_info_cls, update_info_cls = InitInfo, UpdateInfo
    gloo = None

    def init_transfer_engine(self, info):
        self.shutdown()
        if info.master_address:
            parallel = self.parallel_config  # the rank that vLLM's own engines take (nccl_common.py)
            self.gloo = GlooGroup(info, info.rank_offset + parallel.data_parallel_index * parallel.world_size + parallel.rank)

    def start_weight_update(self):
        initialize_layerwise_reload(self.model)

    def finish_weight_update(self):
        finalize_layerwise_reload(self.model, self.model_config)
        repack_tied_head(self.model)

    def update_weights(self, info):
        self.receive_weights(self.parse_update_info(info))

    def receive_weights(self, info):
        if info.memory:
            self.model.load_weights(iter(self.from_memory(info)))
            return
        if info.names:
            if self.gloo is None:
                raise RuntimeError("no process group: /init_weight_transfer_engine comes first")
            try:
                for tensors in self.chunks(info):
                    self.model.load_weights(iter(tensors))
            except Exception as error:
                self.gloo.fail(error)
                raise
            return
        with open(info.file, "rb") as f:
            size = os.fstat(f.fileno()).st_size
            if size != info.size:
                raise ValueError(f"{info.file} has {size} bytes, the trainer wrote {info.size}")
            with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as memory:
                self.model.load_weights(self.tensors(memory, info.tensors))

    def chunks(self, info):
        """The same cuts as packed_nccl_broadcast_consumer, which needs CUDA streams."""
        names, shapes, dtypes, sizes = [], [], [], []
        for i, (name, dtype, shape) in enumerate(zip(info.names, info.dtype_names, info.shapes, strict=True)):
            dtype = getattr(torch, dtype)
            names.append(name), shapes.append(shape), dtypes.append(dtype)
            sizes.append(torch.Size(shape).numel() * dtype.itemsize)
            if sum(sizes) > self.gloo.chunk or i == len(info.names) - 1:
                yield unpack_tensor(self.gloo.receive(sum(sizes)), names, shapes, dtypes, sizes)
                names, shapes, dtypes, sizes = [], [], [], []

    @staticmethod
    def from_memory(info):
        dtypes = [getattr(torch, name) for name in info.dtype_names]
        sizes = [torch.Size(shape).numel() * dtype.itemsize for shape, dtype in zip(info.shapes, dtypes, strict=True)]
        memory = DeviceMemory(base64.b64decode(info.memory), sum(sizes))
        try:
            data = memory.copy()
        finally:
            memory.close()
        return unpack_tensor(data, info.names, info.shapes, dtypes, sizes)

    @staticmethod
    def tensors(memory, entries):
        for e in entries:
            dtype = DTYPES[e["dtype"]]
            count = torch.Size(e["shape"]).numel()
            data = bytearray(memory[e["offset"]:e["offset"] + count * dtype.itemsize])  # a copy: the file goes away
            yield e["name"], torch.frombuffer(data, dtype=dtype).reshape(e["shape"])

    def shutdown(self):
        if self.gloo is not None:
            self.gloo.close()
            self.gloo = None


if "agentfly" not in WeightTransferEngineFactory._registry:
    WeightTransferEngineFactory.register_engine("agentfly", AgentFlyEngine)


class Guard:
    """--middleware agentfly_transfer.Guard: every route asks for the key in VLLM_API_KEY. vLLM itself asks for it under /v1 and
    /inference alone, and not where development mode lets a client pause, reload or run a method in the workers."""

    OPEN = ("/health", "/ping", "/metrics")

    def __init__(self, app):
        self.app = app
        key = os.environ.get("VLLM_API_KEY")
        if not key:
            raise RuntimeError("agentfly_transfer.Guard: VLLM_API_KEY is not set")
        self.want = f"Bearer {key}".encode()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan" or scope["type"] == "http" and scope["path"] in self.OPEN:
            return await self.app(scope, receive, send)
        given = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        if scope["type"] == "http" and len(given) == 1 and hmac.compare_digest(given[0], self.want):
            return await self.app(scope, receive, send)
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1008})
        body = b'{"error": "Unauthorized"}'
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Extension:
    """Named on vLLM's command line: its methods become the workers', which /collective_rpc calls."""

    def agentfly_present(self):
        return {"dtype": str(self.model_config.dtype).removeprefix("torch.")}

    def agentfly_after_reload(self):
        repack_tied_head(self.model_runner.get_model())
