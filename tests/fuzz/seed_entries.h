// SPDX-License-Identifier: Apache-2.0
// Small entries and a bundle of them: what fuzzing begins with.
#pragma once

#include "cache/bundle_writer.h"
#include "cache/entry.h"
#include "cache/key.h"
#include "cache/trust.h"

namespace attnloom::fuzz {

inline std::string seed_entry(const std::string& text, bool ptx) {
  const Source source = {.text = text,
                         .headers = {{"loom/a.cuh", "int a;"}},
                         .options = {"-std=c++17"},
                         .target = "sm_90a",
                         .entries = {"one"}};
  Artifact artifact;
  artifact.cubin = "\177ELF " + text;
  artifact.ptx = ptx ? ".version 8.0 // " + text : "";
  artifact.target = source.target;
  artifact.entries = {{"one", 40, 1024, 16, 4, 8, 128}};
  artifact.fingerprint = {"2222222222222222", 13, 0, 13000};
  return encode_entry(request_key(source), source, artifact);
}

inline std::string seed_bundle() {
  return write_bundle("1", std::string(64, '7'),
                      {{seed_entry("a", true), "attnloom-signature 1\n", {{"variant", "soft_cap"}}},
                       {seed_entry("b", false), "", Json()}})
      .value();
}

}  // namespace attnloom::fuzz
