// SPDX-License-Identifier: Apache-2.0
#include "tools/runner/own_functors.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernel_templates/loom/plan.cuh"
#include "plan/plan.h"
#include "render/render.h"
#include "sim/device.h"
#include "spec/tiles.h"
#include "tools/runner/case_runner.h"

namespace attnloom {
namespace {

// Every call of the functors that a solution makes, in its order, and their answers.
struct Calls {
  std::vector<float> logits;
  std::vector<loom::FunctorPlace> places;
  std::vector<float> transformed;
  std::vector<int> kept;
};

loom::FunctorPlace place_of(const reference::LogitPlace& place) {
  return {
      place.batch,   static_cast<int>(place.q_pos), static_cast<int>(place.kv_pos), place.q_head,
      place.kv_head, static_cast<int>(place.q_len), static_cast<int>(place.kv_len)};
}

// A first pass over the reference that notes what the functors will be asked. The transform sees
// every logit that the structured masks leave; what the functor mask hides is decided from the same
// places.
Result<Calls> record_calls(const CaseFile& file) {
  Calls calls;
  reference::Problem problem = case_problem(file);
  problem.hooks.logits_transform = [&](double logit, const reference::LogitPlace& place) {
    calls.logits.push_back(static_cast<float>(logit));
    calls.places.push_back(place_of(place));
    return logit;
  };
  ATTNLOOM_CHECK(reference::attention(problem).status());
  return calls;
}

// A plan for one request of one query and one key: only its header is wanted, for the scalars.
Result<loom::PlanHeader> header_with_scalars(const CaseFile& file,
                                             const std::vector<KernelChoice>& kernels) {
  const PlanLimits limits{.max_batch = file.batch(),
                          .max_qo_tokens = file.qo_tokens(),
                          .q_heads = file.q_heads,
                          .kv_heads = file.kv_heads,
                          .sm_count = 1};
  ATTNLOOM_TRY(const Plan plan, make_plan(file.spec, kernels, limits, file.workload(), 1));
  loom::PlanHeader header;
  std::memcpy(&header, plan.block.data(), sizeof(header));
  return header;
}

class Simulation {
 public:
  template <class T>
  Result<T*> input(std::span<const T> values, const std::string& label) {
    ATTNLOOM_TRY(const std::uint64_t address, memory_.allocate(values.size_bytes() + 16, label));
    ATTNLOOM_CHECK(memory_.write(address, std::as_bytes(values)));
    return reinterpret_cast<T*>(address);  // a device address, never read here
  }
  sim::Memory& memory() { return memory_; }

 private:
  sim::Memory memory_;
};

Status run_calls(const sim::Module& module, const CaseFile& file, const loom::PlanHeader& header,
                 Calls& calls) {
  Simulation device;
  loom::FunctorArgs args{};
  calls.transformed.resize(calls.logits.size());
  calls.kept.resize(calls.logits.size());
  ATTNLOOM_TRY(loom::PlanHeader * plan, device.input(std::span(&header, 1), "plan"));
  args.attention.workspace = reinterpret_cast<unsigned char*>(plan);
  for (std::size_t i = 0; i < file.pointers.size(); ++i) {
    ATTNLOOM_TRY(std::byte * data,
                 device.input(std::span(file.pointers[i].bytes), file.pointers[i].name));
    args.attention.pointers[i] = data;
  }
  ATTNLOOM_TRY(args.logits, device.input(std::span<const float>(calls.logits), "logits"));
  ATTNLOOM_TRY(args.places,
               device.input(std::span<const loom::FunctorPlace>(calls.places), "places"));
  ATTNLOOM_TRY(args.transformed,
               device.input(std::span<const float>(calls.transformed), "transformed"));
  ATTNLOOM_TRY(args.kept, device.input(std::span<const int>(calls.kept), "kept"));
  args.count = static_cast<int>(calls.logits.size());
  const sim::LaunchConfig config{.entry = "functors", .params = std::as_bytes(std::span(&args, 1))};
  ATTNLOOM_TRY(const sim::Report report,
               sim::launch(sim::profiles()[0], module, device.memory(), config, {}));
  if (!report.findings.empty()) {
    return make_error(Code::kLaunch, "$.spec.variant",
                      "a functor of variant \"" + file.spec.variant.name + "\" faults at " +
                          report.findings[0].place + ": " + report.findings[0].kind + ", " +
                          report.findings[0].detail,
                      "check its indices against the params' shapes");
  }
  const auto address = [](const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); };
  ATTNLOOM_CHECK(device.memory().read(address(args.transformed),
                                      std::as_writable_bytes(std::span(calls.transformed))));
  return device.memory().read(address(args.kept), std::as_writable_bytes(std::span(calls.kept)));
}

}  // namespace

Result<CaseReference> solve_with_own_functors(Toolchain& toolchain, const CaseFile& file) {
  CaseFile simulated = file;
  simulated.spec.target = parse_target(sim::profiles()[0].target);
  ATTNLOOM_TRY(const std::vector<KernelChoice> kernels, kernel_set(simulated.spec));
  ATTNLOOM_TRY(const Source source, render_functors(simulated.spec, kernels[0]));
  ATTNLOOM_TRY(const Artifact artifact, toolchain.compile(source));
  const auto loaded = sim::load_module(artifact.ptx);
  if (!loaded.ok()) return named_after_variant(loaded.status(), file);
  const std::shared_ptr<const sim::Module>& module = loaded.value();
  ATTNLOOM_TRY(const loom::PlanHeader header, header_with_scalars(simulated, kernels));
  ATTNLOOM_TRY(Calls calls, record_calls(file));
  ATTNLOOM_CHECK(run_calls(*module, file, header, calls));

  reference::Problem problem = case_problem(file);
  // For each key the reference asks the mask first and then, if it is kept, the transform.
  std::size_t asked = 0;
  problem.hooks.logits_mask = [&](const reference::LogitPlace&) {
    return calls.kept[asked++] != 0;
  };
  problem.hooks.logits_transform = [&](double, const reference::LogitPlace&) {
    return double{calls.transformed[asked - 1]};
  };
  CaseReference wanted;
  ATTNLOOM_TRY(wanted.output, reference::attention(problem));
  wanted.tolerance = reference::tolerance_of(file.spec.dtype.o);
  // The functor saw logits of another rounding than the kernel's; where it is steep or approximate
  // that shows.
  reference::allow_approximate_functor(wanted.tolerance, wanted.output.largest_logit);
  return wanted;
}

Result<CaseReference> solve_by_any(Toolchain& toolchain, const CaseFile& file, bool& own_functors) {
  Result<CaseReference> twin = solve_case(file);
  own_functors = !twin.ok() && twin.status().code == Code::kSpecUnsupported;
  return own_functors ? solve_with_own_functors(toolchain, file) : twin;
}

}  // namespace attnloom
