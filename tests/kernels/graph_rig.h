// SPDX-License-Identifier: Apache-2.0
// Plans on a simulated device that captures: launches are then recorded as a CUDA graph would
// freeze them (kernel, grid, argument bytes), and replayed as they were with only the plan block
// renewed. Tensors stay where they are from batch to batch, as a captured graph needs them.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/plan_object.h"
#include "kernels/graph_device.h"

namespace attnloom::testing {

// bf16, head dim 64, pages of 16 or blocks of [8, 16].
struct RigShape {
  int kv_heads = 2;
  int group = 2;
  bool sparse = false;
  bool causal = true;
  std::string tile = R"("auto")";
  int max_batch = 4;
  int max_tokens = 4;    // query tokens
  int kv_tokens = 2048;  // of the pool, or of k and v
};

// Owns the arrays that a Workload views.
struct RigBatch {
  std::vector<std::int32_t> qo{0};
  std::vector<std::int32_t> kv{0};
  std::vector<std::int32_t> last;
  std::vector<std::int32_t> pages;
  std::vector<std::int32_t> block_indptr;
  std::vector<std::int32_t> blocks;

  // `first_page` < 0: the next pages of the pool.
  RigBatch& add_paged(int qo_len, int kv_len, int first_page = -1);
  // With every block of the request's keys that `random` picks for each row of blocks.
  RigBatch& add_sparse(int qo_len, int kv_len, std::mt19937& random);
  int tokens() const { return qo.back(); }
  Workload workload() const;
};

// Bits of the rows of a batch; equal means equal bits.
struct RigOutput {
  std::vector<std::uint16_t> o;
  std::vector<std::uint32_t> lse;
  bool operator==(const RigOutput&) const = default;
};

class GraphRig {
 public:
  explicit GraphRig(const RigShape& shape);

  struct Planned {
    std::unique_ptr<PlanObject> plan;
    DeviceAddress workspace = 0;
    std::vector<std::byte> staging;
  };
  // Within the shape's bounds. `fill` < 0: a workspace never written.
  Planned make_plan(const PlanOptions& options = {}, PlanLimits limits = {}, int fill = -1);

  // Renews the plan and the index tensors on the device.
  void update(Planned& planned, const RigBatch& batch);
  // Of the plan's own kernel, now.
  RigOutput run(Planned& planned);
  void capture(Planned& planned);
  RigOutput replay(const Planned& planned);

  GraphDevice& device() { return *device_; }
  Backend& backend() { return *backend_; }
  Stream stream() { return device_->stream(); }
  Engine& engine() { return *engine_; }
  KernelSet& kernels() { return *kernels_; }
  AttentionTensors& tensors() { return tensors_; }
  // The first `tokens` rows of q and o.
  void set_queries(const std::vector<std::uint16_t>& bits);
  void set_values(const std::vector<std::uint16_t>& bits);
  int elements_of_token() const { return shape_.kv_heads * shape_.group * 64; }
  void poison();
  RigOutput read(const PlanObject& plan);

 private:
  DeviceAddress place(std::size_t bytes, const std::string& label);

  const RigShape shape_;
  const std::unique_ptr<GraphDevice> device_ = GraphDevice::make();
  Backend* backend_ = nullptr;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<KernelSet> kernels_;
  AttentionTensors tensors_;
};

// Pseudo-random bf16 numbers in [-1, 1).
std::vector<std::uint16_t> random_bits(std::size_t count, std::uint64_t seed);

}  // namespace attnloom::testing
