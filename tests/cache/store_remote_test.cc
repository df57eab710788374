// SPDX-License-Identifier: Apache-2.0
// The remote layer of the store: what lies where on the server, what is asked how often, and what
// is refused.
#include <catch2/catch.hpp>

#include "base/sha256.h"
#include "cache/entry.h"
#include "cache/http/action_result.h"
#include "cache/layout.h"
#include "cache_for_tests.h"
#include "raw_server.h"

namespace attnloom {
namespace {

using namespace http;

struct Node {
  TempFolder folder;
  std::unique_ptr<FileSystem> files = make_real_file_system();
  std::vector<std::string> warnings;
  std::unique_ptr<Store> store;

  explicit Node(RemoteOptions remote) {
    StoreOptions options;
    options.root = folder.root();
    options.remote = std::move(remote);
    options.warn = [this](const std::string& line) { warnings.push_back(line); };
    store = std::make_unique<Store>(*files, std::move(options));
  }
  std::optional<Found> find(const Source& source, Need need = {}, int driver = 0) {
    return store->find(request_key(source), source.target, need, driver);
  }
  void publish(const Source& source, const Fingerprint& compiler = kCuda130) {
    CHECK(store->publish(request_key(source), source, fake_artifact(source, compiler)).ok());
  }
};

struct Cache {
  BlobFiles files;
  RawServer server{[this](const Asked& asked) { return files.reply(asked); }};

  RemoteOptions options(bool write = false) const {
    RemoteOptions options;
    options.client.server = parse_base_url(server.url()).value();
    options.write = write;
    options.unsigned_entries = true;
    return options;
  }
  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    for (const Asked& one : server.asked()) lines.push_back(one.method + " " + one.target);
    return lines;
  }
};

std::string action_path(const Source& source, const Fingerprint& compiler = kCuda130) {
  return "/ac/" + kernel_key(request_key(source), compiler);
}

std::string entry_bytes(const Source& source, const Fingerprint& compiler = kCuda130) {
  return encode_entry(request_key(source), source, fake_artifact(source, compiler));
}

std::string blob_path(const std::string& bytes) {
  return "/cas/" + to_hex(sha256(bytes));
}

std::string entry_file(const Source& source) {
  return layout::entry_name(request_key(source), kCuda130.hex);
}

std::string list_path() {
  return "/ac/" + to_hex(sha256("attnloom.remote.toolchains.1"));
}

// An action result that names `bytes` as the entry of `source`.
std::string naming(const Source& source, const std::string& bytes) {
  return print_action_result({{entry_file(source), to_hex(sha256(bytes)), bytes.size()}});
}

const std::string kList = "attnloom-toolchains 1\n2222222222222222 13.0 13000\n";

// A server that holds the entry of `source` as another node has put it there.
void fill(BlobFiles& files, const Source& source) {
  files.set(blob_path(kList), kList);
  files.set(list_path(),
            print_action_result({{"TOOLCHAINS", to_hex(sha256(kList)), kList.size()}}));
  files.set(blob_path(entry_bytes(source)), entry_bytes(source));
  files.set(action_path(source), naming(source, entry_bytes(source)));
}

}  // namespace

TEST_CASE("publishing: HEAD before PUT, blobs before the mapping, the toolchain once") {
  Cache cache;
  Node node(cache.options(true));
  const Source source = fake_source();
  node.publish(source);
  CHECK(cache.lines() == std::vector<std::string>{
                             "GET " + action_path(source),
                             "HEAD " + blob_path(entry_bytes(source)),
                             "PUT " + blob_path(entry_bytes(source)),
                             "PUT " + action_path(source),
                             "GET " + list_path(),
                             "HEAD " + blob_path(kList),
                             "PUT " + blob_path(kList),
                             "PUT " + list_path(),
                         });
  Cache wanted;
  fill(wanted.files, source);
  CHECK(cache.files.all() == wanted.files.all());
  CHECK(cache.server.asked()[3].has("Content-Type: application/json\r\n"));
  CHECK(node.store->counters().remote_published == 1);
  CHECK(node.warnings.empty());
  // Another node compiles the same.
  Node other(cache.options(true));
  other.publish(source);
  CHECK(cache.server.count("PUT") == 4);
  CHECK(other.store->counters().remote_published == 0);
  // Another toolchain, newer, goes first.
  other.publish(source, kCuda135);
  CHECK(cache.server.count("PUT") == 8);
  CHECK(cache.files.all().count(blob_path("attnloom-toolchains 1\n3333333333333333 13.5 13000\n"
                                          "2222222222222222 13.0 13000\n")) == 1);
}

