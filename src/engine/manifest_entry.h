// SPDX-License-Identifier: Apache-2.0
// One entry of a manifest -> the specs that it stands for. Pure; thread-safe.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "spec/parse.h"

namespace attnloom {

// A spec before the grid: its JSON, with the place of each key as a path of a spec that stands
// alone ("$.layout").
struct EntryBase {
  JsonDocument document;
  std::string name;  // for people: file, variant or place in the list
  std::string path;  // of the spec in the manifest, "$.specs[0].spec"; of a file: "$"
  std::string file;  // "" when the spec does not come from one
  std::vector<std::string> defaulted;  // its keys that come from the manifest's "defaults"
};

// A field of the grid, "layout.page_size", and its values.
struct GridField {
  std::string field;
  std::string path;  // in the manifest
  const Json* values = nullptr;
};

// The keys of `defaults` that `document` lacks and its kernel uses; which ones these were.
std::vector<std::string> add_defaults(const Json& defaults, JsonDocument& document);

// The shipped spec called `name`, without its target; with `defaults` in place of what is not the
// kernel's or the variant's own; fills in document and defaulted of `base`. False where there is
// none.
bool shipped_base(const std::string& name, const Json& defaults, EntryBase& base);
std::vector<std::string> shipped_names();

// Each point of the grid, the last field running fastest. `manifest` holds the lines of the grid.
Result<std::vector<std::pair<std::string, ParsedSpec>>> expand_entry(
    const EntryBase& base, const std::vector<GridField>& grid, const JsonDocument& manifest);

}  // namespace attnloom
