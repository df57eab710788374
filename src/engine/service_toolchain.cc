// SPDX-License-Identifier: Apache-2.0
#include "engine/service_toolchain.h"

#include <utility>

#include "base/json.h"
#include "cache/entry.h"
#include "cache/http/error_answer.h"
#include "cache/key.h"
#include "cache/own_root.h"
#include "cache/remote.h"
#include "spec/parse.h"

namespace attnloom {
namespace {

constexpr std::uint64_t kMostAnswerBytes = 64 << 20;
constexpr std::size_t kMostWarnings = 1024;
constexpr int kOk = 200;

// What would fail in the same way here.
bool is_about_the_spec(Code code) {
  return code == Code::kCompileFailed || code == Code::kResourceLimit ||
         code == Code::kSpecInvalid || code == Code::kSpecUnsupported;
}

// "variant.logits_transform" of the spec that was sent as $.spec.
Status without_root(Status error) {
  if (error.path.starts_with("$.spec.")) error.path = "$." + error.path.substr(7);
  return error;
}

}  // namespace

ServiceToolchain::ServiceToolchain(ServiceOptions options, std::unique_ptr<Toolchain> own)
    : options_(std::move(options)), own_(std::move(own)), client_(options_.client) {}

void ServiceToolchain::remember(const std::string& request_key, const Spec& spec) {
  std::string text = canonical_json(spec_to_json(spec));
  const std::scoped_lock lock(mutex_);
  specs_[request_key] = std::move(text);
}

Result<Artifact> ServiceToolchain::read_answer(const Source& source, const std::string& request_key,
                                               const http::Response& response) const {
  if (response.status != kOk) return without_root(http::read_error_answer(response.body));
  // With its PTX, which is kept and must be vouched for as well.
  Result<Entry> entry = decode_entry(response.body, Unpack::kAll);
  const std::string fingerprint = entry.ok() ? entry->artifact.fingerprint.hex : "";
  if (const std::string reason = refuse_entry(entry, request_key, fingerprint); !reason.empty())
    return make_error(Code::kCacheCorrupt, "", reason);
  if (entry->artifact.target != source.target)
    return make_error(Code::kCacheCorrupt, "", "it is for " + entry->artifact.target);
  const std::string signatures =
      response.signature.empty() ? "" : add_signature("", response.signature + "\n");
  ATTNLOOM_CHECK(
      vouch_for(entry.value(), signatures, options_.keys.get(), options_.unsigned_entries));
  return std::move(entry->artifact);
}

void ServiceToolchain::warn(const std::string& text) {
  {
    const std::scoped_lock lock(mutex_);
    if (warned_.size() >= kMostWarnings || !warned_.insert(text).second) return;
  }
  if (warn_) warn_(text);
}

Result<Artifact> ServiceToolchain::ask(const Source& source, const std::string& spec_json) {
  const std::string key = request_key(source);
  const std::string body = R"({"request_key":")" + key + R"(","spec":)" + spec_json + "}";
  ATTNLOOM_TRY(const http::Response response, client_.send({.method = http::Method::kPost,
                                                            .path = "/v1/kernels",
                                                            .content_type = "application/json",
                                                            .body = body,
                                                            .most_bytes = kMostAnswerBytes}));
  return read_answer(source, key, response);
}

Result<Artifact> ServiceToolchain::compile(const Source& source) {
  std::string spec_json;
  {
    const std::scoped_lock lock(mutex_);
    const auto found = specs_.find(request_key(source));
    if (found != specs_.end()) spec_json = found->second;
  }
  if (spec_json.empty()) return own_->compile(source);
  Result<Artifact> answer = ask(source, spec_json);
  if (answer.ok() || is_about_the_spec(answer.status().code)) return answer;
  const std::string trouble = std::string(code_name(answer.status().code)) +
                              ": the compile service " + client_.server().text() +
                              " is passed over: " + answer.status().cause;
  warn(trouble);
  Result<Artifact> own = own_->compile(source);
  if (own.ok() || own.status().code != Code::kCompilerMissing) return own;
  Status error = own.status();
  error.cause = trouble + "; and here: " + error.cause;
  return error;
}

}  // namespace attnloom
