// SPDX-License-Identifier: Apache-2.0
// Offsets past 32 bits, in the device's own arithmetic. Only the rows that are read have memory:
// the base address lies far before it, so that one wrapped product is an access outside.
#include <span>

#include "engine/plan_object.h"
#include "engine/row_launch.h"
#include "kernels/device_tensors.h"
#include "kernels/kernel_rig.h"
#include "reference/number_format.h"

namespace attnloom::testing {
namespace {

constexpr int kDim = 64;

struct Far {
  std::string layout;  // of the spec
  Workload workload;
  std::int64_t first_row = 0;       // of the two that are read
  std::int64_t row_stride = 0;      // elements
  std::vector<std::int64_t> shape;  // of K and V
  std::vector<std::int64_t> strides;
  std::vector<std::int32_t> page_indices;
  std::vector<std::int32_t> block_indices;
  std::string mask = R"({"causal": true})";  // of the spec
  std::int64_t mask_word_begin = 0;          // of the one word of a custom mask that has memory
  std::vector<std::uint8_t> mask_word;
};

// "" when the output of the last query is the mean of the values 1 and 3 of two keys, at
// far.first_row and the next one.
std::string run_far(Engine& engine, const Far& far) {
  const auto kernels =
      engine.open(R"({"attnloom": 1, "kernel": "attention",
      "dtype": {"q": "f16", "kv": "f16", "o": "f16"}, "head_dim": {"qk": 64, "vo": 64}, "group_size": 1,
      "tile": {"q": 16, "kv": 64}, "layout": )" +
                  far.layout + R"(, "variant": {"name": "plain", "mask": )" + far.mask + "}}");
  INFO(kernels.status().to_string());
  REQUIRE(kernels.ok());
  Backend& backend = **engine.backend();
  DeviceTensors device(backend);
  const auto kv_at = [&](double first, double second, const char* label) {
    std::vector<std::uint16_t> rows(static_cast<std::size_t>(far.row_stride + kDim));
    std::fill_n(rows.begin(), kDim, reference::to_bits(first, DType::kF16));
    std::fill_n(rows.end() - kDim, kDim, reference::to_bits(second, DType::kF16));
    const DeviceAddress base =
        device.put(rows, label) - static_cast<DeviceAddress>(far.first_row * far.row_stride * 2);
    return view_of(base, TensorType::kF16, far.shape, far.strides);
  };
  AttentionTensors tensors;
  const std::int64_t queries = far.workload.qo_indptr.back();
  const std::vector<std::uint16_t> zeros(static_cast<std::size_t>(queries * kDim), 0);
  tensors.q =
      view_of(device.put(zeros, "q"), TensorType::kF16, {queries, 1, kDim}, {kDim, kDim, 1});
  tensors.k = kv_at(0, 0, "k");
  tensors.v = kv_at(1, 3, "v");
  tensors.o =
      view_of(device.put(zeros, "o"), TensorType::kF16, {queries, 1, kDim}, {kDim, kDim, 1});
  if (!far.page_indices.empty()) {
    tensors.page_indices = view_of(device.put(far.page_indices, "pages"), TensorType::kI32,
                                   {static_cast<std::int64_t>(far.page_indices.size())}, {1});
  }
  if (!far.block_indices.empty()) {
    tensors.block_indices = view_of(device.put(far.block_indices, "blocks"), TensorType::kI32,
                                    {static_cast<std::int64_t>(far.block_indices.size())}, {1});
  }
  if (!far.mask_word.empty()) {
    const std::int64_t bytes = far.mask_word_begin + std::ssize(far.mask_word);
    tensors.custom_mask =
        view_of(device.put(far.mask_word, "mask") - static_cast<DeviceAddress>(far.mask_word_begin),
                TensorType::kU8, {bytes}, {1});
  }
  const PlanLimits limits{
      .max_batch = far.workload.batch(), .max_qo_tokens = queries, .q_heads = 1, .kv_heads = 1};
  auto plan = PlanObject::create(*kernels, limits);
  REQUIRE(plan.ok());
  std::vector<std::byte> staging((*plan)->staging_bytes());
  const DeviceAddress workspace = device.room((*plan)->workspace_bytes(), "workspace");
  REQUIRE(
      (*plan)->bind(workspace, (*plan)->workspace_bytes(), staging.data(), staging.size()).ok());
  const Status updated = (*plan)->update(far.workload, nullptr);
  INFO(updated.to_string());
  REQUIRE(updated.ok());
  const Status ran = (*plan)->run(tensors, nullptr);
  if (!ran.ok()) return ran.to_string();
  REQUIRE(backend.synchronize(nullptr).ok());
  const std::string finding = device.finding();
  if (finding != "") return finding;
  const auto o = device.get<std::uint16_t>(
      tensors.o.data + static_cast<DeviceAddress>((queries - 1) * kDim * 2), kDim);
  const std::vector<std::uint16_t> wanted(kDim, reference::to_bits(2.0, DType::kF16));
  return o == wanted ? "" : "o[0] is " + std::to_string(reference::from_bits(o[0], DType::kF16));
}

// Right as it stands; noticed when `product` of the copies is made in 32 bits.
void check_far(const Far& far, const std::string& product, const std::string& wrapped,
               const std::string& header = "loom/copy.cuh") {
  CHECK(run_far(*make_test_engine(), far) == "");
  const auto mutant = make_edited_engine(
      0, [&](Source& source) { replace_once(source, header, product, wrapped); });
  CHECK(run_far(*mutant, far) != "");
}

// A cache of pages 2^31 elements in, of which the last two have memory.
struct FarPool {
  static constexpr std::int64_t kPages = 65538;
  static constexpr std::int64_t kStride = 32768;  // elements
  DeviceAddress last_two;
  TensorView view;