TEST_CASE("a node that does not write only reads") {
  Cache cache;
  Node node(cache.options());
  node.publish(fake_source());
  CHECK(cache.server.asked().empty());
  CHECK(node.find(fake_source())->layer == Layer::kDisk);
  CHECK(cache.server.asked().empty());
}

TEST_CASE("a hit fills the own root and is not asked for again") {
  Cache cache;
  const Source source = fake_source();
  fill(cache.files, source);
  Node node(cache.options());
  CHECK_FALSE(node.store->find(request_key(source), source.target, {}, 0, Asking::kPoll));
  CHECK(cache.server.asked().empty());
  const auto found = node.find(source);
  REQUIRE(found);
  CHECK(found->layer == Layer::kRemote);
  CHECK(found->artifact == fake_artifact(source));
  CHECK(found->kernel_key == kernel_key(request_key(source), kCuda130));
  CHECK(cache.lines() == std::vector<std::string>{
                             "GET " + list_path(),
                             "GET " + blob_path(kList),
                             "GET " + action_path(source),
                             "GET " + blob_path(entry_bytes(source)),
                         });
  CHECK(cache.server.asked()[2].has("Accept: application/json\r\n"));
  CHECK(node.find(source, {.ptx = true})->layer == Layer::kDisk);
  CHECK(cache.server.asked().size() == 4);
  CHECK(*node.files->read(path_of_entry(node.folder.root(), source)) == entry_bytes(source));
  // A kernel that is not there costs one request while the list is fresh.
  CHECK_FALSE(node.find(fake_source("other")));
  CHECK(cache.server.asked().size() == 5);
  CHECK(node.warnings.empty());
}

TEST_CASE("without a root the remote still serves") {
  Cache cache;
  const Source source = fake_source();
  fill(cache.files, source);
  const auto files = make_real_file_system();
  Store store(*files, {.remote = cache.options()});
  CHECK(store.find(request_key(source), source.target, {}, 0)->layer == Layer::kRemote);
}

TEST_CASE("kernels of a compiler that the driver cannot load are not asked for") {
  Cache cache;
  const Source source = fake_source();
  fill(cache.files, source);
  Node node(cache.options());
  CHECK_FALSE(node.find(source, {}, 12090));
  CHECK(cache.server.count("GET", "/ac") == 1);
  CHECK(node.find(source, {}, 13000));
}

TEST_CASE("what is not the entry asked for is passed over with one warning, and nothing is kept") {
  const Source source = fake_source();
  const std::string good = entry_bytes(source);
  const std::string other = entry_bytes(fake_source("other"));
  std::string flipped = good;
  flipped[100] ^= 1;
  const std::string cut = good.substr(0, good.size() - 1);
  const auto size_of = [&](std::uint64_t bytes) {
    return print_action_result({{entry_file(source), to_hex(sha256(good)), bytes}});
  };
  struct Row {
    const char* name;
    std::string action;
    std::string blob_at;  // what lies under the hash of `good`
    std::string also;     // a further blob, under its own hash
  };
  const Row rows[] = {
      {"wrong bytes of the right length", naming(source, good), flipped, ""},
      {"a truncated blob", naming(source, good), cut, ""},
      {"an extended blob", naming(source, good), good + "x", ""},
      {"an empty blob", naming(source, good), "", ""},
      {"a length that is too short", size_of(good.size() - 1), good, ""},
      {"a length that is too long", size_of(good.size() + 1), good, ""},
      {"a length of nothing", size_of(0), good, ""},
      {"a length beyond reason", size_of(std::uint64_t{1} << 40), good, ""},
      {"another key's entry under its right hash", naming(source, other), "", other},
      {"a damaged entry under its right hash", naming(source, flipped), "", flipped},
      {"no entry under its right hash", naming(source, "<html>"), "", "<html>"},
      {"no JSON", "<html>login</html>", good, ""},
      {"an entry of another name",
       print_action_result({{"x.alk", to_hex(sha256(good)), good.size()}}), good, ""},
  };
  for (const Row& row : rows) {
    INFO(row.name);
    Cache cache;
    fill(cache.files, source);
    cache.files.set(action_path(source), row.action);
    cache.files.set(blob_path(good), row.blob_at);
    if (!row.also.empty()) cache.files.set(blob_path(row.also), row.also);
    Node node(cache.options());
    CHECK_FALSE(node.find(source));
    CHECK_FALSE(node.find(source));
    const StoreCounters counters = node.store->counters();
    // A transfer that breaks off counts as a failure of the server.
    CHECK(counters.remote_refused + counters.remote_failures == 2);
    CHECK(node.warnings.size() == 1);
    CHECK_FALSE(node.files->info(path_of_entry(node.folder.root(), source)).exists);
    // The one who compiles it then mends the server.
    Node writer(cache.options(true));
    CHECK_FALSE(writer.find(source));
    writer.publish(source);
    CHECK(node.find(source)->artifact == fake_artifact(source));
  }
}

