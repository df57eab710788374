// SPDX-License-Identifier: Apache-2.0
// Every malformed tensor of a merge is refused before a launch, with its name.
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>

#include "runtime/launch.h"

namespace attnloom {
namespace {

TensorView dense(TensorType type, std::initializer_list<std::int64_t> shape, DeviceAddress data) {
  return dense_tensor(type, std::span(shape.begin(), shape.size()), data);
}

constexpr DeviceAddress kStateBytes = 3 * 4 * 64 * 2;

struct Merge {
  MergeTensors tensors{.o_in = dense(TensorType::kBf16, {2, 3, 4, 64}, 0x1000),
                       .lse_in = dense(TensorType::kF32, {2, 3, 4}, 0x2000),
                       .o = dense(TensorType::kBf16, {3, 4, 64}, 0x3000),
                       .lse = dense(TensorType::kF32, {3, 4}, 0x4000)};

  Status status() const {
    Spec spec;
    spec.kernel = KernelKind::kMerge;
    spec.head_dim = {64, 64};
    return merge_args(spec, tensors).status();
  }
  void refused(const std::string& path, const std::string& cause) const {
    const Status given = status();
    INFO(given.to_string());
    CHECK(given.code == Code::kTensorInvalid);
    CHECK(given.path == path);
    CHECK_THAT(given.cause, Catch::Contains(cause));
  }
};

}  // namespace

TEST_CASE("a malformed tensor of a merge is refused by name") {
  Merge merge;
  REQUIRE(merge.status().ok());
  MergeTensors& given = merge.tensors;
  SECTION("an LSE in place of the states' own: eight lanes read what one writes") {
    given.lse.data = given.lse_in.data;
    merge.refused("lse", "lse_in");
  }
  SECTION("an output in place of a state") {
    given.o.data = given.o_in.data + GENERATE(0, 1) * kStateBytes;
    CHECK(merge.status().ok());
  }
  SECTION("an output that begins where a state does and goes on elsewhere") {
    given.o.data = given.o_in.data;
    given.o.strides[0] = 2 * 4 * 64;
    merge.refused("o", "o_in");
  }
  SECTION("an output in place of a state whose rows another state shifts") {
    given.o.data = given.o_in.data;
    given.o_in.strides[0] = 4 * 64;
    merge.refused("o_in.strides[0]", "share one place");
  }
  SECTION("an output between a state's rows and the next state's") {
    given.o.data = given.o_in.data + 512;
    merge.refused("o", "o_in");
  }
  SECTION("states in memory of their own, the result between them") {
    given.o_in.data = 0x8000;
    given.o_in.strides[0] = -0x6000 / 2;  // the second lies at 0x2000
    given.lse_in.data = 0x7000;
    given.lse_in.strides[0] = 0x100;
    CHECK(merge.status().ok());
    SECTION("an output over the second") {
      given.o.data = 0x2010;
      merge.refused("o", "o_in");
    }
    SECTION("an LSE over the second's") {
      given.lse.data = 0x7410;  // 0x100 floats behind the first
      merge.refused("lse", "lse_in");
    }
    SECTION("a distance that leads below address 0") {
      given.o_in.strides[0] = -0x6000;
      merge.refused("o_in.strides[0]", "below address 0");
    }
    SECTION("a distance that 64 bits do not hold") {
      given.o_in.strides[0] = std::numeric_limits<std::int64_t>::min();
      merge.refused("o_in.strides[0]", "past 64-bit");
    }
  }
  SECTION("missing states") {
    given.o_in = {};
    merge.refused("o_in", "none was given");
  }
  SECTION("missing lse of the states") {
    given.lse_in = {};
    merge.refused("lse_in", "none was given");
  }
  SECTION("missing output") {
    given.o = {};
    merge.refused("o", "none was given");
  }
  SECTION("another dtype of the states") {
    given.o_in.type = TensorType::kF16;
    merge.refused("o_in", "must be bf16, given f16");
  }
  SECTION("16-bit lse of the states") {
    given.lse_in.type = TensorType::kBf16;
    merge.refused("lse_in", "must be f32, given bf16");
  }
  SECTION("16-bit lse") {
    given.lse.type = TensorType::kF16;
    merge.refused("lse", "must be f32, given f16");
  }
  SECTION("another head dim") {
    given.o_in.shape[3] = 128;
    merge.refused("o_in.shape[3]", "must be 64, given 128");
  }
  SECTION("other tokens") {
    given.o.shape[0] = 2;
    merge.refused("o.shape[0]", "must be 3, given 2");
  }
  SECTION("rank") {
    given.lse_in.rank = 2;
    merge.refused("lse_in", "rank must be 3, given 2");
  }
  SECTION("null") {
    given.lse_in.data = 0;
    merge.refused("lse_in", "null");
  }
  SECTION("address between elements") {
    given.lse.data += 2;
    merge.refused("lse", "multiple of 4 bytes");
  }
  SECTION("strided last dimension") {
    given.o.strides[2] = 2;
    merge.refused("o.strides[2]", "must be 1, given 2");
  }
  SECTION("negative stride") {
    given.lse_in.strides[1] = -4;
    merge.refused("lse_in.strides[1]", "must not be negative");
  }
  SECTION("results that share a place") {
    given.lse.strides[1] = 0;
    merge.refused("lse.strides[1]", "is 0");
  }
}

}  // namespace attnloom