  FarPool(DeviceTensors& device, std::uint16_t filled, const char* label)
      : last_two(device.put(std::vector<std::uint16_t>(kStride + kDim, filled), label)) {
    view = view_of(last_two - (kPages - 2) * kStride * 2, TensorType::kF16, {kPages, 1, 1, kDim},
                   {kStride, kDim, kDim, 1});
  }
  bool holds(DeviceTensors& device, int page, std::uint16_t bits) const {
    const DeviceAddress at = last_two + static_cast<DeviceAddress>(page * kStride * 2);
    return device.get<std::uint16_t>(at, kDim) == std::vector<std::uint16_t>(kDim, bits);
  }
};

std::string cache_spec(const std::string& kernel, const std::string& dtype) {
  return R"({"attnloom": 1, "kernel": ")" + kernel + R"(", "dtype": )" + dtype +
         R"(, "head_dim": {"qk": 64, "vo": 64}, "layout": {"kv": "paged", "page_size": 1}})";
}

std::string append_far(Engine& engine) {
  const auto kernels = engine.open(cache_spec("append", R"({"q": "f16", "kv": "f16"})"));
  REQUIRE(kernels.ok());
  DeviceTensors device(**engine.backend());
  const FarPool k(device, 1, "k"), v(device, 2, "v");  // below all else, which may not overlap them
  const auto indices = [&](std::int32_t value) {
    return view_of(device.put(std::vector{value}, "index"), TensorType::kI32, {1}, {1});
  };
  const auto row = [&](std::uint16_t bits) {
    return view_of(device.put(std::vector<std::uint16_t>(kDim, bits), "row"), TensorType::kF16,
                   {1, 1, kDim}, {kDim, kDim, 1});
  };
  AppendTensors tensors;
  tensors.key = row(3);
  tensors.value = row(4);
  tensors.batch_indices = indices(0);
  tensors.positions = indices(0);
  tensors.page_indptr =
      view_of(device.put(std::vector<std::int32_t>{0, 1}, "indptr"), TensorType::kI32, {2}, {1});
  tensors.page_indices = indices(FarPool::kPages - 1);
  tensors.k_cache = k.view;
  tensors.v_cache = v.view;
  const Status ran = run_append(**kernels, tensors, nullptr);
  if (!ran.ok()) return ran.to_string();
  REQUIRE((*engine.backend())->synchronize(nullptr).ok());
  if (const std::string finding = device.finding(); finding != "") return finding;
  const bool right = k.holds(device, 0, 1) && k.holds(device, 1, 3) && v.holds(device, 0, 2) &&
                     v.holds(device, 1, 4);
  return right ? "" : "another page was written";
}

std::string copy_far(Engine& engine) {
  const auto kernels = engine.open(cache_spec("page_copy", R"({"kv": "f16"})"));
  REQUIRE(kernels.ok());
  DeviceTensors device(**engine.backend());
  const FarPool k(device, 1, "k"), v(device, 2, "v");
  const std::vector<std::uint16_t> threes(kDim, 3);
  REQUIRE((*engine.backend())->copy_in(k.last_two, std::as_bytes(std::span(threes))).ok());
  PageCopyTensors tensors;
  tensors.pairs = view_of(
      device.put(std::vector<std::int32_t>{FarPool::kPages - 2, FarPool::kPages - 1}, "pairs"),
      TensorType::kI32, {1, 2}, {2, 1});
  tensors.k_cache = k.view;
  tensors.v_cache = v.view;
  const Status ran = run_page_copy(**kernels, tensors, nullptr);
  if (!ran.ok()) return ran.to_string();
  REQUIRE((*engine.backend())->synchronize(nullptr).ok());
  if (const std::string finding = device.finding(); finding != "") return finding;
  return k.holds(device, 1, 3) && v.holds(device, 1, 2) ? "" : "another page was written";
}

}  // namespace

