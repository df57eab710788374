// SPDX-License-Identifier: Apache-2.0
#include "engine/walk.h"

#include <algorithm>
#include <cctype>

#include "cache/key.h"
#include "engine/targets.h"
#include "render/render.h"
#include "spec/check.h"
#include "spec/tiles.h"
#include "spec/wgmma_tiles.h"

namespace attnloom {
namespace {

std::string label_of(const Spec& spec, const KernelChoice& choice) {
  std::string label = spec.variant.name + " " + choice.family;
  for (const TileClass& tile : choice.classes)
    label += " " + std::to_string(tile.q) + "x" + std::to_string(tile.kv);
  return label + " for " + spec.target->name();
}

std::string short_digest(const std::string& hex) {
  return hex.substr(0, 12);
}

EntryFigures figures_of(const Artifact& artifact, const std::string& entry) {
  for (const EntryFigures& figures : artifact.entries)
    if (figures.name == entry) return figures;
  return {};
}

bool spills(const EntryFigures& figures) {
  return figures.spill_store_bytes > 0 || figures.spill_load_bytes > 0;
}

bool lacks_registers(const Status& failure, const KernelChoice& choice) {
  return failure.code == Code::kResourceLimit && choice.family == kWgmmaFamily;
}

struct Step {
  Obtained obtained;
  std::string request_key;
  std::string entry;
};

// The same kernel as built for another target of the device's family, if some layer has it.
Result<WalkResult> look_for_other_targets(Engine::State& engine, const WalkRequest& request) {
  for (const Target& target : fallback_targets(*request.spec->target)) {
    Spec spec = *request.spec;
    spec.target = target;
    if (!check_spec(spec).ok()) continue;
    const Result<std::vector<KernelChoice>> choices = kernel_set(spec);
    if (!choices.ok() || request.index >= static_cast<int>(choices->size())) continue;
    WalkRequest other;
    other.spec = &spec;
    other.field_lines = request.field_lines;
    other.choice = choices.value()[request.index];
    other.index = request.index;
    Result<WalkResult> found = walk(engine, other);
    if (found.ok()) return found;
  }
  return make_error(Code::kNotCached, "", "no other target");
}

// What is wrong with the bundles that were searched: each is the likely reason why nothing was
// found.
std::string strange_bundles(const Store& store, const std::string& target) {
  const std::string own = template_set_digest();
  std::string text;
  for (const BundleSummary& bundle : store.bundles()) {
    const auto& has = bundle.targets;
    if (bundle.templates != own)
      text += "; " + bundle.path + " is a bundle for templates " + short_digest(bundle.templates) +
              ", the library has " + short_digest(own);
    else if (std::find(has.begin(), has.end(), target) == has.end())
      text += "; " + bundle.path + " is a bundle without kernels for " + target;
  }
  return text;
}

Status not_cached(const Spec& spec, const KernelChoice& choice, const std::string& key,
                  const Engine::State& engine) {
  std::string layers = engine.store->root().empty() ? "no writable cache" : engine.store->root();
  for (const std::string& path : engine.options.store.read_only) layers += ", " + path;
  if (!engine.store->remote().empty()) layers += ", " + engine.store->remote();
  return make_error(Code::kNotCached, "",
                    label_of(spec, choice) + " (request_key " + key + ") is in none of: " + layers +
                        strange_bundles(*engine.store, spec.target->name()),
                    "`attnloom explain SPEC` says why; prewarm the spec for " +
                        spec.target->name() + " (`attnloom prewarm`), or allow compiling");
}

Result<Step> take_step(Engine::State& engine, const WalkRequest& request,
                       const KernelChoice& choice) {
  ATTNLOOM_TRY(const Source source, render(*request.spec, choice));
  Step step;
  step.request_key = request_key(source);
  if (source.entries.empty())
    return make_error(Code::kInternal, "", "a rendered program without an entry");
  step.entry = source.entries.front();
  step.obtained = engine.find(source, step.request_key);
  if (step.obtained.built) return step;
  if (request.how.miss == Miss::kError) {
    if (request.missed) *request.missed = source;
    return not_cached(*request.spec, choice, step.request_key, engine);
  }
  if (engine.options.before_compile) engine.options.before_compile(step.request_key, *request.spec);
  Result<Obtained> compiled =
      engine.obtain(source, step.request_key, label_of(*request.spec, choice), request.how);
  if (!compiled.ok()) return with_json_line(compiled.status(), *request.field_lines);
  step.obtained = std::move(compiled).value();
  return step;
}

}  // namespace

Result<WalkResult> walk(Engine::State& engine, const WalkRequest& request) {
  WalkRequest lookup = request;
  lookup.how = {};
  lookup.try_other_targets = false;
  lookup.missed = nullptr;
  if (request.try_other_targets) {
    Result<WalkResult> own = walk(engine, lookup);
    if (own.ok()) return own;
    Result<WalkResult> other = look_for_other_targets(engine, request);
    if (other.ok()) return other;
  }
  WalkResult result;
  AcquiredKernel& kernel = result.kernel;
  kernel.choice = request.choice;
  kernel.target = request.spec->target->name();
  for (;;) {
    Result<Step> taken = take_step(engine, request, kernel.choice);
    if (!taken.ok()) {
      // Products that ptxas serialised for want of registers are as good as spilled.
      if (!lacks_registers(taken.status(), kernel.choice)) return taken.status();
      Result<KernelChoice> smaller = step_down(*request.spec, kernel.choice);
      if (!smaller.ok()) return taken.status();
      count(engine.tallies.step_downs);
      kernel.choice = std::move(smaller).value();
      continue;
    }
    Step step = std::move(taken).value();
    kernel.entry = std::move(step.entry);
    kernel.request_key = std::move(step.request_key);
    result.landing = std::move(step.obtained.landing);
    if (result.landing) return result;
    kernel.kernel_key = step.obtained.built->kernel_key;
    kernel.origin = step.obtained.origin;
    kernel.figures = figures_of(step.obtained.built->artifact, kernel.entry);
    result.built = std::move(step.obtained.built);
    if (!spills(kernel.figures)) break;
    Result<KernelChoice> smaller = step_down(*request.spec, kernel.choice);
    if (!smaller.ok()) {
      engine.options.log.warn(label_of(*request.spec, kernel.choice) +
                              " spills registers and has no smaller KV tile");
      break;
    }
    count(engine.tallies.step_downs);
    kernel.stepped_down.push_back({kernel.choice, kernel.request_key, kernel.figures});
    kernel.choice = std::move(smaller).value();
  }
  kernel.built = result.built;
  kernel.artifact = std::shared_ptr<const Artifact>(result.built, &result.built->artifact);
  return result;
}

Status with_json_line(Status error, const FieldOrigins& field_lines) {
  const std::string field = error.path.starts_with("$.") ? error.path.substr(2) : error.path;
  const auto found = field_lines.find(field);
  if (error.code != Code::kCompileFailed || found == field_lines.end()) return error;
  const FieldOrigin& origin = found->second;
  // The compiler's own place, "variant.logits_transform:1: ", becomes words.
  const std::string prefix = field + ":";
  int line = 0;
  if (error.cause.starts_with(prefix)) {
    std::size_t end = prefix.size();
    while (end < error.cause.size() && std::isdigit(static_cast<unsigned char>(error.cause[end])))
      line = 10 * line + (error.cause[end++] - '0');
    if (end > prefix.size()) error.cause.erase(0, error.cause.find_first_not_of(": ", end));
  }
  const FieldOrigin::Member* member = nullptr;
  for (const FieldOrigin::Member& one : origin.members)
    if (line != 0 && one.line <= line && (origin.json_line == 0 || line < origin.own_line))
      member = &one;
  std::string where = member == nullptr
                          ? "line " + std::to_string(origin.json_line) + " of the JSON"
                          : "shipped variant \"" + member->name + "\"";
  if (line != 0) {
    const int first = member == nullptr ? origin.own_line : member->line;
    where += ", line " + std::to_string(line - first + 1) + " of the field";
  }
  error.cause = where + ": " + error.cause;
  return error;
}

}  // namespace attnloom
