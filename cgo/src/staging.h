// Parameters as the bytes that other processes take, on the model's device.
#pragma once
#include <memory>

#include "ipc.h"

struct af_staging {
  std::shared_ptr<af_model> model;
  std::unique_ptr<af::SharedMemory> shared;  // with ipc: what bytes lies in, and so destroyed after it
  at::Tensor bytes;                          // [capacity] uint8
};
