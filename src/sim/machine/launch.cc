// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <numeric>
#include <string>

#include "sim/machine/state.h"

namespace attnloom::sim {
namespace {

constexpr std::uint64_t kMostThreads = 1024;

Status refuse(const LaunchConfig& c, std::string cause, std::string remedy = {}) {
  return make_error(Code::kLaunch, "kernel " + c.entry, std::move(cause), std::move(remedy));
}

// "sm_90a" -> 90 and 'a'.
struct Target {
  int number = 0;
  std::string_view suffix;
};
Target parse_target(std::string_view text) {
  Target t;
  if (!text.starts_with("sm_")) return t;
  text.remove_prefix(3);
  auto parsed = std::from_chars(text.data(), text.data() + text.size(), t.number);
  t.suffix = text.substr(static_cast<std::size_t>(parsed.ptr - text.data()));
  return t;
}

Status check_target(const Profile& profile, const Module::State& module) {
  Target wanted = parse_target(module.target), have = parse_target(profile.target);
  bool runs =
      wanted.number <= have.number && (wanted.suffix.empty() || wanted.number == have.number);
  if (runs) return ok_status();
  return make_error(Code::kArchMismatch, "",
                    "a module for " + module.target + " on the simulated " + profile.name + " (" +
                        profile.target + ")",
                    "Compile for " + profile.target + " or choose another profile.");
}

Status check_config(const Profile& profile, const Kernel& kernel, const LaunchConfig& c) {
  std::uint64_t threads = std::uint64_t{c.block[0]} * c.block[1] * c.block[2];
  std::uint64_t ctas = std::uint64_t{c.grid[0]} * c.grid[1] * c.grid[2];
  std::uint64_t most = kernel.threads_limit != 0 ? kernel.threads_limit : kMostThreads;
  if (threads == 0 || threads > most)
    return refuse(c, "a block of " + std::to_string(threads) + " threads; 1 to " +
                         std::to_string(most) + " are possible");
  if (ctas == 0 || ctas > 0x7fffffffu)
    return refuse(c, "a grid of " + std::to_string(ctas) + " CTAs");
  std::uint64_t shared = std::uint64_t{kernel.static_shared_bytes} + c.dynamic_shared_bytes;
  if (shared > static_cast<std::uint64_t>(profile.shared_bytes_per_cta)) {
    return refuse(c,
                  std::to_string(shared) + " bytes of shared memory; " + profile.name + " has " +
                      std::to_string(profile.shared_bytes_per_cta) + " for a CTA",
                  "Use a smaller tile.");
  }
  if (c.params.size() < kernel.parameter_bytes) {
    return refuse(c, "a parameter block of " + std::to_string(c.params.size()) +
                         " bytes; the kernel wants " + std::to_string(kernel.parameter_bytes));
  }
  return ok_status();
}

}  // namespace

std::uint64_t Launch::random() {
  std::uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::uint32_t Launch::random_below(std::uint32_t n) {
  return static_cast<std::uint32_t>((random() >> 32) * n >> 32);
}

Counters& Counters::operator+=(const Counters& o) {
  instructions += o.instructions;
  mma += o.mma;
  global_load_bytes += o.global_load_bytes;
  global_load_sectors += o.global_load_sectors;
  global_fetch_sectors += o.global_fetch_sectors;
  global_store_bytes += o.global_store_bytes;
  global_store_sectors += o.global_store_sectors;
  shared_wavefronts += o.shared_wavefronts;
  shared_conflicts += o.shared_conflicts;
  ldmatrix_conflicts += o.ldmatrix_conflicts;
  copy_conflicts += o.copy_conflicts;
  barriers += o.barriers;
  atomics += o.atomics;
  spill_bytes += o.spill_bytes;
  return *this;
}

Result<Report> launch(const Profile& profile, const Module& module, Memory& memory,
                      const LaunchConfig& config, const Options& options) {
  const Kernel* kernel = module.state().find(config.entry);
  if (kernel == nullptr) return refuse(config, "the module has no such entry");
  ATTNLOOM_CHECK(check_target(profile, module.state()));
  ATTNLOOM_CHECK(check_config(profile, *kernel, config));
  ATTNLOOM_TRY(const std::vector<std::uint64_t>* variables,
               memory.state().instance(module.state()));
  Launch l(profile, module.state(), *kernel, memory.state(), config, options);
  l.variables = variables;
  std::vector<std::uint32_t> order(std::size_t{config.grid[0]} * config.grid[1] * config.grid[2]);
  std::iota(order.begin(), order.end(), 0u);
  for (std::size_t k = order.size(); k > 1; --k)
    std::swap(order[k - 1], order[l.random_below(static_cast<std::uint32_t>(k))]);
  Cta cta(l);
  for (std::uint32_t linear : order) {
    cta.begin(linear);
    cta.run();
  }
  Report report;
  report.findings = l.findings.take();
  report.counters = l.counters;
  return report;
}

}  // namespace attnloom::sim
