// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <limits>

#include "kernel_templates/loom/plan.cuh"
#include "plan/plan.h"

namespace attnloom {
namespace {

template <class T>
std::vector<T> read_table(const Plan& plan, std::size_t offset, int count) {
  std::vector<T> rows(static_cast<std::size_t>(count));
  if (count > 0) std::memcpy(rows.data(), plan.block.data() + offset, rows.size() * sizeof(T));
  return rows;
}

Json kernel_to_json(const KernelChoice& kernel, int index) {
  Json classes = Json::array();
  for (const TileClass& tile : kernel.classes) {
    classes.push_back({{"q", tile.q}, {"kv", tile.kv}, {"stages", tile.stages}});
  }
  return {{"index", index}, {"family", kernel.family}, {"classes", classes}};
}

Json figures_to_json(const PlanFigures& figures) {
  return {{"makespan", figures.makespan},
          {"ideal", figures.ideal},
          {"items", figures.items},
          {"split_tiles", figures.split_tiles},
          {"prefix_tiles", figures.prefix_tiles},
          {"schedule", figures.contiguous ? "contiguous" : "algorithm_1"},
          {"chunk_tokens", figures.chunk_tokens}};
}

// As the CTA at `lane` of its gang has it. `rows`: of the item's tile class.
Json item_to_json(const loom::WorkItem& item, int lane, int rows) {
  const bool split = item.partial_row >= 0;
  return {{"request", item.request},
          {"q_row", item.q_row},
          {"kv_head", item.kv_head + lane},
          {"kv", {item.kv_begin, item.kv_end}},
          {"tile_class", item.tile_class},
          {"partial_row", split ? item.partial_row + lane * rows : -1},
          {"merge", split ? item.merge + lane : -1}};
}

// `list_begin` and `qo_begin` of a prefix tile name its lists, which "shared" shows.
Json request_to_json(const loom::RequestRow& row) {
  return {{"batch", row.batch},          {"qo_begin", row.qo_begin},
          {"qo_len", row.qo_len},        {"q", {row.q_first, row.q_end}},
          {"kv_begin", row.kv_begin},    {"kv_len", row.kv_len},
          {"walk_len", row.walk_len},    {"list_begin", row.list_begin},
          {"mask_begin", row.mask_begin}};
}

template <class T>
T read_one(const Plan& plan, std::size_t offset, int index) {
  return read_table<T>(plan, offset + static_cast<std::size_t>(index) * sizeof(T), 1)[0];
}

// Whose rows a prefix tile holds, the range of keys that they share in it, and the merge of each on
// KV head 0; those of the other heads follow. `levels`: of each request, the prefixes so far.
Json shared_to_json(const Plan& plan, const loom::PlanHeader& header, const loom::RequestRow& row,
                    int begin, std::vector<int>& levels) {
  Json members = Json::array();
  Json merges = Json::array();
  int level = 0;
  for (int m = 0; m < row.member_count; ++m) {
    const auto member =
        read_one<loom::SharedMember>(plan, header.shared_members_offset, row.qo_begin + m);
    members.push_back(member.request);
    merges.push_back(member.merge);
    level = ++levels[member.request];
  }
  Json tokens = Json::array();
  for (int t = 0; t < row.q_end; ++t) {
    tokens.push_back(
        read_one<loom::SharedToken>(plan, header.shared_tokens_offset, row.list_begin + t).token);
  }
  return {{"level", level},
          {"members", std::move(members)},
          {"merges", std::move(merges)},
          {"tokens", std::move(tokens)},
          {"kv", {begin, row.walk_len}}};
}

// Of a request with shared prefixes its runs of states: that of chunk c on head h begins at
// row + (c * KV heads + h) * rows.
Json merge_to_json(const Plan& plan, const loom::PlanHeader& header, const loom::MergeTile& tile) {
  if (tile.partial_row >= 0) return {{"partial_row", tile.partial_row}, {"count", tile.count}};
  Json runs = Json::array();
  int states = 0;
  for (int run = ~tile.partial_row; states < tile.count; ++run) {
    const auto states_of = read_one<loom::StateRun>(plan, header.state_runs_offset, run);
    runs.push_back(
        {{"row", states_of.row}, {"rows", states_of.rows}, {"chunks", states_of.chunks}});
    states += states_of.chunks;
  }
  return {{"runs", std::move(runs)}, {"count", tile.count}};
}

}  // namespace

Json plan_to_json(const Spec& spec, const std::vector<KernelChoice>& kernels, const Plan& plan) {
  const auto header = read_table<loom::PlanHeader>(plan, 0, 1)[0];
  const std::vector<TileClass>& classes = kernels[plan.kernel].classes;
  const auto items = read_table<loom::WorkItem>(plan, header.items_offset, header.item_count);
  Json queues = Json::array();
  for (const auto& cta : read_table<loom::CtaQueue>(plan, header.queues_offset, header.cta_count)) {
    Json queue = Json::array();
    for (int i = cta.begin; i < cta.end; ++i)
      queue.push_back(item_to_json(items[i], cta.lane, classes[items[i].tile_class].q));
    queues.push_back(std::move(queue));
  }
  std::vector<int> first_key(static_cast<std::size_t>(header.request_count),
                             std::numeric_limits<int>::max());
  for (const loom::WorkItem& item : items)
    first_key[item.request] = std::min(first_key[item.request], item.kv_begin);
  Json requests = Json::array();
  std::vector<int> levels(static_cast<std::size_t>(header.request_count), 0);
  for (const auto& row :
       read_table<loom::RequestRow>(plan, header.requests_offset, header.request_count)) {
    requests.push_back(request_to_json(row));
    if (row.member_count > 0)
      requests.back()["shared"] =
          shared_to_json(plan, header, row, first_key[requests.size() - 1], levels);
  }
  Json merges = Json::array();
  for (const auto& tile :
       read_table<loom::MergeTile>(plan, header.merges_offset, header.merge_count))
    merges.push_back(merge_to_json(plan, header, tile));
  return {{"kernel", kernel_to_json(kernels[plan.kernel], plan.kernel)},
          {"grid", plan.grid},
          {"generation", header.generation},
          {"group_size", spec.group_size},
          {"heads", {{"q", header.q_heads}, {"kv", header.kv_heads}}},
          {"scale", header.scale},
          {"window_left", header.window_left},
          {"qo_tokens", plan.qo_tokens},
          {"kv_rows", plan.kv_rows},
          {"mask_bytes", plan.mask_bytes},
          {"block_bytes", plan.block.size()},
          {"lanes", header.lanes},
          {"figures", figures_to_json(plan.figures)},
          {"requests", std::move(requests)},
          {"queues", std::move(queues)},
          {"merges", std::move(merges)}};
}

}  // namespace attnloom