TEST_CASE("B33: caches are written behind 2^31 elements too", "[offsets]") {
  const auto mutant = [](const char* header, const char* from, const char* to) {
    return make_edited_engine(0, [=](Source& source) { replace_once(source, header, from, to); });
  };
  CHECK(append_far(*make_test_engine()) == "");
  CHECK(append_far(*mutant("append.cuh", "place.page * args.k_page_stride",
                           "static_cast<int>(place.page * args.k_page_stride)")) != "");
  CHECK(append_far(*mutant("append.cuh", "place.page * args.v_page_stride",
                           "static_cast<int>(place.page * args.v_page_stride)")) != "");
  CHECK(copy_far(*make_test_engine()) == "");
  CHECK(copy_far(*mutant("page_copy.cuh", "k + to * args.k_page_stride * kBytes",
                         "k + static_cast<int>(to * args.k_page_stride * kBytes)")) != "");
  CHECK(copy_far(*mutant("page_copy.cuh", "v + from * args.v_page_stride * kBytes",
                         "v + static_cast<int>(from * args.v_page_stride * kBytes)")) != "");
}

TEST_CASE("B33: pages on both sides of 2^31 elements", "[offsets]") {
  const std::int32_t qo[] = {0, 1};
  const std::int32_t kv[] = {0, 2};
  const std::int32_t last[] = {1};
  const std::int64_t page = 32768;
  Far far{.layout = R"({"kv": "paged", "page_size": 1})", .first_row = 65535, .row_stride = page};
  far.workload = {
      .q_heads = 1, .kv_heads = 1, .qo_indptr = qo, .kv_indptr = kv, .last_page_len = last};
  far.shape = {65537, 1, 1, kDim};
  far.strides = {page, kDim, kDim, 1};
  far.page_indices = {65535, 65536};
  check_far(far, "page[i] * args.k_page_stride", "page[i] * static_cast<int>(args.k_page_stride)");
  check_far(far, "page[i] * args.v_page_stride", "page[i] * static_cast<int>(args.v_page_stride)");
}

TEST_CASE("B49: rows on both sides of 2^31 elements", "[offsets]") {
  const std::int64_t stride = 12288;
  const auto rows_from = [&](const std::int32_t(&kv)[3], const std::int32_t(&qo)[3]) {
    Far far{.layout = R"({"kv": "ragged"})", .first_row = kv[1], .row_stride = stride};
    far.workload = {.q_heads = 1, .kv_heads = 1, .qo_indptr = qo, .kv_indptr = kv};
    far.shape = {kv[2], 1, kDim};
    far.strides = {stride, kDim, 1};
    return far;
  };
  // The first request has no query, so its keys are not read. 174762 is the last row within int32,
  // and 174999 * 12288 = 2150387712.
  const std::int32_t qo[] = {0, 0, 1};
  const std::int32_t border[] = {0, 174762, 174764};
  CHECK(run_far(*make_test_engine(), rows_from(border, qo)) == "");
  const std::int32_t behind[] = {0, 174998, 175000};
  const Far far = rows_from(behind, qo);
  check_far(far, "row += request.kv_begin * token_stride;",
            "row += static_cast<int>(request.kv_begin * token_stride);");
}

