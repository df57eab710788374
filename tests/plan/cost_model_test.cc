// SPDX-License-Identifier: Apache-2.0
// What the cost model makes of a device's figures, and what schedules make of the model.
#include "plan/cost_model.h"

#include <catch2/catch.hpp>

#include "plan_fixture.h"

namespace attnloom {
namespace {

using test::Batch;

// 1 byte and 4 flops a nanosecond: on 2 CTAs 0.5 and 2.
constexpr DeviceProfile kSlow{.bytes_per_ns = 1,
                              .flops_per_ns = 4,
                              .item_ns = 1000,
                              .latency_ns = 1000,
                              .cta_bytes_per_ns = 9};

TEST_CASE("a decode's tile costs its bytes, a prefill's its arithmetic") {
  const CostModel model{.profile = &kSlow};
  const Spec spec = test::ragged_spec(4);  // head dim 64, bf16
  const ClassCost decode = model.of_class(spec, {16, 32, 2}, 2, 320);
  CHECK(decode.step == 2.0 * 16 * 32 * 128 / 2);  // more than the 32 * 128 * 2 / 0.5 of the bytes
  CHECK(decode.merge == 4 * 4.0 * 4 * 65 / 0.5);  // four rows of a group
  CHECK(decode.item == 1000);
  CHECK(decode.of(0) == 1000);
  CHECK(decode.of(33) == 1000 + 2 * decode.step);
  const ClassCost simt = model.of_class(test::ragged_spec(1), {1, 32, 2}, 2, 320);
  CHECK(simt.step == 32 * 128 * 2 / 0.5);
  CHECK(model.of_class(spec, {64, 32, 2}, 2, 320).step == 2.0 * 64 * 32 * 128 / 2);
}

// 33 keys are two tiles of 8192 bytes. Alone a CTA copies 4 bytes a nanosecond, beside the other
// 0.5.
TEST_CASE("a short decode item costs its latency, a long one its share of the memory") {
  const DeviceProfile profile{.bytes_per_ns = 1,
                              .flops_per_ns = 1e9,
                              .step_ns = 7,
                              .item_ns = 10,
                              .latency_ns = 100000,
                              .cta_bytes_per_ns = 4,
                              .state_ns = 3};
  const CostModel model{.profile = &profile};
  const Spec spec = test::ragged_spec(4);
  CHECK(model.of_class(spec, {16, 32, 2}, 2, 33).of(33) == 100000 + 2 * 8192 / 4);
  CHECK(model.of_class(spec, {16, 32, 2}, 2, 3200).of(3200) == 10 + 100 * 8192 / 0.5);
  CHECK(model.of_class(spec, {64, 32, 2}, 2, 64).of(64) == Approx(100000 + 2 * 7));
  CHECK(model.of_class(spec, {16, 32, 2}, 2, 33).merge == 3 + 4 * 4.0 * 4 * 65 / 0.5);
}

// Two CTAs, one head, requests of 10 and 1 KV tiles. With a step of s and an item of f = 1000:
// evenly ceil(11 / 2) s + f; all tiles, items and borders (11 s + 3 (f + 2 m)) / 2 + s.
TEST_CASE("what is reachable, worked by hand, and a cut that reaches it") {
  const CostModel model{.profile = &kSlow, .judges = true};
  Batch batch;
  batch.add(1, 320).add(1, 32);
  const auto planned = [&](ScheduleChoice choice) {
    PlanLimits limits = batch.limits(2);
    limits.schedule = choice;
    const Result<Plan> plan =
        make_plan(test::ragged_spec(), test::one_kernel(16, 32), limits, batch.view(), 1, model);
    REQUIRE(plan.ok());
    return plan->figures;
  };
  const ClassCost cost = model.of_class(test::ragged_spec(), {16, 32, 2}, 2, 160);
  const PlanFigures shipped = planned(ScheduleChoice::kShipped);
  const double all = (11 * cost.step + 3 * (cost.item + 2 * cost.merge)) / 2 + cost.step;
  CHECK(shipped.reachable == Approx(std::max(6 * cost.step + cost.item, all)));
  CHECK(shipped.makespan <= 1.03 * shipped.reachable);
  const PlanFigures paper = planned(ScheduleChoice::kAlgorithm1);
  CHECK_FALSE(paper.contiguous);
  CHECK(shipped.makespan <= paper.makespan);
  // 176 tokens a CTA, 192 in whole tiles: 6 and 4 tiles, and the other request behind the 4.
  CHECK(paper.makespan == Approx(cost.of(192) + cost.merge));
}

}  // namespace
}  // namespace attnloom
