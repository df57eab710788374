// SPDX-License-Identifier: Apache-2.0
#include "render/render.h"

#include <kainjow/mustache.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "base/sha256.h"
#include "render/context.h"
#include "render/embedded.h"
#include "render/headers.h"

namespace attnloom {
namespace {

namespace mustache = kainjow::mustache;

struct Entry {
  std::string_view file;
  std::string_view kernel;  // its extern "C" name
  TemplateContext (*context)(const Spec&, const KernelChoice&);
};
constexpr Entry kAttentionEntry = {"attention.mustache", "attention", attention_context};
constexpr Entry kFunctorsEntry = {"attention.mustache", "functors", functors_context};
constexpr Entry kMergeEntry = {"merge.mustache", "merge", merge_context};
constexpr Entry kAppendEntry = {"append.mustache", "append", append_context};
constexpr Entry kAppendRopeEntry = {"append.mustache", "append_rope", append_context};
constexpr Entry kPageCopyEntry = {"page_copy.mustache", "page_copy", page_copy_context};

const Entry& entry_of(KernelKind kernel) {
  switch (kernel) {
    case KernelKind::kMerge:
      return kMergeEntry;
    case KernelKind::kAppend:
      return kAppendEntry;
    case KernelKind::kAppendRope:
      return kAppendRopeEntry;
    case KernelKind::kPageCopy:
      return kPageCopyEntry;
    case KernelKind::kAttention:
      break;
  }
  return kAttentionEntry;
}

mustache::data to_data(const TemplateContext& context) {
  mustache::data data{mustache::data::type::object};
  for (const auto& [key, value] : context.values) data.set(key, value);
  for (const auto& [key, levels] : context.lists) {
    mustache::data list{mustache::data::type::list};
    for (const TemplateContext& level : levels) list << to_data(level);
    data.set(key, std::move(list));
  }
  return data;
}

// No path among them: the same spec has to give the same key on every machine. -lineinfo is left
// out: it makes a cubin four times as large and dependent on the name of the program.
std::vector<std::string> compile_options(const Target& target) {
  return {
      "--gpu-architecture=" + target.name(),
      "--no-cache",                  // NVRTC's own cache would hide behind ours
      "--no-source-include",         // no header out of the working directory
      "--modify-stack-limit=false",  // NVRTC would change it for the whole process
      "-std=c++17",
      // Subnormals and the last bit of a quotient are worth no branch in a functor; the math
      // functions stay exact, unlike under --use_fast_math (sinf of a position needs them).
      "--ftz=true",
      "--prec-div=false",
      "--prec-sqrt=false",
      "--ptxas-options=-v",  // spills are in the log and nowhere else
      // From 6 on ptxas keeps fewer registers for latency: without it (5) kernels of 255 registers
      // spill 4 to 36 bytes and step down to shorter KV tiles (docs/decisions/018).
      "--ptxas-options=--register-usage-level=10",
  };
}

// The template with its kernel's file in place, so that its #include can be followed.
std::string with_kernel_file(std::string_view text, const TemplateContext& context) {
  std::string with(text);
  for (const auto& [key, value] : context.values) {
    const std::string tag = "{{{" + key + "}}}";
    const std::size_t at = with.find(tag);
    if (key == "kernel_file" && at != std::string::npos) with.replace(at, tag.size(), value);
  }
  return with;
}

// What all renders of one template have alike. Parsing it and following its includes took two
// thirds of each render, of which a set that is described makes one a kernel.
struct Template {
  explicit Template(const std::string& with_file) : text(with_file) {}

  mustache::mustache text;
  std::vector<Header> headers;
  std::mutex mutex;  // render() of a mustache is not const
};

// By their text; a handful, kept for the process, whose threads may render while it ends.
// Thread-safe.
Result<Template*> template_of(std::string_view file, const std::string& with_file) {
  static std::mutex* const mutex = new std::mutex;
  static auto* const kept = new std::map<std::string, std::unique_ptr<Template>>;
  const std::lock_guard lock(*mutex);
  if (const auto found = kept->find(with_file); found != kept->end()) return found->second.get();
  auto made = std::make_unique<Template>(with_file);
  if (!made->text.is_valid())
    return make_error(Code::kTemplate, std::string(file), made->text.error_message());
  // From the template and not from the rendered text: a functor's comment may look like an
  // #include.
  ATTNLOOM_TRY(made->headers, reachable_headers(with_file, embedded_files()));
  return kept->emplace(with_file, std::move(made)).first->second.get();
}

Result<Source> render_entry(const Entry& entry, const Spec& spec, const KernelChoice& choice) {
  if (!spec.target)
    return make_error(Code::kInternal, "$.target", "a spec without a target was to be rendered");
  const EmbeddedFile* file = find_embedded(entry.file, embedded_files());
  if (file == nullptr) {
    return make_error(Code::kTemplate, std::string(entry.file),
                      "the template is not in this library", "add the file to kernel_templates/");
  }
  const TemplateContext context = entry.context(spec, choice);
  ATTNLOOM_TRY(Template* const shared,
               template_of(entry.file, with_kernel_file(file->text, context)));
  Source source;
  {
    const mustache::data data = to_data(context);
    const std::lock_guard lock(shared->mutex);
    source.text = shared->text.render(data);
  }
  source.headers = shared->headers;
  source.options = compile_options(*spec.target);
  source.target = spec.target->name();
  source.entries = {std::string(entry.kernel)};
  return source;
}

}  // namespace

Result<Source> render(const Spec& spec, const KernelChoice& choice) {
  return render_entry(entry_of(spec.kernel), spec, choice);
}

Result<Source> render_functors(const Spec& spec, const KernelChoice& choice) {
  return render_entry(kFunctorsEntry, spec, choice);
}

std::string template_set_digest() {
  FieldHasher hasher("attnloom.templates.1");
  for (const EmbeddedFile& file : embedded_files()) hasher.field(file.name, file.text);
  return to_hex(hasher.finish());
}

}  // namespace attnloom
