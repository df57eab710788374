// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/calibration_run.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/plan_object.h"
#include "tools/runner/device_buffers.h"

namespace attnloom::cli {
namespace {

constexpr int kKvHeads = kCalibrationKvHeads;
constexpr int kGroup = kCalibrationGroup;
constexpr int kDim = kCalibrationDim;
constexpr int kPageSize = 16;
constexpr int kPoolPages = 64 * 4096 / kPageSize;  // 1 GiB of keys and values
constexpr int kMostTokens = 8192;
constexpr int kGroups = 8;            // of launches; the least counts
constexpr int kLaunchesOfGroup = 20;  // as many as hide the host's part of a launch

// Of random bf16 numbers of one order: zeros would cost the device less power than real ones.
Result<DeviceAddress> place_random(DeviceBuffers& buffers, Backend& backend, std::size_t bytes) {
  ATTNLOOM_TRY(const DeviceAddress to, buffers.take(bytes, "calibration"));
  std::vector<std::uint16_t> block(std::size_t{1} << 20);
  std::mt19937 random(1);
  for (std::uint16_t& x : block)
    x = static_cast<std::uint16_t>((random() & 0x807f) | (120 + random() % 7) << 7);
  for (std::size_t at = 0; at < bytes; at += block.size() * 2) {
    const std::size_t part = std::min(block.size() * 2, bytes - at);
    ATTNLOOM_CHECK(backend.copy_in(to + at, std::as_bytes(std::span(block)).first(part)));
  }
  return to;
}

std::string spec_of(const CalibrationBatch& batch) {
  return R"({"attnloom": 1, "kernel": "attention", "task": ")" +
         std::string(batch.qo_tokens > 1 ? "prefill" : "decode") +
         R"(", "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"},
"head_dim": {"qk": 128, "vo": 128}, "group_size": 4, "layout": {"kv": "paged", "page_size": 16},
"tile": {"q": )" +
         std::to_string(batch.query_tile) + R"(, "kv": )" + std::to_string(batch.kv_tile) +
         R"(}, "variant": {"name": "causal", "mask": {"causal": true}}})";
}

class Measurement {
 public:
  Measurement(Engine& engine, Backend& backend)
      : engine_(engine), backend_(backend), buffers_(backend) {}

  // What all launches read and write. Once, before the first.
  Status place() {
    const std::size_t cache_bytes = std::size_t{kPoolPages} * kPageSize * kKvHeads * kDim * 2;
    const std::size_t query_bytes = std::size_t{kMostTokens} * kKvHeads * kGroup * kDim * 2;
    ATTNLOOM_TRY(k_, place_random(buffers_, backend_, cache_bytes));
    ATTNLOOM_TRY(v_, place_random(buffers_, backend_, cache_bytes));
    ATTNLOOM_TRY(q_, place_random(buffers_, backend_, query_bytes));
    ATTNLOOM_TRY(o_, buffers_.take(query_bytes, "calibration"));
    std::vector<std::int32_t> order(kPoolPages);
    std::iota(order.begin(), order.end(), 0);
    ATTNLOOM_TRY(pages_, buffers_.input(std::as_bytes(std::span(order)), "calibration"));
    return ok_status();
  }

  Result<CalibrationTime> time(const CalibrationBatch& batch) {
    ATTNLOOM_TRY(const std::shared_ptr<KernelSet> kernels, engine_.open(spec_of(batch)));
    PlanLimits limits{.max_batch = batch.requests,
                      .max_qo_tokens = std::int64_t{batch.requests} * batch.qo_tokens,
                      .q_heads = kKvHeads * kGroup,
                      .kv_heads = kKvHeads,
                      .max_ctas = batch.most_ctas};
    ATTNLOOM_TRY(const std::unique_ptr<PlanObject> plan, PlanObject::create(kernels, limits));
    DeviceBuffers own(backend_);
    ATTNLOOM_TRY(const DeviceAddress workspace, own.take(plan->workspace_bytes(), "workspace"));
    std::vector<std::byte> staging(plan->staging_bytes());
    ATTNLOOM_CHECK(plan->bind(workspace, plan->workspace_bytes(), staging.data(), staging.size()));
    ATTNLOOM_CHECK(update(*plan, batch));
    ATTNLOOM_TRY(const double ns, least_time(*plan, batch));
    return CalibrationTime{ns, plan->plan()->grid, plan->plan()->figures.items};
  }

