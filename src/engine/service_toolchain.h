// SPDX-License-Identifier: Apache-2.0
// ServiceToolchain: `attnloom serve` as the compiler of a node that need not have one. What it
// answers is verified like an entry of an HTTP cache; where it cannot help, the node's own compiler
// is asked.
//
// Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "cache/http/client.h"
#include "cache/trust.h"
#include "compile/toolchain.h"
#include "spec/spec.h"

namespace attnloom {

struct ServiceOptions {
  http::ClientOptions client;
  std::shared_ptr<const TrustedKeys> keys;  // null: `unsigned_entries` was said
  bool unsigned_entries = false;
};

class ServiceToolchain : public Toolchain {
 public:
  ServiceToolchain(ServiceOptions options, std::unique_ptr<Toolchain> own);

  // Before the first compile. `warn` takes one line, each text once.
  void set_warn(std::function<void(const std::string&)> warn) { warn_ = std::move(warn); }

  // A service is sent specs, never programs, so it must be told which spec a program comes from.
  void remember(const std::string& request_key, const Spec& spec);

  // Of the node's own compiler: which one the service has is known when it answers.
  Result<Fingerprint> fingerprint() override { return own_->fingerprint(); }
  // Errors of the compile itself are the service's; otherwise as the node's own compiler, and where
  // that is missing the cause says what was wrong with the service.
  Result<Artifact> compile(const Source& source) override;

 private:
  void warn(const std::string& text);
  Result<Artifact> ask(const Source& source, const std::string& spec_json);
  Result<Artifact> read_answer(const Source& source, const std::string& request_key,
                               const http::Response& response) const;

  const ServiceOptions options_;
  const std::unique_ptr<Toolchain> own_;
  http::HttpClient client_;
  std::function<void(const std::string&)> warn_;
  std::mutex mutex_;  // of what follows
  std::set<std::string> warned_;
  std::map<std::string, std::string> specs_;  // by request_key; one for each kernel of the process
};

}  // namespace attnloom
