// SPDX-License-Identifier: Apache-2.0
// RemoteCache: entries behind the Bazel HTTP cache protocol; docs/CACHE.md draws what lies where.
// What comes back is verified like any entry and vouched for by a signature, unless the user said
// that the server is trusted. Never fatal: trouble is a miss and a warning.
//
// Thread-safe. Calls block, each request for at most its time-outs; a server that fails is paused.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cache/entry.h"
#include "cache/http/action_result.h"
#include "cache/http/client.h"
#include "cache/trust.h"
#include "compile/artifact.h"

namespace attnloom {

struct RemoteOptions {
  http::ClientOptions client;
  bool write = false;
  bool unsigned_entries = false;            // the user trusts server and way; else `keys` judge
  std::shared_ptr<const TrustedKeys> keys;  // where there are some they judge in any case
  std::optional<SigningKey> signing_key;    // signs what is written
};

class RemoteCache {
 public:
  using Warn = std::function<void(const std::string&)>;  // one line; never empty

  RemoteCache(RemoteOptions options, Warn warn);

  std::string text() const;  // the server, for messages
  // As the server lists them, newest first, at most 16; a list is kept for a minute.
  std::vector<Fingerprint> toolchains();

  struct Found {
    Entry entry;  // with its PTX
    std::string bytes;
  };
  std::optional<Found> read(const std::string& request_key, const std::string& fingerprint);

  // Puts an entry, its signature and its toolchain there, as far as they are absent. REMOTE, after
  // a warning, when that failed. REQUIRES: options.write.
  Status publish(const Entry& entry, const std::string& bytes);
  bool writes() const { return options_.write; }

  std::uint64_t published() const { return published_; }
  std::uint64_t refused() const { return refused_; }    // entries that were damaged or not trusted
  std::uint64_t failures() const { return failures_; }  // requests without a usable answer

 private:
  using Files = std::vector<http::OutputFile>;
  Result<std::optional<Files>> action(const std::string& key);
  Result<std::string> blob(const http::OutputFile& file, std::uint64_t most_bytes);
  Result<Found> fetch(const Files& files, const std::string& name);
  Status vouch(const Entry& entry, const Files& files, const std::string& name);
  Result<bool> holds(const http::OutputFile& file);
  Result<http::OutputFile> put_blob(const std::string& path, const std::string& bytes);
  Status put_action(const std::string& key, const Files& files);
  Result<std::vector<Fingerprint>> read_list();
  Status list_toolchain(const Fingerprint& fingerprint);
  Status put_entry(const Entry& entry, const std::string& bytes);
  Result<std::string> signature_for(const Entry& entry, const std::optional<Files>& present,
                                    const http::OutputFile& file);
  void failed(const Status& error);

  const RemoteOptions options_;
  const Warn warn_;
  http::HttpClient client_;
  std::mutex mutex_;               // of what follows
  std::set<std::string> spoiled_;  // blobs that a plain file server holds with other bytes
  std::vector<Fingerprint> list_;
  std::chrono::steady_clock::time_point listed_at_{};
  std::atomic<std::uint64_t> published_{0}, refused_{0}, failures_{0};
};

// Why an entry that came over a network is not used: UNTRUSTED unless `keys` vouch for it, or
// there are none and the user said that signatures are not needed.
Status vouch_for(const Entry& entry, std::string_view signature_text, const TrustedKeys* keys,
                 bool unsigned_entries);

}  // namespace attnloom
