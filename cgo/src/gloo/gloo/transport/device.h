#pragma once
#include <memory>
namespace gloo::transport {
class Device;
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer();
};
}  // namespace gloo::transport
