// SPDX-License-Identifier: Apache-2.0
// Device memory for the time of one run. Owns it: all goes back when the object does. Not
// thread-safe.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/backend.h"

namespace attnloom {

class DeviceBuffers {
 public:
  explicit DeviceBuffers(Backend& backend) : backend_(backend) {}
  ~DeviceBuffers() {
    for (DeviceAddress address : addresses_) (void)backend_.release(address);
  }
  DeviceBuffers(const DeviceBuffers&) = delete;
  DeviceBuffers& operator=(const DeviceBuffers&) = delete;

  Result<DeviceAddress> take(std::size_t bytes, const std::string& label) {
    ATTNLOOM_TRY(const DeviceAddress address, backend_.allocate(bytes == 0 ? 16 : bytes, label));
    addresses_.push_back(address);
    return address;
  }
  Result<DeviceAddress> input(std::span<const std::byte> bytes, const std::string& label) {
    ATTNLOOM_TRY(const DeviceAddress address, take(bytes.size(), label));
    if (!bytes.empty()) ATTNLOOM_CHECK(backend_.copy_in(address, bytes));
    return address;
  }
  // The simulator knows by itself what was never written; a real device gets NaN.
  Result<DeviceAddress> poisoned(std::size_t bytes, const std::string& label) {
    if (backend_.device().simulated) return take(bytes, label);
    return input(std::vector<std::byte>(bytes, std::byte{0xff}), label);
  }

 private:
  Backend& backend_;
  std::vector<DeviceAddress> addresses_;
};

}  // namespace attnloom