TEST_CASE("a mapping whose blob is gone is mended by the next who compiles") {
  Cache cache;
  const Source source = fake_source();
  fill(cache.files, source);
  cache.files.remove(blob_path(entry_bytes(source)));
  Node node(cache.options(true));
  CHECK_FALSE(node.find(source));
  CHECK(node.store->counters().remote_refused == 1);
  node.publish(source);
  Node other(cache.options());
  CHECK(other.find(source));
}

TEST_CASE("signatures: who signs, who is believed, several signers") {
  Cache cache;
  const Source source = fake_source();
  const SigningKey ours = SigningKey::generate();
  const SigningKey theirs = SigningKey::generate();
  const auto trusting = [&](const SigningKey& key, bool unsigned_entries = false) {
    RemoteOptions options = cache.options();
    options.unsigned_entries = unsigned_entries;
    options.keys =
        std::make_shared<const TrustedKeys>(TrustedKeys::parse(key.public_pem(), "test").value());
    return options;
  };
  const auto signing = [&](const SigningKey& key) {
    RemoteOptions options = cache.options(true);
    options.signing_key = key;
    return options;
  };
  Node(cache.options(true)).publish(source);
  {
    Node node(trusting(ours, true));
    CHECK_FALSE(node.find(source));
    CHECK(node.store->counters().remote_refused == 1);
    REQUIRE(node.warnings.size() == 1);
    CHECK(node.warnings[0].rfind("UNTRUSTED: ", 0) == 0);
    CHECK_FALSE(node.files->info(path_of_entry(node.folder.root(), source)).exists);
  }
  Node(signing(theirs)).publish(source);
  CHECK_FALSE(Node(trusting(ours)).find(source));
  CHECK(Node(trusting(theirs)).find(source)->artifact == fake_artifact(source));
  Node(signing(ours)).publish(source);
  CHECK(Node(trusting(ours)).find(source));
  CHECK(Node(trusting(theirs)).find(source));
  // A signature of other bytes does not vouch for these.
  Artifact changed = fake_artifact(source);
  changed.cubin[200] ^= 1;
  const std::string bytes = encode_entry(request_key(source), source, changed);
  const auto files = parse_action_result(cache.files.all()[action_path(source)]).value();
  cache.files.set(blob_path(bytes), bytes);
  cache.files.set(action_path(source),
                  print_action_result({{entry_file(source), to_hex(sha256(bytes)), bytes.size()},
                                       *find_file(files, entry_file(source) + ".sig")}));
  CHECK_FALSE(Node(trusting(ours)).find(source));
  // Neither keys nor the user's word.
  RemoteOptions nobody = cache.options();
  nobody.unsigned_entries = false;
  CHECK_FALSE(Node(nobody).find(source));
}

TEST_CASE("a server in trouble costs three requests and one warning a kind of trouble") {
  RawServer server([](const Asked&) { return answer(500, ""); });
  RemoteOptions remote;
  remote.client.server = parse_base_url(server.url()).value();
  remote.client.token = "s3cret-token";
  remote.unsigned_entries = true;
  remote.write = true;
  Node node(remote);
  for (int i = 0; i < 10; ++i) CHECK_FALSE(node.find(fake_source("kernel " + std::to_string(i))));
  node.publish(fake_source());  // into the own root all the same
  CHECK(node.find(fake_source())->layer == Layer::kDisk);
  CHECK(server.asked().size() == 3);
  CHECK(node.store->counters().remote_failures == 11);
  CHECK(node.warnings ==
        std::vector<std::string>{"REMOTE: the remote cache is passed over: " + server.url() +
                                     ": it answers with status 500",
                                 "REMOTE: the remote cache is passed over: " + server.url() +
                                     ": paused for 60 s after 3 failures"});
}

TEST_CASE("a token that is not accepted is a warning, and never shown") {
  RawServer server([](const Asked&) { return answer(401, "who?"); });
  RemoteOptions remote;
  remote.client.server = parse_base_url(server.url()).value();
  remote.client.token = "s3cret-token";
  remote.unsigned_entries = true;
  Node node(remote);
  CHECK_FALSE(node.find(fake_source()));
  REQUIRE(node.warnings.size() == 1);
  CHECK(node.warnings[0].find("status 401 (the token is missing or not accepted)") !=
        std::string::npos);
  CHECK(node.warnings[0].find("s3cret") == std::string::npos);
  CHECK(server.asked()[0].has("Authorization: Bearer s3cret-token"));
}

}  // namespace attnloom
