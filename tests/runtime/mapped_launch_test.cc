// SPDX-License-Identifier: Apache-2.0
// The tensor maps of attention_wgmma: what each says of its tensor, and errors that name it.
#include "runtime/mapped_launch.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "launch_case.h"
#include "runtime/sim_backend.h"
#include "sim/tensor_map.h"

namespace attnloom {
namespace {

using testing::Case;

constexpr TileClass kTile{128, 64, 2};

struct Maps {
  TensorMapShape q;
  TensorMapShape k;
  TensorMapShape v;
};

TensorMapShape shape_of(const loom::MapBytes& map) {
  const auto shape = sim::decode_tensor_map(std::as_bytes(std::span(map.bytes)));
  REQUIRE(shape);
  return *shape;
}

Maps maps_of(const Case& launch) {
  SimBackend device(sim::profiles().front(), {});
  loom::MappedAttentionArgs args = {};
  const Status status = add_maps(device, launch.spec, kTile, launch.tensors, args);
  INFO(status.to_string());
  REQUIRE(status.ok());
  return {shape_of(args.q), shape_of(args.k), shape_of(args.v)};
}

using Dims = std::array<std::uint64_t, 5>;
using Box = std::array<std::uint32_t, 5>;

TEST_CASE("maps of paged keys: a box is a page") {
  const Maps maps = maps_of(Case(KvLayout::kPaged));
  CHECK(maps.q.rank == 4);
  CHECK(maps.q.swizzle == TensorSwizzle::k128);
  CHECK(maps.q.dims == Dims{64, 2, 2, 3});
  CHECK(maps.q.stride_bytes == std::array<std::uint64_t, 4>{128, 256, 512});
  CHECK(maps.q.box == Box{64, 2, 1, 64});
  CHECK(maps.k.address == 0x100000);
  CHECK(maps.k.dims == Dims{64, 16, 2, 8});
  CHECK(maps.k.stride_bytes == std::array<std::uint64_t, 4>{256, 128, 4096});
  CHECK(maps.k.box == Box{64, 16, 1, 1});
  CHECK(maps.v.address == 0x200000);
}

TEST_CASE("maps of ragged keys: one page of all tokens") {
  Case launch(KvLayout::kRagged);
  launch.tensors.k = testing::tensor(TensorType::kBf16, {900, 2, 64}, 0x100000);
  launch.tensors.v = launch.tensors.k;
  const Maps maps = maps_of(launch);
  CHECK(maps.k.dims == Dims{64, 900, 2, 1});
  CHECK(maps.k.box == Box{64, 64, 1, 1});
}

TEST_CASE("a tensor without elements is mapped to the workspace") {
  Case launch(KvLayout::kRagged);
  launch.tensors.k = testing::tensor(TensorType::kBf16, {0, 2, 64}, 0);
  launch.tensors.v = launch.tensors.k;
  const Maps maps = maps_of(launch);
  CHECK(maps.k.address == launch.tensors.workspace);
  CHECK(maps.k.dims == Dims{64, 1, 1, 1});
}

TEST_CASE("a stride that no map can say names the tensor") {
  SimBackend device(sim::profiles().front(), {});
  Case launch;
  launch.tensors.v.strides[0] = std::int64_t{1} << 39;
  loom::MappedAttentionArgs args = {};
  const Status status = add_maps(device, launch.spec, kTile, launch.tensors, args);
  CHECK(status.code == Code::kArgumentInvalid);
  CHECK(status.path == "tensors.v.stride_bytes");
}

}  // namespace
}  // namespace attnloom
