// SPDX-License-Identifier: Apache-2.0
// Explain: for each kernel of a set the layer that has it, or the entry that is nearest to what was
// asked for and what sets the two apart. Compiles and loads nothing.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/catalog.h"
#include "cache/store.h"
#include "engine/engine.h"
#include "engine/kernel_set.h"
#include "render/source.h"

namespace attnloom {

// One thing that sets an entry apart from what was asked for. `field` is a part of the key: text,
// options, target, entries, "header NAME"; or, where the key is the same, why the entry is passed
// over all the same: driver, compiler, ptx, refused.
struct Difference {
  std::string field;
  std::string wanted;
  std::string found;
  std::string remedy;
};

struct NearestEntry {
  CatalogEntry entry;
  std::vector<Difference> differences;  // never empty
};

struct Asked {
  const Source* source = nullptr;
  std::string request_key;
  Need need;
  int driver_version = 0;  // 0: any
};

// An entry of the same key before others, then of the same target, the same kernels, and with the
// fewest parts of the key that differ. nullopt for an empty catalog. Pure.
std::optional<NearestEntry> nearest_entry(const Asked& asked,
                                          std::span<const CatalogEntry> catalog);
// "the nearest entry, 0123abcd of NVRTC 13.0 in /cache, differs in text and header loom/mma.cuh"
std::string nearest_text(const NearestEntry& nearest);

// NOT_CACHED with the nearest entry in its cause; other errors as they are. A key is looked into
// once: whoever asks again in a loop gets the same words.
Status name_nearest(Engine::State& engine, Status error, const Source& missed);

struct ExplainedKernel {
  Result<AcquiredKernel> found;  // NOT_CACHED, or why it cannot be looked up
  KernelChoice choice;
  std::string request_key;  // of what was found, or of the program that is missing
  std::optional<NearestEntry> nearest;
};

// Thread-safe.
std::vector<ExplainedKernel> explain(const KernelSet& kernels);

}  // namespace attnloom
