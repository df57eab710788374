// SPDX-License-Identifier: Apache-2.0
#include "engine/explain.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "base/joined.h"
#include "cache/key.h"
#include "engine/engine_state.h"
#include "runtime/driver_policy.h"

namespace attnloom {
namespace {

// Reading an entry takes 0.1 ms, and an error must not take seconds; `explain` reads them all.
constexpr std::size_t kMostForAnError = 1000;
constexpr std::size_t kDigestDigits = 8;  // of a digest that people compare by eye
constexpr std::string_view kHeader = "header:";

std::string short_digest(const std::map<std::string, std::string>& fields,
                         const std::string& name) {
  const auto found = fields.find(name);
  return found == fields.end() ? "none" : found->second.substr(0, kDigestDigits);
}

std::string compiler_text(const Fingerprint& compiler) {
  return "NVRTC " + std::to_string(compiler.cuda_major) + "." +
         std::to_string(compiler.cuda_minor) + " (" + compiler.hex.substr(0, kDigestDigits) + ")";
}

// The names of the parts of the key that differ.
std::vector<std::string> differing(const std::map<std::string, std::string>& wanted,
                                   const std::map<std::string, std::string>& found) {
  std::set<std::string> names;
  for (const auto& [name, digest] : wanted) names.insert(name);
  for (const auto& [name, digest] : found) names.insert(name);
  std::erase_if(names, [&](const std::string& name) {
    const auto one = wanted.find(name);
    const auto other = found.find(name);
    return one != wanted.end() && other != found.end() && one->second == other->second;
  });
  return {names.begin(), names.end()};
}

// Why a look-up passes over an entry of the very key.
std::vector<Difference> passed_over(const Asked& asked, const CatalogEntry& entry) {
  std::vector<Difference> reasons;
  const std::optional<Target> target = parse_target(entry.target);
  const int least = target ? least_driver(entry.compiler, *target) : entry.compiler.least_driver;
  if (asked.driver_version != 0 && asked.driver_version < least)
    reasons.push_back({"driver", driver_version_text(asked.driver_version),
                       "needs " + driver_version_text(least),
                       "update the driver, or prewarm with an NVRTC of an older CUDA"});
  if (!entry.compiler_listed)
    reasons.push_back({"compiler", "one that TOOLCHAINS lists", compiler_text(entry.compiler),
                       "copy the whole cache directory, TOOLCHAINS too"});
  if (asked.need.ptx && !entry.has_ptx)
    reasons.push_back({"ptx", "the simulator runs PTX", "an entry without it",
                       "keep the PTX when the bundle is made, or allow compiling"});
  if (reasons.empty())
    reasons.push_back({"refused", "an entry that may be used", "one that was passed over",
                       "see the warnings about " + entry.place});
  return reasons;
}

Difference key_difference(const std::string& name, const Asked& asked, const CatalogEntry& entry,
                          const std::map<std::string, std::string>& wanted) {
  Difference difference{name, short_digest(wanted, name), short_digest(entry.fields, name), ""};
  if (name.starts_with(kHeader)) {
    difference.field = "header " + name.substr(kHeader.size());
    difference.remedy = "another version of the library made it: prewarm with this one";
  } else if (name == "target") {
    difference.wanted = asked.source->target;
    difference.found = entry.target;
    difference.remedy = "prewarm with --target " + asked.source->target;
  } else if (name == "entries") {
    difference.wanted = joined(asked.source->entries);
    difference.found = joined(entry.names);
    difference.remedy = "it is another kernel: prewarm this spec";
  } else if (name == "options") {
    difference.remedy = "another version of the library made it: prewarm with this one";
  } else {
    difference.remedy = "a field, tile or functor of the spec differs: prewarm this spec";
  }
  return difference;
}

}  // namespace

std::optional<NearestEntry> nearest_entry(const Asked& asked,
                                          std::span<const CatalogEntry> catalog) {
  const std::map<std::string, std::string> wanted = field_digests(*asked.source);
  const auto distance = [&](const CatalogEntry& entry) {
    return std::tuple(entry.request_key != asked.request_key, entry.target != asked.source->target,
                      entry.names != asked.source->entries, differing(wanted, entry.fields).size());
  };
  const CatalogEntry* best = nullptr;
  auto least = std::tuple(true, true, true, std::numeric_limits<std::size_t>::max());
  for (const CatalogEntry& entry : catalog) {
    const auto here = distance(entry);
    if (best && !(here < least)) continue;
    best = &entry;
    least = here;
  }
  if (!best) return std::nullopt;
  NearestEntry nearest{*best, {}};
  if (best->request_key == asked.request_key) {
    nearest.differences = passed_over(asked, *best);
    return nearest;
  }
  for (const std::string& name : differing(wanted, best->fields))
    nearest.differences.push_back(key_difference(name, asked, *best, wanted));
  return nearest;
}

std::string nearest_text(const NearestEntry& nearest) {
  const CatalogEntry& entry = nearest.entry;
  std::string text = "the nearest entry, " + entry.request_key.substr(0, kDigestDigits) + " of " +
                     compiler_text(entry.compiler) + " in " + entry.place + ", differs in ";
  for (const Difference& difference : nearest.differences) {
    if (&difference != nearest.differences.data()) text += ", ";
    text += difference.field;
    // Digests say nothing to a reader of one line.
    if (difference.field == "target" || difference.field == "driver")
      text += " (" + difference.found + ", wanted " + difference.wanted + ")";
  }
  return text;
}

Status name_nearest(Engine::State& engine, Status error, const Source& missed) {
  // Of a frozen context no look-up is to blame.
  if (error.code != Code::kNotCached || missed.entries.empty()) return error;
  const std::string key = request_key(missed);
  const std::lock_guard lock(engine.nearest_mutex);
  const auto [place, is_new] = engine.nearest_texts.try_emplace(key);
  if (is_new) {
    const std::vector<CatalogEntry> catalog = engine.store->catalog(kMostForAnError);
    const auto nearest =
        nearest_entry({&missed, key, engine.need(), engine.driver_version()}, catalog);
    if (nearest) place->second = "; " + nearest_text(*nearest);
  }
  error.cause += place->second;
  return error;
}

std::vector<ExplainedKernel> explain(const KernelSet& kernels) {
  std::vector<ExplainedKernel> all;
  Engine::State& engine = kernels.engine().state();
  const std::vector<KernelChoice> choices = kernels.choices();
  std::vector<CatalogEntry> catalog;
  for (int i = 0; i < kernels.size(); ++i) {
    Source missed;
    ExplainedKernel one{kernels.look_up(i, &missed), choices[i], "", std::nullopt};
    if (one.found.ok()) {
      one.choice = one.found->choice;
      one.request_key = one.found->request_key;
    } else if (one.found.status().code == Code::kNotCached) {
      one.request_key = request_key(missed);
      if (catalog.empty()) catalog = engine.store->catalog(std::numeric_limits<std::size_t>::max());
      one.nearest = nearest_entry(
          {&missed, one.request_key, engine.need(), engine.driver_version()}, catalog);
    }
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace attnloom