 private:
  Status update(PlanObject& plan, const CalibrationBatch& batch) {
    const int pages = batch.kv_tokens / kPageSize;
    std::vector<std::int32_t> qo(1, 0), kv(1, 0);
    for (int r = 0; r < batch.requests; ++r) {
      qo.push_back(qo.back() + batch.qo_tokens);
      kv.push_back(kv.back() + pages);
    }
    const std::vector<std::int32_t> last(static_cast<std::size_t>(batch.requests), kPageSize);
    Workload workload;
    workload.qo_indptr = qo;
    workload.kv_indptr = kv;
    workload.last_page_len = last;
    return plan.update(workload, nullptr);
  }

  AttentionTensors tensors(const CalibrationBatch& batch) const {
    const std::int64_t rows[] = {std::int64_t{batch.requests} * batch.qo_tokens, kKvHeads * kGroup,
                                 kDim};
    const std::int64_t cache[] = {kPoolPages, kPageSize, kKvHeads, kDim};
    AttentionTensors made;
    made.q = dense_tensor(TensorType::kBf16, rows, q_);
    made.o = dense_tensor(TensorType::kBf16, rows, o_);
    made.k = dense_tensor(TensorType::kBf16, cache, k_);
    made.v = dense_tensor(TensorType::kBf16, cache, v_);
    return made;
  }

  // Each launch reads the pages behind those of the one before.
  Result<double> least_time(PlanObject& plan, const CalibrationBatch& batch) {
    AttentionTensors made = tensors(batch);
    const int pages = batch.requests * batch.kv_tokens / kPageSize;
    double least = 0;
    int first = 0;
    for (int group = 0; group <= kGroups; ++group) {  // the first only warms up
      ATTNLOOM_CHECK(backend_.synchronize(nullptr));
      const auto begin = std::chrono::steady_clock::now();
      for (int n = 0; n < kLaunchesOfGroup; ++n) {
        if (first + pages > kPoolPages) first = 0;
        const std::int64_t entries[] = {pages};
        made.page_indices =
            dense_tensor(TensorType::kI32, entries, pages_ + static_cast<DeviceAddress>(first) * 4);
        ATTNLOOM_CHECK(plan.run(made, nullptr));
        first += pages;
      }
      ATTNLOOM_CHECK(backend_.synchronize(nullptr));
      const std::chrono::duration<double, std::nano> spent =
          std::chrono::steady_clock::now() - begin;
      const double ns = spent.count() / kLaunchesOfGroup;
      if (group == 1 || (group > 1 && ns < least)) least = ns;
    }
    return least;
  }

  Engine& engine_;
  Backend& backend_;
  DeviceBuffers buffers_;
  DeviceAddress k_ = 0, v_ = 0, q_ = 0, o_ = 0, pages_ = 0;
};

}  // namespace

Result<std::array<CalibrationTime, kCalibration.size()>> time_calibration(Engine& engine) {
  ATTNLOOM_TRY(Backend * backend, engine.backend());
  Measurement measurement(engine, *backend);
  ATTNLOOM_CHECK(measurement.place());
  std::array<CalibrationTime, kCalibration.size()> times;
  for (std::size_t n = 0; n < times.size(); ++n) {
    ATTNLOOM_TRY(times[n], measurement.time(kCalibration[n]));
  }
  return times;
}

}  // namespace attnloom::cli