TEST_CASE("slots of a padded cache on both sides of 2^31 elements", "[offsets]") {
  const std::int32_t qo[] = {0, 0, 0, 0, 1};
  const std::int32_t kv[] = {0, 0, 0, 0, 2};
  const std::int64_t slot = std::int64_t{1} << 30;
  Far far{.layout = R"({"kv": "padded"})", .first_row = 3 * slot / kDim, .row_stride = kDim};
  far.workload = {.q_heads = 1, .kv_heads = 1, .qo_indptr = qo, .kv_indptr = kv};
  far.shape = {4, 2, 1, kDim};
  far.strides = {slot, kDim, kDim, 1};
  check_far(far, "request.batch * page_stride;", "request.batch * static_cast<int>(page_stride);");
}

// Only the last row of blocks lists keys, so nothing else has to be there. The bits of the last
// query begin at 2^33 (the first request's mask) + 16 * 2^30 + 2^30 - 2.
TEST_CASE("B47: keys and bits of a custom mask far beyond 2^32", "[offsets]") {
  const std::int32_t qo[] = {0, 16, 33};
  const std::int32_t kv[] = {0, 1 << 29, (1 << 29) + (1 << 30)};
  const std::int32_t rows[] = {0, 0, 0, 1};
  Far far{.layout = R"({"kv": "bsr", "block": [16, 2]})",
          .first_row = (std::int64_t{1} << 29) + (1 << 30) - 2,
          .row_stride = kDim};
  far.workload = {.q_heads = 1, .kv_heads = 1, .qo_indptr = qo, .kv_indptr = kv};
  far.workload.block_indptr = rows;
  far.block_indices = {(1 << 29) - 1};
  far.shape = {kv[2], 1, kDim};
  far.strides = {kDim, kDim, 1};
  far.mask = R"({"custom": true})";
  far.mask_word_begin = (std::int64_t{1} << 30) + (std::int64_t{17} << 27) - 4;
  far.mask_word = {0, 0, 0, 0xc0};
  const auto check = [&](const char* product, const char* wrapped) {
    check_far(far, product, wrapped, "loom/columns.cuh");
  };
  check("static_cast<i64>(token) * request.kv_len + position",
        "static_cast<i64>(token * request.kv_len) + position");
  check_far(far, "row * args.k_token_stride", "(row * args.k_token_stride << 32 >> 32)");
  check_far(far, "row * args.v_token_stride", "(row * args.v_token_stride << 32 >> 32)");
  check("request.mask_begin * 8", "static_cast<int>(request.mask_begin * 8)");
}

// Bit 17179869183 is the last one of byte 2147483647. Only the last row of blocks lists keys; of
// its 16 tokens the bits have memory, 0 but for the last.
TEST_CASE("B47: the last bits of a custom mask of 131072 x 131072", "[offsets]") {
  const std::int32_t length = 131072;
  const std::int32_t qo[] = {0, length};
  std::vector<std::int32_t> rows(length / 16 + 1, 0);
  rows.back() = 1;
  Far far{
      .layout = R"({"kv": "bsr", "block": [16, 2]})", .first_row = length - 2, .row_stride = kDim};
  far.workload = {.q_heads = 1, .kv_heads = 1, .qo_indptr = qo, .kv_indptr = qo};
  far.workload.block_indptr = rows;
  far.block_indices = {length / 2 - 1};
  far.shape = {length, 1, kDim};
  far.strides = {kDim, kDim, 1};
  far.mask = R"({"custom": true})";
  far.mask_word.resize(std::size_t{16} * length / 8);
  far.mask_word.back() = 0xc0;
  far.mask_word_begin = std::int64_t{length} * length / 8 - std::ssize(far.mask_word);
  check_far(far, "static_cast<i64>(token) * request.kv_len + position",
            "static_cast<i64>(token * request.kv_len + position)", "loom/columns.cuh");
}

}  // namespace attnloom::testing
