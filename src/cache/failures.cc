// SPDX-License-Identifier: Apache-2.0
#include "cache/failures.h"

#include <cstdlib>

#include "base/json.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "cache/layout.h"
#include "cache/own_files.h"
#include "cache/root_check.h"

namespace attnloom {
namespace {

constexpr int kVersion = 1;
constexpr std::size_t kDigestDigits = 64;
constexpr std::uint64_t kMostBytes = 64 << 10;  // a compiler's first error is a line
constexpr std::int64_t kSweepEveryNs = std::int64_t{600} * 1'000'000'000;

std::string digest_of(const std::string& request_key, const std::string& fingerprint,
                      std::string_view json) {
  FieldHasher hasher("attnloom.failure.1");
  hasher.field("request_key", request_key).field("fingerprint", fingerprint).field("json", json);
  return to_hex(hasher.finish());
}

// A clock that stands an hour off in either direction must not keep a failure for ever.
bool expired(std::int64_t mtime_ns, std::int64_t now_ns) {
  return std::llabs(now_ns - mtime_ns) > kFailureLifeNs;
}

std::optional<Status> parse(const std::string& text) {
  const Result<JsonDocument> document = parse_json(text, Code::kCacheCorrupt);
  if (!document.ok() || !document->value.is_object()) return std::nullopt;
  const Json& json = document->value;
  if (json.value("attnloom_failure", Json()) != kVersion) return std::nullopt;
  const auto text_of = [&](const char* name) {
    const Json value = json.value(name, Json());
    return value.is_string() ? value.get<std::string>() : std::string();
  };
  for (const Code code : {Code::kCompileFailed, Code::kResourceLimit}) {
    if (text_of("code") == code_name(code))
      return make_error(code, text_of("path"), text_of("cause"), text_of("remedy"));
  }
  return std::nullopt;
}

}  // namespace

bool is_lasting_failure(const Status& status) {
  return status.code == Code::kCompileFailed || status.code == Code::kResourceLimit;
}

std::string Failures::path(const std::string& request_key, const std::string& fingerprint) const {
  return layout::failures(base_) + "/" + request_key.substr(0, 2) + "/" + request_key + "." +
         fingerprint;
}

std::optional<Status> Failures::find(const std::string& request_key, const std::string& fingerprint,
                                     std::int64_t now_ns) const {
  const std::string file = path(request_key, fingerprint);
  const FileInfo info = files_.info(file);
  if (!info.is_regular || info.bytes > kMostBytes || expired(info.mtime_ns, now_ns) ||
      !refuse_file(info).empty())
    return std::nullopt;
  const Result<std::string> text = files_.read(file);
  if (!text.ok() || text->size() < kDigestDigits + 2 || text->back() != '\n') return std::nullopt;
  const std::size_t end = text->size() - kDigestDigits - 2;
  const std::string json = text->substr(0, end);
  if ((*text)[end] != '\n' ||
      text->substr(end + 1, kDigestDigits) != digest_of(request_key, fingerprint, json))
    return std::nullopt;
  return parse(json);
}

Status Failures::keep(const std::string& request_key, const std::string& fingerprint,
                      const Status& status, std::int64_t now_ns) {
  for (const std::string* text : {&status.path, &status.cause, &status.remedy}) {
    if (find_invalid_utf8(*text) != std::string::npos)
      return make_error(Code::kCacheIo, "", "the failure's text is no UTF-8: it is not stored");
  }
  sweep(now_ns);
  const std::string json = canonical_json({{"attnloom_failure", kVersion},
                                           {"code", code_name(status.code)},
                                           {"path", status.path},
                                           {"cause", status.cause},
                                           {"remedy", status.remedy}});
  const std::string file = path(request_key, fingerprint);
  ATTNLOOM_CHECK(files_.make_directories(file.substr(0, file.find_last_of('/'))));
  ATTNLOOM_CHECK(files_.publish(layout::temps(base_), file,
                                json + "\n" + digest_of(request_key, fingerprint, json) + "\n",
                                Publish::kReplace));
  return files_.touch(file, now_ns);
}

int Failures::sweep(std::int64_t now_ns, bool all) {
  if (!all) {
    const std::int64_t last = swept_ns_;
    if (last != 0 && std::llabs(now_ns - last) < kSweepEveryNs) return 0;
  }
  swept_ns_ = now_ns;
  int removed = 0;
  for (const OwnFile& file : list_failures(files_, base_)) {
    if (!all && !expired(file.mtime_ns, now_ns)) continue;
    if (files_.remove(file.path).ok()) ++removed;
  }
  return removed;
}

}  // namespace attnloom
