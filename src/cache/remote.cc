// SPDX-License-Identifier: Apache-2.0
#include "cache/remote.h"

#include <algorithm>
#include <utility>

#include "base/sha256.h"
#include "cache/key.h"
#include "cache/layout.h"
#include "cache/own_root.h"
#include "cache/toolchain_list.h"

namespace attnloom {
namespace {

using std::chrono::steady_clock;

// The largest kernel is under 1 MB with its PTX.
constexpr std::uint64_t kMostEntryBytes = 64 << 20;
constexpr std::uint64_t kMostTextBytes = 64 << 10;  // of a signature file, of the toolchain list
constexpr std::size_t kMostToolchains = 16;
constexpr std::size_t kMostSpoiled = 1024;
constexpr std::chrono::seconds kListAge{60};
constexpr std::string_view kListDomain = "attnloom.remote.toolchains.1";
constexpr const char* kListName = "TOOLCHAINS";
constexpr const char* kJson = "application/json";
constexpr const char* kBytes = "application/octet-stream";
constexpr int kOk = 200;
constexpr int kNotFound = 404;
constexpr int kGone = 410;

// Where the list lies among the action results: no kernel_key, which is a digest of other fields.
std::string list_key() {
  return to_hex(sha256(kListDomain));
}

bool absent(int status) {
  return status == kNotFound || status == kGone;
}

std::string status_text(int status) {
  const bool rights = status == 401 || status == 403;
  return "it answers with status " + std::to_string(status) +
         (rights ? " (the token is missing or not accepted)" : "");
}

}  // namespace

Status vouch_for(const Entry& entry, std::string_view signature_text, const TrustedKeys* keys,
                 bool unsigned_entries) {
  if (keys) return keys->verify(facts_of(entry), signature_text);
  if (unsigned_entries) return ok_status();
  return make_error(Code::kUntrusted, "", "no key to judge it by was named");
}

RemoteCache::RemoteCache(RemoteOptions options, Warn warn)
    : options_(std::move(options)), warn_(std::move(warn)), client_(options_.client) {}

std::string RemoteCache::text() const {
  return client_.server().text();
}

void RemoteCache::failed(const Status& error) {
  ++failures_;
  warn_(std::string(code_name(Code::kRemote)) +
        ": the remote cache is passed over: " + error.cause);
}

// nullopt where the server has none.
Result<std::optional<RemoteCache::Files>> RemoteCache::action(const std::string& key) {
  ATTNLOOM_TRY(
      const http::Response response,
      client_.send(
          {.path = "/ac/" + key, .accept = kJson, .most_bytes = http::kMostActionResultBytes}));
  if (absent(response.status)) return std::optional<Files>();
  if (response.status != kOk)
    return make_error(Code::kRemote, "", text() + ": " + status_text(response.status));
  ATTNLOOM_TRY(Files files, http::parse_action_result(response.body));
  return std::optional<Files>(std::move(files));
}

Result<std::string> RemoteCache::blob(const http::OutputFile& file, std::uint64_t most_bytes) {
  if (file.bytes == 0 || file.bytes > most_bytes) {
    return make_error(Code::kCacheCorrupt, "",
                      "it claims " + std::to_string(file.bytes) + " bytes");
  }
  ATTNLOOM_TRY(http::Response response,
               client_.send({.path = "/cas/" + file.sha256, .most_bytes = file.bytes}));
  if (absent(response.status))
    return make_error(Code::kCacheCorrupt, "", "its blob " + file.sha256 + " is gone");
  if (response.status != kOk)
    return make_error(Code::kRemote, "", text() + ": " + status_text(response.status));
  if (to_hex(sha256(response.body)) != file.sha256) {
    const std::scoped_lock lock(mutex_);
    if (spoiled_.size() < kMostSpoiled) spoiled_.insert(file.sha256);
    return make_error(Code::kCacheCorrupt, "", "its blob has other bytes than its digest says");
  }
  if (response.body.size() != file.bytes)
    return make_error(Code::kCacheCorrupt, "", "its blob has another length than it says");
  return std::move(response.body);
}

Status RemoteCache::vouch(const Entry& entry, const Files& files, const std::string& name) {
  std::string signature_text;
  if (const http::OutputFile* file = http::find_file(files, name + ".sig"); file && options_.keys) {
    ATTNLOOM_TRY(signature_text, blob(*file, kMostTextBytes));
  }
  return vouch_for(entry, signature_text, options_.keys.get(), options_.unsigned_entries);
}

Result<RemoteCache::Found> RemoteCache::fetch(const Files& files, const std::string& name) {
  const http::OutputFile* file = http::find_file(files, name);
  if (file == nullptr) return make_error(Code::kCacheCorrupt, "", "its result names no " + name);
  Found found;
  ATTNLOOM_TRY(found.bytes, blob(*file, kMostEntryBytes));
  // With its PTX: what fills the own root must be vouched for as a whole.
  ATTNLOOM_TRY(found.entry, decode_entry(found.bytes, Unpack::kAll));
  return found;
}

std::optional<RemoteCache::Found> RemoteCache::read(const std::string& request_key,
                                                    const std::string& fingerprint) {
  const std::string name = layout::entry_name(request_key, fingerprint);
  const auto files = action(kernel_key(request_key, {.hex = fingerprint}));
  if (files.ok() && !files.value()) return std::nullopt;
  Result<Found> found = files.ok() ? fetch(*files.value(), name) : files.status();
  Status error = found.status();
  if (found.ok()) {
    const std::string reason = refuse_entry(found->entry, request_key, fingerprint);
    error = reason.empty() ? vouch(found->entry, *files.value(), name)
                           : make_error(Code::kCacheCorrupt, "", reason);
  }
  if (error.ok()) return std::move(found).value();
  if (error.code == Code::kRemote) {
    failed(error);
    return std::nullopt;
  }
  ++refused_;
  warn_(std::string(code_name(error.code)) + ": the entry " + name + " of " + text() +
        " is passed over: " + error.cause);
  return std::nullopt;
}

Result<std::vector<Fingerprint>> RemoteCache::read_list() {
  ATTNLOOM_TRY(const std::optional<Files> files, action(list_key()));
  if (!files) return std::vector<Fingerprint>();
  const http::OutputFile* file = http::find_file(*files, kListName);
  if (file == nullptr)
    return make_error(Code::kCacheCorrupt, "", text() + ": its list of toolchains has no file");
  ATTNLOOM_TRY(const std::string text, blob(*file, kMostTextBytes));
  std::vector<Fingerprint> list = parse_toolchains(text);
  if (list.size() > kMostToolchains) list.resize(kMostToolchains);
  return list;
}

// An empty list is asked for again: the first entry may be on its way.
std::vector<Fingerprint> RemoteCache::toolchains() {
  const auto now = options_.client.clock ? options_.client.clock() : steady_clock::now();
  {
    const std::scoped_lock lock(mutex_);
    if (!list_.empty() && now - listed_at_ < kListAge) return list_;
  }
  Result<std::vector<Fingerprint>> list = read_list();
  if (!list.ok()) failed(list.status());
  const std::scoped_lock lock(mutex_);
  if (list.ok()) {
    list_ = std::move(list).value();
    listed_at_ = now;
  }
  return list_;
}

// A plain file server keeps what was cut off or has rotted: the length tells, or we have seen it.
Result<bool> RemoteCache::holds(const http::OutputFile& file) {
  {
    const std::scoped_lock lock(mutex_);
    if (spoiled_.erase(file.sha256) != 0) return false;
  }
  ATTNLOOM_TRY(const http::Response head,
               client_.send({.method = http::Method::kHead, .path = "/cas/" + file.sha256}));
  return head.status == kOk && head.content_length.value_or(file.bytes) == file.bytes;
}

Result<http::OutputFile> RemoteCache::put_blob(const std::string& path, const std::string& bytes) {
  http::OutputFile file = {path, to_hex(sha256(bytes)), bytes.size()};
  ATTNLOOM_TRY(const bool there, holds(file));
  if (there) return file;
  ATTNLOOM_TRY(const http::Response put, client_.send({.method = http::Method::kPut,
                                                       .path = "/cas/" + file.sha256,
                                                       .content_type = kBytes,
                                                       .body = bytes,
                                                       .most_bytes = kMostTextBytes}));
  if (put.status / 100 != 2)
    return make_error(Code::kRemote, "", text() + ": writing: " + status_text(put.status));
  return file;
}

Status RemoteCache::put_action(const std::string& key, const Files& files) {
  const std::string body = http::print_action_result(files);
  ATTNLOOM_TRY(const http::Response put, client_.send({.method = http::Method::kPut,
                                                       .path = "/ac/" + key,
                                                       .content_type = kJson,
                                                       .body = body,
                                                       .most_bytes = kMostTextBytes}));
  if (put.status / 100 == 2) return ok_status();
  return make_error(Code::kRemote, "", text() + ": writing: " + status_text(put.status));
}

// What stands there already from other signers of the same bytes, and our own line.
Result<std::string> RemoteCache::signature_for(const Entry& entry,
                                               const std::optional<Files>& present,
                                               const http::OutputFile& file) {
  std::string signatures;
  const http::OutputFile* same = present ? http::find_file(*present, file.path) : nullptr;
  const http::OutputFile* old = present ? http::find_file(*present, file.path + ".sig") : nullptr;
  if (same && *same == file && old) {
    Result<std::string> read = blob(*old, kMostTextBytes);
    if (read.ok()) signatures = std::move(read).value();
    if (!read.ok() && read.status().code == Code::kRemote) return read.status();
  }
  if (!options_.signing_key) return signatures;
  return add_signature(signatures, options_.signing_key->sign(facts_of(entry)));
}

// Blobs before the mapping: whoever reads the mapping finds them.
Status RemoteCache::put_entry(const Entry& entry, const std::string& bytes) {
  const std::string& fingerprint = entry.artifact.fingerprint.hex;
  const std::string key = kernel_key(entry.request_key, entry.artifact.fingerprint);
  Result<std::optional<Files>> present = action(key);
  // A mapping that cannot be read is replaced.
  if (!present.ok() && present.status().code == Code::kRemote) return present.status();
  const std::optional<Files> old = present.ok() ? present.value() : std::nullopt;
  Files files;
  ATTNLOOM_TRY(http::OutputFile file,
               put_blob(layout::entry_name(entry.request_key, fingerprint), bytes));
  ATTNLOOM_TRY(const std::string signatures, signature_for(entry, old, file));
  files.push_back(file);
  if (!signatures.empty()) {
    ATTNLOOM_TRY(http::OutputFile signature, put_blob(file.path + ".sig", signatures));
    files.push_back(signature);
  }
  if (old == files) return ok_status();
  ATTNLOOM_CHECK(put_action(key, files));
  ++published_;
  return ok_status();
}

// As in the own root two toolchains that are new at the same moment can overwrite each other's
// line; the next publication mends it.
Status RemoteCache::list_toolchain(const Fingerprint& fingerprint) {
  Result<std::vector<Fingerprint>> read = read_list();
  if (!read.ok() && read.status().code == Code::kRemote) return read.status();
  std::vector<Fingerprint> list = read.ok() ? read.value() : std::vector<Fingerprint>();
  if (add_toolchain(list, fingerprint)) {
    ATTNLOOM_TRY(const http::OutputFile file, put_blob(kListName, print_toolchains(list)));
    ATTNLOOM_CHECK(put_action(list_key(), {file}));
  }
  const std::scoped_lock lock(mutex_);
  list_ = std::move(list);
  listed_at_ = options_.client.clock ? options_.client.clock() : steady_clock::now();
  return ok_status();
}

Status RemoteCache::publish(const Entry& entry, const std::string& bytes) {
  Status status = put_entry(entry, bytes);
  if (status.ok()) status = list_toolchain(entry.artifact.fingerprint);
  if (!status.ok()) failed(status);
  return status;
}

}  // namespace attnloom
