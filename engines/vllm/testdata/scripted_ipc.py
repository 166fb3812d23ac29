"""A worker extension for tests of CUDA IPC on a CPU: the handles are those of the scripted driver of cgo/testdata, and name a file
in the place of a card's memory."""

import agentfly_transfer
import torch
from agentfly_transfer import Extension  # noqa: F401  vllm serve names one class for everything


class FileMemory:
    def __init__(self, handle, size):
        self.path, self.size = handle.rstrip(b"\0").decode(), size

    def copy(self):
        with open(self.path, "rb") as f:
            return torch.frombuffer(bytearray(f.read(self.size)), dtype=torch.uint8)

    def close(self):
        pass


agentfly_transfer.DeviceMemory = FileMemory
