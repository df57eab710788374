// SPDX-License-Identifier: Apache-2.0
#include "engine/manifest_log.h"

#include <map>
#include <set>
#include <string_view>

#include "engine/manifest.h"
#include "spec/parse.h"

namespace attnloom {
namespace {

// Spec without target -> its targets, both as text: sorted and without repetitions.
using Specs = std::map<std::string, std::set<std::string>>;

bool add_line(std::string_view line, Specs& specs) {
  const Result<JsonDocument> document = parse_json(line, Code::kSpecInvalid);
  if (!document.ok() || !document->value.is_object() || !document->value.contains("spec"))
    return false;
  // Read as a spec: a log of a version with other fields must not become a manifest that is
  // refused.
  const Result<ParsedSpec> parsed = parse_spec(document.value(), "$.spec");
  if (!parsed.ok() || !parsed->spec.target) return false;
  Spec spec = parsed->spec;
  const std::string target = spec.target->name();
  spec.target.reset();
  specs[canonical_json(spec_to_json(spec))].insert(target);
  return true;
}

}  // namespace

Result<LogManifest> manifest_from_logs(const std::vector<std::string>& texts) {
  LogManifest made;
  Specs specs;
  for (const std::string& text : texts) {
    std::string_view rest = text;
    while (!rest.empty()) {
      const std::size_t end = rest.find('\n');
      const std::string_view line = rest.substr(0, end);
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
      if (!line.empty()) ++(add_line(line, specs) ? made.lines : made.skipped);
    }
  }
  if (made.lines == 0)
    return make_error(
        Code::kSpecInvalid, "",
        "no line of an access log was found; " + std::to_string(made.skipped) + " other lines",
        "ATTNLOOM_ACCESS_LOG=FILE makes one");
  Json entries = Json::array();
  for (const auto& [spec, targets] : specs)
    entries.push_back({{"spec", Json::parse(spec)}, {"targets", targets}});
  made.manifest = {{"manifest", kManifestVersion}, {"specs", std::move(entries)}};
  return made;
}

}  // namespace attnloom
