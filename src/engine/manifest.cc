// SPDX-License-Identifier: Apache-2.0
#include "engine/manifest.h"

#include <algorithm>
#include <utility>

#include "engine/manifest_entry.h"
#include "spec/object_reader.h"

namespace attnloom {
namespace {

constexpr std::string_view kManifestKeys[] = {"manifest", "targets", "defaults", "pins", "specs"};
constexpr std::string_view kEntryKeys[] = {"spec", "file", "variant", "grid", "targets"};
constexpr std::string_view kBaseKeys[] = {"spec", "file", "variant"};

// The part of `document` below `path`, as a document of its own.
JsonDocument part_of(const JsonDocument& document, const Json& value, const std::string& path) {
  JsonDocument part{value, {}};
  for (auto at = document.positions.lower_bound(path);
       at != document.positions.end() && at->first.starts_with(path); ++at) {
    const std::string rest = at->first.substr(path.size());
    if (rest.empty() || rest[0] == '.' || rest[0] == '[') part.positions["$" + rest] = at->second;
  }
  return part;
}

class ManifestReader {
 public:
  ManifestReader(const JsonDocument& document, const ManifestOptions& options)
      : document_(document), options_(options) {}

  Result<Manifest> read() {
    ATTNLOOM_TRY(const ObjectReader top,
                 ObjectReader::open(document_, document_.value, "$", kManifestKeys));
    ATTNLOOM_CHECK(read_version(top));
    ATTNLOOM_CHECK(top.read("pins", manifest_.pins));
    ATTNLOOM_TRY(targets_, read_targets(top));
    if (top.has("defaults")) {
      if (!top.at("defaults").is_object())
        return top.wrong_type("defaults", "an object of fields of a spec");
      defaults_ = top.at("defaults");
    }
    ATTNLOOM_CHECK(top.require("specs"));
    const Json& list = top.at("specs");
    if (!list.is_array() || list.empty())
      return top.wrong_type("specs", "a list of at least one entry");
    for (std::size_t i = 0; i < list.size(); ++i)
      ATTNLOOM_CHECK(read_entry(list[i], "$.specs[" + std::to_string(i) + "]"));
    return std::move(manifest_);
  }

 private:
  Status read_version(const ObjectReader& top) {
    ATTNLOOM_CHECK(top.require("manifest"));
    const Json& version = top.at("manifest");
    if (version.is_number_integer() && version == kManifestVersion) return ok_status();
    return top.refuse(top.path("manifest"),
                      "wanted " + std::to_string(kManifestVersion) +
                          ", the version of the manifest that this library reads, given " +
                          shown(version),
                      "");
  }

  Result<std::vector<Target>> read_targets(const ObjectReader& reader) {
    std::vector<Target> targets;
    if (!reader.has("targets")) return targets;
    const Json& list = reader.at("targets");
    constexpr std::string_view kWanted = "a list of at least one target, such as [\"sm_90a\"]";
    if (!list.is_array() || list.empty()) return reader.wrong_type("targets", kWanted);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::optional<Target> target =
          list[i].is_string() ? parse_target(list[i].get<std::string>()) : std::nullopt;
      if (!target)
        return reader.refuse(reader.path("targets") + "[" + std::to_string(i) + "]",
                             "wanted sm_NN, sm_NNa or sm_NNf, given " + shown(list[i]), "");
      targets.push_back(*target);
    }
    return targets;
  }

  Status read_entry(const Json& value, const std::string& path) {
    ATTNLOOM_TRY(const ObjectReader entry, ObjectReader::open(document_, value, path, kEntryKeys));
    ATTNLOOM_TRY(EntryBase base, read_base(entry, path));
    ATTNLOOM_TRY(const std::vector<GridField> grid, read_grid(entry));
    std::size_t points = 1;
    for (const GridField& field : grid)
      points = std::min(points * field.values->size(), kMostManifestSpecs + 1);
    if (manifest_.items.size() + points > kMostManifestSpecs)
      return entry.refuse(path, "more than " + std::to_string(kMostManifestSpecs) + " specs",
                          "use shorter lists, or several manifests");
    ATTNLOOM_TRY(const std::vector<Target> own, read_targets(entry));
    ATTNLOOM_TRY(auto specs, expand_entry(base, grid, document_));
    for (auto& [label, parsed] : specs) {
      PrewarmItem item{std::move(label), std::move(parsed), options_.targets};
      if (item.targets.empty()) item.targets = own;
      if (item.targets.empty()) item.targets = targets_;
      if (item.targets.empty() && item.parsed.spec.target)
        item.targets = {*item.parsed.spec.target};
      if (item.targets.empty())
        return entry.refuse(path, "no target is named for " + item.label,
                            "add \"targets\" here or for the whole manifest");
      manifest_.items.push_back(std::move(item));
    }
    return ok_status();
  }

