// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim_backend.h"

#include <array>
#include <catch2/catch.hpp>

namespace attnloom {
namespace {

using HostMemory = std::array<std::byte, 64>;

HostMemory filled(int value) {
  HostMemory memory;
  memory.fill(static_cast<std::byte>(value));
  return memory;
}

std::byte first_byte(SimBackend& device, DeviceAddress address) {
  std::byte read{};
  REQUIRE(device.copy_out({&read, 1}, address).ok());
  return read;
}

struct Fixture {
  SimBackend device{sim::profiles().front(), {}};
  DeviceAddress address = device.allocate(64, "plan").value();
};

// B45: what a pinned staging buffer that is reused too early does on a GPU.
TEST_CASE_METHOD(Fixture, "an asynchronous copy reads the host memory late") {
  HostMemory host = filled(1);
  REQUIRE(device.copy_in_async(address, host, nullptr).ok());
  host = filled(2);
  REQUIRE(device.synchronize(nullptr).ok());
  CHECK(first_byte(device, address) == std::byte{2});
}

TEST_CASE_METHOD(Fixture, "an event waited for makes the copies before it happen, and only those") {
  HostMemory first = filled(1);
  HostMemory second = filled(2);
  const std::unique_ptr<Event> event = device.make_event().value();
  REQUIRE(device.copy_in_async(address, first, nullptr).ok());
  REQUIRE(device.record(*event, nullptr).ok());
  REQUIRE(device.copy_in_async(address, second, nullptr).ok());
  REQUIRE(device.wait(*event).ok());
  first = filled(7);   // was copied: no effect
  second = filled(8);  // was not
  CHECK(first_byte(device, address) == std::byte{8});
}

TEST_CASE_METHOD(Fixture, "an event that was never recorded is over") {
  HostMemory host = filled(1);
  const std::unique_ptr<Event> event = device.make_event().value();
  REQUIRE(device.copy_in_async(address, host, nullptr).ok());
  REQUIRE(device.wait(*event).ok());
  host = filled(3);
  CHECK(first_byte(device, address) == std::byte{3});
}

TEST_CASE_METHOD(Fixture, "an address of nobody is the caller's argument, not a launch") {
  HostMemory host = filled(1);
  const DeviceAddress foreign = address + 8;
  const auto refused = [](const Status& status, const std::string& path) {
    INFO(status.to_string());
    CHECK(status.code == Code::kArgumentInvalid);
    CHECK(status.path == path);
  };
  refused(device.release(foreign), "address");
  refused(device.copy_in(foreign, host), "to");
  refused(device.copy_out(host, foreign), "from");
  refused(device.allocate(0, "nothing").status(), "bytes");
  CHECK(device.release(address).ok());
  refused(device.release(address), "address");
}

TEST_CASE("an artifact without PTX cannot run on the simulator") {
  SimBackend device(sim::profiles().front(), {});
  Artifact artifact;
  artifact.cubin = "cubin";
  artifact.target = "sm_90a";
  CHECK(device.load(artifact, "attention", 0).status().code == Code::kLoadFailed);
}

TEST_CASE("the simulator has a tensor map of its own") {
  SimBackend device(sim::profiles().front(), {});
  TensorMapShape shape;
  shape.address = 0x10000;
  shape.rank = 1;
  shape.dims = {64};
  shape.box = {64};
  CHECK(device.encode_tensor_map(shape).ok());
  shape.address += 2;
  CHECK(device.encode_tensor_map(shape).status().path == "address");
}

TEST_CASE("the default profile is an H200") {
  SimBackend device(sim::profiles().front(), {});
  CHECK(device.device().target.name() == "sm_90a");
  CHECK(device.device().sm_count == 132);
  CHECK(device.device().simulated);
  CHECK(device.is_capturing(nullptr).value() == false);
}

}  // namespace
}  // namespace attnloom
