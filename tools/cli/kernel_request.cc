// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/kernel_request.h"

#include <utility>
#include <vector>

#include "base/json.h"
#include "cache/entry.h"
#include "cache/key.h"
#include "render/render.h"
#include "spec/check.h"
#include "spec/parse.h"
#include "spec/tiles.h"

namespace attnloom::cli {
namespace {

struct Wanted {
  ParsedSpec parsed;        // target set, checked
  std::string request_key;  // "" = the first kernel
};

Status refuse(const std::string& path, const std::string& cause, const std::string& remedy = {}) {
  return make_error(Code::kArgumentInvalid, path, cause, remedy);
}

Result<std::string> text_member(const Json& body, const std::string& name) {
  if (!body.contains(name)) return std::string();
  if (body[name].is_string()) return body[name].get<std::string>();
  return refuse("$." + name, "must be a text");
}

Result<Wanted> read_request(std::string_view text) {
  ATTNLOOM_TRY(const JsonDocument document, parse_json(text, Code::kArgumentInvalid));
  const Json& body = document.value;
  if (!body.is_object() || !body.contains("spec"))
    return refuse("$.spec", "a spec is missing", R"(send {"spec": {...}, "target": "sm_90a"})");
  for (const auto& [name, value] : body.items()) {
    if (name != "spec" && name != "target" && name != "request_key")
      return refuse("$." + name, "is no member of a request");
  }
  Wanted wanted;
  ATTNLOOM_TRY(wanted.parsed, parse_spec(document, "$.spec"));
  ATTNLOOM_TRY(const std::string target, text_member(body, "target"));
  ATTNLOOM_TRY(wanted.request_key, text_member(body, "request_key"));
  Spec& spec = wanted.parsed.spec;
  if (!target.empty()) spec.target = parse_target(target);
  if (!spec.target)
    return refuse("$.target", "must be sm_NN, sm_NNa or sm_NNf, given \"" + target + "\"");
  if (!wanted.request_key.empty() && !is_key(wanted.request_key))
    return refuse("$.request_key", "must be 64 lower-case hexadecimal digits");
  ATTNLOOM_CHECK(check_spec(spec));
  return wanted;
}

struct Chosen {
  KernelChoice choice;
  Source source;
  std::string request_key;
};

// The kernels of the set and those that each would step down to.
Result<Chosen> choose(const Spec& spec, const std::string& wanted_key) {
  ATTNLOOM_TRY(const std::vector<KernelChoice> choices, kernel_set(spec));
  for (const KernelChoice& first : choices) {
    Result<KernelChoice> choice = first;
    for (; choice.ok(); choice = step_down(spec, choice.value())) {
      ATTNLOOM_TRY(Source source, render(spec, choice.value()));
      std::string key = request_key(source);
      if (wanted_key.empty() || key == wanted_key)
        return Chosen{choice.value(), std::move(source), std::move(key)};
    }
  }
  return refuse("$.request_key", "this library's templates give the spec no such key",
                "use the same version on both sides");
}

}  // namespace

Result<ServedKernel> serve_kernel(const KernelService& service, std::string_view body) {
  ATTNLOOM_TRY(Wanted wanted, read_request(body));
  const Spec& spec = wanted.parsed.spec;
  if (!service.variants.holds(spec.variant)) {
    return make_error(Code::kUntrusted, "$.spec.variant",
                      "its source text is not that of a registered variant",
                      "register it with --variants, or start the service with --allow-source");
  }
  ATTNLOOM_TRY(const Chosen chosen, choose(spec, wanted.request_key));
  Engine& engine = *service.engine;
  // The compiler's own words go back: only the asker knows the lines of its JSON.
  wanted.parsed.field_lines.clear();
  // A set of just this kernel, so that nothing else is compiled.
  KernelSet kernels(engine, wanted.parsed, true, {chosen.choice});
  ATTNLOOM_TRY(const AcquiredKernel* kernel, kernels.acquire(0));
  Artifact artifact = *kernel->artifact;
  if (kernel->request_key != chosen.request_key || artifact.ptx.empty()) {
    // It spilled and the engine went on, or memory holds the cubin alone; the store has the whole.
    std::optional<Found> found =
        engine.store().find(chosen.request_key, chosen.source.target, {.ptx = true}, 0);
    if (!found) return make_error(Code::kCacheIo, "", "the compiled kernel was not kept");
    artifact = std::move(found->artifact);
  }
  ServedKernel served;
  served.entry = encode_entry(chosen.request_key, chosen.source, artifact);
  if (service.signing_key) {
    const Entry entry = {chosen.request_key, std::move(artifact), true, {}};
    served.signature = service.signing_key->sign(facts_of(entry));
    served.signature.pop_back();  // a header is one line
  }
  return served;
}

}  // namespace attnloom::cli