  Result<EntryBase> read_base(const ObjectReader& entry, const std::string& path) {
    int given = 0;
    for (const std::string_view key : kBaseKeys) given += entry.has(key) ? 1 : 0;
    if (given != 1)
      return entry.refuse(
          path, "wanted one of \"spec\", \"file\" and \"variant\", given " + std::to_string(given),
          "");
    if (entry.has("spec")) {
      EntryBase base{part_of(document_, entry.at("spec"), entry.path("spec")),
                     path.substr(2),
                     entry.path("spec"),
                     "",
                     {}};
      if (!entry.at("spec").is_object()) return entry.wrong_type("spec", "a spec");
      base.defaulted = add_defaults(defaults_, base.document);
      locate_defaults(base);
      return base;
    }
    return entry.has("file") ? read_file(entry) : read_variant(entry);
  }

  // A default that is wrong is wrong where it stands, not where it is used.
  void locate_defaults(EntryBase& base) const {
    for (const std::string& key : base.defaulted) {
      const JsonDocument part = part_of(document_, defaults_[key], "$.defaults." + key);
      for (const auto& [path, position] : part.positions)
        base.document.positions["$." + key + path.substr(1)] = position;
    }
  }

  Result<EntryBase> read_file(const ObjectReader& entry) {
    EntryBase base;
    ATTNLOOM_CHECK(entry.read("file", base.file));
    Result<std::string> text = options_.read_file(base.file);
    if (!text.ok()) return entry.refuse(entry.path("file"), text.status().cause, "");
    Result<JsonDocument> document = parse_json(text.value(), Code::kSpecInvalid);
    if (!document.ok()) {
      Status error = document.status();
      error.cause = base.file + ", " + error.cause;
      return error;
    }
    // A case file stands for its spec, as for every command.
    const bool is_case = document->value.is_object() && document->value.contains("case") &&
                         document->value.contains("spec");
    base.path = is_case ? "$.spec" : "$";
    base.document = is_case ? part_of(*document, document->value["spec"], "$.spec")
                            : std::move(document).value();
    base.name = base.file;
    base.defaulted = add_defaults(defaults_, base.document);
    locate_defaults(base);
    return base;
  }

  Result<EntryBase> read_variant(const ObjectReader& entry) {
    EntryBase base;
    ATTNLOOM_CHECK(entry.read("variant", base.name));
    base.path = entry.path("variant");
    if (!shipped_base(base.name, defaults_, base)) {
      const std::string near = nearest_name(base.name, shipped_names());
      return entry.refuse(base.path, "no shipped variant is called " + shown(Json(base.name)),
                          near.empty() ? "" : "did you mean \"" + near + "\"?");
    }
    base.document.positions["$"].line = document_.line_of(base.path);
    locate_defaults(base);
    return base;
  }

  Result<std::vector<GridField>> read_grid(const ObjectReader& entry) {
    std::vector<GridField> grid;
    if (!entry.has("grid")) return grid;
    if (!entry.at("grid").is_object())
      return entry.wrong_type("grid", "an object of field: list of values");
    for (const auto& [field, values] : entry.at("grid").items()) {
      const std::string path = entry.path("grid") + "." + field;
      if (field == "target")
        return entry.refuse(path, "targets are no part of a grid", "list them in \"targets\"");
      if (!values.is_array() || values.empty())
        return entry.refuse(path, "wanted a list of at least one value, given " + shown(values),
                            "");
      grid.push_back({field, path, &values});
    }
    return grid;
  }

  const JsonDocument& document_;
  const ManifestOptions& options_;
  Json defaults_ = Json::object();
  std::vector<Target> targets_;
  Manifest manifest_;
};

}  // namespace

Result<Manifest> parse_manifest(std::string_view text, const ManifestOptions& options) {
  ATTNLOOM_TRY(const JsonDocument document, parse_json(text, Code::kSpecInvalid));
  return ManifestReader(document, options).read();
}

}  // namespace attnloom
