// SPDX-License-Identifier: Apache-2.0
// Tensors in a device's memory for tests that call the engine without a case file. Owns the memory;
// outlived by the engine.
#pragma once

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/sim_backend.h"
#include "runtime/tensor.h"

namespace attnloom::testing {

class DeviceTensors {
 public:
  explicit DeviceTensors(Backend& backend) : backend_(backend) {}
  ~DeviceTensors() {
    for (const DeviceAddress address : addresses_) (void)backend_.release(address);
  }
  DeviceTensors(const DeviceTensors&) = delete;
  DeviceTensors& operator=(const DeviceTensors&) = delete;

  // At least 16 bytes, so that an empty tensor has an address.
  DeviceAddress room(std::size_t bytes, const std::string& label) {
    const Result<DeviceAddress> address = backend_.allocate(bytes < 16 ? 16 : bytes, label);
    REQUIRE(address.ok());
    addresses_.push_back(*address);
    return *address;
  }
  template <class T>
  DeviceAddress put(const std::vector<T>& values, const std::string& label) {
    const DeviceAddress address = room(values.size() * sizeof(T), label);
    if (!values.empty()) REQUIRE(backend_.copy_in(address, std::as_bytes(std::span(values))).ok());
    return address;
  }
  template <class T>
  std::vector<T> get(DeviceAddress address, std::size_t count) {
    std::vector<T> values(count);
    REQUIRE(backend_.copy_out(std::as_writable_bytes(std::span(values)), address).ok());
    return values;
  }
  // "" when the launches since the last call were clean; a real device tells nothing.
  std::string finding() {
    if (!backend_.device().simulated) return "";
    const sim::Report report = static_cast<SimBackend&>(backend_).take_report();
    return report.findings.empty() ? ""
                                   : report.findings[0].kind + ": " + report.findings[0].detail;
  }

 private:
  Backend& backend_;
  std::vector<DeviceAddress> addresses_;
};

inline TensorView view_of(DeviceAddress data, TensorType type,
                          const std::vector<std::int64_t>& shape,
                          const std::vector<std::int64_t>& strides) {
  TensorView view{.data = data, .type = type, .rank = static_cast<int>(shape.size())};
  for (std::size_t i = 0; i < shape.size(); ++i) {
    view.shape[i] = shape[i];
    view.strides[i] = strides[i];
  }
  return view;
}

}  // namespace attnloom::testing
