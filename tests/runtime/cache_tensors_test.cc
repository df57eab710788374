// SPDX-License-Identifier: Apache-2.0
// Every malformed tensor and host mirror of append, append_rope and page_copy is refused before a
// launch, with its name.
#include <catch2/catch.hpp>
#include <limits>
#include <vector>

#include "runtime/cache_launch.h"

namespace attnloom {
namespace {

using Indices = std::vector<std::int32_t>;

TensorView dense(TensorType type, std::initializer_list<std::int64_t> shape, DeviceAddress data) {
  return dense_tensor(type, std::span(shape.begin(), shape.size()), data);
}

struct Append {
  Spec spec;
  AppendTensors tensors{
      .key = dense(TensorType::kBf16, {3, 2, 64}, 0x1000),
      .value = dense(TensorType::kBf16, {3, 2, 64}, 0x2000),
      .batch_indices = dense(TensorType::kI32, {3}, 0x3000),
      .positions = dense(TensorType::kI32, {3}, 0x3100),
      .page_indptr = dense(TensorType::kI32, {3}, 0x3200),
      .page_indices = dense(TensorType::kI32, {4}, 0x3300),
      .k_cache = dense(TensorType::kE4m3, {5, 16, 2, 64}, 0x10000),
      .v_cache = dense(TensorType::kE4m3, {5, 16, 2, 64}, 0x20000),
      .k_scale = dense(TensorType::kF32, {2}, 0x3400),
      .v_scale = dense(TensorType::kF32, {2}, 0x3500),
  };

