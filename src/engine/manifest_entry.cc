// SPDX-License-Identifier: Apache-2.0
#include "engine/manifest_entry.h"

#include <optional>
#include <string_view>

#include "spec/kernel_keys.h"
#include "spec/object_reader.h"
#include "spec/shipped.h"
#include "spec/types.h"

namespace attnloom {
namespace {

constexpr std::string_view kJson = ".json";

std::optional<KernelKind> kernel_of(const Json& spec) {
  const auto found = spec.find("kernel");
  if (found == spec.end()) return std::nullopt;
  for (const TypeRow<KernelKind>& row : kernel_kinds())
    if (*found == row.json) return row.value;
  return std::nullopt;  // parse_spec says what is wrong with it
}

// What of a default this kernel uses, so that one set of defaults serves a manifest of attention
// and append specs.
Json used_part(KernelKind kernel, const std::string& key, const Json& value) {
  if (!value.is_object()) return value;
  Json used = Json::object();
  for (const auto& [name, member] : value.items())
    if (kernel_uses(kernel, key + "." + name)) used[name] = member;
  return used;
}

// Splits "layout.page_size"; puts `value` there and makes the objects on the way.
bool set_field(Json& spec, std::string_view field, const Json& value) {
  Json* place = &spec;
  while (true) {
    const std::size_t dot = field.find('.');
    const std::string key(field.substr(0, dot));
    if (place->is_null()) *place = Json::object();
    if (!place->is_object()) return false;
    place = &(*place)[key];
    if (dot == std::string_view::npos) break;
    field.remove_prefix(dot + 1);
  }
  *place = value;
  return true;
}

bool is_below(std::string_view path, std::string_view top) {
  return path.starts_with(top) &&
         (path.size() == top.size() || path[top.size()] == '.' || path[top.size()] == '[');
}

// One choice of values of a grid.
struct Point {
  const std::vector<GridField>* grid = nullptr;
  std::vector<std::size_t> at;

  const Json& value(std::size_t i) const { return (*(*grid)[i].values)[at[i]]; }
  std::string path(std::size_t i) const {
    return (*grid)[i].path + "[" + std::to_string(at[i]) + "]";
  }
  std::string text() const {
    std::string text;
    for (std::size_t i = 0; i < at.size(); ++i)
      text += (i == 0 ? "" : " ") + (*grid)[i].field + "=" + shown(value(i));
    return text;
  }
  // The last field runs fastest. False behind the last point.
  bool advance() {
    std::size_t i = at.size();
    while (i > 0 && ++at[i - 1] == (*grid)[i - 1].values->size()) at[--i] = 0;
    return i > 0;
  }
};

// A refusal of the spec at a point, with the place where the value at fault stands.
Status in_manifest(Status error, const EntryBase& base, const Point& point) {
  for (std::size_t i = 0; i < point.at.size(); ++i) {
    const std::string field = "$." + (*point.grid)[i].field;
    if (!is_below(error.path, field)) continue;
    error.path = point.path(i) + error.path.substr(field.size());
    return error;
  }
  for (const std::string& key : base.defaulted) {
    if (!is_below(error.path, "$." + key)) continue;
    error.path = "$.defaults" + error.path.substr(1);
    if (!point.at.empty()) error.cause += " (with " + point.text() + ")";
    return error;
  }
  if (error.path.starts_with("$")) error.path = base.path + error.path.substr(1);
  if (!base.file.empty()) error.cause = base.file + ", " + error.cause;
  if (!point.at.empty()) error.cause += " (with " + point.text() + ")";
  return error;
}

Result<JsonDocument> spec_at(const EntryBase& base, const Point& point,
                             const JsonDocument& manifest) {
  JsonDocument document = base.document;
  for (std::size_t i = 0; i < point.at.size(); ++i) {
    const GridField& field = (*point.grid)[i];
    if (!set_field(document.value, field.field, point.value(i)))
      return spec_error(manifest, field.path, "lies below a field that is no object", "");
    const std::string top = "$." + field.field;
    std::erase_if(document.positions, [&](const auto& one) { return is_below(one.first, top); });
    document.positions[top].line = manifest.line_of(point.path(i));
  }
  return document;
}

}  // namespace

std::vector<std::string> add_defaults(const Json& defaults, JsonDocument& document) {
  Json& spec = document.value;
  std::vector<std::string> added;
  if (!spec.is_object()) return added;  // parse_spec refuses it
  if (!spec.contains("kernel") && defaults.contains("kernel")) {
    spec["kernel"] = defaults["kernel"];
    added.push_back("kernel");
  }
  const std::optional<KernelKind> kernel = kernel_of(spec);
  for (const auto& [key, value] : defaults.items()) {
    if (spec.contains(key)) continue;
    if (kernel && !kernel_uses(*kernel, key)) continue;
    spec[key] = kernel ? used_part(*kernel, key, value) : value;
    added.push_back(key);
  }
  return added;
}

std::vector<std::string> shipped_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : shipped_specs())
    names.emplace_back(file.name.substr(0, file.name.size() - kJson.size()));
  return names;
}

bool shipped_base(const std::string& name, const Json& defaults, EntryBase& base) {
  JsonDocument& document = base.document;
  for (const EmbeddedFile& file : shipped_specs()) {
    if (file.name != name + std::string(kJson)) continue;
    Result<JsonDocument> shipped = parse_json(file.text, Code::kInternal);
    if (!shipped.ok()) return false;
    const Json whole = std::move(shipped->value);
    document.value = Json::object();
    for (const char* own : {"attnloom", "kernel", "variant"})
      if (whole.contains(own)) document.value[own] = whole[own];
    base.defaulted = add_defaults(defaults, document);
    (void)add_defaults(whole, document);
    if (!defaults.contains("target")) document.value.erase("target");
    return true;
  }
  return false;
}

Result<std::vector<std::pair<std::string, ParsedSpec>>> expand_entry(
    const EntryBase& base, const std::vector<GridField>& grid, const JsonDocument& manifest) {
  std::vector<std::pair<std::string, ParsedSpec>> specs;
  Point point{&grid, std::vector<std::size_t>(grid.size(), 0)};
  do {
    ATTNLOOM_TRY(const JsonDocument document, spec_at(base, point, manifest));
    Result<ParsedSpec> parsed = parse_spec(document, "$");
    if (!parsed.ok()) return in_manifest(parsed.status(), base, point);
    specs.emplace_back(base.name + (grid.empty() ? "" : " " + point.text()),
                       std::move(parsed).value());
  } while (point.advance());
  return specs;
}

}  // namespace attnloom
