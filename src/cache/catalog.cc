// SPDX-License-Identifier: Apache-2.0
#include "cache/catalog.h"

#include <utility>

#include "cache/entry.h"

namespace attnloom {

Result<CatalogEntry> catalog_entry(std::string_view bytes) {
  ATTNLOOM_TRY(Entry entry, decode_entry(bytes, Unpack::kCubinOnly));
  CatalogEntry facts;
  facts.request_key = std::move(entry.request_key);
  facts.compiler = std::move(entry.artifact.fingerprint);
  facts.target = std::move(entry.artifact.target);
  facts.has_ptx = entry.has_ptx;
  for (EntryFigures& figures : entry.artifact.entries)
    facts.names.push_back(std::move(figures.name));
  facts.fields = std::move(entry.fields);
  return facts;
}

}  // namespace attnloom