  Append() {
    spec.kernel = KernelKind::kAppend;
    spec.dtype.q = DType::kBf16;
    spec.dtype.kv = DType::kE4m3;
    spec.head_dim = {64, 64};
    spec.layout = {KvLayout::kPaged, 16};
    spec.variant.kv_scale = KvScale::kHead;
  }
  void rotate() {
    spec.kernel = KernelKind::kAppendRope;
    spec.variant.rope = Rope{RopeStyle::kNeox, 64};
    tensors.q = dense(TensorType::kBf16, {3, 4, 64}, 0x40000);
    tensors.q_out = dense(TensorType::kBf16, {3, 4, 64}, 0x50000);
  }
  Status status() const { return append_args(spec, tensors).status(); }
  void accepted() const {
    const Status given = status();
    INFO(given.to_string());
    CHECK(given.ok());
  }
  void refused(const std::string& path, const std::string& cause,
               Code code = Code::kTensorInvalid) const {
    const Status given = status();
    INFO(given.to_string());
    CHECK(given.code == code);
    CHECK(given.path == path);
    CHECK_THAT(given.cause, Catch::Contains(cause));
  }
};

}  // namespace

TEST_CASE("a malformed tensor of append is refused by name") {
  Append append;
  append.accepted();
  AppendTensors& given = append.tensors;
  SECTION("missing") {
    given.key = {};
    append.refused("key", "none was given");
    given = Append().tensors;
    given.page_indices = {};
    append.refused("page_indices", "none was given");
    given = Append().tensors;
    given.v_cache = {};
    append.refused("v_cache", "none was given");
    given = Append().tensors;
    given.v_scale = {};
    append.refused("v_scale", "none was given");
  }
  SECTION("types") {
    given.key.type = TensorType::kF16;
    append.refused("key", "must be bf16, given f16");
    given = Append().tensors;
    given.k_cache.type = TensorType::kE5m2;
    append.refused("k_cache", "must be e4m3, given e5m2");
    given = Append().tensors;
    given.positions.type = TensorType::kI64;
    append.refused("positions", "must be i32, given i64");
    given = Append().tensors;
    given.k_scale.type = TensorType::kBf16;
    append.refused("k_scale", "must be f32, given bf16");
  }
  SECTION("shapes") {
    given.value.shape[0] = 2;
    append.refused("value.shape[0]", "must be 3, given 2");
    given = Append().tensors;
    given.key.shape[1] = 1;
    append.refused("key.shape[1]", "must be 2, given 1");
    given = Append().tensors;
    given.k_cache.shape[1] = 8;
    append.refused("k_cache.shape[1]", "must be 16, given 8");
    given = Append().tensors;
    given.v_cache.shape[0] = 4;
    append.refused("v_cache.shape[0]", "must be 5, given 4");
    given = Append().tensors;
    given.batch_indices.shape[0] = 4;
    append.refused("batch_indices.shape[0]", "must be 3, given 4");
    given = Append().tensors;
    given.page_indptr.shape[0] = 0;
    append.refused("page_indptr.shape[0]", "at least 1");
    given = Append().tensors;
    given.k_scale.shape[0] = 1;
    append.refused("k_scale.shape[0]", "must be 2, given 1");
  }
  SECTION("strides and alignment") {
    given.k_cache.strides[2] = 72;
    append.refused("k_cache.strides[2]", "multiple of 16 bytes");
    given = Append().tensors;
    given.value.strides[2] = 2;
    append.refused("value.strides[2]", "must be 1, given 2");
    given = Append().tensors;
    given.v_cache.data += 8;
    append.refused("v_cache", "multiple of 16 bytes");
    given = Append().tensors;
    given.k_cache.strides[0] = 1024;
    append.refused("k_cache.strides[0]", "share one place");
    given = Append().tensors;
    given.positions.strides[0] = 2;
    append.refused("positions.strides[0]", "dense");
  }
  SECTION("a cache in place of an input, or of the other cache") {
    given.k_cache.data = given.key.data;
    append.refused("k_cache", "must not overlap key");
    given = Append().tensors;
    given.page_indices.data = given.v_cache.data + 16;
    append.refused("v_cache", "must not overlap page_indices");
    given = Append().tensors;
    given.v_cache.data = given.k_cache.data;
    append.refused("v_cache", "begins where k_cache does");
  }
  SECTION("keys and values of a page side by side") {
    given.k_cache.strides[0] = given.v_cache.strides[0] = 2 * 16 * 2 * 64;
    given.v_cache.data = given.k_cache.data + 16 * 2 * 64;
    append.accepted();
  }
  SECTION("fields that the spec has no use for") {
    append.spec.variant.kv_scale = KvScale::kNone;
    append.refused("k_scale", "\"kv_scale\": \"none\"");
    append = Append();
    append.tensors.q = dense(TensorType::kBf16, {3, 4, 64}, 0x40000);
    append.refused("q", "append_rope");
    append = Append();
    append.tensors.rope_theta = 1e4f;
    append.refused("rope_theta", "append_rope", Code::kArgumentInvalid);
  }
}

TEST_CASE("queries to be rotated are checked like outputs") {
  Append append;
  append.rotate();
  append.accepted();
  AppendTensors& given = append.tensors;
  SECTION("one of the two") {
    given.q = {};
    append.refused("q_out", "without q");
    append.rotate();
    given.q_out = {};
    append.refused("q_out", "none was given");
    given.q = {};
    append.accepted();
  }
  SECTION("in place, and in another's place") {
    given.q_out = given.q;
    append.accepted();
    given.q_out.data += 64;
    append.refused("q_out", "must not overlap q");
    append.rotate();
    given.q_out.data = given.k_cache.data;
    append.refused("q_out", "must not overlap k_cache");
    append.rotate();
    given.q_out.data = given.value.data;
    append.refused("q_out", "must not overlap value");
  }
  SECTION("slices of one packed projection") {
    for (TensorView* view : {&given.q, &given.q_out, &given.key, &given.value})
      view->strides[0] = (4 + 2 + 2) * 64;
    given.q.data = given.q_out.data = 0x40000;
    given.key.data = 0x40000 + 4 * 64 * 2;
    given.value.data = 0x40000 + 6 * 64 * 2;
    append.accepted();
    given.key.data -= 64 * 2;  // its first head is the last of the queries
    append.refused("q_out", "must not overlap key");
    given.key.data = 0x40000 + 7 * 64 * 2;  // its second head is the next token's first query
    append.refused("q_out", "must not overlap key");
  }
  SECTION("numbers of the rotation") {
    given.rope_scale = -1.0f;
    append.refused("rope_scale", "greater than 0", Code::kArgumentInvalid);
    given.rope_scale = 0.0f;
    given.rope_theta = std::numeric_limits<float>::infinity();
    append.refused("rope_theta", "finite", Code::kArgumentInvalid);
  }
}

TEST_CASE("host mirrors show what the device would leave out") {
  Append append;
  Indices batch = {0, -1, 1};
  Indices positions = {31, -7, 0};
  Indices indptr = {0, 2, 4};
  Indices pages = {0, 4, 2, 1};
  const auto refused = [&](const char* path, const char* cause) {
    append.tensors.host = {batch, positions, indptr, pages};
    append.refused(path, cause, Code::kWorkloadInvalid);
  };
  append.tensors.host = {batch, positions, indptr, pages};
  append.accepted();
  SECTION("a request that is not there") {
    batch[2] = 2;
    refused("host_batch_indices[2]", "below the 2 requests of page_indptr, given 2");
  }
  SECTION("a position behind its pages") {
    positions[0] = 32;
    refused("host_positions[0]", "below the 32 tokens");
  }
  SECTION("a negative position") {
    positions[2] = -1;
    refused("host_positions[2]", "given -1");
  }
  SECTION("a page that is not there") {
    pages[1] = 5;
    refused("host_page_indices[1]", "below the 5 pages of the cache, given 5");
  }
  SECTION("a page table that goes back, and one that is too long") {
    indptr[1] = 3;
    indptr[2] = 2;
    refused("host_page_indptr[2]", "at least 3");
    indptr = {0, 2, 5};
    refused("host_page_indptr[2]", "given 5");
  }
  SECTION("two rows of one place") {
    batch = {0, 1, 0};
    positions = {16, 0, 16};
    refused("host_positions[2]", "slot 0 of page 4, as row 0 does");
    positions = {16, 17, 0};
    pages[3] = 0;  // two requests share a page
    positions = {1, 17, 0};
    refused("host_positions[1]", "slot 1 of page 0, as row 0 does");
  }
  SECTION("lengths") {
    batch.push_back(0);
    refused("host_batch_indices", "the 3 entries of the device's array, given 4");
  }
  SECTION("some of the mirrors") {
    append.tensors.host = {.positions = positions, .page_indices = pages};
    append.accepted();
  }
}

TEST_CASE("a malformed tensor of page_copy is refused by name") {
  Spec spec = Append().spec;
  spec.kernel = KernelKind::kPageCopy;
  PageCopyTensors given{.pairs = dense(TensorType::kI32, {3, 2}, 0x1000),
                        .k_cache = Append().tensors.k_cache,
                        .v_cache = Append().tensors.v_cache};
  const auto refused = [&](const char* path, const char* cause) {
    const Status status = page_copy_args(spec, given).status();
    INFO(status.to_string());
    CHECK(status.code == Code::kTensorInvalid);
    CHECK(status.path == path);
    CHECK_THAT(status.cause, Catch::Contains(cause));
  };
  REQUIRE(page_copy_args(spec, given).ok());
  given.pairs.shape[1] = 3;
  refused("pairs.shape[1]", "must be 2, given 3");
  given.pairs = dense(TensorType::kI64, {3, 2}, 0x1000);
  refused("pairs", "must be i32");
  given.pairs = dense(TensorType::kI32, {3, 2}, given.k_cache.data + 160);
  refused("k_cache", "must not overlap pairs");
  given.pairs = {};
  refused("pairs", "none was given");
}

}  // namespace attnloom
