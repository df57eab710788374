// SPDX-License-Identifier: Apache-2.0
#include "tools/runner/own_functors.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "kernel_templates/loom/plan.cuh"
#include "plan/plan.h"
#include "reference/number_format.h"
#include "render/render.h"
#include "sim/device.h"
#include "spec/tiles.h"
#include "tools/runner/case_runner.h"

namespace attnloom {
namespace {

// Every call of one kind of functor that a solution makes, in its order, and the answers.
struct Calls {
  loom::FunctorKind kind = loom::FunctorKind::kLogits;
  std::vector<loom::FunctorPlace> places;
  std::vector<float> in;
  std::vector<float> lse;
  std::vector<float> out;
  std::vector<int> kept;
};

int as_int(std::int64_t x) {
  return static_cast<int>(x);
}

// A first pass over the reference that notes what the logits' functors will be asked. The transform
// sees every logit that the structured masks leave; what the functor mask hides is decided from the
// same places.
Result<Calls> record_logits(reference::Problem problem) {
  Calls calls;
  problem.hooks.logits_transform = [&](double logit, const reference::LogitPlace& at) {
    calls.in.push_back(static_cast<float>(logit));
    calls.places.push_back({at.batch, as_int(at.q_pos), as_int(at.kv_pos), at.q_head, at.kv_head,
                            as_int(at.q_len), as_int(at.kv_len), 0});
    return logit;
  };
  ATTNLOOM_CHECK(reference::attention(problem).status());
  return calls;
}

// The same for output_transform. REQUIRES: the problem's other functors are in place.
Result<Calls> record_outputs(reference::Problem problem) {
  Calls calls{.kind = loom::FunctorKind::kOutputs};
  problem.hooks.output_transform = [&](double o, double lse, int dim,
                                       const reference::OutputPlace& at) {
    calls.in.push_back(static_cast<float>(o));
    calls.lse.push_back(static_cast<float>(lse));
    calls.places.push_back({at.batch, as_int(at.q_pos), 0, at.q_head, at.kv_head, as_int(at.q_len),
                            as_int(at.kv_len), dim});
    return o;
  };
  ATTNLOOM_CHECK(reference::attention(problem).status());
  return calls;
}

// And for a row functor.
Result<Calls> record_rows(reference::Problem problem, loom::FunctorKind kind,
                          reference::RowTransform reference::Hooks::*hook) {
  Calls calls{.kind = kind};
  problem.hooks = {};
  problem.hooks.*hook = [&](std::span<double> row, const reference::RowPlace& at) {
    for (const double x : row) calls.in.push_back(static_cast<float>(x));
    calls.places.push_back(
        {at.batch, as_int(at.pos), 0, at.head, 0, as_int(at.q_len), as_int(at.kv_len), 0});
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
  Result<std::remove_const_t<T>*> input(std::span<T> values, const std::string& label) {
    ATTNLOOM_TRY(const std::uint64_t address, memory_.allocate(values.size_bytes() + 16, label));
    ATTNLOOM_CHECK(memory_.write(address, std::as_bytes(values)));
    // A device address, never read here.
    return reinterpret_cast<std::remove_const_t<T>*>(address);
  }
  sim::Memory& memory() { return memory_; }

 private:
  sim::Memory memory_;
};

// The functors kernel of a case, loaded, and what every launch of it shares.
struct FunctorKernel {
  const CaseFile& file;
  std::shared_ptr<const sim::Module> module;
  loom::PlanHeader header;
};

Status check_report(const sim::Report& report, const CaseFile& file) {
  if (report.findings.empty()) return ok_status();
  return make_error(Code::kLaunch, "$.spec.variant",
                    "a functor of variant \"" + file.spec.variant.name + "\" faults at " +
                        report.findings[0].place + ": " + report.findings[0].kind + ", " +
                        report.findings[0].detail,
                    "check its indices against the params' shapes");
}

// Fills calls.out and calls.kept.
Status run_calls(const FunctorKernel& kernel, Calls& calls) {
  Simulation device;
  loom::FunctorArgs args{};
  calls.out.resize(calls.in.size());
  calls.kept.resize(calls.places.size());
  ATTNLOOM_TRY(loom::PlanHeader* const plan, device.input(std::span(&kernel.header, 1), "plan"));
  args.attention.workspace = reinterpret_cast<unsigned char*>(plan);
  for (std::size_t i = 0; i < kernel.file.pointers.size(); ++i) {
    const CasePointerParam& param = kernel.file.pointers[i];
    ATTNLOOM_TRY(args.attention.pointers[i], device.input(std::span(param.bytes), param.name));
  }
  ATTNLOOM_TRY(args.places, device.input(std::span(calls.places), "places"));
  ATTNLOOM_TRY(args.in, device.input(std::span(calls.in), "in"));
  ATTNLOOM_TRY(args.lse, device.input(std::span(calls.lse), "lse"));
  ATTNLOOM_TRY(args.out, device.input(std::span(calls.out), "out"));
  ATTNLOOM_TRY(args.kept, device.input(std::span(calls.kept), "kept"));
  args.count = static_cast<int>(calls.places.size());
  args.kind = calls.kind;
  const sim::LaunchConfig config{
      .entry = "functors", .block = {32, 1, 1}, .params = std::as_bytes(std::span(&args, 1))};
  ATTNLOOM_TRY(const sim::Report report,
               sim::launch(sim::profiles()[0], *kernel.module, device.memory(), config, {}));
  ATTNLOOM_CHECK(check_report(report, kernel.file));
  const auto address = [](const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); };
  ATTNLOOM_CHECK(
      device.memory().read(address(args.out), std::as_writable_bytes(std::span(calls.out))));
  return device.memory().read(address(args.kept), std::as_writable_bytes(std::span(calls.kept)));
}

Result<FunctorKernel> make_functor_kernel(Toolchain& toolchain, const CaseFile& file) {
  CaseFile simulated = file;
  simulated.spec.target = parse_target(sim::profiles()[0].target);
  ATTNLOOM_TRY(const std::vector<KernelChoice> kernels, kernel_set(simulated.spec));
  ATTNLOOM_TRY(const Source source, render_functors(simulated.spec, kernels[0]));
  ATTNLOOM_TRY(const Artifact artifact, toolchain.compile(source));
  const auto loaded = sim::load_module(artifact.ptx);
  if (!loaded.ok()) return named_after_variant(loaded.status(), file);
  ATTNLOOM_TRY(const loom::PlanHeader header, header_with_scalars(simulated, kernels));
  return FunctorKernel{file, loaded.value(), header};
}

// q, k or v after their row functor, one after the other: rows are asked for in this order too.
Status transform_rows(const FunctorKernel& kernel, reference::Problem& problem) {
  struct Operand {
    loom::FunctorKind kind;
    const std::string& text;
    reference::RowTransform reference::Hooks::*hook;
    std::vector<double>& values;
  };
  const Variant& variant = kernel.file.spec.variant;
  using loom::FunctorKind;
  using reference::Hooks;
  const Operand operands[] = {
      {FunctorKind::kQueries, variant.query_transform, &Hooks::query_transform, problem.q},
      {FunctorKind::kKeys, variant.key_transform, &Hooks::key_transform, problem.k},
      {FunctorKind::kValues, variant.value_transform, &Hooks::value_transform, problem.v},
  };
  for (const Operand& operand : operands) {
    if (operand.text.empty()) continue;
    ATTNLOOM_TRY(Calls calls, record_rows(problem, operand.kind, operand.hook));
    ATTNLOOM_CHECK(run_calls(kernel, calls));
    for (std::size_t i = 0; i < calls.out.size(); ++i)
      operand.values[i] = reference::round_to(double{calls.out[i]}, problem.dtype);
  }
  return ok_status();
}

}  // namespace

Result<CaseReference> solve_with_own_functors(Toolchain& toolchain, const CaseFile& file) {
  ATTNLOOM_TRY(const FunctorKernel kernel, make_functor_kernel(toolchain, file));
  reference::Problem problem = case_problem(file);
  ATTNLOOM_CHECK(transform_rows(kernel, problem));
  const Variant& variant = file.spec.variant;
  Calls calls;
  std::size_t asked = 0;
  if (!variant.logits_transform.empty() || !variant.logits_mask.empty()) {
    ATTNLOOM_TRY(calls, record_logits(problem));
    ATTNLOOM_CHECK(run_calls(kernel, calls));
    // For each key the reference asks the mask first and then, if it is kept, the transform.
    problem.hooks.logits_mask = [&](const reference::LogitPlace&) {
      return calls.kept[asked++] != 0;
    };
    problem.hooks.logits_transform = [&](double, const reference::LogitPlace&) {
      return double{calls.out[asked - 1]};
    };
  }
  Calls outputs;
  std::size_t finished = 0;
  if (!variant.output_transform.empty()) {
    ATTNLOOM_TRY(outputs, record_outputs(problem));
    ATTNLOOM_CHECK(run_calls(kernel, outputs));
    asked = 0;
    problem.hooks.output_transform = [&](double, double, int, const reference::OutputPlace&) {
      return double{outputs.out[finished++]};
    };
  }
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
